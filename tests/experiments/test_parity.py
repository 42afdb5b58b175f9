"""The runtime against JAX on states it met itself, with refinement on; the same for ONNX where it is installed."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ashore.cli import bench_parity
from ashore.cli.main import main
from ashore.cli.options import UsageError, read
from ashore.experiments import onnx_export, parity, predicted_caution
from ashore.experiments.deployment import NO_CAUTION
from ashore.experiments.exporting import export_run, load_trained
from ashore.experiments.onnx_policy import OnnxPolicy
from ashore_runtime import bundle
from ashore_runtime.policy import PolicyNetworks
from ashore_runtime.refinement import Box, refine
from ashore_runtime.schema import Refinement
from experiments import cart_run

ETAS = (0.3, 0.95)
SHIPPED = Path(__file__).parents[2] / "bundles"


@pytest.fixture(autouse=True)
def cart(monkeypatch):
    cart_run.register(monkeypatch)


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        cart_run.register(patch)
        run = cart_run.write(tmp_path_factory.mktemp("runs") / "carts", risk_conditioned=True)
        return export_run(load_trained(run, 0), run / "b.bundle", None).path


@pytest.mark.parametrize(
    ("caution", "numbers", "precision", "differ"),
    [
        ("both", Refinement(threshold_scale=0.01, variant="unit", weight="sqrt"), "float32", 2),
        ("refinement", Refinement(threshold_scale=0.01, keep="last", weight="full", steps=15), "float32", 2),
        ("refinement", Refinement(threshold_scale=0.01), "float64", 0),
        ("actor", None, "float32", 2),
    ],
)
def test_the_runtime_acts_like_the_trained_policy(path, caution, numbers, precision, differ):
    states = parity.record(path, caution, numbers, ETAS, 100, precision=precision)
    found = parity.compare(path, caution, numbers, states, precision)
    assert found.states == 200 and found.refined == (0 if caution == "actor" else 200)
    assert found.unexplained == 0, found
    assert found.differ <= differ, found
    # In float64 all that is left is that what was sent is float32: half of its last bit, below 1.
    assert precision == "float32" or found.largest <= 2.0**-25
    # And a difference that rounding does not explain is not explained away.
    off = parity.compare(path, caution, numbers, states._replace(action=states.action + np.float32(1e-3)), precision)
    assert off.differ == 200 and off.unexplained >= 200 - differ


@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize(("caution", "variant"), [("refinement", "paper"), ("both", "unit")])
def test_onnx_runtime_acts_like_the_runtime(path, caution, variant, activation):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    found = bundle.load(path)
    numbers = Refinement(threshold_scale=0.01, variant=variant)
    manifest = replace(found.manifest, caution=caution, refinement=numbers)
    if activation == "silu":
        # The same weights under another activation: no golden vectors for that, so the runtime is asked directly.
        manifest = replace(manifest, network=replace(manifest.network, activation="silu"))
    networks = PolicyNetworks(manifest, found.weights)
    policy = OnnxPolicy(manifest, onnx_export.build(manifest, found.weights))
    box = Box(manifest.action_low, manifest.action_high)
    assert networks.critics is not None
    threshold = 0.01 * manifest.budget.discounted
    for i in range(100):
        observation, latent = found.golden["observation"][i], found.golden["latent"][i]
        eta = float(found.golden["eta"][i])
        told = 0.0 if caution == "refinement" else eta
        normal, context = networks.normalisers.see(observation), networks.context(latent, told)
        nominal = networks.action(normal, context)
        np.testing.assert_allclose(policy.nominal(observation, latent, told), nominal, atol=1e-5)
        networks.critics.prepare(normal, context, eta)
        ours = refine(networks.critics, nominal, eta, threshold, box, numbers)
        np.testing.assert_allclose(policy.act(observation, latent, eta, numbers, 0.01), ours.action, atol=1e-5)


def test_a_policy_without_critics_acts_like_the_trained_one_everywhere(tmp_path):
    made = export_run(load_trained(cart_run.write(tmp_path / "run", method="pearl"), 0), tmp_path / "b", None)
    states = parity.record(made.path, NO_CAUTION, None, [0.0], 100)
    found = parity.compare(made, NO_CAUTION, None, states)
    out = tmp_path / "parity.json"
    assert main(["bench", "parity", str(made.path), "--decisions", "20", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["parity"][NO_CAUTION]["states"] == 20
    assert found.states == 100 and found.refined == 0 and found.unexplained == 0, found
    off = parity.compare(made, NO_CAUTION, None, states._replace(action=states.action + np.float32(1e-3)))
    assert off.differ == 100
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    files = onnx_export.build(made.manifest, made.weights)
    assert set(files) == {onnx_export.ACTOR}
    policy = OnnxPolicy(made.manifest, files)
    for observation, latent, action in zip(states.observation, states.latent, states.action, strict=True):
        seen = observation.astype(np.float32)
        np.testing.assert_allclose(policy.nominal(seen, latent, 0.0), action, atol=1e-5)
    with pytest.raises(ValueError, match="written without its critics"):
        policy.act(states.observation[0].astype(np.float32), states.latent[0], 0.5, Refinement(), 1.0)


def test_parity_by_command(path, tmp_path, capsys):
    out = tmp_path / "parity.json"
    words = ["bench", "parity", str(path), "--cautions", "both", "--decisions", "20", "--etas", "0", "0.9"]
    assert main([*words, "--out", str(out)]) == 0
    said, found = capsys.readouterr().out, json.loads(out.read_text())
    assert str(out) in said and found["bundle"] == bundle.load(path).checksum
    assert found["parity"]["both"]["states"] == 40 and found["parity"]["both"]["unexplained"] == 0
    assert found["parity_float64"]["both"]["states"] == 40 and found["parity_float64"]["both"]["differ"] == 0
    assert "float32" in said and "float64" in said
    without, careful = found["predicted"]["both"]
    assert (without["eta"], without["lower"], without["higher"]) == (0.0, 0.0, 0.0)
    assert careful["lower"] + careful["higher"] > 0.0
    with pytest.raises(UsageError, match="from 0 to below 1"):
        read(bench_parity.Options, [str(path), "--etas", "1.5"], "ashore bench parity")
    with pytest.raises(UsageError, match="did you mean 'both'"):
        read(bench_parity.Options, [str(path), "--cautions", "bth"], "ashore bench parity")


@pytest.mark.parametrize("caution", ["refinement", "actor"])
def test_the_more_caution_the_lower_the_cost_that_the_shipped_policy_expects(caution):
    shipped = bundle.load(SHIPPED / "point_goal2")
    given = shipped.golden["observation"][::4], shipped.golden["latent"][::4]
    costs = [row.cost for row in predicted_caution.predict(shipped, caution, *given, (0.0, 0.4, 0.8, 0.95))]
    assert all(later < earlier for earlier, later in itertools.pairwise(costs)), costs
