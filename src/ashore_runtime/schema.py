"""What a manifest and a calibration say, as types: everything a runtime reads, and how it is written as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

SCHEMA = 1
ACTIVATIONS = ("relu", "silu")
DYNAMICS_SCALES = ("learnt", "predicted", "unit")
CAUTIONS = ("refinement", "actor", "both")
VARIANTS = ("paper", "unit")
WEIGHTS = ("eta", "full", "sqrt")
KEEPS = ("best", "last")
PERCENTILES = (10, 50, 90)
"""Of eta over the simulated worlds, where caution follows the world."""


@dataclass(frozen=True)
class Field:
    """One number of an observation or an action; a bound of None is no bound."""

    name: str
    unit: str
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Task:
    """What the policy was trained for."""

    name: str
    summary: str
    action_map: str
    """How an action becomes a command, in words, for whoever connects the actuators."""
    control_period: float
    """Seconds between two decisions."""


@dataclass(frozen=True)
class Network:
    """Shapes of the networks."""

    latent: int
    hidden: tuple[int, ...]
    """Hidden layers of actor, encoder and dynamics head."""
    critic_width: int
    critic_blocks: int
    critic_heads: int
    """0 where the critics do not travel: nothing can be refined then."""
    feature_layers: int
    cosines: int
    fractions: int
    activation: str
    """Activation of the critics: `relu` or `silu`."""
    dynamics_scale: str
    """Scale of the dynamics head's likelihood: `learnt` per target, or `unit`."""
    risk_conditioned: bool
    """Whether eta is one more input of actor and critics, after z."""

    @property
    def context(self) -> int:
        """Length of what actor and critics are conditioned on: z, and eta where they know it."""
        return self.latent + self.risk_conditioned


@dataclass(frozen=True)
class Budget:
    """One cost limit in every unit that somebody needs."""

    per_episode: float
    per_decision: float
    discounted: float
    """The unit of the cost critic, and the threshold of Algorithm 1."""
    discount: float
    decisions_per_episode: int


@dataclass(frozen=True)
class Refinement:
    """How Algorithm 1 is run."""

    steps: int = 5
    """K_ref."""
    reward_step: float = 0.01
    """alpha_r."""
    cost_step: float = 0.05
    """alpha_c."""
    proximal: float = 1.0
    """beta_n."""
    variant: str = "paper"
    """`paper`: the cost gradient as it is; `unit`: scaled to length one, so that alpha_c is a distance."""
    weight: str = "eta"
    """w(eta): `eta` as in the paper, `sqrt`, or `full` (1 whenever eta > 0)."""
    keep: str = "best"
    """`best`: judge every action that could be sent and send the best; `last`: as printed, send the last iterate."""
    threshold_scale: float = 1.0
    """The threshold is this times the discounted budget."""


@dataclass(frozen=True)
class Manifest:
    """The facts that travel with the weights."""

    task: Task
    observation: tuple[Field, ...]
    action: tuple[Field, ...]
    dynamics_features: tuple[int, ...]
    """Indices of the observation whose change reveals the physics; the encoder looks at these."""
    network: Network
    budget: Budget
    method: str = ""
    """What trained it; carried along for people."""
    closeness: tuple[int, ...] = ()
    """Indices of the observation that are 1 at contact; their near range is enlarged for the networks."""
    contrasts: tuple[tuple[int, int, float], ...] = ()
    """(first, second, scale): the networks also get scale times the difference of these two observed numbers."""
    approaches: tuple[tuple[int, int, int, float, float], ...] = ()
    """(faster, slower, gap, scale, floor): the networks also get how soon this gap closes."""
    refinement: Refinement = Refinement()
    caution: str = "refinement"
    """Where caution comes from: `refinement` (Algorithm 1), `actor` (eta is an input of the actor), or `both`."""
    training_ranges: tuple[Mapping[str, Any], ...] = ()
    """Physical parameters and the ranges they were drawn from; carried along for people."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of everything that took part, and the revision of the source."""

    def to_json(self) -> dict[str, Any]:
        """The manifest without `schema`, `files` and `checksum`, which the bundle's writer adds."""
        return _plain(asdict(self))

    @property
    def action_low(self) -> np.ndarray:
        return np.array([-1.0 if f.low is None else max(f.low, -1.0) for f in self.action], np.float32)

    @property
    def action_high(self) -> np.ndarray:
        return np.array([1.0 if f.high is None else min(f.high, 1.0) for f in self.action], np.float32)


@dataclass(frozen=True)
class ChangeCalibration:
    """When a change of the world is an alarm, and what simulated worlds without one promise of it; see `change`."""

    threshold: float
    """CUSUM alarm level, in nats of log likelihood."""
    drift: float = 0.3
    """What recent evidence must predict better by, in nats per transition, before it counts."""
    memory: int = 16
    """Transitions that recent evidence remembers."""
    clip: float = 5.0
    """Most that one transition can say, in nats."""
    false_alarms_per_million: float | None = None
    """Decisions being a million: what the threshold was chosen for; None where nobody measured."""
    runs: int = 0
    """Simulated worlds without a change behind the threshold."""
    run_length: int = 0
    """Decisions in each of them."""
    ood_level: float | None = None
    """Running mean of log surprise above which no simulated world was; None leaves the world unjudged."""


@dataclass(frozen=True)
class WorldCalibration:
    """What the identified world is predicted to cost at each risk level; see `world_levels`."""

    budget: float
    """What the predicted cost must keep, in the unit of the tables: discounted."""
    etas: tuple[float, ...]
    """Risk levels, rising, below 1."""
    intercept: tuple[tuple[float, ...], ...]
    """Predicted cost where the posterior's mean is 0, [count][eta]."""
    slope: tuple[tuple[tuple[float, ...], ...], ...]
    """How it changes with the posterior's mean, [count][eta][latent]."""
    margin: tuple[tuple[float, ...], ...]
    """What a world costs more than predicted, at most at the calibrated level; never rising, [count][eta]."""
    low: tuple[float, ...]
    """Box of the beliefs that were calibrated, [latent]."""
    high: tuple[float, ...]
    eta_percentiles: tuple[tuple[float, ...], ...]
    """10th, 50th and 90th percentile of eta over the simulated worlds, [count]; for people."""
    strangers: float | None = None
    """The least that a belief outside the box gets; the level of the careful start if left out."""
    strangers_enough: bool | None = None
    """Whether that level was measured to be enough for them; left out where nobody measured it."""

    def to_json(self) -> dict[str, Any]:
        # A table from before there was anything about strangers is written again as it was.
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Calibration:
    """The risk schedule and the numbers behind it."""

    counts: tuple[int, ...]
    """Transitions seen, 0 first, rising."""
    eta: tuple[float, ...]
    """Risk level per count, never rising; where there is a world table, that of a typical world, for people."""
    infeasible: tuple[bool, ...]
    """Per count: no eta on the grid was enough, and the strongest one is used."""
    spread: tuple[float, ...] | None = None
    """Posterior standard deviation (mean over dimensions) that each count asks for; None asks for the count alone."""
    tempering: float = 1.0
    """Factor on the evidence of one transition: correlated transitions say less than independent ones."""
    change: ChangeCalibration | None = None
    world: WorldCalibration | None = None
    """Where caution follows the identified world: read in the place of `eta` and `infeasible`."""
    assumptions: tuple[str, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    """Everything else (`epsilon`, `lipschitz`, `delta`, ...): carried along, not interpreted."""

    def to_json(self) -> dict[str, Any]:
        known = asdict(self)
        tables = known.pop("tables")
        if self.world is None:
            # A bundle from before there were world tables is written again as it was.
            del known["world"]
        else:
            known["world"] = self.world.to_json()
        return _plain({"schema": SCHEMA, **tables, **known})


def _plain(value: Any) -> Any:
    """Tuples become lists, as JSON will give them back: what is compared with a file must look like the file."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
