"""Matrix work counted from a program's graph, by hand."""

import jax
import jax.numpy as jnp

from ashore.experiments.matrix_work import flops


def test_products_loops_and_batches_by_hand():
    left, right = jnp.zeros((2, 3)), jnp.zeros((3, 5))
    # 2 x 5 entries, 3 multiplications and 3 additions each.
    assert flops(jnp.matmul, left, right) == 60
    batch = jnp.zeros((7, 2, 3))
    assert flops(jax.vmap(lambda x: x @ right), batch) == 7 * 60

    def looped(x):
        return jax.lax.scan(lambda carry, _: (carry @ jnp.zeros((3, 3)), None), x, None, length=11)[0]

    # Inside jit, eleven turns of 2 x 3 entries with 3 products each.
    assert flops(jax.jit(looped), left) == 11 * 36


def test_a_gradient_costs_two_more_products_and_the_dearer_branch_counts():
    weights = jnp.zeros((3, 5))

    def loss(weights, x):
        return jnp.sum(jnp.square(x @ weights))

    # Forward, and the transposed product for the weights; the input is not differentiated.
    assert flops(jax.grad(loss), weights, jnp.zeros((2, 3))) == 2 * 60

    def branch(x):
        return jax.lax.cond(x[0, 0] > 0.0, lambda x: x @ weights, lambda x: jnp.zeros((2, 5)), x)

    assert flops(branch, jnp.zeros((2, 3))) == 60
    assert flops(lambda x: x + 1.0, weights) == 0
