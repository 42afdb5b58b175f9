"""FVD as a policy: the true inverse actuation map and the nominal one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.toy_world import Cart

from ashore.environments import randomisation
from ashore.environments.platoon.config import PRESETS
from ashore.environments.platoon.parameters import SHIFTS, PlatoonParameters
from ashore.environments.platoon.task import Platoon
from ashore.methods import fvd
from ashore.methods.registry import METHODS


@pytest.fixture(scope="session")
def task() -> Platoon:
    return Platoon(PRESETS["P-train"])


def test_a_stronger_engine_needs_less_pedal(task):
    # A gap of 40 m at 5 m/s behind a car of the same speed: FVD accelerates, so the pedal is positive.
    observation = jnp.zeros(9).at[0].set(5.0 / 30.0).at[3].set(5.0 / 30.0).at[6].set(40.0 / 60.0)
    nominal = randomisation.nominal(SHIFTS["nominal"], PlatoonParameters)
    strong = nominal._replace(drive=jnp.float32(2.0))
    weak_pedal, strong_pedal = (
        fvd.controller(task, believed)(observation, jax.random.key(0)) for believed in (nominal, strong)
    )
    assert weak_pedal.shape == (1,) and 0.0 < float(strong_pedal[0]) < 1.0
    # Force = pedal * drive: with twice the drive, half the pedal, where the first is not at its stop.
    np.testing.assert_allclose(2.0 * strong_pedal, weak_pedal, rtol=1e-5)


def test_it_drives_cars_and_nothing_else():
    with pytest.raises(ValueError, match="it knows Platoon, not Cart"):
        fvd.controller(Cart(), None)
    assert METHODS["fvd"].recipe is None
