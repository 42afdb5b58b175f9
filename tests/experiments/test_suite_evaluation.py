"""An evaluation whose caution follows the world that is identified."""

import jax.numpy as jnp
import numpy as np

from ashore.calibration.ledger import Ledger
from ashore.environments.randomisation import Randomised
from ashore.experiments.suite_drivers import Driver
from ashore.experiments.suite_evaluation import Protocol, evaluate, meet
from ashore_runtime.schema import WorldCalibration
from calibration.linear_world import LENGTH, LinearAgent, LinearWorld

TABLE = WorldCalibration(
    budget=10.0,
    etas=(0.0, 0.5, 0.9),
    # From 8 transitions on: 10 + 10 z, 8 + 10 z and 2 + 10 z.
    intercept=((10.0, 8.0, 2.0),) * 2,
    slope=(((0.0,),) * 3, ((10.0,),) * 3),
    margin=((5.0, 5.0, 5.0), (0.0, 0.0, 0.0)),
    low=(-4.0,),
    high=(4.0,),
    eta_percentiles=((0.9,) * 3, (0.0, 0.5, 0.9)),
)


def test_a_cheap_world_is_relaxed_and_a_dear_one_is_not():
    task = LinearWorld()
    others = tuple(Randomised(name, "", 1.0, 1.0, 1.0, "add") for name in ("slope", "grip"))
    # Sights scatter by 2: a belief of 40 of them is within 0.9 of where it should be, and 3 is far away.
    ranges = {
        name: (Randomised("theta", "", theta, theta, theta, "add"), *others)
        for name, theta in (("cheap", -3.0), ("dear", 3.0), ("unheard of", -20.0))
    }
    protocol = Protocol(environments=2, episodes=5, windows=1)
    driver = Driver(LinearAgent(), jnp.float32(1.0), None, (0, 8), TABLE)
    found = evaluate(task, [lambda _: driver], meet(task, ranges, protocol), protocol, Ledger())
    eta = found.eta[0]
    np.testing.assert_allclose(eta[:, :8], 0.9)
    np.testing.assert_allclose(eta[:, -1], [0.0, 0.9, 0.9], rtol=1e-6)
    assert eta.shape == (3, 5 * LENGTH)
