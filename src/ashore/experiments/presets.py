"""Tuned numbers, and only here: how long and how large to train, by task and kind of machine."""

from dataclasses import dataclass, replace

from ashore import names
from ashore.learning.collect import CollectConfig
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.risk import RiskConfig
from ashore.learning.through_physics import ThroughPhysics
from ashore.learning.train_config import TrainConfig
from ashore.methods.base import Method
from ashore.networks.architecture import SIZES


@dataclass(frozen=True)
class Preset:
    """One way to train on one task."""

    summary: str
    train: TrainConfig
    with_risk_level: TrainConfig | None = None
    """For methods that take a risk level, where they are trained otherwise."""


# Gains of the multiplier, per decision of all worlds, on the relative error (J - d) / d up to 1. On PointGoal2 they
# bring the cost to the budget in 200 to 300 decisions and hold it between 20 and 40 while the policy improves (budget
# 25; results/trials, d to f).
_MULTIPLIER = PIDConfig(proportional=0.5, integral=0.01, derivative=10.0, error_limit=1.0, initial=1.0)

_SMOKE = TrainConfig(
    worlds=8,
    decisions=24,
    updates_per_decision=1,
    learning_starts=4,
    chunk=8,
    sizes=replace(SIZES["small"], critic_width=16, fractions=4, hidden=(16,), critic_blocks=1, context=16),
    capacity=64,
    batch_tasks=4,
    batch_transitions=4,
    collect=CollectConfig(random_decisions=2),
    multiplier=_MULTIPLIER,
)
_LAPTOP = TrainConfig(
    worlds=64,
    decisions=8000,
    updates_per_decision=1,
    learning_starts=100,
    chunk=200,
    sizes=SIZES["small"],
    capacity=4000,
    batch_tasks=16,
    batch_transitions=16,
    multiplier=_MULTIPLIER,
)
# Twenty decisions a second: noise has to last for anything but jerk to come of it, and a reward far below that of any
# sensible driver teaches nothing. The multiplier starts near where it ends (results/trials, h). The actor learns
# through the physics, at all levels of caution: Algorithm 1 does harm here (results/platoon_frontier).
_PLATOON_LAPTOP = replace(
    _LAPTOP,
    worlds=256,
    decisions=6000,
    learning_starts=50,
    chunk=50,
    sizes=replace(SIZES["small"], critic_blocks=1, fractions=4, cosines=16),
    capacity=1000,
    batch_tasks=8,
    batch_transitions=32,
    steps=5,
    learning_rate=1e-3,
    actor_learning_rate=1e-3,
    rate_left=0.1,
    averaging=4.0,
    risk=RiskConfig(conditioned=True, pressure=1.0),
    through_physics=ThroughPhysics(steps=10),
    target_rate=0.005,
    reward_discount=0.995,
    reward_scale=1.0,
    reward_floor=-1.0,
    collect=CollectConfig(noise_low=0.03, noise_high=0.3, noise_memory=15.0, random_decisions=0, cost_memory=100),
    multiplier=replace(_MULTIPLIER, integral=0.001, initial=6.0),
    aim=0.9,
)
# An encoder that knows its car: the pedal in its usual size, a likelihood that may be vague where cars stand still, and
# contexts long enough to tell a lag, of many cars (docs/decisions, 14). Those who have no latent need none of it.
_PLATOON_KNOWN_CAR = replace(
    _PLATOON_LAPTOP,
    sizes=replace(_PLATOON_LAPTOP.sizes, action_scale=8.0, dynamics_scale="predicted"),
    encoder_learning_rate=3e-3,
    batch_tasks=32,
    batch_transitions=8,
    context_sizes="uniform",
)
# An actor that is trained to its end, in worlds that stray: more steps where the encoder has settled, and a mean over
# the last of them alone (docs/decisions, 17 and 18).
_PLATOON_TO_ITS_END = replace(
    _PLATOON_LAPTOP, through_physics=replace(_PLATOON_LAPTOP.through_physics, late=5), averaging=30.0, beyond=2.0
)
# The actor is not told what is believed about its car, and is more careful at high levels (docs/decisions, 21).
_PLATOON_KNOWN_CAR_TO_ITS_END = replace(
    _PLATOON_KNOWN_CAR,
    told=False,
    through_physics=_PLATOON_TO_ITS_END.through_physics,
    averaging=_PLATOON_TO_ITS_END.averaging,
    beyond=_PLATOON_TO_ITS_END.beyond,
    risk=replace(_PLATOON_KNOWN_CAR.risk, neutral_share=0.2, pressure=0.75),
)


def _in_standard_size(train: TrainConfig) -> TrainConfig:
    """The same with networks of the standard size, 4 fractions as on PointGoal2, at rates that such networks bear.

    On a GPU worlds cost next to nothing (docs/benchmarks.md), so that twice as many are behind every step.
    """
    large = SIZES["standard"]
    sizes = replace(
        train.sizes,
        critic_width=large.critic_width,
        critic_blocks=large.critic_blocks,
        hidden=large.hidden,
        cosines=large.cosines,
    )
    through_physics = replace(train.through_physics, worlds=2 * train.through_physics.worlds)
    return replace(train, sizes=sizes, learning_rate=3e-4, actor_learning_rate=5e-4, through_physics=through_physics)


_PLATOON_STANDARD = _in_standard_size(_PLATOON_TO_ITS_END)
_PLATOON_STANDARD_KNOWN_CAR = _in_standard_size(_PLATOON_KNOWN_CAR_TO_ITS_END)
_GPU = TrainConfig(
    decisions=2000,
    # A quarter of the fractions of the size itself and few, large batches: the return at the budget that 32 updates of
    # 512 x 8 fractions reach per decision comes in less than half the time (results/trials, g).
    sizes=replace(SIZES["standard"], fractions=4, compute="bfloat16"),
    updates_per_decision=8,
    batch_tasks=64,
    batch_transitions=64,
    steps=5,
    learning_rate=6e-4,
    actor_learning_rate=3e-4,
    target_rate=0.01,
    aim=0.9,
    # Caution that was trained has the better frontier, and takes no time at deployment (docs/decisions, 13).
    risk=RiskConfig(conditioned=True, neutral_share=0.4),
    multiplier=_MULTIPLIER,
)
# A latent that has settled, or nearly: without a limit its KL grows to the end of a run (results/point_goal2_kl_limit).
_GPU_SETTLED = replace(_GPU, kl_limit=12.0)
_PAPER = replace(_GPU, decisions=12800, sizes=replace(SIZES["paper"], compute="bfloat16"), batch_transitions=32)
# Not trained yet at this size.
_PAPER_SETTLED = replace(_PAPER, kl_limit=_GPU_SETTLED.kl_limit)

# The paper's sizes, with more worlds behind every step of the actor. Not trained yet.
_PLATOON_PAPER = replace(
    _PLATOON_LAPTOP,
    worlds=512,
    batch_tasks=32,
    sizes=replace(SIZES["paper"], compute="tensorfloat32"),
    through_physics=ThroughPhysics(steps=10, worlds=256),
)

PRESETS: dict[str, dict[str, Preset]] = {
    "PointGoal2": {
        "smoke": Preset("does it run: seconds on a CPU", _SMOKE),
        "laptop": Preset("small networks on two CPU cores", _LAPTOP),
        "gpu": Preset("standard networks, 16 million env steps a seed, on one GPU", _GPU, _GPU_SETTLED),
        "paper": Preset("the paper's sizes, 105 million env steps a seed, on one GPU", _PAPER, _PAPER_SETTLED),
    },
    "Platoon": {
        "smoke": Preset("does it run: seconds on a CPU", _SMOKE),
        "laptop": Preset("small networks on two CPU cores, minutes", _PLATOON_LAPTOP, _PLATOON_KNOWN_CAR),
        "gpu": Preset(
            "small networks, the actor trained to its end: half an hour on two CPU cores",
            _PLATOON_TO_ITS_END,
            _PLATOON_KNOWN_CAR_TO_ITS_END,
        ),
        "standard": Preset(
            "standard networks, the actor trained to its end: a quarter of an hour on one GPU",
            _PLATOON_STANDARD,
            _PLATOON_STANDARD_KNOWN_CAR,
        ),
        "paper": Preset("the paper's sizes on one GPU", _PLATOON_PAPER),
    },
}


ANY_TASK: dict[str, Preset] = {
    "smoke": Preset("does it run: seconds on a CPU", _SMOKE),
    "laptop": Preset("small networks on two CPU cores, not tuned for this task", _LAPTOP),
    "gpu": Preset("standard networks on one GPU, not tuned for this task", _GPU),
}
"""For a task that has no entry of its own."""


def lookup(task: str, preset: str) -> Preset:
    """The preset of a task; an unknown name is an error with the nearest match."""
    return names.lookup("training preset", preset, PRESETS.get(task, ANY_TASK))


def settings_of(task: str, preset: str, method: Method) -> TrainConfig:
    """What a method is trained with: a preset that conditions policies on a risk level means those that use one."""
    found = lookup(task, preset)
    if method.takes_risk_level:
        return found.with_risk_level or found.train
    return replace(found.train, risk=RiskConfig())
