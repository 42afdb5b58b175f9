"""PEARL: a latent-conditioned soft actor-critic whose encoder learns from the critics' losses, under a cost budget."""

import functools
from dataclasses import replace

import jax.numpy as jnp

from ashore.environments.base import Task
from ashore.learning import collect, soft_updates
from ashore.learning.collect import WITH_LATENT, Collector
from ashore.learning.recipe import Recipe
from ashore.learning.train_config import TrainConfig
from ashore.methods.base import Method
from ashore.types import Array


def latents(on_prior: int, collector: Collector, renew: Array, noise: Array) -> Array:
    """Prior and posterior collection: the last worlds keep one draw of the prior for a whole episode."""
    usual = collect.posterior_latents(collector, renew, noise)
    begins = collector.worlds.decision == 0
    from_prior = jnp.where(begins[:, None], noise, collector.latent)
    place = jnp.arange(noise.shape[0])
    return jnp.where((place >= noise.shape[0] - on_prior)[:, None], from_prior, usual)


def recipe(task: Task, config: TrainConfig) -> Recipe:
    """A random actor, a joint step of critics and encoder, and worlds from the training ranges."""
    if not config.told:
        raise ValueError("told=False is not for pearl: its actor is one that is told its latent.")
    exploring = config.worlds - collect.quiet_worlds(config.collect, config.worlds)
    on_prior = round(config.sac.prior_share * exploring)
    return Recipe(
        task.description.shifts["train"],
        init=functools.partial(soft_updates.init, config.sac),
        update=functools.partial(soft_updates.update_step, config.sac),
        # Its actor is a distribution, whose spread only its own loss knows how to train.
        actor_through_physics=False,
        habits=replace(WITH_LATENT, latents=functools.partial(latents, on_prior), act=soft_updates.act_at_random),
    )


PEARL = Method(
    summary="Soft actor-critic conditioned on a latent that its critics shape, with a cost critic and the multiplier.",
    reference="Rakelly et al. 2019, arXiv 1903.08254",
    differs=(
        "a cost critic and the PID multiplier; the mean of two quantile heads in place of a minimum and no V-network; "
        "automatic temperature in place of a reward scale; the prior is a factor of the posterior; its KL weighs 1e-3 "
        "(0.1 empties the latent); contexts are recent decisions of the same ring"
    ),
    recipe=recipe,
    untrained=("dynamics",),
)
