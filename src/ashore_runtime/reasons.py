"""Why an answer is what it is: one bit per reason, so that a log can be counted."""

from enum import IntFlag


class Reason(IntFlag):
    """Everything that can be said about one decision besides its action."""

    NONE = 0
    # What was wrong with the observation.
    NOT_AN_ARRAY = 1 << 0
    """Not numbers, or not of a kind that can be read as float32."""
    SHAPE = 1 << 1
    NOT_FINITE = 1 << 2
    CLIPPED = 1 << 3
    """Outside the declared range by at most three standard deviations: clipped and used."""
    OUT_OF_RANGE = 1 << 4
    STUCK = 1 << 5
    """Bit-identical for too long."""
    STALE = 1 << 6
    OUT_OF_ORDER = 1 << 7
    """Not newer than the observation before, or from the future."""
    # What was wrong with a transition.
    COST_FAULT = 1 << 8
    """The cost was missing, negative or not a number."""
    REWARD_FAULT = 1 << 9
    GAP = 1 << 10
    """The observation does not follow the last action directly."""
    # What the runtime did about it.
    HELD = 1 << 11
    LATCHED = 1 << 12
    """In fallback until somebody resets it."""
    NOT_ARMED = 1 << 13
    SUSPENDED = 1 << 14
    """The machine slept; armed again only on request."""
    FALLBACK_FAULT = 1 << 15
    """The fallback itself failed; the action nearest to zero was sent."""
    ERROR = 1 << 16
    """Something raised; the journal has it."""
    # What is known about the action and the world.
    OVER_THRESHOLD = 1 << 17
    """The sent action's upper-tail cost is above the threshold."""
    NOT_CALIBRATED = 1 << 18
    """The calibration found no eta that is enough at this count."""
    DEADLINE_MISSED = 1 << 19
    CHANGED = 1 << 20
    """The world is not the one the posterior described: what was learnt before the change was forgotten."""
    OUT_OF_DISTRIBUTION = 1 << 21
    """Surprise is higher than in any simulated world."""
    OVER_BUDGET = 1 << 22
    """The cost of the last episode's length is above the budget."""
    JOURNAL_LOST = 1 << 23
    DEADLINE_FAULT = 1 << 24
    """The deadline that was asked for is not a time in ns; the usual one was kept."""

    def words(self) -> str:
        """The reasons in words, such as `not finite, held`."""
        return ", ".join(one.name.lower().replace("_", " ") for one in Reason if one and one in self and one.name)


OBSERVATION_FAULTS = (
    Reason.NOT_AN_ARRAY
    | Reason.SHAPE
    | Reason.NOT_FINITE
    | Reason.OUT_OF_RANGE
    | Reason.STUCK
    | Reason.STALE
    | Reason.OUT_OF_ORDER
)
"""Observations that must not be acted on."""
