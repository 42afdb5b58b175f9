"""Folders as training, evaluation, calibration, deployment and suites leave them, with numbers that nobody measured."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ashore.environments.video import write_video
from ashore.experiments import suite_evaluation
from ashore.experiments.evaluation import EvaluationConfig, ShiftResult, write_results
from ashore.experiments.statistics import estimate
from ashore.experiments.suite_evaluation import Evaluation

SEEDS = 3
COUNTS = [0, 1, 2, 4, 8, 16, 32, 64]
SHIFTS = ("train", "mild", "medium", "high")
_ETAS = [0.0, 0.4, 0.8, 0.9]
_LIMIT, _DISCOUNTED = 25.0, 10.0


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))
    return path


def config(folder: Path, method: str = "risk_adaptive", **more: Any) -> Path:
    content = {"task": "PointGoal2", "task_preset": "default", "method": method, "train": {"worlds": 8}}
    return write_json(folder / "config.json", {**content, "seeds": SEEDS, "seed": 0, **more})


def metrics(folder: Path, rows: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a run; no episode has ended in the first."""
    generator = np.random.default_rng(seed)
    found = []
    for row in range(1, rows + 1):
        ended = row > 1

        def noisy(value: float, exists: bool = True) -> list[float | None]:
            return [float(value * generator.normal(1.0, 0.08)) if exists else None for _ in range(SEEDS)]

        found.append(
            {
                "decisions": 40 * row,
                "env_steps": 327680 * row,
                "env_steps_per_second": 1e5,
                "episode_return": noisy(1.5 * row, ended),
                "episode_cost": noisy(20.0 + 100.0 / row, ended),
                "episodes": [float(10 * ended)] * SEEDS,
                "multiplier": noisy(3.0 * (1.0 - math.exp(-row))),
                "kl": noisy(2.0 + row / 2),
                "probe_thrust_per_mass": noisy(1.0 - 3.0 / row**2, ended),
                "actor_loss": noisy(-row / 3),
                "critic_loss_cost": noisy(1.0 / row),
                "gradient_norm_actor": noisy(0.2),
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    return found


def evaluation(folder: Path, attack: Any = "none", seed: int = 0) -> dict[str, Any]:
    """As `ashore evaluate` writes it."""
    generator = np.random.default_rng(seed)
    results = []
    for harder, shift in enumerate(SHIFTS):
        cost = generator.gamma(4.0, 5.0 + 2.0 * harder, (SEEDS, 16, 4))
        results.append(
            ShiftResult(
                shift=shift,
                episode_return=estimate(generator.normal(14.0 - harder, 2.0, (SEEDS, 16))),
                episode_cost=estimate(cost.mean(axis=2)),
                first_cost=estimate(cost[:, :, 0]),
                cost_by_episode=tuple(cost.mean(axis=(0, 1)).tolist()),
                metrics={"goals_reached": estimate(generator.normal(5.0, 1.0, (SEEDS, 16)))},
                probes={count: {"thrust_per_mass": 1.0 - 2.0 / (1 + int(count))} for count in ("1", "8", "32")},
                latent_error={count: 2.0 / math.sqrt(int(count)) for count in ("1", "8", "32")},
                diverged=harder,
            )
        )
    path = write_results(folder, EvaluationConfig(environments=16, episodes=4, attack=attack), results)
    return json.loads(path.read_text())


def calibration(folder: Path, seed: int = 0) -> dict[str, Any]:
    """As `ashore calibrate` writes it: the entries that a page shows."""
    factor = _LIMIT / _DISCOUNTED
    epsilon = [2.0 / math.sqrt(1 + count) for count in COUNTS]
    lipschitz = [3.0 + seed for _ in COUNTS]
    direct = [4.0 / math.sqrt(1 + count) for count in COUNTS]
    delta = [[0.0, 2.0, 5.0, 6.0 - count / 64] for count in COUNTS]
    eta = [0.9, 0.9, 0.9, 0.8, 0.8, 0.4, 0.4, 0.0]
    infeasible = [True] + [False] * (len(COUNTS) - 1)

    def covered(worlds: int, cost: float) -> dict[str, Any]:
        by_count = [cost / (1 + place) for place in range(len(COUNTS))]
        share = {"worlds": 20, "covered": worlds, "share": worlds / 20, "lower_bound": 0.8 * worlds / 20}
        more = {"confidence": 0.95, "first_episode": share, "mean_cost": cost, "cost_by_count": by_count}
        return {**share, **more, "episode_return": 11.25, "trigger_rate": 0.375, "diverged": 0}

    def per_episode(values: list[float]) -> list[float]:
        return [value * factor for value in values]

    content = {
        "schema": 1,
        "task": "PointGoal2",
        "weights_sha256": "5a" * 32,
        "budget": {"per_episode": _LIMIT, "per_decision": 0.1, "discounted": _DISCOUNTED, "discount": 0.99},
        "level": 0.9,
        "rule": "max",
        "rule_meaning": "Delta_c >= max(L_c epsilon, |dJ_c|)",
        "joint_level": 0.7,
        "caution": "actor",
        "counts": COUNTS,
        "etas": _ETAS,
        "eta": eta,
        "infeasible": infeasible,
        "schedule": {"by_rule": {"max": {"eta": eta}, "budget": {"eta": [value / 2 for value in eta]}}},
        "spread": [1.0 / math.sqrt(1 + count) for count in COUNTS],
        "epsilon": epsilon,
        "standard_errors": {"epsilon": [0.1] * len(COUNTS), "lipschitz": [0.2] * len(COUNTS)},
        "mean_delta": {"counts": [0, 16], "value": delta[:2], "standard_error": [[0.0, 0.1, 0.2, 0.3]] * 2},
        "neutral_cost": {"mean": [8.0] * len(COUNTS), "bound": [12.0] * len(COUNTS), "reference_mean": 7.0},
        "theorem_bound": [_DISCOUNTED + a * b for a, b in zip(epsilon, lipschitz, strict=True)],
        "tempering": 1.0,
        "coverage": {"scheduled": covered(19, 6.5), "neutral": covered(11, 12.5)},
        "per_episode": {
            "lipschitz": per_episode(lipschitz),
            "direct": per_episode(direct),
            "delta": [per_episode(row) for row in delta],
            "noise_floor": 3.75,
        },
        "assumptions": ["The world that is met is drawn like the simulated ones."],
    }
    write_json(folder / "calibration" / f"seed_{seed}" / "calibration.json", content)
    return content


def frontier(folder: Path) -> dict[str, Any]:
    """As `ashore calibrate --frontier` writes it."""

    def curve(steep: float) -> dict[str, list[float]]:
        cost = [40.0 * (1.0 - steep * eta) for eta in _ETAS]
        gain = [15.0 * (1.0 - eta**2) for eta in _ETAS]
        errors = [1.0] * len(_ETAS)
        more = {"cost_error": errors, "return_error": errors, "triggered": [0.5] * len(_ETAS)}
        return {"episode_cost": cost, "episode_return": gain, **more}

    content = {
        "budget": {"per_episode": _LIMIT},
        "settings": {"etas": _ETAS, "environments": 8, "episodes": 2},
        "curves": {way: {shift: curve(steep) for shift in SHIFTS} for way, steep in (("actor", 0.9), ("unit", 0.5))},
    }
    write_json(folder / "calibration" / "seed_0" / "frontier.json", content)
    return content


def deployment(folder: Path, episodes: int = 3, length: int = 40) -> dict[str, Any]:
    """As `ashore deploy` writes it."""
    generator = np.random.default_rng(0)
    rows = []
    for number in range(episodes * length):
        rows.append(
            {
                "episode": number // length,
                "decision": number % length,
                "cost": float(generator.random() < 0.5),
                "eta": 0.9 if number < length else 0.4,
                "spread": 1.0 / math.sqrt(1 + number),
                "steps": int(generator.integers(0, 6)),
                "changed": number == 2 * length,
                "source": "refined" if number % 2 else "nominal",
                "mode": "active",
                "reasons": "over threshold" if number % 2 else "",
                "latency_ms": float(generator.gamma(4.0, 2.0)),
                "missed": False,
            }
        )
    costs = [sum(row["cost"] for row in rows if row["episode"] == episode) for episode in range(episodes)]
    summary = {
        "bundle": "7f" * 32,
        "caution": "both",
        "seed": 4,
        "control_period": 0.08,
        "task": "PointGoal2",
        "shift": "medium",
        "parameters": {"mass": 1.25},
        "episodes": [
            {"return": 10.5 + episode, "cost": cost, "decisions": length, "mean_eta": 0.5, "diverged": False}
            | {"metrics": {"goals_reached": 4.0}}
            for episode, cost in enumerate(costs)
        ],
        "mean_return": 11.5,
        "mean_cost": sum(costs) / episodes,
        "budget_per_episode": 18.0,
        "episodes_over_budget": sum(cost > 18.0 for cost in costs),
        "decisions": len(rows),
        "refined": 60,
        "refinement_steps": sum(row["steps"] for row in rows),
        "deadlines_missed": 0,
        "held_or_fallback": 0,
        "changes_detected": 1,
        "latency_ms": {"p50": 7.5, "p99": 21.0, "p99.9": 24.0, "max": 25.5},
    }
    write_json(folder / "summary.json", summary)
    (folder / "decisions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return summary


def film(path: Path) -> Path:
    """Half a second of a square that moves."""
    pictures = np.full((10, 48, 64, 3), 235, np.uint8)
    for number, picture in enumerate(pictures):
        picture[16:32, 4 * number : 4 * number + 16] = (31, 111, 178)
    return write_video(path, pictures, 20.0)


def provenance(folder: Path) -> dict[str, Any]:
    """One command, as it is noted."""
    note = {
        "command": "ashore train PointGoal2 risk_adaptive --preset gpu --seeds 3",
        "versions": {"ashore": "0.1.0", "jax": "0.11.2"},
        "machine": {"processor": "A processor", "threads": 2, "devices": ["gpu: NVIDIA H200"]},
    }
    (folder / "provenance.jsonl").write_text(json.dumps(note) + "\n")
    return note


def whole_run(folder: Path) -> Path:
    """A run with everything that can be made of it."""
    config(folder)
    metrics(folder)
    evaluation(folder)
    evaluation(folder, "cost", seed=1)
    calibration(folder)
    frontier(folder)
    deployment(folder / "deployment")
    film(folder / "deployment" / "deployment.mp4")
    provenance(folder)
    return folder


def _eta(method: str) -> np.ndarray:
    """Risk level by decision: ours relaxes from 0.9 to 0.2 in 1000 decisions, everybody else has none."""
    return np.linspace(0.9, 0.2, 1000) if method == "risk_adaptive" else np.zeros(1000)


def cell(pool: Path, method: str, seed: int, trained: bool = True, task: str = "PointGoal2") -> Path:
    """A cell of a suite, as `ashore suite run` leaves it."""
    folder, generator = pool / "gpu" / task / method, np.random.default_rng(seed)
    seeds, worlds, episodes = SEEDS if trained else 1, 8, 4
    if trained:
        config(folder, method, task=task)
        metrics(folder, seed=seed)
    shape = (seeds, len(SHIFTS), worlds, episodes)
    harder = 1.0 + np.arange(len(SHIFTS))[None, :, None, None] / 4.0
    found = Evaluation(
        shifts=SHIFTS,
        episode_return=generator.normal(14.0, 2.0, shape) / harder,
        episode_cost=generator.gamma(4.0, 4.0 + seed, shape) * harder,
        metrics={"goals_reached": generator.normal(5.0, 1.0, shape)},
        window_reward=np.zeros((*shape[:3], 8)),
        window_cost=np.zeros((*shape[:3], 8)),
        eta=_eta(method) * np.ones((*shape[:2], 1)),
        triggered=np.zeros(shape[:3]),
        diverged=np.zeros(shape[:3], int),
    )
    facts = {"environments": worlds, "episodes": episodes, "budget": {"per_episode": _LIMIT}}
    suite_evaluation.write(folder, found, facts)
    results = {
        shift: {
            "return": estimate(found.of([shift], found.episode_return).mean(axis=2))._asdict(),
            "cost": estimate(found.of([shift], found.episode_cost).mean(axis=2))._asdict(),
        }
        for shift in SHIFTS
    }
    summary = {"schema": 1, "task": task, "method": method, "settings_sha256": "0", "results": results, "facts": facts}
    write_json(folder / "summary.json", {**summary, "versions": {"jax": "0.11.2"}, "machine": {"threads": 2}})
    return folder
