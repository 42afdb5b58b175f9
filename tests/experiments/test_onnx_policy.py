"""The loop around the ONNX graphs ends where the runtime's does, and says the same about what it sends."""

from dataclasses import replace

import numpy as np
import pytest

from ashore.experiments import onnx_export
from ashore.experiments.onnx_policy import OnnxPolicy
from ashore_runtime import bundle
from ashore_runtime.refinement import Box, refine
from ashore_runtime.schema import Refinement
from runtime import small_bundle

STEPS = Refinement(steps=5, variant="unit", weight="full")


def test_it_stops_at_the_first_action_that_fits(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    found = bundle.load(small_bundle.write(tmp_path / "toy.bundle"))
    manifest, networks = replace(found.manifest, refinement=STEPS), found.networks
    policy = OnnxPolicy(manifest, onnx_export.build(manifest, found.weights))
    box, eta, taken = Box(manifest.action_low, manifest.action_high), 0.5, set()
    assert networks.critics is not None
    for observation, latent in zip(found.golden["observation"][:20], found.golden["latent"][:20], strict=True):
        normal, context = networks.normalisers.see(observation), networks.context(latent, 0.0)
        nominal = networks.action(normal, context)
        networks.critics.prepare(normal, context, eta)
        furthest = refine(networks.critics, nominal, eta, -1.0, box, STEPS)
        # Nothing fits, or the nominal action does, or one on the way, where rounding does not decide which.
        thresholds = [-1.0, 2.0 * furthest.nominal_cost]
        if furthest.cost < 0.99 * furthest.nominal_cost:
            thresholds.append(0.5 * (furthest.cost + furthest.nominal_cost))
        for threshold in thresholds:
            ours = refine(networks.critics, nominal, eta, threshold, box, STEPS)
            theirs = policy.refine(observation, context, nominal, eta, STEPS, threshold)
            assert theirs.steps == ours.steps
            # A step is 0.05 long, whatever rounding does to the direction of a small gradient.
            np.testing.assert_allclose(theirs.action, ours.action, atol=1e-3)
            np.testing.assert_allclose(theirs[1:3], ours[1:3], rtol=1e-4)
            taken.add(ours.steps)
        # Without caution nothing is asked.
        neutral = policy.refine(observation, context, nominal, 0.0, STEPS, -1.0)
        assert neutral.action is nominal and neutral.steps == 0 and np.isnan(neutral.cost)
    assert {0, 5} < taken, "it never stopped on the way"
