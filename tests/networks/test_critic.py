"""The quantile critics: shapes, ensemble axes, range, the embedding in NumPy, arithmetic counted against the paper."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ashore.networks import actor, critic, encoder, layers
from ashore.networks.architecture import SIZES, Architecture
from ashore.networks.critic import COST, REWARD, CriticConfig
from ashore.quantiles import midpoints

CONFIG = CriticConfig(observation=4, action=2, condition=3, width=16)
TAUS = midpoints(0.0, 8)

# These programs run once or twice: most of their time is compilation, which needs no optimisation.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
initialise = jit(critic.init, static_argnums=1)
initialise_pair = jit(critic.init_pair, static_argnums=1)
reward_quantiles = jit(critic.reward_quantiles, static_argnums=0)
cost_quantiles = jit(critic.cost_quantiles, static_argnums=0)


def example(seed):
    """One (s, a, z)."""
    keys = jax.random.split(jax.random.key(seed), 3)
    return [jax.random.normal(key, (size,)) for key, size in zip(keys, (4, 2, 3), strict=True)]


def test_values_are_heads_by_fractions_and_heads_differ():
    params = initialise(jax.random.key(0), CONFIG)
    values = reward_quantiles(CONFIG, params, *example(1), TAUS)
    assert values.shape == (2, 8) and values.dtype == jnp.float32
    assert params["heads"]["block0"]["dense0"]["kernel"].shape == (2, 16, 16)
    assert jnp.min(jnp.abs(values[0] - values[1])) > 0.0


def test_pair_equals_one_critic_and_one_example_at_a_time():
    pair = initialise_pair(jax.random.key(0), CONFIG)
    examples = [example(seed) for seed in range(5)]
    batch = [jnp.stack(parts) for parts in zip(*examples, strict=True)]
    taus = jax.random.uniform(jax.random.key(9), (2, 5, 8))
    together = jit(critic.pair_quantiles, static_argnums=0)(CONFIG, pair, *batch, taus)
    assert together.shape == (2, 2, 5, 8)
    for place, alone in ((REWARD, reward_quantiles), (COST, cost_quantiles)):
        params = critic.one_of(pair, place)
        for i in range(5):
            expected = alone(CONFIG, params, *examples[i], taus[place, i])
            np.testing.assert_allclose(together[place, :, i], expected, rtol=1e-4, atol=1e-5)


def test_reward_and_cost_critic_start_from_different_keys():
    kernels = initialise_pair(jax.random.key(0), CONFIG)["features"]["dense0"]["kernel"]
    assert jnp.max(jnp.abs(kernels[REWARD] - kernels[COST])) > 0.1


def test_cost_is_never_negative_however_wild_the_weights():
    def wild(params, key):
        observation, action, latent = (30.0 * jax.random.normal(key, (size,)) for size in (4, 2, 3))
        return critic.cost_quantiles(CONFIG, params, observation, action, latent, TAUS)

    many = jit(jax.vmap(wild, in_axes=(None, 0)))
    for seed in range(5):
        params = initialise(jax.random.key(seed), CONFIG)
        params["heads"]["output"]["kernel"] *= -100.0
        values = many(params, jax.random.split(jax.random.key(seed), 32))
        assert jnp.all(values >= 0.0) and jnp.all(jnp.isfinite(values))


def test_embedding_against_numpy():
    # phi_j(0.3) = relu(sum_i w_ij cos(0.3 pi i) + b_j) with i = 1..64: the constant cosine i = 0 is not among them.
    params = initialise(jax.random.key(3), CONFIG)
    kernel, bias = (np.asarray(params["embedding"][name], np.float64) for name in ("kernel", "bias"))
    expected = np.maximum(np.cos(np.pi * 0.3 * np.arange(1, 65)) @ kernel + bias, 0.0)
    np.testing.assert_allclose(critic.embedding(CONFIG, params, jnp.float32(0.3)), expected, atol=2e-4)


def test_bfloat16_stays_close_and_gives_float32():
    params = initialise(jax.random.key(0), CONFIG)
    half = dataclasses.replace(CONFIG, compute="bfloat16")

    observation, action, latent = example(1)

    def total(params):
        values = critic.reward_quantiles(half, params, observation, action, latent, TAUS)
        return jnp.sum(values), values

    gradients, rounded = jit(jax.grad(total, has_aux=True))(params)
    exact = reward_quantiles(CONFIG, params, observation, action, latent, TAUS)
    assert rounded.dtype == jnp.float32
    assert 0.0 < jnp.max(jnp.abs(exact - rounded)) < 0.1
    assert {leaf.dtype.name for leaf in jax.tree.leaves(gradients)} == {"float32"}


def multiply_adds(function, *arguments):
    """Multiply-adds of all matrix products in a function, read off its traced program."""

    def count(jaxpr):
        total = 0
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                left = equation.invars[0].aval.shape
                total += equation.outvars[0].aval.size * int(np.prod([left[axis] for axis in contracted]))
            for value in equation.params.values():
                inner = getattr(value, "jaxpr", value)
                total += count(inner) if hasattr(inner, "eqns") else 0
        return total

    return count(jax.make_jaxpr(function)(*arguments).jaxpr)


PAPER = Architecture(9, 1, tuple(range(9)), SIZES["paper"])


def test_critic_arithmetic_against_the_paper():
    # The paper counts L_Z d^2 + N_tau 64 d + N_c N_tau (1 + 2 L_B) d^2 with d = 512, N_tau = 32:
    #   2 * 262144 + 32 * 64 * 512 + 2 * 32 * 5 * 262144 = 524288 + 1048576 + 83886080 = 85458944 = 85.5 M.
    # Ours differs twice. The first feature layer is 15 -> 512, not 512 -> 512: 262144 - 15 * 512 = 254464 fewer. And
    # the scalar outputs, which the paper leaves out, are there: 2 * 32 * 512 = 32768 more. 85458944 - 254464 + 32768:
    config = PAPER.critic
    params = jax.eval_shape(lambda: critic.init(jax.random.key(0), config))
    inputs = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in (9, 1, 5, 32)]
    counted = multiply_adds(lambda *args: critic.cost_quantiles(config, *args), params, *inputs)
    assert counted == 85_237_248
    assert counted == pytest.approx(85.5e6, rel=0.005)


def test_critic_size():
    # features 15*512 + 512*512 + 2*512 biases + 2 norms of 1024; embedding 64*512 + 512;
    # two heads of 5*(512*512 + 512) + 5 norms of 1024 + (512 + 1).
    features = 15 * 512 + 512 * 512 + 2 * 512 + 2 * 1024
    heads = 2 * (5 * (512 * 512 + 512) + 5 * 1024 + 513)
    params = jax.eval_shape(lambda: critic.init(jax.random.key(0), PAPER.critic))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == features + 64 * 512 + 512 + heads


def test_actor_and_encoder_arithmetic_equals_the_paper():
    # Actor 14*256 + 2*256^2 + 256 = 134912 (1.35e5); encoder 128 * (21*256 + 2*256^2 + 2*256*5) = 17793024 (1.78e7).
    shapes = jax.eval_shape(lambda: actor.init(jax.random.key(0), PAPER.actor))
    vectors = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in (9, 5)]
    assert multiply_adds(lambda *args: actor.apply(PAPER.actor, *args), shapes, *vectors) == 134_912
    shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), PAPER.encoder))
    context = [jax.ShapeDtypeStruct((128, 21), jnp.float32), jax.ShapeDtypeStruct((128,), jnp.bool)]
    assert multiply_adds(lambda *args: encoder.encode(PAPER.encoder, *args), shapes, *context) == 17_793_024


def test_features_are_computed_once_whatever_the_number_of_fractions():
    config = PAPER.critic
    params = jax.eval_shape(lambda: critic.init(jax.random.key(0), config))
    inputs = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in (9, 1, 5)]

    def cost_of(fractions):
        taus = jax.ShapeDtypeStruct((fractions,), jnp.float32)
        return multiply_adds(lambda *args: critic.cost_quantiles(config, *args), params, *inputs, taus)

    per_fraction = cost_of(2) - cost_of(1)
    assert cost_of(1) - per_fraction == 15 * 512 + 512 * 512
    assert cost_of(32) - cost_of(1) == 31 * per_fraction


def test_actor_stays_in_the_box_and_starts_near_its_middle():
    config = Architecture(4, 2, (0,), SIZES["small"]).actor
    params = actor.init(jax.random.key(0), config)
    keys = jax.random.split(jax.random.key(1), 64)

    @jit
    def largest(params):
        def one(key):
            return actor.apply(config, params, jax.random.normal(key, (4,)), jax.random.normal(key, (5,)))

        return jnp.max(jnp.abs(jax.vmap(one)(keys)))

    assert largest(params) < 0.8
    params["output"]["kernel"] *= 1e6
    assert largest(params) <= 1.0


def test_unknown_compute_is_refused():
    with pytest.raises(ValueError, match="compute must be one of"):
        dataclasses.replace(SIZES["small"], compute="float16")
    assert set(layers.COMPUTE) == {"float32", "tensorfloat32", "bfloat16", "float64"}
