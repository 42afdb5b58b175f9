"""A training run as it is chosen: its numbers, and what they mean on a task for the parts that it is made of."""

import math
from dataclasses import dataclass, replace

from ashore import names, sensible
from ashore.budget import Budget
from ashore.environments.base import Task
from ashore.learning import replay, through_physics, updates
from ashore.learning.collect import CollectConfig
from ashore.learning.disagreement import DisagreementConfig
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.objectives import ObjectiveConfig
from ashore.learning.observation_attack import AttackConfig
from ashore.learning.recipe import Recipe
from ashore.learning.replay import ReplayConfig
from ashore.learning.risk import RiskConfig
from ashore.learning.soft_updates import SacConfig
from ashore.learning.through_physics import ThroughPhysics
from ashore.learning.updates import LearnerConfig
from ashore.networks.architecture import Architecture, Sizes


@dataclass(frozen=True)
class TrainConfig:
    """One training run; hashable, a static argument of `jit`."""

    worlds: int = 2048
    """Worlds with fixed physical parameters, all stepped together; also the tasks of the replay."""
    decisions: int = 1600
    """Decisions taken in every world over the whole run."""
    updates_per_decision: int = 32
    learning_starts: int = 25
    """Decisions collected before the first update."""
    chunk: int = 40
    """Decisions per compiled call: one line of metrics each."""
    sizes: Sizes = Sizes()
    sharpen: bool = True
    """Give the networks what the task says is decisive and hard to see: closenesses sharpened, contrasts, and
    how soon gaps close."""
    capacity: int = 1024
    """Decisions remembered per world."""
    batch_tasks: int = 32
    batch_transitions: int = 32
    """Transitions per task of a batch."""
    context_sizes: str = "log-uniform"
    """How much the encoder's contexts hold: every scale alike (`log-uniform`), or every number (`uniform`)."""
    learning_rate: float = 3e-4
    actor_learning_rate: float | None = None
    """That of the actor, where it differs from the others."""
    encoder_learning_rate: float | None = None
    """That of encoder and dynamics head, where it differs from the others."""
    rate_left: float = 1.0
    """Share of all learning rates that is left at the end of the run; they fall in a straight line."""
    target_rate: float = 0.005
    """Share of the online critics in each step of the targets."""
    steps: int = 1
    """Decisions whose reward and cost a target counts before it asks the critics (n-step targets)."""
    reward_discount: float | None = None
    """Discount per decision of the reward critic, where it is not the budget's."""
    cost_discount: float | None = None
    """Discount per decision of the cost critic, where it is not the budget's."""
    averaging: float | None = None
    """p: the actor that is kept is its mean over the run, decision t with weight t^p; its last weights if left out.

    Noise in the last weights averages out, at the price of a policy that is a little older (1 / (p + 2) of the run).
    Quiet worlds act by the mean, so that the multiplier answers to what the kept policy costs.
    """
    aim: float = 1.0
    """Share of the budget that the multiplier steers for; below 1, the noise of an evaluation finds some room."""
    reward_scale: float = 10.0
    """Rewards are multiplied by this for the critic, so that TD errors are about as large as kappa = 1."""
    earned: bool = False
    """Whether the reward's critic learns without the share of the reward that no action changes (`unearned`)."""
    smoothness: float | None = None
    """Weight, in the actor's loss, of how much its action changes from one decision to the next; none if left out."""
    reward_floor: float | None = None
    """Rewards of a decision below this count as this for the critic; what is reported stays the true reward."""
    encoder_objective: str = "critic+dynamics"
    """`critic` is the paper's; `critic+dynamics` also asks the latent to predict what the world does."""
    beta_kl: float | None = None
    """Weight of the KL to the prior, if not the objective's own."""
    kl_limit: float | None = None
    """Nats that a latent may carry for `beta_kl` each; those beyond cost 0.1 more. None: no limit."""
    beyond: float = 1.0
    """How far worlds may stray from the method's ranges, as a multiple of their width (beyond the paper): those that
    explore as chance will have it, those behind the actor's steps through the physics the farther the higher their
    level (`risk.strangeness`), and the quiet ones, by whose cost the multiplier goes, not at all."""
    told: bool = True
    """Whether the actor is told what is believed about its world, as in the paper. Otherwise that decides how careful
    it is, and the critics know it: on Platoon such an actor earns more at equal cost (docs/decisions, 21)."""
    risk: RiskConfig = RiskConfig()
    through_physics: ThroughPhysics = ThroughPhysics()
    """Teach the actor by its gradient through the physics instead of by the critics (beyond the paper)."""
    collect: CollectConfig = CollectConfig()
    multiplier: PIDConfig = PIDConfig()
    spidr: DisagreementConfig = DisagreementConfig()
    """For `spidr` alone."""
    attack: AttackConfig = AttackConfig()
    """For `robust` alone."""
    sac: SacConfig = SacConfig()
    """For `pearl` alone."""

    def __post_init__(self) -> None:
        counts = ("worlds", "decisions", "updates_per_decision", "chunk", "steps", "batch_tasks", "batch_transitions")
        sensible.at_least(self, 1, *counts)
        sensible.at_least(self, 2, "capacity")
        sensible.at_least(self, 0, "learning_starts", "averaging", "smoothness", "beta_kl", "kl_limit")
        rates = ("learning_rate", "actor_learning_rate", "encoder_learning_rate")
        sensible.positive(self, *rates, "reward_scale", "aim")
        sensible.share(self, "rate_left", "target_rate")
        sensible.discount(self, "reward_discount", "cost_discount")
        if not 1.0 <= self.beyond < math.inf:
            raise ValueError(f"beyond must be a number from 1 on, not {self.beyond:g}.")
        if self.through_physics.late > 1 and self.chunks < through_physics.FIFTH:
            raise ValueError(f"A run of {self.chunks} chunks has no last fifth: through_physics.late would do nothing.")
        if not self.told and self.through_physics.carried > 0.0:
            raise ValueError(
                "through_physics.carried is about beliefs, of which an actor with told=False hears nothing."
            )
        names.lookup("distribution of context sizes", self.context_sizes, replay.CONTEXT_SIZES)

    @property
    def chunks(self) -> int:
        """Compiled calls in the whole run."""
        return self.decisions // self.chunk


def architecture(task: Task, config: TrainConfig) -> Architecture:
    """The networks for this task."""
    description = task.description
    return Architecture(
        len(description.observation),
        len(description.action),
        description.dynamics_features,
        config.sizes,
        config.risk.conditioned,
        description.closeness if config.sharpen else (),
        description.contrasts if config.sharpen else (),
        description.approaches if config.sharpen else (),
    )


def budget(task: Task, config: TrainConfig) -> Budget:
    """The task's cost limit, discounted as this run's cost critic discounts."""
    declared = task.description.budget
    return declared if config.cost_discount is None else replace(declared, discount=config.cost_discount)


def learner_config(task: Task, config: TrainConfig, recipe: Recipe) -> LearnerConfig:
    """How the networks are trained on this task."""
    taught_by_physics = config.through_physics.steps > 0 and recipe.actor_through_physics
    declared = task.description.budget.discount
    objective = ObjectiveConfig(
        architecture(task, config),
        discount_reward=declared if config.reward_discount is None else config.reward_discount,
        discount_cost=declared if config.cost_discount is None else config.cost_discount,
        reward_scale=config.reward_scale,
        reward_floor=config.reward_floor,
        smoothness_weight=config.smoothness,
        risk=config.risk,
    )
    chosen = names.lookup("encoder objective", config.encoder_objective, updates.ENCODER_OBJECTIVES)
    if config.beta_kl is not None:
        chosen = replace(chosen, beta_kl=config.beta_kl)
    if config.kl_limit is not None:
        chosen = replace(chosen, kl_limit=config.kl_limit)
    return LearnerConfig(
        objective,
        told=config.told,
        encoder_objective=chosen,
        learning_rate=config.learning_rate,
        actor_learning_rate=config.actor_learning_rate,
        encoder_learning_rate=config.encoder_learning_rate,
        rate_left=config.rate_left,
        total_updates=max(1, (config.decisions - config.learning_starts) * config.updates_per_decision),
        actor_steps=config.through_physics.all_steps(config.chunks) if taught_by_physics else None,
        target_rate=config.target_rate,
    )


def replay_config(task: Task, config: TrainConfig) -> ReplayConfig:
    """What is remembered of each world."""
    nets = architecture(task, config)
    return ReplayConfig(
        tasks=config.worlds,
        observation=nets.observation,
        action=nets.action,
        features=nets.features,
        capacity=config.capacity,
        batch_tasks=config.batch_tasks,
        batch_transitions=config.batch_transitions,
        context=config.sizes.context,
        context_sizes=config.context_sizes,
        window=config.capacity,
        steps=config.steps,
        unearned=task.description.unearned if config.earned else None,
    )
