"""How far a policy goes in an episode, beside random actions and none: `python motion.py RUN WORLDS OUT.json`.

The worlds are those of the task preset that the run was trained in.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ashore.environments.gymnasium_adapter import AshoreEnv
from ashore.experiments import training
from ashore.experiments.deployment_environment import draw_parameters
from ashore.experiments.evaluation import load_policies
from ashore.experiments.suite_drivers import NeutralPolicy
from ashore.learning.train import architecture

run, worlds, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
trained = training.load(run)
policy = NeutralPolicy(architecture(training.task_of(trained), trained.train))
weights = load_policies(run)[0]
unknown = jnp.zeros(policy.latent, jnp.float32)
act = jax.jit(lambda seen: policy.act(weights, seen, unknown, jnp.float32(0)).action)
generator = np.random.default_rng(0)
ways = {
    "policy": lambda seen: np.asarray(act(seen)),
    "uniform random": lambda _seen: generator.uniform(-1, 1, 2).astype(np.float32),
    "zero": lambda _seen: np.zeros(2, np.float32),
}


def one_episode(choose, parameters, seed):
    """Speed, way and actions of one episode."""
    env = AshoreEnv("PointGoal2", trained.task_preset, parameters)
    seen, _ = env.reset(seed=seed)
    robot = env.world.data.body("robot")
    places, sent, reward, cost, over = [robot.xpos[:2].copy()], [], 0.0, 0.0, False
    while not over:
        sent.append(choose(seen))
        seen, earned, terminated, truncated, info = env.step(sent[-1])
        places.append(robot.xpos[:2].copy())
        reward, cost, over = reward + earned, cost + info["cost"], terminated or truncated
    way = np.linalg.norm(np.diff(places, axis=0), axis=1).sum()
    return {
        "speed_m_per_s": way / (len(sent) * env.description.control_period),
        "way_m": way,
        "displacement_m": np.linalg.norm(places[-1] - places[0]),
        "farthest_m": np.linalg.norm(np.array(places) - places[0], axis=1).max(),
        "action_rms": np.sqrt(np.mean(np.square(sent))),
        **dict(zip(("mean_forward", "mean_turn"), np.mean(sent, axis=0), strict=True)),
        **dict(zip(("std_forward", "std_turn"), np.std(sent, axis=0), strict=True)),
        "throttle_reversals_per_s": np.mean(np.diff(np.sign(np.array(sent)[:, 0])) != 0)
        / env.description.control_period,
        "reward": reward,
        "cost": cost,
    }


found = {}
for name, choose in ways.items():
    for shift in ("nominal", "train"):
        drawn = draw_parameters("PointGoal2", trained.task_preset, shift, 0, worlds)
        rows = [one_episode(choose, parameters, seed) for seed, parameters in enumerate(drawn)]
        found[f"{name}, {shift}"] = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
content = {"task_preset": trained.task_preset, "worlds_per_shift": worlds, "episodes": 1, "engine": "C MuJoCo"}
out.write_text(json.dumps(content | {"means": found}, indent=2) + "\n")
