"""What does a family of policies cost? Actors for one price each, and actors for all levels of caution at once.

All learn through the physics of Platoon from scratch, side by side in one program, in scenes of their seed, and none is
told anything about its car. The price of cost is fixed; at level eta of a family it is price / (1 - eta)^p, in worlds
the stranger the higher the level, as `ashore train Platoon risk_adaptive` has it. An actor for one price meets worlds
of all strangeness, as that of D.R. does. There are no critics, since nobody would ask them.

    python family.py RUN_OF_OURS OUT --steps 1200    # the run lends statistics of observations, encoders and critics

OUT/NAME are runs like RUN_OF_OURS with other actors, whose first layer multiplies the latent by zero:
`ashore suite run` deploys and calibrates them.
"""

import argparse
import shutil
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from safetensors.numpy import load_file, save_file

from ashore import artifacts
from ashore.environments import randomisation, rollout
from ashore.experiments import training
from ashore.experiments.evaluation import load_policies
from ashore.learning import normalisation, risk
from ashore.learning.through_physics import cut_on_the_way_back
from ashore.learning.train import architecture
from ashore.networks import actor

EVERY = 50
"""Steps between two lines of progress."""
KINDS = {
    "price_6.5": (False, 6.5, 0.0),
    "price_13": (False, 13.0, 0.0),
    "family_0.5": (True, 6.5, 0.5),
    "family_1": (True, 6.5, 1.0),
}
"""Whether the actor takes a level, the price, and the pressure p."""

ask = argparse.ArgumentParser()
ask.add_argument("run", type=Path)
ask.add_argument("out", type=Path)
ask.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
ask.add_argument("--steps", type=int, default=1200)
ask.add_argument("--worlds", type=int, default=64)
ask.add_argument("--rate", type=float, default=1e-3)
ask.add_argument("--longest", type=float, default=100.0)
ask.add_argument("--beyond", type=float, default=2.0)
ask.add_argument("--neutral", type=float, default=0.2)
said = ask.parse_args()

described = training.load(said.run)
task = training.task_of(described)
nets = architecture(task, described.train)
policies = load_policies(said.run)
normalisers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(policy[1] for policy in policies))
length = task.description.decisions_per_episode
spread = risk.RiskConfig(conditioned=True, neutral_share=said.neutral)


def episodes(weights, levels, physics, key, statistics):
    """Return and cost of one episode in every world."""
    condition = jnp.concatenate([jnp.zeros((len(levels), nets.sizes.latent)), levels[:, None]], axis=1)

    def act(observation, condition):
        return actor.apply(nets.actor, weights, normalisation.see(nets, statistics.observation, observation), condition)

    def one_decision(worlds, _):
        worlds = cut_on_the_way_back(said.longest, worlds)
        actions = jax.vmap(act)(worlds.observation, condition)
        worlds, happened = rollout.go_on(task, worlds, actions, physics)
        return worlds, (happened.reward, happened.cost)

    worlds = rollout.start(task, key, physics)
    unroll = 4 if jax.default_backend() == "gpu" else 1
    _, (rewards, costs) = jax.lax.scan(jax.checkpoint(one_decision), worlds, None, length=length, unroll=unroll)
    return rewards.sum(axis=0), costs.sum(axis=0)


rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(said.rate, said.steps)))


def one_step(weights, memory, cell, number):
    """One step of one actor; all actors of a seed meet the same scenes."""
    takes_level, price, pressure, seed, statistics = cell
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(11), seed), number)
    physics_key, level_key, strange_key, scene_key = jax.random.split(key, 4)
    levels = takes_level * risk.spread_levels(spread, level_key, said.worlds)
    by_chance = jax.random.uniform(strange_key, (said.worlds,))
    strangeness = jnp.where(takes_level > 0.0, levels / spread.highest, by_chance)
    ranges = (task.description.shifts["train"], task.parameters_type, physics_key, said.beyond, strangeness)
    physics = randomisation.sample_beyond(*ranges)
    charge = price / (1.0 - levels) ** pressure

    def loss(weights):
        returns, costs = episodes(weights, levels, physics, scene_key, statistics)
        return jnp.sum((charge * costs - returns) / (1.0 + charge)), (returns.mean(), costs.mean())

    gradient, figures = jax.grad(loss, has_aux=True)(weights)
    gradient = jax.tree.map(lambda leaf: leaf / said.worlds, gradient)
    norm = optax.tree.norm(gradient)
    with jax.numpy_dtype_promotion("standard"):
        change, moved = rule.update(gradient, memory, weights)
    stepped = (optax.apply_updates(weights, change), moved)
    weights, memory = jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(norm), new, old), stepped, (weights, memory))
    return weights, memory, (*figures, norm)


def some_steps(weights, memory, cell, begin):
    """`EVERY` steps of one actor."""

    def another(carry, number):
        weights, memory, figures = one_step(*carry, cell, number)
        return (weights, memory), figures

    carry, figures = jax.lax.scan(another, (weights, memory), begin + jnp.arange(EVERY))
    return *carry, figures


names = [(kind, seed) for kind in said.kinds for seed in range(len(policies))]
seeds = jnp.array([seed for _, seed in names], jnp.int32)
settings = [jnp.array([float(KINDS[kind][place]) for kind, _ in names], jnp.float32) for place in range(3)]
cells = (*settings, seeds, jax.tree.map(lambda leaf: leaf[seeds], normalisers))
# All kinds of one seed begin with the same weights.
weights = jax.vmap(lambda seed: actor.init(jax.random.fold_in(jax.random.key(7), seed), nets.actor))(seeds)
memory = jax.vmap(rule.init)(weights)
run = jax.jit(jax.vmap(some_steps, in_axes=(0, 0, 0, None)), donate_argnums=(0, 1))

said.out.mkdir(parents=True, exist_ok=True)
clock = time.perf_counter()
with (said.out / "family.log").open("w") as log:
    log.write(f"return / cost where they learn, gradient norm at the median: {names}\n")
    for begin in range(0, said.steps, EVERY):
        weights, memory, (returns, costs, norms) = run(weights, memory, cells, jnp.int32(begin))
        figures = zip(returns.mean(axis=1), costs.mean(axis=1), jnp.median(norms, axis=1), strict=True)
        line = " ".join(f"{earned:.0f}/{paid:.1f}|{norm:.0f}" for earned, paid, norm in figures)
        line = f"{begin + EVERY} steps, {time.perf_counter() - clock:.0f} s: {line}\n"
        log.write(line)
        log.flush()
        sys.stdout.write(line)
        sys.stdout.flush()


def write(kind, seed, path):
    """The weights of this seed of the run with the actor of this kind."""
    named = load_file(said.run / "policy" / path.name)
    learnt = jax.tree.map(lambda leaf: leaf[names.index((kind, seed))], weights)
    for place, leaf in jax.tree.leaves_with_path({"actor": learnt}):
        value = jax.device_get(leaf).copy()
        if (name := "/".join(entry.key for entry in place)) == "actor/dense0/kernel":
            value[nets.seen : nets.seen + nets.sizes.latent] = 0.0
        assert named[name].shape == value.shape, name
        named[name] = value
    save_file(named, path)


for kind in said.kinds:
    folder = said.out / kind
    shutil.copytree(said.run, folder, ignore=shutil.ignore_patterns("evaluation", "summary.json", "calibration"))
    files = {f"seed_{seed}.safetensors": partial(write, kind, seed) for seed in range(len(policies))}
    artifacts.write_folder(folder / "policy", files, {"decisions": described.train.decisions})
