"""What would it earn to know the car? Actors that are told the truth about it, and actors that are told nothing.

All learn through the physics of Platoon from scratch, side by side in one program, in the same worlds and scenes: the
loss is (lambda J_c - J_r) / (1 + lambda) at a fixed lambda, as of D.R. (`ashore train Platoon domain_randomisation`),
and there are no critics, since nobody would ask them. Told actors get drive, brake and drag per mass, lag and grip,
standardised, where ours has its latent: a latent could not say more. The others get zeros in the same places.

    python told.py FOLDER_OF_A_TRAINED_RUN OUT --steps 1200      # the run lends its statistics of observations
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from ashore.environments import randomisation, rollout
from ashore.experiments import training
from ashore.experiments.evaluation import load_policies
from ashore.learning import normalisation
from ashore.learning.through_physics import cut_on_the_way_back
from ashore.learning.train import architecture
from ashore.networks import actor

FACTS = ("drive_per_mass", "brake_per_mass", "drag_per_mass", "lag", "grip")
EVERY = 50
"""Steps between two lines of progress."""

ask = argparse.ArgumentParser()
ask.add_argument("run", type=Path)
ask.add_argument("out", type=Path)
ask.add_argument("--steps", type=int, default=1200)
ask.add_argument("--worlds", type=int, default=128)
ask.add_argument("--judged", type=int, default=1024)
ask.add_argument("--seeds", type=int, default=3)
ask.add_argument("--hidden", type=int, nargs="+", default=[256, 256, 256])
ask.add_argument("--multipliers", type=float, nargs="+", default=[4.5, 6.5, 9.5])
ask.add_argument("--rate", type=float, default=1e-3)
ask.add_argument("--beyond", type=float, default=2.0)
said = ask.parse_args()

described = training.load(said.run)
task = training.task_of(described)
usual = architecture(task, described.train)
nets = replace(usual, sizes=replace(usual.sizes, hidden=tuple(said.hidden)))
normalisers = load_policies(said.run)[0][1]
shifts, length = task.description.shifts, task.description.decisions_per_episode


def facts(physics):
    """What can be known about each car, [world, fact]."""
    known = jax.vmap(task.identifiable)(physics)
    return jnp.stack([known[name] for name in FACTS], axis=1)


reference = facts(randomisation.sample(shifts["train"], task.parameters_type, jax.random.key(5), 4096))
centre, spread = reference.mean(axis=0), reference.std(axis=0)


def episodes(weights, told, physics, key, longest):
    """Return and cost of one episode in every world."""
    condition = told * jnp.clip((facts(physics) - centre) / spread, -4.0, 4.0)

    def act(observation, condition):
        seen = normalisation.see(nets, normalisers.observation, observation)
        return actor.apply(nets.actor, weights, seen, condition)

    def one_decision(worlds, _):
        if longest is not None:
            worlds = cut_on_the_way_back(longest, worlds)
        actions = jax.vmap(act)(worlds.observation, condition)
        worlds, happened = rollout.go_on(task, worlds, actions, physics)
        return worlds, (happened.reward, happened.cost)

    worlds = rollout.start(task, key, physics)
    unroll = 4 if jax.default_backend() == "gpu" else 1
    _, (rewards, costs) = jax.lax.scan(jax.checkpoint(one_decision), worlds, None, length=length, unroll=unroll)
    return rewards.sum(axis=0), costs.sum(axis=0)


rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(said.rate, said.steps)))


def one_step(weights, memory, told, multiplier, seed, number):
    """One step of one actor; all actors of a seed meet the same worlds."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(11), seed), number)
    physics_key, strange_key, scene_key = jax.random.split(key, 3)
    strangeness = jax.random.uniform(strange_key, (said.worlds,))
    ranges = (shifts["train"], task.parameters_type, physics_key, said.beyond, strangeness)
    physics = randomisation.sample_beyond(*ranges)

    def loss(weights):
        returns, costs = episodes(weights, told, physics, scene_key, 100.0)
        return jnp.mean((multiplier * costs - returns) / (1.0 + multiplier)), (returns.mean(), costs.mean())

    gradient, figures = jax.grad(loss, has_aux=True)(weights)
    with jax.numpy_dtype_promotion("standard"):
        change, moved = rule.update(gradient, memory, weights)
    fine = jnp.isfinite(optax.tree.norm(gradient))
    stepped = (optax.apply_updates(weights, change), moved)
    weights, memory = jax.tree.map(lambda new, old: jnp.where(fine, new, old), stepped, (weights, memory))
    return weights, memory, (*figures, ~fine)


def some_steps(weights, memory, told, multiplier, seed, begin):
    """`EVERY` steps of one actor."""

    def another(carry, number):
        weights, memory, figures = one_step(*carry, told, multiplier, seed, number)
        return (weights, memory), figures

    carry, figures = jax.lax.scan(another, (weights, memory), begin + jnp.arange(EVERY))
    return *carry, figures


cells = [(seed, told, price) for price in said.multipliers for told in (0.0, 1.0) for seed in range(said.seeds)]
seed = jnp.array([cell[0] for cell in cells], jnp.int32)
told, multiplier = (jnp.array([cell[place] for cell in cells], jnp.float32) for place in (1, 2))
# Both kinds of one seed begin with the same weights.
weights = jax.vmap(lambda seed: actor.init(jax.random.fold_in(jax.random.key(7), seed), nets.actor))(seed)
memory = jax.vmap(rule.init)(weights)
run = jax.jit(jax.vmap(some_steps, in_axes=(0, 0, 0, 0, 0, None)), donate_argnums=(0, 1))


@jax.jit
def judge(weights, physics, key):
    """Return and cost of every actor, [actor, world]."""
    return jax.vmap(lambda weights, told: episodes(weights, told, physics, key, None))(weights, told)


said.out.mkdir(parents=True, exist_ok=True)
clock = time.perf_counter()
for begin in range(0, said.steps, EVERY):
    weights, memory, (returns, costs, skipped) = run(weights, memory, told, multiplier, seed, jnp.int32(begin))
    figures = zip(returns.mean(axis=1), costs.mean(axis=1), strict=True)
    line = " ".join(f"{earned:.0f}/{paid:.1f}" for earned, paid in figures)
    seconds = time.perf_counter() - clock
    sys.stdout.write(f"{begin + EVERY} steps, {seconds:.0f} s, skipped {int(skipped.sum())}: {line}\n")

rows = []
for shift in ("train", "deploy"):
    physics = randomisation.sample(shifts[shift], task.parameters_type, jax.random.key(77), said.judged)
    returns, costs = judge(weights, physics, jax.random.key(78))
    for index, (number, knows, price) in enumerate(cells):
        found = {"return": float(returns[index].mean()), "cost": float(costs[index].mean())}
        rows.append({"shift": shift, "multiplier": price, "told": bool(knows), "seed": number, **found})
settings = {name: value for name, value in vars(said).items() if name not in ("run", "out")}
(said.out / "told.json").write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
