"""One update with a random actor and an encoder that learns along with the critics (SAC and PEARL).

With one posterior sample z per task:

    1. critics and encoder   eqs 7 and 8 plus the KL's price in one backward pass: z carries their gradient to phi
    2. actor                 E[alpha ln pi(a|s, z) - Z_r + lambda Z_c] / (1 + lambda), z held fixed
    3. temperature           alpha follows the entropy towards its target
    4. targets               follow the critics by Polyak averaging

The actor is a Gaussian squashed by tanh. Its mean is the network that every policy here has, so that it is stored and
deployed under the same names; its deviation is a second network that never leaves the learner. The reward's target
counts the entropy of what follows, the cost's does not.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.learning import losses, objectives, updates
from ashore.learning.lagrangian import PIDConfig
from ashore.learning.objectives import Manners, Query, Work
from ashore.learning.updates import LearnerConfig, LearnerState, Metrics
from ashore.networks import actor, encoder
from ashore.networks.architecture import Architecture
from ashore.networks.critic import COST, REWARD
from ashore.networks.encoder import NaturalPosterior
from ashore.networks.layers import Params
from ashore.types import Array

LOG_DEVIATION = (-5.0, 2.0)
"""Lowest and highest log standard deviation of the Gaussian, before tanh."""


@dataclass(frozen=True)
class SacConfig:
    """What a random actor needs besides the networks."""

    temperature: float = 0.1
    """alpha at the start, in units of the scaled reward."""
    target_entropy: float = -0.5
    """Entropy per action number that the temperature aims at."""
    prior_share: float = 0.2
    """Share of the exploring worlds that act on a prior sample for a whole episode."""

    def __post_init__(self) -> None:
        if not (self.temperature > 0.0 and 0.0 <= self.prior_share <= 1.0):
            raise ValueError("The temperature must be positive, and the share of worlds on the prior within [0, 1].")


class Drawn(NamedTuple):
    """A random action."""

    action: Array
    log_density: Array
    """ln pi(a | s, z), a scalar."""
    mean: Array
    """Of the Gaussian, before tanh."""


def init(sac: SacConfig, config: LearnerConfig, multiplier: PIDConfig, key: Array) -> LearnerState:
    """A learner before its first update."""
    state = updates.init(config, multiplier, key)
    nets = config.objective.architecture
    deviation = actor.init(jax.random.fold_in(key, 1), nets.actor)
    private: Params = {"deviation": deviation, "temperature": {"log": jnp.log(jnp.float32(sac.temperature))}}
    optimisers = {name: updates.optimiser(config, name).init(weights) for name, weights in private.items()}
    return state._replace(private=private, optimisers=state.optimisers | optimisers)


def draw(nets: Architecture, params: Params, observation: Array, condition: Array, noise: Array) -> Drawn:
    """tanh(mean + deviation * noise) for one normalised observation, and how likely it was.

    Args:
        params: with the actor's and the deviation's weights.
        noise: standard normal, [action]; zero gives the deterministic policy.
    """
    mean = actor.preactivation(nets.actor, params["actor"], observation, condition)
    raw = actor.preactivation(nets.actor, params["deviation"], observation, condition)
    log_deviation = jnp.clip(raw, *LOG_DEVIATION)
    before = mean + jnp.exp(log_deviation) * noise
    gaussian = -0.5 * jnp.square(noise) - log_deviation - 0.5 * jnp.log(2.0 * jnp.pi)
    # ln(1 - tanh(u)^2), written so that nothing is lost where tanh is flat.
    squashing = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
    return Drawn(jnp.tanh(before), jnp.sum(gaussian - squashing), mean)


def act_at_random(
    nets: Architecture, params: Params, seen: Array, condition: Array, strength: Array, push: Array
) -> Array:
    """Actions of all worlds: drawn from the policy in exploring worlds, its mean in quiet ones.

    Args:
        strength: 0 in quiet worlds, [world]; how strong exploration is, the policy itself decides.
    """
    noise = jnp.where((strength > 0.0)[:, None], push, 0.0)
    return jax.vmap(lambda *example: draw(nets, params, *example).action)(seen, condition, noise)


def update_step(
    sac: SacConfig, config: LearnerConfig, state: LearnerState, work: Work, multiplier: Array
) -> tuple[LearnerState, Metrics]:
    """One update; arguments and results are those of `updates.update_step`."""
    assert multiplier.ndim == 0, multiplier.shape
    posterior = objectives.posteriors(config.objective, state.params["encoder"], work)
    latents = jax.lax.stop_gradient(objectives.latents_of(posterior, work))
    targets = soft_targets(config, state, work, latents)

    state, critic_metrics = critic_and_encoder_step(config, state, work, targets)
    state, log_density, actor_metrics = actor_step(config, state, work, latents, multiplier)
    wanted = sac.target_entropy * config.objective.architecture.action
    state, temperature_metrics = temperature_step(config, state, log_density, wanted)
    state, count_metrics = updates.follow(config, state)
    metrics = critic_metrics | actor_metrics | temperature_metrics | count_metrics
    return state, metrics | updates.posterior_metrics(posterior)


def soft_targets(config: LearnerConfig, state: LearnerState, work: Work, latents: Array) -> Array:
    """Eqs 5 and 6 at a drawn next action; the reward's also counts -alpha ln pi there."""
    objective = config.objective
    conditions = objectives.conditions_of(objective, latents, work)
    weights = state.params | state.private
    act = jax.vmap(lambda *example: draw(objective.architecture, weights, *example))
    drawn = act(work.next_observation, conditions, work.smoothing)
    query = Query(work.next_observation, drawn.action, conditions, work.target_fractions)
    (values,) = objectives.ask(objective, state.targets, query)
    values = objectives.reduced(objective, values)
    surprise = temperature_of(state) * drawn.log_density
    soft = jnp.stack([values[REWARD] - surprise[:, None], values[COST]])
    return objectives.bootstrap(soft, work)


def critic_and_encoder_step(
    config: LearnerConfig, state: LearnerState, work: Work, targets: Array
) -> tuple[LearnerState, Metrics]:
    """theta and phi together: the loss of the critics reaches the encoder through z."""
    objective = config.objective

    def loss(trained: Params) -> tuple[Array, tuple[Array, Array, Array]]:
        posterior: NaturalPosterior = objectives.posteriors(objective, trained["encoder"], work)
        query = objectives.taken_query(objective, work, objectives.latents_of(posterior, work))
        (values,) = objectives.ask(objective, trained["critics"], query)
        per_critic = objectives.critic_losses(objective, values, work, targets)
        kl = jnp.mean(jax.vmap(encoder.kl_to_prior)(posterior))
        price = losses.information_price(config.encoder_objective, kl)
        return jnp.sum(per_critic) + price, (per_critic, jnp.mean(values, axis=(1, 2, 3)), kl)

    trained = {name: state.params[name] for name in ("critics", "encoder")}
    gradients, (per_critic, means, kl) = jax.grad(loss, has_aux=True)(trained)
    state, norms = updates.descend(config, state, "critics", gradients["critics"])
    state, norm = updates.descend(config, state, "encoder", gradients["encoder"])
    metrics = updates.critic_metrics(config, per_critic, means, norms)
    return state, metrics | {"kl": kl, "gradient_norm_encoder": norm}


def actor_step(
    config: LearnerConfig, state: LearnerState, work: Work, latents: Array, multiplier: Array
) -> tuple[LearnerState, Array, Metrics]:
    """Mean and deviation of the policy, against critics and latents held fixed; also says the mean of ln pi."""
    objective, critics = config.objective, state.params["critics"]
    conditions = objectives.conditions_of(objective, latents, work)
    temperature = temperature_of(state)
    # The learner's key changes with every decision and the count with every update: no noise is used twice.
    noise = jax.random.normal(jax.random.fold_in(state.key, state.updates), work.action.shape)

    def loss(trained: Params) -> tuple[Array, tuple[Array, Manners]]:
        nets = objective.architecture

        def mean_of(observation: Array, condition: Array) -> Array:
            return actor.preactivation(nets.actor, trained["actor"], observation, condition)

        act = jax.vmap(lambda *example: draw(nets, trained, *example))
        drawn = act(work.observation, conditions, noise)
        query = Query(work.observation, drawn.action, conditions, objectives.actor_fractions(work))
        (values,) = objectives.ask(objective, critics, query)
        manners = objectives.manners_of(work, conditions, mean_of, drawn.mean)
        constrained = objectives.actor_loss(objective, values, work, manners, multiplier)
        log_density = jnp.mean(drawn.log_density)
        share = 1.0 + multiplier if objective.normalise_actor_loss else jnp.ones_like(multiplier)
        return constrained + temperature * log_density / share, (log_density, manners)

    trained = {"actor": state.params["actor"], "deviation": state.private["deviation"]}
    (total, (log_density, manners)), gradients = jax.value_and_grad(loss, has_aux=True)(trained)
    metrics = {"actor_loss": total, **manners._asdict(), "entropy": -log_density}
    for name in trained:
        state, metrics[f"gradient_norm_{name}"] = updates.descend(config, state, name, gradients[name])
    return state, log_density, metrics


def temperature_step(
    config: LearnerConfig, state: LearnerState, log_density: Array, wanted: float
) -> tuple[LearnerState, Metrics]:
    """alpha rises while the entropy is below the wanted one: the slope of -ln alpha (ln pi + wanted)."""
    state, _ = updates.descend(config, state, "temperature", {"log": -(log_density + wanted)})
    return state, {"temperature": temperature_of(state)}


def temperature_of(state: LearnerState) -> Array:
    """alpha, what a unit of entropy is worth."""
    return jnp.exp(state.private["temperature"]["log"])
