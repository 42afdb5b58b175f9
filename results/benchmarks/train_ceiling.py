"""What one H200 could do at the prototype's work at most: its matrix products alone, one after the other.

    python train_ceiling.py OUT.json        # on a GPU; a minute

`flops` counts the products of a decision with its 32 updates in our own graph; the rates are of products of just those
shapes (batch 1024 x 8 fractions, width 512, two critics with two heads each), in bfloat16, and of one large product.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp

from ashore.environments import tasks
from ashore.experiments import presets, settings
from ashore.experiments.machine import this_machine
from ashore.experiments.matrix_work import flops, measured_peak
from ashore.methods import registry

HEADS, ROWS, WIDTH = 4, 1024 * 8, 512
TURNS = 200
PRODUCTS = {
    "forward": ("hrk,hkn->hrn", (HEADS, ROWS, WIDTH), (HEADS, WIDTH, WIDTH)),
    "back to the inputs": ("hrn,hkn->hrk", (HEADS, ROWS, WIDTH), (HEADS, WIDTH, WIDTH)),
    "back to the weights": ("hrk,hrn->hkn", (HEADS, ROWS, WIDTH), (HEADS, ROWS, WIDTH)),
}


def rate(rule: str, left_shape: tuple[int, ...], right_shape: tuple[int, ...]) -> float:
    """Operations per second, several factors in turn so that no factor stays in the cache."""
    lefts = jax.random.normal(jax.random.key(0), (8, *left_shape), jnp.bfloat16)
    right = jax.random.normal(jax.random.key(1), right_shape, jnp.bfloat16)

    @jax.jit
    def all_of_them(lefts, right):
        def one(total, number):
            product = jnp.einsum(rule, lefts[number % 8], right, preferred_element_type=jnp.bfloat16)
            found = jax.lax.optimization_barrier(product)
            return total + found.reshape(-1)[0].astype(jnp.float32), None

        return jax.lax.scan(one, jnp.float32(0.0), jnp.arange(TURNS))[0]

    all_of_them(lefts, right).block_until_ready()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        all_of_them(lefts, right).block_until_ready()
        times.append(time.perf_counter() - begin)
    return TURNS * 2 * HEADS * ROWS * WIDTH * WIDTH / sorted(times)[2]


family, method = tasks.lookup("PointGoal2"), registry.lookup("risk_adaptive")
task = family.make(family.presets[family.default_preset])
train = presets.settings_of("PointGoal2", "gpu", method)
for change in (
    "batch_tasks=32",
    "batch_transitions=32",
    "updates_per_decision=32",
    "sizes.critic_width=512",
    "sizes.fractions=8",
    "learning_starts=0",
    "chunk=4",
):
    train = settings.override(train, change)
state = jax.eval_shape(partial(method.start, task, train), jax.random.key(0))
work = flops(partial(method.train_chunk, task, train), state) / train.chunk
found = {
    "machine": this_machine().as_dict(),
    "flops_per_decision": work,
    "updates_per_decision": train.updates_per_decision,
    "rate_of_one_large_product": measured_peak("bfloat16"),
    "rate_of_products_of_this_shape": {name: rate(*product) for name, product in PRODUCTS.items()},
}
Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
