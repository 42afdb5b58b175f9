"""How much matrix work a program does, counted from its own graph, and how much the machine could do."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

SIDE = {"cpu": 1024, "gpu": 8192}
"""Side of the square product that shows what a device can do; large enough to fill it."""


def flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Floating-point operations of all matrix products in one call, a multiplication and an addition as two.

    A loop with a known number of turns counts as often as it turns; one that stops by itself counts one turn; of two
    branches the dearer counts. Everything that is not a matrix product is left out.

    Args:
        arguments: arrays or shapes; nothing is computed.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: core.Jaxpr) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: core.JaxprEqn) -> int:
    name = equation.primitive.name
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left, result = (_shape(variable.aval) for variable in (equation.invars[0], equation.outvars[0]))
        return 2 * math.prod(left[axis] for axis in contracted) * math.prod(result)
    inside = [_of_jaxpr(jaxpr) for jaxpr in _inner(equation)]
    if name == "cond":
        return max(inside)
    return sum(inside) * (equation.params["length"] if name == "scan" else 1)


def _shape(value: Any) -> tuple[int, ...]:
    return value.shape


def _inner(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, core.ClosedJaxpr):
                yield part.jaxpr
            elif isinstance(part, core.Jaxpr):
                yield part


def measured_peak(compute: str) -> float:
    """Operations per second of one large matrix product on JAX's device, in the given kind of number."""
    side = SIDE["cpu" if jax.default_backend() == "cpu" else "gpu"]
    dtype = jnp.bfloat16 if compute == "bfloat16" else jnp.float32
    # Random numbers: a product of zeros draws less power and runs faster than any real one.
    left, right = (jax.random.normal(key, (side, side), dtype) for key in jax.random.split(jax.random.key(0)))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(left, right))
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        jax.block_until_ready(product(left, right))
        times.append(time.perf_counter() - begin)
    return 2 * side**3 / sorted(times)[len(times) // 2]
