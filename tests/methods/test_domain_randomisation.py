"""Domain randomisation and Nominal: one method with two samplers."""

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from tests.learning.test_train import CONFIG
from tests.toy_world import Cart, CartConfig

from ashore.environments.base import TaskDescription
from ashore.environments.randomisation import at_nominal
from ashore.learning import train
from ashore.methods import domain_randomisation, nominal


@dataclass(frozen=True)
class OneCart(Cart):
    """The cart with training ranges that are a point."""

    @property
    def description(self) -> TaskDescription:
        usual = super().description
        return replace(usual, shifts={**usual.shifts, "train": at_nominal(usual.shifts["train"])})


TASK = OneCart(CartConfig(decisions=10))
# These programs run a few times: most of their time is compilation, which needs no optimisation.
jit = functools.partial(jax.jit, static_argnums=(0, 1, 3), compiler_options={"xla_backend_optimization_level": 0})
start, chunk = jit(train.start), jit(train.train_chunk)


def leaves(tree):
    for leaf in jax.tree.leaves(tree):
        yield np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def trained(method, task):
    recipe = method.recipe(task, CONFIG)
    state = start(task, CONFIG, jax.random.key(0), recipe)
    for _ in range(3):
        state, _ = chunk(task, CONFIG, state, recipe)
    return state


def test_they_differ_by_the_sampler_alone():
    task = Cart(CartConfig(decisions=10))
    wide, point = (method.recipe(task, CONFIG) for method in (domain_randomisation, nominal))
    assert wide.ranges != point.ranges and replace(wide, ranges=point.ranges) == point
    # Equal recipes are one program: it is traced once for both.
    assert hash(replace(wide, ranges=point.ranges)) == hash(point)


def test_ranges_that_shrink_to_a_point_make_it_nominal_bit_for_bit():
    randomised, fixed = trained(domain_randomisation, TASK), trained(nominal, TASK)
    assert int(randomised.learner.updates) == 12
    for one, other in zip(leaves(randomised), leaves(fixed), strict=True):
        np.testing.assert_array_equal(one, other)
