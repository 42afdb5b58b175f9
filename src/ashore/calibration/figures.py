"""The tables as pictures: one figure each, the theorem's bound beside what was realised, and the frontier."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ashore.budget import Budget
from ashore.calibration.calibrate import Calibration
from ashore.calibration.frontier import Curve
from ashore.calibration.page import per_episode_factor
from ashore.calibration.world_schedule import WorldSchedule
from ashore_runtime.schema import PERCENTILES

_SIZE = (6.0, 4.0)
_RESOLUTION = 150
_COUNT_LABEL = "transitions seen, N"
_COST_LABEL = "cost per episode"


def draw(folder: Path, calibration: Calibration) -> list[Path]:
    """Write all figures of a calibration into a folder."""
    pictures = {
        "epsilon": _epsilon,
        "lipschitz": _lipschitz,
        "cost_difference": _cost_difference,
        "cost_reduction": _cost_reduction,
        "risk_schedule": _risk_schedule,
        "theorem_bound": _theorem_bound,
        "coverage": _coverage,
    }
    paths = []
    for name, picture in pictures.items():
        figure = Figure(figsize=_SIZE, layout="constrained")
        picture(figure.add_subplot(), calibration)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=_RESOLUTION)
    if calibration.world is not None:
        paths.append(_draw_world(folder / "world_schedule.png", calibration, calibration.world))
    return paths


def draw_frontier(path: Path, curves: Mapping[str, Mapping[str, Curve]], budget: Budget) -> Path:
    """Return against cost, one panel per shift and one line per way to be careful; the first point is eta = 0."""
    shifts = list(next(iter(curves.values())))
    figure = Figure(figsize=(4.0 * len(shifts), 4.5), layout="constrained")
    for place, shift in enumerate(shifts):
        axes = figure.add_subplot(1, len(shifts), place + 1)
        for name, by_shift in curves.items():
            curve = by_shift[shift]
            axes.errorbar(
                curve.episode_cost,
                curve.episode_return,
                xerr=curve.cost_error,
                yerr=curve.return_error,
                fmt="o-",
                markersize=3,
                linewidth=1,
                elinewidth=0.5,
                label=name,
            )
        neutral = next(iter(curves.values()))[shift]
        axes.plot(neutral.episode_cost[0], neutral.episode_return[0], "k*", markersize=10, label="eta = 0")
        axes.axvline(budget.per_episode, color="black", linestyle="--", linewidth=1, label="budget")
        axes.set(title=shift, xlabel=_COST_LABEL, ylabel="return per episode" if place == 0 else "")
    axes = figure.axes[0]
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=_RESOLUTION)
    return path


def _draw_world(path: Path, calibration: Calibration, world: WorldSchedule) -> Path:
    """eta(N, z) over the simulated worlds, and what they cost beside what their beliefs predict."""
    figure = Figure(figsize=(2 * _SIZE[0], _SIZE[1]), layout="constrained")
    levels, costs = figure.subplots(1, 2)
    config, factor = calibration.config, per_episode_factor(calibration.budget)
    counts = np.asarray(config.counts)
    low, middle, high = np.asarray(world.table.eta_percentiles).T
    levels.fill_between(counts, low, high, step="post", alpha=0.25, label=f"{PERCENTILES[0]} to {PERCENTILES[-1]} %")
    levels.step(counts, middle, where="post", label="median world")
    levels.plot(counts, world.infeasible.mean(axis=1), "rx", markersize=4, label="share infeasible")
    _count_axis(levels, config.counts)
    levels.set(title="Caution in the simulated worlds", ylabel="eta(N, z)", ylim=(-0.05, 1.0))
    levels.legend()
    for place in (0, len(config.etas) - 1):
        label = f"eta = {config.etas[place]:g}, R^2 {world.r_squared[place]:.2f}"
        costs.plot(world.predicted[place] * factor, world.realised[place] * factor, ".", label=label)
    costs.axline((0.0, 0.0), slope=1.0, color="grey", linewidth=1)
    costs.axhline(calibration.budget.per_episode, color="black", linestyle="--", linewidth=1, label="budget")
    costs.set(
        title=f"Prediction after {config.measured_counts[-1]} transitions",
        xlabel=f"predicted {_COST_LABEL}",
        ylabel=f"realised {_COST_LABEL}",
    )
    costs.legend()
    figure.savefig(path, dpi=_RESOLUTION)
    return path


def _by_count(axes: Axes, calibration: Calibration, values: np.ndarray, errors: np.ndarray, label: str) -> None:
    shown = np.isfinite(values)
    counts = np.asarray(calibration.config.counts)[shown]
    axes.errorbar(counts, values[shown], yerr=errors[shown], fmt="o-", markersize=4, capsize=2, label=label)
    _count_axis(axes, calibration.config.counts)


def _count_axis(axes: Axes, counts: tuple[int, ...]) -> None:
    # Linear up to one, so that N = 0 has a place.
    axes.set_xscale("symlog", base=2, linthresh=1)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel(_COUNT_LABEL)


def _epsilon(axes: Axes, calibration: Calibration) -> None:
    table, errors = calibration.measured.epsilon, calibration.measured.errors
    _by_count(axes, calibration, table.value, table.standard_error, f"level {calibration.config.level:g}")
    axes.plot(calibration.config.counts, errors.mean(axis=1), "--", label="mean")
    axes.set(title="Latent error", ylabel="epsilon(N)", ylim=(0.0, None))
    axes.legend()


def _lipschitz(axes: Axes, calibration: Calibration) -> None:
    table, factor = calibration.measured.lipschitz, per_episode_factor(calibration.budget)
    level = f"level {calibration.config.level:g}"
    _by_count(axes, calibration, table.value * factor, table.standard_error * factor, level)
    axes.set(title="Cost sensitivity to the latent", ylabel="L_c(N), episode cost per unit", ylim=(0.0, None))
    axes.legend()


def _cost_difference(axes: Axes, calibration: Calibration) -> None:
    measured, factor = calibration.measured, per_episode_factor(calibration.budget)
    _by_count(
        axes, calibration, measured.direct.value * factor, measured.direct.standard_error * factor, "direct |dJ_c|"
    )
    product = measured.lipschitz_error * factor
    _by_count(axes, calibration, product, np.zeros_like(product), "L_c epsilon")
    axes.axhline(measured.noise_floor.value[0] * factor, color="grey", linestyle=":", label="noise floor, other scenes")
    axes.set(title="What not knowing the world costs", ylabel=_COST_LABEL, ylim=(0.0, None))
    axes.legend()


def _cost_reduction(axes: Axes, calibration: Calibration) -> None:
    config, measured, factor = calibration.config, calibration.measured, per_episode_factor(calibration.budget)
    for row, count in enumerate(config.measured_counts):
        place = config.counts.index(count)
        line = axes.errorbar(
            config.etas,
            measured.mean_delta[row] * factor,
            yerr=measured.mean_delta_error[row] * factor,
            fmt="o-",
            markersize=3,
            label=f"N = {count}, mean",
        )
        colour = line.lines[0].get_color()
        bound = measured.delta.value[place] * factor
        axes.plot(config.etas, bound, "--", color=colour, label=f"N = {count}, level {config.level:g}")
    axes.axhline(0.0, color="black", linewidth=0.5)
    axes.set(title="Cost reduction by caution", xlabel="risk level, eta", ylabel="Delta_c, episode cost")
    axes.legend(fontsize="small")


def _risk_schedule(axes: Axes, calibration: Calibration) -> None:
    counts, schedule = np.asarray(calibration.config.counts), calibration.schedule
    axes.step(counts, schedule.eta, where="post", label=f"rule {calibration.config.rule}")
    for rule, other in calibration.measured.schedules.items():
        if rule != calibration.config.rule:
            axes.step(counts, other.eta, where="post", linestyle=":", linewidth=1, label=f"rule {rule}")
    bad = schedule.infeasible
    axes.plot(counts[bad], schedule.eta[bad], "rx", label="infeasible")
    _count_axis(axes, calibration.config.counts)
    axes.set(title="Risk schedule", ylabel="eta(N)", ylim=(-0.05, 1.0))
    axes.legend()


def _theorem_bound(axes: Axes, calibration: Calibration) -> None:
    measured, factor = calibration.measured, per_episode_factor(calibration.budget)
    level = f"level {calibration.config.level:g}"
    counts = np.asarray(calibration.config.counts)
    bound = calibration.budget.discounted + measured.lipschitz_error
    nothing = np.zeros_like(bound)
    _by_count(axes, calibration, bound * factor, nothing, "bound: budget + L_c epsilon")
    axes.plot(counts, measured.neutral_mean * factor, "s-", markersize=3, label="fed z_N, eta = 0: mean")
    axes.plot(counts, measured.neutral_bound * factor, "s--", markersize=3, label=f"fed z_N, eta = 0: {level}")
    for name, found in (("eta = 0", calibration.neutral), ("by the schedule", calibration.scheduled)):
        axes.plot(counts, found.by_count * factor, ".-", label=f"deployed, {name}: mean")
    axes.axhline(calibration.budget.per_episode, color="black", linestyle="--", linewidth=1, label="budget")
    axes.set(title="The theorem's bound and what was realised", ylabel=_COST_LABEL, ylim=(0.0, None))
    axes.legend(fontsize="x-small")


def _coverage(axes: Axes, calibration: Calibration) -> None:
    factor = per_episode_factor(calibration.budget)
    for name, found in (("eta = 0", calibration.neutral), ("by the schedule", calibration.scheduled)):
        costs = np.sort(found.cost) * factor
        share = np.arange(1, len(costs) + 1) / len(costs)
        axes.step(costs, share, where="post", label=f"{name}: {found.coverage.share:.0%} under the budget")
    axes.axvline(calibration.budget.per_episode, color="black", linestyle="--", linewidth=1, label="budget")
    axes.set(title="Unseen worlds", xlabel=_COST_LABEL, ylabel="share of worlds at or below", ylim=(0.0, 1.0))
    axes.legend()
