"""A scripted controller where a runtime could be: it learns nothing, is never careful, and is told what came of it."""

import time
from typing import Any

import numpy as np

from ashore.environments.base import TaskDescription
from ashore.environments.task_family import Controller
from ashore_runtime import ActResult, Evidence, Mode, Reason
from ashore_runtime.posterior import Posterior

_NEVER = 2**63 - 1
"""A deadline that nobody can miss."""


class ScriptedPilot:
    """Answers as a runtime would at eta = 0 without an encoder."""

    def __init__(self, controller: Controller, description: TaskDescription) -> None:
        self._controller = controller
        self._low, self._high = description.action_bounds
        nothing = np.zeros(0, np.float32)
        self.posterior = Posterior(nothing, nothing, 0)

    def new_episode(self) -> None:
        """A scripted controller remembers nothing."""

    def act(self, observation: Any) -> ActResult:
        """What the script says, within the action's bounds."""
        begun = time.monotonic_ns()
        action = np.clip(self._controller(observation), self._low, self._high).astype(np.float32)
        nothing = np.zeros(0, np.float32)
        return ActResult(
            action=action,
            source="nominal",
            reasons=Reason.NONE,
            q_c=float("nan"),
            q_c_nominal=float("nan"),
            eta=0.0,
            z_mean=nothing,
            z_std=nothing,
            n_real=0,
            k_used=0,
            k_max=0,
            t_total_ns=time.monotonic_ns() - begun,
            deadline_ns=_NEVER,
            mode=Mode.ACTIVE,
        )

    def observe(self, next_observation: Any, reward: float | None, cost: float | None) -> Evidence:
        """Nothing is learnt from it."""
        del next_observation, reward, cost
        return Evidence(used=False, reasons=Reason.NONE, changed=False, surprise=float("nan"), n_real=0, eta=0.0)
