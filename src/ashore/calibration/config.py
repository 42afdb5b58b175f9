"""What is calibrated, how much is measured for it, and how sure the tables have to be."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ashore import names
from ashore.budget import Budget
from ashore.calibration import conformal, world_schedule
from ashore.calibration.careful_policy import Agent
from ashore.calibration.risk_schedule import RULES
from ashore.environments.base import Task

_KEEP_A_BUDGET = ("world", "budget")
"""Rules that compare a cost with the budget; the others make up for what not knowing the world costs."""


class Subject(NamedTuple):
    """What is calibrated."""

    task: Task
    agent: Agent
    weights: Any
    budget: Budget
    """The task's limit, discounted as the agent's cost critic discounts."""


@dataclass(frozen=True)
class CalibrationConfig:
    """How much is measured, and how sure the tables have to be."""

    budget: float | None = None
    """Cost per episode to keep; None: the one that the task declares, for which the policy was trained. A policy that
    takes a risk level serves smaller ones too, without being trained again."""
    level: float = 0.9
    """Level of every quantile; 0.5 is the paper's median, which promises nothing of three events together."""
    environments: int = 128
    """Simulated worlds, and as many unseen ones for the coverage."""
    beyond: float = 1.0
    """They are drawn from ranges this many times as wide as those of training: above 1, worlds that the policy was
    never trained in are calibrated for as well, and all tables are those of a wider choice of worlds. A scale falls at
    most that far below its smallest; whether sums still make sense there is for whoever asks to know."""
    episodes: int = 16
    """Episodes per world behind each cost."""
    first_episodes: int = 2
    """The same in the first pass, whose schedule only decides who collects the contexts of the second."""
    largest_count: int = 512
    """The tables are for N = 0 and the powers of two up to this; more transitions are read at the last of them."""
    reference: int = 4096
    """Transitions behind a reference latent, at least."""
    etas: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
    """Risk levels, 0 first."""
    reduction_counts: tuple[int, ...] = (0, 16, 64, 256)
    """Counts at which the cost reduction is measured; in between, the smaller of two neighbours is taken."""
    rule: str = "world"
    """What caution must reach: the budget in the identified `world`, the `budget` in all of them, or what not knowing
    the world costs by the `paper` (L_c epsilon), by `direct` measurement (|dJ_c|), or the `max` of both."""
    strangers: str = "start"
    """Under the rule `world`, the least that beliefs unlike all simulated ones call for: the careful `start`, the
    `highest` level, or the one at which all simulated strangers are `measured` to keep the budget; these are from
    ranges still wider by one width of training."""
    temper: bool = False
    """Whether the measured tempering is applied in the second pass, and so at deployment."""
    denoise: bool = False
    """Whether the noise of a few episodes is taken out of the spread between worlds (see `estimation_noise`)."""
    worlds_at_once: int = 8192
    """Worlds per compiled call: bounds the memory."""
    seed: int = 2_000_003
    """Where worlds and scenes come from; training and evaluation draw from other keys."""

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.etas, self.etas[1:], strict=False))
        if not self.etas or self.etas[0] != 0.0 or self.etas[-1] >= 1.0 or not rising:
            raise ValueError("Risk levels must start at 0, rise and stay below 1.")
        if self.budget is not None and not 0.0 < self.budget < math.inf:
            raise ValueError(f"A cost budget must be positive, not {self.budget:g}.")
        if self.budget is not None and self.rule not in _KEEP_A_BUDGET:
            raise ValueError(
                f"The rule '{self.rule}' looks at no budget: one of its own goes with {' or '.join(_KEEP_A_BUDGET)}."
            )
        names.lookup("level for strangers", self.strangers, dict.fromkeys(("start", "highest", "measured")))
        if not 1.0 <= self.beyond < math.inf:
            raise ValueError(f"Calibrated ranges must be at least as wide as those of training, not {self.beyond:g}.")
        if self.rule not in RULES:
            raise ValueError(f"The rule must be one of {', '.join(RULES)}, not '{self.rule}'.")
        if min(self.environments, self.episodes, self.first_episodes, self.largest_count, self.worlds_at_once) < 1:
            raise ValueError("Environments, episodes, counts and worlds at once must be at least one.")
        if self.rule != "world" and conformal.rank(self.environments, self.level) is None:
            raise ValueError(
                f"A level of {self.level:g} needs at least {conformal.fewest(self.level)} environments, "
                f"not {self.environments}."
            )
        if self.rule == "world" and self.environments < world_schedule.fewest(self.level):
            raise ValueError(
                f"The rule 'world' needs at least {world_schedule.fewest(self.level)} environments at a level of "
                f"{self.level:g}, not {self.environments}: half of them fit it, half of them judge it."
            )

    @property
    def counts(self) -> tuple[int, ...]:
        """The N of the tables."""
        return (0, *(1 << power for power in range(self.largest_count.bit_length())))

    @property
    def measures_strangers(self) -> bool:
        """Whether strangers are met in simulation; only the rule `world` knows any."""
        return self.rule == "world" and self.strangers == "measured"

    @property
    def measured_counts(self) -> tuple[int, ...]:
        """The N at which the cost reduction is measured: those of `reduction_counts` that the tables have, and 0."""
        return tuple(sorted({0, *self.reduction_counts} & set(self.counts)))
