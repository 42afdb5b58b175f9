"""What a deployment leaves behind: one line of JSON per decision, a summary, a figure and a video."""

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from ashore.environments.video import write_video
from ashore.experiments import deployment_supervised
from ashore.experiments.deployment import Moment
from ashore.experiments.whole_lines import WholeLines
from ashore_runtime.schema import Manifest

LOG, SUMMARY, FIGURE, VIDEO = "decisions.jsonl", "summary.json", "deployment.png", "deployment.mp4"
JOURNAL = "run.jnl"
_LOGS = (LOG, deployment_supervised.LOG)
_FILES = (*_LOGS, SUMMARY, FIGURE, VIDEO, JOURNAL)
_USUAL = Path("runs/deploy")
_DIGITS = 6
"""Significant digits in the log; the journal keeps every bit for whoever needs them."""
_STRIP = 46
"""Height in pixels of the words above a picture."""


@contextlib.contextmanager
def claimed(wish: Path | None) -> Generator[Path, None, None]:
    """A folder for one deployment; if nothing was decided in it, nothing is left of it.

    Args:
        wish: a folder without a deployment; None takes the first of runs/deploy, runs/deploy-2, ... that is not there.
    """
    folder = wish or _free()
    if any((folder / name).exists() for name in _FILES):
        raise ValueError(f"{folder} holds a deployment already: choose another folder.")
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=wish is not None)
    try:
        yield folder
    finally:
        # A full disk may leave a summary of decisions that no log tells of.
        told = (folder / name for name in (*_LOGS, SUMMARY))
        if not any(file.is_file() and file.stat().st_size for file in told):
            _take_back(folder, missing)


def _free() -> Path:
    numbered = (_USUAL.with_name(f"{_USUAL.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in itertools.chain([_USUAL], numbered) if not folder.exists())


def _take_back(folder: Path, made: Sequence[Path]) -> None:
    """Remove the files of a deployment that did not begin, and the folders that were made for it."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    for place in made:
        # Somebody else's files may have come in between.
        with contextlib.suppress(OSError):
            place.rmdir()


def line(moment: Moment) -> dict[str, Any]:
    """One decision in plain numbers and words."""
    result, evidence = moment.result, moment.evidence
    return {
        "episode": moment.episode,
        "decision": moment.decision,
        "action": [_short(value) for value in result.action],
        "reward": _short(moment.reward),
        "cost": _short(moment.cost),
        "eta": _short(result.eta),
        "transitions": evidence.n_real,
        "spread": _short(moment.spread),
        "latent": [_short(value) for value in result.z_mean],
        "steps": result.k_used,
        "q_c_nominal": _short(result.q_c_nominal),
        "q_c": _short(result.q_c),
        "surprise": _short(evidence.surprise),
        "changed": evidence.changed,
        "source": result.source,
        "mode": result.mode.value,
        "reasons": (result.reasons | evidence.reasons).words(),
        "latency_ms": _short(result.t_total_ns * 1e-6),
        "missed": result.missed,
    }


class Tally:
    """Figures of a deployment so far: for the eye while it runs, for the summary afterwards."""

    def __init__(self, manifest: Manifest) -> None:
        self.budget = manifest.budget
        self.episodes: list[dict[str, Any]] = []
        """Of the episodes that have ended."""
        self.latencies: list[float] = []
        """In ms."""
        self.decisions = self.triggered = self.steps = self.missed = self.fallbacks = self.changes = self.unused = 0
        self.cost = self.reward = 0.0
        """Of the running episode, as is the next."""
        self.episode_steps = 0
        """Of refinement."""
        self.last: Moment | None = None
        self._etas: list[float] = []

    def add(self, moment: Moment) -> None:
        """Count one more decision."""
        result = moment.result
        if self.last is None or self.last.ended:
            self.cost = self.reward = 0.0
            self.episode_steps = 0
            self._etas = []
        self.last = moment
        self.decisions += 1
        self.cost += moment.cost
        self.reward += moment.reward
        self._etas.append(result.eta)
        self.latencies.append(result.t_total_ns * 1e-6)
        self.triggered += result.k_used > 0
        self.steps += result.k_used
        self.episode_steps += result.k_used
        self.missed += result.missed
        self.fallbacks += result.source in ("held", "fallback")
        self.changes += moment.evidence.changed
        self.unused += not moment.evidence.used
        if moment.ended:
            self.episodes.append(
                {
                    "return": self.reward,
                    "cost": self.cost,
                    "decisions": moment.decision + 1,
                    "mean_eta": float(np.mean(self._etas)),
                    "diverged": moment.diverged,
                    "metrics": moment.metrics,
                }
            )

    def latency(self, *shares: float, last: int = 0) -> list[float]:
        """Percentiles in ms, of so many decisions that came last; of all of them for 0."""
        return np.quantile(self.latencies[-last:], shares).tolist()

    def summary(self) -> dict[str, Any]:
        """Everything, for JSON."""
        costs = [episode["cost"] for episode in self.episodes]
        p50, p99, p999, most = self.latency(0.5, 0.99, 0.999, 1.0)
        return {
            "episodes": self.episodes,
            "mean_return": float(np.mean([episode["return"] for episode in self.episodes])),
            "mean_cost": float(np.mean(costs)),
            "budget_per_episode": self.budget.per_episode,
            "episodes_over_budget": sum(cost > self.budget.per_episode for cost in costs),
            "decisions": self.decisions,
            "refined": self.triggered,
            "refinement_steps": self.steps,
            "deadlines_missed": self.missed,
            "held_or_fallback": self.fallbacks,
            "changes_detected": self.changes,
            "transitions_not_used": self.unused,
            "latency_ms": {"p50": p50, "p99": p99, "p99.9": p999, "max": most},
        }


class Written(NamedTuple):
    """Where the report is; None where a file was not asked for or could not be written."""

    log: Path
    summary: Path | None
    figure: Path | None
    video: Path | None
    lost: tuple[str, ...]
    """Names of the files that are missing or end too early, because the disk was full."""


class _Losses:
    """Files that could not be written to their end. The first is told of at once; acting goes on."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.names: list[str] = []
        self._tell = tell

    def add(self, path: Path, problem: Exception) -> None:
        if not self.names:
            why = (problem.strerror if isinstance(problem, OSError) else None) or str(problem).partition("\n")[0]
            guess = ": is the disk full?" if isinstance(problem, OSError) else "."
            self._tell(f"{path} can no longer be written ({why}){guess} The deployment goes on without it.")
        self.names.append(path.name)


def write(
    folder: Path,
    moments: Iterator[Moment],
    tally: Tally,
    facts: dict[str, Any],
    pictures: Iterator[np.ndarray] | None,
    tell: Callable[[str], object],
) -> Written:
    """Run a deployment to its end and report it; a disk that fills up on the way costs the report, not the deployment.

    Args:
        folder: where to; it must be there.
        moments: the deployment; it advances as this takes from it.
        tally: is told every moment.
        facts: what the summary should also say.
        pictures: the environment at each moment, asked for once after each; None makes no video.
        tell: gets one sentence as soon as something cannot be written.
    """
    losses = _Losses(tell)
    kept: list[Moment] = []
    with contextlib.closing(WholeLines(folder / LOG, losses.add)) as log:

        def logged() -> Iterator[Moment]:
            for moment in moments:
                kept.append(moment)
                tally.add(moment)
                log.add(line(moment))
                yield moment

        decided = logged()
        video = None
        if pictures is not None:
            video = _film(folder / VIDEO, decided, pictures, tally, 1.0 / facts["control_period"], losses)
        # All decisions without a video, and those that are left where a full disk ended it.
        for _ in decided:
            pass
    found = {**facts, **tally.summary(), "lost": tuple(losses.names)}
    summary = _attempt(folder / SUMMARY, lambda path: path.write_text(json.dumps(found, indent=2) + "\n"), losses)
    figure = _attempt(folder / FIGURE, lambda path: draw(path, kept, tally.budget.per_episode), losses)
    return Written(folder / LOG, summary, figure, video, tuple(losses.names))


def _film(
    path: Path,
    decided: Iterator[Moment],
    pictures: Iterator[np.ndarray],
    tally: Tally,
    pictures_per_second: float,
    losses: _Losses,
) -> Path | None:
    """Film decisions as they are taken; None, perhaps with decisions left to take, if that could not be written."""
    troubles: list[BaseException] = []

    def shown() -> Iterator[np.ndarray]:
        try:
            for moment in decided:
                yield caption(next(pictures), moment, tally)
        except GeneratorExit:
            raise
        except BaseException as trouble:
            troubles.append(trouble)
            raise

    try:
        return write_video(path, shown(), pictures_per_second)
    except (OSError, RuntimeError) as problem:
        # What goes wrong in the world is not the disk's doing, nor is Ctrl-C; a pipe that breaks on top hides both.
        if troubles:
            raise troubles[0] from None
        if isinstance(problem.__context__, KeyboardInterrupt):
            raise problem.__context__ from None
        losses.add(path, problem)
        _remove(path)
        return None


def _attempt(path: Path, write: Callable[[Path], object], losses: _Losses) -> Path | None:
    """Write a file; None, and nothing left of it, if the disk does not take it."""
    try:
        write(path)
    except OSError as problem:
        losses.add(path, problem)
        _remove(path)
        return None
    return path


def _remove(path: Path) -> None:
    """Remove half a file, which also makes room."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def caption(picture: np.ndarray, moment: Moment, tally: Tally) -> np.ndarray:
    """A picture with what the policy knows and spends written above it."""
    height, width, _ = picture.shape
    canvas = Image.new("RGB", (width, height + _STRIP), (255, 255, 255))
    canvas.paste(Image.fromarray(picture), (0, _STRIP))
    pen = ImageDraw.Draw(canvas)
    over = tally.cost > tally.budget.per_episode
    result = moment.result
    # A script has neither a risk level nor a belief.
    script = not len(result.z_mean)
    known = "" if script else f"   eta {result.eta:.2f}   spread {moment.spread:.2f}"
    pen.text((6, 4), f"episode {moment.episode + 1}{known}", "black")
    pen.text((6, 18), f"cost {tally.cost:.1f} of {tally.budget.per_episode:g}", (190, 30, 30) if over else "black")
    pen.text((width // 2, 18), "scripted" if script else f"steps {result.k_used}   {result.source}", "black")
    share = min(tally.cost / tally.budget.per_episode, 1.0)
    pen.rectangle((6, 35, width - 6, 41), outline="black")
    pen.rectangle((6, 35, 6 + share * (width - 12), 41), fill=(190, 30, 30) if over else (60, 120, 195))
    return np.asarray(canvas)


def draw(path: Path, moments: Sequence[Moment], budget: float) -> Path:
    """Cost so far against the budget, eta, posterior spread and latency, decision by decision."""
    figure = Figure(figsize=(9.0, 9.0), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True)
    decisions = np.arange(1, len(moments) + 1)
    episodes = np.array([moment.episode for moment in moments])
    costs = np.array([moment.cost for moment in moments])
    so_far = np.concatenate([np.cumsum(costs[episodes == episode]) for episode in np.unique(episodes)])
    panels[0].plot(decisions, so_far, color="tab:red", label="cost of the episode so far")
    panels[0].axhline(budget, color="black", linestyle="--", label=f"budget of an episode, {budget:g}")
    panels[0].legend(loc="upper right")
    # Room above both lines for the legend.
    panels[0].set_ylim(0.0, 1.35 * max(budget, float(so_far.max())))
    panels[1].step(decisions, [moment.result.eta for moment in moments], where="post", color="tab:purple")
    panels[1].set_ylim(-0.05, 1.0)
    panels[2].plot(decisions, [moment.spread for moment in moments], color="tab:blue")
    panels[2].set_ylim(bottom=0.0)
    panels[3].plot(decisions, [moment.result.t_total_ns * 1e-6 for moment in moments], ".", ms=2, color="tab:grey")
    panels[3].set_yscale("log")
    labels = ("cost", "eta", "posterior spread", "latency in ms")
    for axes, label in zip(panels, labels, strict=True):
        axes.set_ylabel(label)
        _mark(axes, moments)
    panels[3].set_xlabel("decisions")
    figure.savefig(path, dpi=120)
    return path


def _mark(axes: Axes, moments: Sequence[Moment]) -> None:
    """Thin lines where an episode ends, thick ones where the world was found to have changed."""
    for number, moment in enumerate(moments, start=1):
        if moment.ended and number < len(moments):
            axes.axvline(number + 0.5, color="lightgrey", linewidth=0.8, zorder=0)
        if moment.evidence.changed:
            axes.axvline(number, color="tab:orange", linewidth=1.5, zorder=0)


def _short(value: float) -> float | None:
    """A number that JSON can hold, without digits that nobody reads."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
