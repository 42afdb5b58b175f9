"""Families of policies that learn otherwise than those of family.py: larger, longer, in other worlds, or with a level
that modulates every layer. Their levels, and actors for one price, in 1,024 unseen worlds of Train and of Deploy.

    python variants.py RUN OUT.json --steps 2400          # three seeds; RUN lends statistics of observations
    python variants.py RUN OUT.json --price 13 --alone    # one price, no levels, worlds of all strangeness
"""

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from ashore.environments import randomisation, rollout
from ashore.experiments import training
from ashore.experiments.evaluation import load_policies
from ashore.learning import normalisation, risk
from ashore.learning.through_physics import cut_on_the_way_back
from ashore.learning.train import architecture
from ashore.networks import actor
from ashore.networks.actor import ActorConfig

EVERY = 50
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
JUDGED = 1024

ask = argparse.ArgumentParser()
ask.add_argument("run", type=Path)
ask.add_argument("out", type=Path)
ask.add_argument("--alone", action="store_true", help="no levels")
ask.add_argument("--price", type=float, default=6.5)
ask.add_argument("--pressure", type=float, default=0.5)
ask.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
ask.add_argument("--modulated", action="store_true", help="level * c added to, and 1 + level * g times, every layer")
ask.add_argument("--by-chance", action="store_true", help="worlds of all strangeness at every level")
ask.add_argument("--steps", type=int, default=1200)
ask.add_argument("--worlds", type=int, default=64)
ask.add_argument("--rate", type=float, default=1e-3)
said = ask.parse_args()

described = training.load(said.run)
task = training.task_of(described)
nets = architecture(task, described.train)
normalisers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(policy[1] for policy in load_policies(said.run)))
length, shifts = task.description.decisions_per_episode, task.description.shifts
spread = risk.RiskConfig(conditioned=not said.alone, neutral_share=0.2)
config = ActorConfig(nets.seen, len(task.description.action), 1, tuple(said.hidden))


def init(key):
    """Weights of one actor."""
    weights = actor.init(key, config)
    return weights | {"modulation": [jnp.zeros((2, width)) for width in said.hidden]} if said.modulated else weights


def act(weights, observation, level, statistics):
    """One action."""
    seen = normalisation.see(nets, statistics.observation, observation)
    if not said.modulated:
        return actor.apply(config, weights, seen, level[None])
    x = jnp.append(seen, level)
    for number, (shift, gain) in enumerate(weights["modulation"]):
        layer = weights[f"dense{number}"]
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"] + level * shift) * (1.0 + level * gain)
    return jnp.tanh(x @ weights["output"]["kernel"] + weights["output"]["bias"])


def episodes(weights, levels, physics, key, statistics, longest):
    """Return and cost of one episode in every world."""

    def one_decision(worlds, _):
        if longest is not None:
            worlds = cut_on_the_way_back(longest, worlds)
        actions = jax.vmap(lambda *example: act(weights, *example, statistics))(worlds.observation, levels)
        worlds, happened = rollout.go_on(task, worlds, actions, physics)
        return worlds, (happened.reward, happened.cost)

    worlds = rollout.start(task, key, physics)
    _, (rewards, costs) = jax.lax.scan(jax.checkpoint(one_decision), worlds, None, length=length)
    return rewards.sum(axis=0), costs.sum(axis=0)


rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(said.rate, said.steps)))


def one_step(weights, memory, seed, statistics, number):
    """One step of one actor."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(11), seed), number)
    physics_key, level_key, strange_key, scene_key = jax.random.split(key, 4)
    levels = risk.spread_levels(spread, level_key, said.worlds)
    by_chance = said.alone or said.by_chance
    strangeness = jax.random.uniform(strange_key, levels.shape) if by_chance else levels / spread.highest
    physics = randomisation.sample_beyond(shifts["train"], task.parameters_type, physics_key, 2.0, strangeness)
    charge = said.price / (1.0 - levels) ** said.pressure

    def loss(weights):
        returns, costs = episodes(weights, levels, physics, scene_key, statistics, 100.0)
        return jnp.sum((charge * costs - returns) / (1.0 + charge)), (returns.mean(), costs.mean())

    gradient, figures = jax.grad(loss, has_aux=True)(weights)
    gradient = jax.tree.map(lambda leaf: leaf / said.worlds, gradient)
    fine = jnp.isfinite(optax.tree.norm(gradient))
    with jax.numpy_dtype_promotion("standard"):
        change, moved = rule.update(gradient, memory, weights)
    stepped = (optax.apply_updates(weights, change), moved)
    return *jax.tree.map(lambda new, old: jnp.where(fine, new, old), stepped, (weights, memory)), figures


def some_steps(weights, memory, seed, statistics, begin):
    """`EVERY` steps of one actor."""

    def another(carry, number):
        weights, memory, figures = one_step(*carry, seed, statistics, number)
        return (weights, memory), figures

    carry, figures = jax.lax.scan(another, (weights, memory), begin + jnp.arange(EVERY))
    return *carry, figures


seeds = jnp.arange(len(jax.tree.leaves(normalisers)[0]))
weights = jax.vmap(lambda seed: init(jax.random.fold_in(jax.random.key(7), seed)))(seeds)
memory = jax.vmap(rule.init)(weights)
run = jax.jit(jax.vmap(some_steps, in_axes=(0, 0, 0, 0, None)), donate_argnums=(0, 1))
clock = time.perf_counter()
for begin in range(0, said.steps, EVERY):
    weights, memory, (returns, costs) = run(weights, memory, seeds, normalisers, jnp.int32(begin))
    line = " ".join(f"{r:.0f}/{c:.1f}" for r, c in zip(returns.mean(axis=1), costs.mean(axis=1), strict=True))
    sys.stdout.write(f"{begin + EVERY} steps, {time.perf_counter() - clock:.0f} s: {line}\n")
    sys.stdout.flush()


@jax.jit
def judge(weights, level, physics):
    """Mean return and cost of every actor at this level, [seed]."""
    levels, key = jnp.full(JUDGED, level), jax.random.key(78)
    met = jax.vmap(lambda weights, statistics: episodes(weights, levels, physics, key, statistics, None))
    return tuple(figure.mean(axis=1) for figure in met(weights, normalisers))


rows = []
for shift in ("train", "deploy"):
    physics = randomisation.sample(shifts[shift], task.parameters_type, jax.random.key(77), JUDGED)
    for level in LEVELS[:1] if said.alone else LEVELS:
        returns, costs = judge(weights, jnp.float32(level), physics)
        rows.append({"shift": shift, "level": level, "returns": returns.tolist(), "costs": costs.tolist()})
settings = {name: value for name, value in vars(said).items() if name not in ("run", "out")}
said.out.write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
