"""The ONNX files as a policy that acts: ONNX Runtime runs them, and the loop of Algorithm 1 is here."""

import math
from collections.abc import Mapping

import numpy as np

from ashore.experiments.onnx_export import ACTOR, STEP
from ashore.experiments.onnx_extra import onnxruntime
from ashore_runtime.refinement import LEAST_GAIN, Refined, interpolation_weight
from ashore_runtime.schema import Manifest, Refinement

_STEPPED = ("next_iterate", "candidate", "cost", "cost_before")
"""What one run of `refine_step.onnx` gives."""


class OnnxPolicy:
    """A policy in ONNX Runtime, on one thread: what the files are for, and how to use them."""

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        runtime = onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._manifest = manifest
        sessions = {
            name: runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            for name, data in files.items()
        }
        self._actor, self._step = sessions[ACTOR], sessions.get(STEP)

    def context(self, latent: np.ndarray, eta: float) -> np.ndarray:
        """z, and eta for networks that take it."""
        return np.append(latent, np.float32(eta)) if self._manifest.network.risk_conditioned else latent

    def nominal(self, observation: np.ndarray, latent: np.ndarray, eta: float) -> np.ndarray:
        """The actor's action; `eta` is what it is told, 0 where caution is left to the refinement."""
        given = {"observation": observation, "context": self.context(latent, eta)}
        return self._actor.run(["action"], given)[0]

    def act(
        self, observation: np.ndarray, latent: np.ndarray, eta: float, settings: Refinement, threshold_scale: float
    ) -> np.ndarray:
        """The actor's action, refined by Algorithm 1; `threshold_scale` is in the place of the settings'."""
        told = 0.0 if self._manifest.caution == "refinement" else eta
        nominal = self.nominal(observation, latent, told)
        threshold = threshold_scale * self._manifest.budget.discounted
        return self.refine(observation, self.context(latent, told), nominal, eta, settings, threshold).action

    def refine(
        self,
        observation: np.ndarray,
        context: np.ndarray,
        nominal: np.ndarray,
        eta: float,
        settings: Refinement,
        threshold: float,
    ) -> Refined:
        """Algorithm 1 with `keep="best"`, the loop outside of the graph; `Refined` says what was judged."""
        if self._step is None:
            raise ValueError("There is nothing to refine with: the policy was written without its critics.")
        weight = interpolation_weight(settings.weight, eta)
        given = {"observation": observation, "context": context, "nominal": nominal, "iterate": nominal}
        given |= {"eta": np.array(eta, np.float32), "weight": np.array(weight, np.float32)}
        best = Refined(nominal, math.nan, math.nan, 0)
        for step in range(settings.steps if weight else 0):
            # All four at once: a run computes all of them, whatever is asked for.
            given["iterate"], candidate, cost, before = self._step.run(_STEPPED, given)
            if step == 0:
                best = Refined(nominal, float(before), float(before), 0)
                # As in the runtime: a cost that is not a number is not above anything, and nothing is refined then.
                if not best.cost > threshold:
                    break
            better = cost <= threshold or cost < best.cost - LEAST_GAIN * abs(best.cost)
            action, judged = (candidate, float(cost)) if better else (best.action, best.cost)
            best = Refined(action, judged, best.nominal_cost, step + 1)
            if best.cost <= threshold:
                break
        return best
