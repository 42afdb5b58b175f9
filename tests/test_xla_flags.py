import importlib.metadata
import os
import subprocess
import sys
import textwrap

import pytest

from ashore.xla_flags import SCHEDULER_FLAG, safe_flags

TIME_LIMIT = 240.0
"""Seconds; the program below needs about 20 on two cores, nearly all of them to compile."""

BOXES_ON_A_FLOOR = textwrap.dedent(
    """
    import ashore
    import jax
    import jax.numpy as jnp
    import mujoco
    from ashore.environments.mjx_engine import mjx

    boxes = "".join(
        f'<body pos="{0.25 * box} 0 0.09"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>' for box in range(6)
    )
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option timestep="0.01" iterations="6" ls_iterations="8"/><worldbody>'
        f'<geom type="plane" size="2 2 0.1"/>{boxes}</worldbody></mujoco>'
    )
    on_device, empty = mjx.put_model(model), mjx.make_data(model)

    def settle(positions):
        def step(data, _):
            return mjx.step(on_device, data), None

        return jax.lax.scan(step, empty.replace(qpos=positions), None, length=20)[0].qpos

    noise = 0.02 * jax.random.normal(jax.random.key(0), (64, model.nq))
    print("settled", bool(jnp.isfinite(jax.jit(jax.vmap(settle))(jnp.asarray(model.qpos0) + noise)).all()))
    """
)


def test_old_jax_gets_the_flag_after_the_users_own():
    assert safe_flags("", "0.10.2") == f"{SCHEDULER_FLAG}=false"
    assert safe_flags("--xla_a=1", "0.10.2") == f"--xla_a=1 {SCHEDULER_FLAG}=false"


@pytest.mark.parametrize("version", ["0.11.0", "0.11.2", "0.12.0.1", "1.0.0"])
def test_newer_jax_is_left_alone(version):
    assert safe_flags("--xla_a=1", version) == "--xla_a=1"


def test_the_users_own_setting_of_the_flag_wins():
    assert safe_flags(f"{SCHEDULER_FLAG}=true", "0.10.2") == f"{SCHEDULER_FLAG}=true"


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "XLA_FLAGS": "", **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )


def test_importing_ashore_sets_the_flags_without_starting_jax():
    shown = _run("import ashore, os, sys; print(os.environ['XLA_FLAGS'], 'jax' in sys.modules)", XLA_FLAGS="--xla_a=1")
    expected = safe_flags("--xla_a=1", importlib.metadata.version("jax"))
    assert shown.stdout.strip() == f"{expected} False", shown.stderr


@pytest.mark.skipif(
    safe_flags("", importlib.metadata.version("jax")) == "", reason="this JAX needs no flag, so nothing comes too late"
)
def test_a_jax_that_is_already_running_is_too_late_and_says_so():
    shown = _run("import jax; jax.devices(); import ashore")
    assert "import ashore first" in shown.stderr


def test_a_batch_of_worlds_with_contacts_does_not_hang():
    """With JAX 0.10 on two cores this never ends unless the flag is set before JAX starts."""
    assert _run(BOXES_ON_A_FLOOR).stdout.strip() == "settled True"
