"""Every choice that makes one platoon task differ from another, and the task's description that follows from it."""

import math
from dataclasses import dataclass
from typing import Literal

from ashore.budget import Budget
from ashore.environments.base import Field, TaskDescription
from ashore.environments.platoon.car_following import Driver
from ashore.environments.platoon.cycles import Traces, fixed_trace, training_traces
from ashore.environments.platoon.parameters import SHIFTS, shift_warnings
from ashore.types import Approach, Unearned


@dataclass(frozen=True)
class PlatoonConfig:
    """A platoon task. The paper leaves most of these numbers out; the defaults are ours."""

    cycles: tuple[str, ...] = ("udds", "nycc")
    """Shipped cycles by name (udds, ftp75, nycc, hwfet, us06) or paths of CSV files: episodes replay their windows."""
    fixed_window: tuple[str, int] | None = None
    """Cycle and start second that every episode replays, for reports; replaces `cycles`."""
    followers: int = 3
    """Human-driven cars behind the ego."""
    k: float = 0.6
    """Human drivers' sensitivity to the optimal speed, 1/s."""
    lam: float = 0.9
    """Human drivers' sensitivity to the speed difference, 1/s."""
    stretch: float = 1.0
    """Stretch of the human drivers' optimal speed; 2 for highway cycles."""
    starting_gap: Literal["equilibrium"] | float = "equilibrium"
    """Net gap between all cars at the start, m."""
    f_v: float = 0.1
    """Weight of closing in on the car ahead."""
    f_s: float = 1.0 / 225.0
    """Weight of speed: 1 per decision at v_max = 15 m/s."""
    f_a: float = 0.1
    """Weight of acceleration; below 0.3 smoothing does not pay for a tuned linear driver."""
    f_j: float = 0.01
    """Weight of jerk."""
    l_c: float = 10.0
    """Gap below which closing in is penalised, m."""
    v_max: float = 15.0
    """Speed above which more speed earns nothing, m/s."""
    gap_floor: float = 0.5
    """Smallest gap that the inverse time to collision divides by, m."""
    cost_cap: float = 2.0
    """Highest cost of one decision, 1/s."""
    cost_limit: float = 20.0
    """Highest mean cost of an episode: the plain sum of the costs of its decisions."""
    decisions: int = 1000
    """Decisions in an episode."""
    control_period: float = 0.05
    """Seconds between two decisions."""
    substeps: int = 5
    """Physics steps per decision."""

    def __post_init__(self) -> None:
        if not self.cycles and self.fixed_window is None:
            raise ValueError("A platoon needs at least one drive cycle to replay.")
        for name in ("followers", "decisions", "substeps"):
            if getattr(self, name) < 1:
                raise ValueError(f"A platoon needs {name} of at least 1, not {getattr(self, name)}.")
        positive = ("stretch", "v_max", "gap_floor", "cost_cap", "cost_limit", "control_period")
        for name in positive:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"A platoon's {name} must be a positive number, not {getattr(self, name)!r}.")
        for name in ("k", "lam", "f_v", "f_s", "f_a", "f_j", "l_c"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"A platoon's {name} must not be negative, as {getattr(self, name)!r} is.")
        gap = self.starting_gap
        if gap != "equilibrium" and not (isinstance(gap, (int, float)) and math.isfinite(gap) and gap > 0):
            raise ValueError(f"The starting gap must be 'equilibrium' or a positive number of metres, not {gap!r}.")

    @property
    def cars(self) -> int:
        """Cars in the platoon: the leader, the car ahead of the ego, the ego and its followers."""
        return 3 + self.followers

    @property
    def timestep(self) -> float:
        """Seconds of one physics step."""
        return self.control_period / self.substeps

    @property
    def driver(self) -> Driver:
        """The human drivers."""
        return Driver(self.k, self.lam, self.stretch)

    def traces(self) -> Traces:
        """The speed traces that episodes replay; reads the files."""
        duration = self.decisions * self.control_period
        if self.fixed_window is not None:
            return fixed_trace(*self.fixed_window, duration)
        return training_traces(self.cycles, duration)


PRESETS: dict[str, PlatoonConfig] = {
    # String-stable drivers in equilibrium: the cost limit is within reach.
    "P-train": PlatoonConfig(),
    # The canonical drivers, unstable between 2.3 and 11.2 m/s; closest to the paper's row for FVD.
    "P-match": PlatoonConfig(k=0.41, lam=0.5, starting_gap=15.0),
    # Faster traffic needs faster drivers (top speed 29.3 m/s) and a reward that still asks for speed.
    "P-highway": PlatoonConfig(cycles=("hwfet", "us06"), stretch=2.0, v_max=30.0, f_s=1.0 / 900.0),
}

SPEED_SCALE, ACCELERATION_SCALE, JERK_SCALE, GAP_SCALE = 15.0, 3.0, 5.0, 30.0
"""What an observed 1 means, in m/s, m/s^2, m/s^3 and m."""
SPEED_RANGE = (0.0, 3.0)
"""To 45 m/s, beyond every cycle."""
ACCELERATION_RANGE = (-7.0, 7.0)
"""To 21 m/s^2, beyond the grip of nominal tyres."""
JERK_RANGE = (-3.0, 3.0)
GAP_RANGE = (-0.5, 2.0)
"""From cars that overlap by 15 m to a gap of 60 m."""


def _observation() -> tuple[Field, ...]:
    def motion(car: str) -> tuple[Field, ...]:
        return (
            Field(f"{car}_speed", "15 m/s", *SPEED_RANGE),
            Field(f"{car}_acceleration", "3 m/s^2", *ACCELERATION_RANGE),
            Field(f"{car}_jerk", "5 m/s^3", *JERK_RANGE),
        )

    return (
        *motion("ego"),
        *motion("lead"),
        Field("lead_gap", "30 m", *GAP_RANGE),
        Field("follow_speed", "15 m/s", *SPEED_RANGE),
        Field("follow_gap", "30 m", *GAP_RANGE),
    )


def describe(config: PlatoonConfig) -> TaskDescription:
    """The task in numbers and words, as it travels with a policy."""
    summary = (
        f"A car among human drivers: it follows the second car of a platoon, {config.followers} cars follow it, and it "
        "should damp the leader's speed changes without coming dangerously near to either neighbour. "
    )
    return TaskDescription(
        name="Platoon",
        summary=summary + " ".join(shift_warnings()),
        observation=_observation(),
        action=(Field("pedal", "1", -1.0, 1.0),),
        action_map="u > 0 is the share of full throttle, u < 0 (negated) the share of full braking; never both.",
        dynamics_features=(0, 1, 2),
        differentiable=True,
        shifts=SHIFTS,
        control_period=config.control_period,
        action_repeat=1,
        decisions_per_episode=config.decisions,
        max_cost=config.cost_cap,
        budget=Budget(per_episode=config.cost_limit, decisions_per_episode=config.decisions),
        # How fast the ego closes in on the car ahead, and the car behind on the ego, in m/s.
        contrasts=((0, 3, SPEED_SCALE), (7, 0, SPEED_SCALE)),
        # What the cost is made of: 1 stands for ten seconds to the collision with the car ahead, or of the one behind.
        approaches=(
            Approach(0, 3, 6, 10.0 * SPEED_SCALE / GAP_SCALE, config.gap_floor / GAP_SCALE),
            Approach(7, 0, 8, 10.0 * SPEED_SCALE / GAP_SCALE, config.gap_floor / GAP_SCALE),
        ),
        # What the ego would earn at the speed of the car ahead, on which it has no influence.
        unearned=Unearned(3, config.v_max / SPEED_SCALE, config.f_s * SPEED_SCALE**2),
    )
