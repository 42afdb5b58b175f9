"""A deployment in two processes: the world behind a supervisor in one, the policy in the other.

    the supervisor's process                                   the policy's process
    `supervise`: each command moves the world  <- actions --   `SupervisedWorld.step`: sends an action,
    by one control period, and is logged       -- reports ->   and learns what came of it

The world stands still until the policy's first action, so that loading takes no time in it. Once a policy has lost the
actuator, the fallback drives the world to the end of the episode, and the deployment is over.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ashore.experiments.deployment import cost_of
from ashore.experiments.whole_lines import WholeLines
from ashore_runtime import ActuatorLink, Mode, Refused, Supervisor, process
from ashore_runtime.schema import Manifest
from ashore_runtime.supervisor import POLICY, Sent

LOG = "supervisor.jsonl"
_SECONDS_TO_HEAR = 30.0
_METRIC = "metric_"


class SupervisedWorld(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What the policy sees of a world that another process moves; the wrapped one only says what it is like."""

    def __init__(self, env: gymnasium.Env[Any, Any], link: ActuatorLink) -> None:
        super().__init__(env)
        self._link = link

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The beginning of the next episode, which the other process has chosen."""
        del seed, options
        report = self._report()
        return report["observation"], report["info"]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Send the action on, and wait for what came of it."""
        try:
            self._link.send(action)
        except ConnectionError as error:
            raise Refused("The supervisor is gone, and the actuator with it.") from error
        report = self._report()
        if report["source"] != POLICY:
            raise Refused("The supervisor took the actuator away, because an action did not come in time.")
        return report["observation"], report["reward"], report["terminated"], report["truncated"], report["info"]

    def _report(self) -> dict[str, Any]:
        word = self._link.hear(_SECONDS_TO_HEAR)
        if word is None:
            raise Refused(f"Nothing was heard from the robot for {_SECONDS_TO_HEAR:g} s.")
        report = json.loads(word)
        return report | {"observation": np.array(report["observation"], self.observation_space.dtype)}


class Outcome(NamedTuple):
    """How a supervised deployment went."""

    health: dict[str, Any]
    """The supervisor's, when the world stopped."""
    policy: int | None
    """What the policy's process ended with, None if it hangs."""
    silent: dict[str, Any] | None
    """The log's line of the first fallback, if the policy lost the actuator."""
    lost: tuple[str, ...]
    """Names of the files that end too early, because the disk was full."""


class _Robot:
    """A world that holds the last command, and moves by one control period when it is asked to."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        self._env = env
        self._seed: int | None = seed
        self._command: np.ndarray | None = None
        self.episode, self.decision = -1, 0

    def send(self, action: np.ndarray) -> None:
        """The actuator: returns at once, so that the world never holds the supervisor up."""
        self._command = action

    def begin(self) -> dict[str, Any]:
        """The next episode; the first one is the seed's."""
        observation, info = self._env.reset(seed=self._seed)
        self._seed = None
        self.episode, self.decision = self.episode + 1, 0
        return {"observation": np.asarray(observation).tolist(), "info": _plain(info)}

    def move(self) -> dict[str, Any]:
        """One control period under the last command."""
        observation, reward, terminated, truncated, info = self._env.step(self._command)
        cost = cost_of(info, self.decision)
        self.decision += 1
        return {
            "observation": np.asarray(observation).tolist(),
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": _plain(info) | {"cost": cost},
        }


def supervise(
    command: Sequence[str],
    env: gymnasium.Env[Any, Any],
    manifest: Manifest,
    episodes: int,
    seed: int,
    log: Path,
    tell: Callable[[str], object],
) -> Outcome:
    """Own the actuator of a deployment until its episodes are over, or that of a policy which fell silent.

    Args:
        command: starts the policy, which deploys in a `SupervisedWorld`.
        env: the world.
        manifest: of the policy's bundle.
        episodes, seed: as in `deployment.moments`.
        log: gets one line of JSON per command.
        tell: gets one sentence if that can no longer be written.
    """
    robot = _Robot(env, seed)
    lost: list[str] = []

    def lose(path: Path, problem: OSError) -> None:
        lost.append(path.name)
        tell(f"{path} can no longer be written ({problem.strerror}): is the disk full? The supervisor goes on.")

    # A collection of everything that was imported would come between an action and the world.
    process.keep_what_was_loaded()
    with (
        contextlib.closing(WholeLines(log, lose)) as lines,
        Supervisor(command, robot.send, manifest) as supervisor,
    ):
        silent = _drive(supervisor, robot, episodes, lines)
        health = supervisor.health()
        assert supervisor.policy is not None
        # A policy that has finished writes its report; one that lost the actuator has had an episode to end.
        ended = supervisor.policy.poll() if silent else supervisor.policy.wait()
    # Only now: some disks say no when a file is closed.
    return Outcome(health, ended, silent, tuple(lost))


def _drive(supervisor: Supervisor, robot: _Robot, episodes: int, lines: WholeLines) -> dict[str, Any] | None:
    """Move the world with whatever the supervisor sends; returns the line of the first fallback, if there was one."""
    supervisor.tell(json.dumps(robot.begin()).encode())
    silent: dict[str, Any] | None = None
    last: int | None = None
    while True:
        sent = supervisor.step()
        if supervisor.mode is Mode.READY:
            if supervisor.health()["policy"] == "ended":
                return None
            continue
        if sent is None:
            continue
        where = {"episode": robot.episode, "decision": robot.decision}
        report = robot.move()
        supervisor.tell(json.dumps(report | {"source": sent.source}).encode())
        line = where | _line(sent, last) | {"cost": report["info"]["cost"]}
        lines.add(line)
        if sent.source == POLICY:
            last = sent.since
        else:
            silent = silent or line
        if report["terminated"] or report["truncated"]:
            if silent is not None or robot.episode + 1 == episodes:
                return silent
            supervisor.tell(json.dumps(robot.begin()).encode())


def _line(sent: Sent, last: int | None) -> dict[str, Any]:
    return {
        "source": sent.source,
        "action": sent.action.tolist(),
        "after_last_action_ms": None if last is None else round((sent.out - last) * 1e-6, 3),
        "delay_ms": round((sent.out - sent.since) * 1e-6, 3),
        "late_ms": round(sent.late * 1e-6, 3),
        "problem": sent.problem,
    }


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """What a deployment reads of an `info` besides the cost."""
    known = {name: float(value) for name, value in info.items() if name.startswith(_METRIC)}
    return known | {"diverged": bool(info.get("diverged", False))}
