"""What one decision costs: operations counted from the graph of each part, and how long it takes on this device.

The networks have random weights: neither number asks what they mean. The threshold of the refinement is one that
nothing fits, so that all its steps are taken.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration import refinement
from ashore.calibration.refinement import AS_PRINTED
from ashore.calibration.risk_level import level_at
from ashore.environments import tasks
from ashore.experiments import paper_numbers
from ashore.experiments.machine import this_machine
from ashore.experiments.matrix_work import flops
from ashore.experiments.outcomes import ComponentWork, RefinementTime
from ashore.learning.train_config import TrainConfig, architecture
from ashore.networks import actor, encoder
from ashore.networks import architecture as networks
from ashore.networks.architecture import SIZES, Architecture, Sizes
from ashore.types import Array

POLICY, CONTEXT, TRANSITION, ETA = "policy", "encoder", "encoder, one more transition", "eta"
FORWARD, REFINEMENT = "critic forward", "refinement"
"""Names of the parts; those that the paper has are named as in `paper_numbers.WORK`."""
_LEVEL = 0.5
_NOTHING_FITS = -1.0
"""A threshold below every cost."""
_COUNTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_WARM_UP = 5

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and what it is called with."""


@dataclass(frozen=True)
class WorkConfig:
    """What is counted and timed."""

    sizes: Sizes = SIZES["paper"]
    repeats: int = 500
    """Timed calls per row."""
    sharpen: bool = False
    """Whether the networks get the inputs that the paper's do not have."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"There must be something to time, not {self.repeats} calls.")


def measure(task_name: str, config: WorkConfig) -> dict[str, Any]:
    """Count and time every part on JAX's default device; plain numbers for JSON."""
    family = tasks.lookup(task_name)
    task = family.make(family.presets[family.default_preset])
    nets = architecture(task, TrainConfig(sizes=config.sizes, sharpen=config.sharpen))
    parts = _parts(nets)
    rows = [{"component": name, "operations": _count(call), **_time(call, config)} for name, call in parts.items()]
    times = list(_refinement_times(nets, config))
    # The graph of a refinement holds its loop once; outside it the nominal action is judged, one forward pass.
    once, forward = _count(_refining(nets, AS_PRINTED.steps)), _count(parts[FORWARD])
    usual = [asdict(row) for row in times if row.steps == AS_PRINTED.steps]
    whole = {name: float(np.mean([row[name] for row in usual])) for name in ("milliseconds", "deviation")}
    operations = forward + AS_PRINTED.steps * (once - forward)
    return {
        "machine": this_machine().as_dict(),
        "sizes": asdict(config.sizes),
        "components": [*rows, {"component": REFINEMENT, "operations": operations, **whole}],
        "refinement_times": [asdict(row) for row in times],
    }


def components(measured: Mapping[str, Any]) -> list[ComponentWork]:
    """What `measure` counted, beside what the paper printed."""
    found = []
    for row in measured["components"]:
        printed = paper_numbers.WORK.get(row["component"])
        found.append(
            ComponentWork(
                component=row["component"],
                complexity=printed.complexity if printed else "",
                operations=row["operations"],
                multiply_adds=row["operations"] / 2,
                paper_operations=printed.operations if printed else None,
                milliseconds=row["milliseconds"],
                deviation=row["deviation"],
                paper_milliseconds=printed.milliseconds if printed else None,
            )
        )
    return found


def refinement_times(measured: Mapping[str, Any]) -> list[RefinementTime]:
    """What `measure` timed, and the paper's rows after it."""
    printed = [RefinementTime("paper", *row) for row in paper_numbers.REFINEMENT_TIMES]
    return [*(RefinementTime(**row) for row in measured["refinement_times"]), *printed]


def _parts(nets: Architecture) -> dict[str, Call]:
    """Every part but the refinement, which is a loop."""
    params = networks.init(jax.random.key(0), nets)
    seen, latent = jnp.zeros(nets.seen), jnp.zeros(nets.sizes.latent)
    condition = networks.condition(nets, latent, 0.0)
    rows = jnp.zeros((nets.sizes.context, nets.encoder.inputs))

    def act(weights: Any, seen: Array) -> Array:
        return actor.apply(nets.actor, weights, seen, condition)

    def encode(weights: Any, rows: Array) -> Array:
        return encoder.mean(encoder.encode(nets.encoder, weights, rows, jnp.ones(len(rows), bool)))

    def add(weights: Any, row: Array) -> Array:
        known = encoder.prior(nets.sizes.latent)
        return encoder.mean(encoder.add(known, encoder.factor(nets.encoder, weights, row)))

    def level(levels: Array, seen: Array) -> Array:
        return level_at(_COUNTS, levels, seen, latent)

    def forward(weights: Any, action: Array) -> Array:
        return refinement.critic_values(nets, weights, seen, condition, jnp.float32(_LEVEL)).cost(action)

    return {
        POLICY: (act, (params["actor"], seen)),
        CONTEXT: (encode, (params["encoder"], rows)),
        TRANSITION: (add, (params["encoder"], rows[0])),
        ETA: (level, (jnp.zeros(len(_COUNTS)), jnp.int32(7))),
        FORWARD: (forward, (params["critics"], jnp.zeros(nets.action))),
    }


def _refining(nets: Architecture, steps: int) -> Call:
    """Algorithm 1 with all its steps; the step sizes are arguments, so that one program serves all of them."""
    params = networks.init(jax.random.key(0), nets)
    condition = networks.condition(nets, jnp.zeros(nets.sizes.latent), 0.0)

    def refine(weights: Any, seen: Array, eta: Array, reward_step: Any, cost_step: Any, proximal: Any) -> Array:
        # With the full weight the last iterate is sent as it is, and not judged once more.
        config = replace(
            AS_PRINTED, steps=steps, reward_step=reward_step, cost_step=cost_step, proximal=proximal, weight="full"
        )
        values = refinement.critic_values(nets, weights, seen, condition, eta)
        return refinement.refine(config, values, jnp.zeros(nets.action), eta, _NOTHING_FITS).action

    sizes = (AS_PRINTED.reward_step, AS_PRINTED.cost_step, AS_PRINTED.proximal)
    return refine, (params["critics"], jnp.zeros(nets.seen), jnp.float32(_LEVEL), *map(jnp.float32, sizes))


def _refinement_times(nets: Architecture, config: WorkConfig) -> Iterator[RefinementTime]:
    """The combinations that the paper timed."""
    programs = {}
    for steps, *sizes, _, _ in paper_numbers.REFINEMENT_TIMES:
        if steps not in programs:
            function, arguments = _refining(nets, steps)
            programs[steps] = (jax.jit(function), arguments)
        compiled, (*given, _, _, _) = programs[steps]
        took = _time((compiled, (*given, *map(jnp.float32, sizes))), config)
        yield RefinementTime("ashore", steps, *sizes, **took)


def _count(call: Call) -> int:
    function, arguments = call
    return flops(function, *arguments)


def _time(call: Call, config: WorkConfig) -> dict[str, float]:
    """Mean and standard deviation of one call, in milliseconds."""
    function, arguments = call
    compiled = jax.jit(function)
    spent = []
    for number in range(_WARM_UP + config.repeats):
        begun = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        if number >= _WARM_UP:
            spent.append(1e3 * (time.perf_counter() - begun))
    return {"milliseconds": float(np.mean(spent)), "deviation": float(np.std(spent))}
