"""Implicit quantile critics Z_tau(s, a, z) of the return and of the discounted cost.

    features(s, a, z) * ReLU(W cos(pi i tau), i = 1..64)  ->  two BroNet heads  ->  one value per head and fraction

The features are computed once per (s, a, z); only the product and the heads are repeated per fraction. The heads are
an ensemble: their weights have a leading axis [head], initialised from separate keys and mapped over with `vmap`.

The reward and the cost critic have the same shape and differ in their last step alone: the reward is linear, the cost
goes through a softplus, because a discounted sum of costs is never negative. While learning the two are held as one
tree with another leading axis [REWARD, COST] and evaluated together: half as many, twice as large matrix products.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ashore.networks import bronet
from ashore.networks.bronet import BroNetConfig
from ashore.networks.layers import ACTIVATIONS, Params, dense, dense_init, layer_norm_init, normed_dense
from ashore.types import Array

REWARD, COST = 0, 1
"""Places of the two critics on the leading axis of a pair."""


@dataclass(frozen=True)
class CriticConfig:
    """Shape of one critic; the reward and the cost critic share it."""

    observation: int
    action: int
    condition: int = 5
    """Numbers the values are conditioned on: the latent, and the risk level where the policy takes one."""
    width: int = 512
    feature_layers: int = 2
    cosines: int = 64
    heads: int = 2
    blocks: int = 2
    activation: str = "relu"
    action_scale: float = 1.0
    compute: str = "float32"

    @property
    def head(self) -> BroNetConfig:
        """The BroNet that turns one modulated feature vector into one value."""
        return BroNetConfig(self.width, self.width, self.blocks, None, self.activation, self.compute)


def init(key: Array, config: CriticConfig) -> Params:
    """Weights `features`, `embedding` and `heads` of one critic; `heads` leaves lead with the head axis."""
    feature_key, embedding_key, head_key = jax.random.split(key, 3)
    sizes = (config.observation + config.action + config.condition, *(config.width,) * config.feature_layers)
    features: Params = {}
    for i, layer_key in enumerate(jax.random.split(feature_key, config.feature_layers)):
        features[f"dense{i}"] = dense_init(layer_key, sizes[i], sizes[i + 1])
        features[f"norm{i}"] = layer_norm_init(config.width)
    heads = jax.vmap(lambda key: bronet.init(key, config.head))(jax.random.split(head_key, config.heads))
    return {
        "features": features,
        "embedding": dense_init(embedding_key, config.cosines, config.width),
        "heads": heads,
    }


def init_pair(key: Array, config: CriticConfig) -> Params:
    """Weights of a reward and a cost critic from separate keys, stacked along a leading axis [REWARD, COST]."""
    return jax.vmap(lambda key: init(key, config))(jax.random.split(key, 2))


def one_of(pair: Params, place: int) -> Params:
    """The reward or the cost critic of a pair, by its place."""
    return jax.tree.map(lambda leaf: leaf[place], pair)


def features(config: CriticConfig, params: Params, observation: Array, action: Array, condition: Array) -> Array:
    """Shared features of one (s, a, z), [width]: dense, layer norm, activation, per layer."""
    assert observation.shape == (config.observation,), observation.shape
    assert action.shape == (config.action,), action.shape
    assert condition.shape == (config.condition,), condition.shape
    x = jnp.concatenate([observation, config.action_scale * action, condition])
    for i in range(config.feature_layers):
        dense_params, norm_params = params["features"][f"dense{i}"], params["features"][f"norm{i}"]
        x = ACTIVATIONS[config.activation](normed_dense(dense_params, norm_params, x, config.compute))
    return x


def embedding(config: CriticConfig, params: Params, fraction: Array) -> Array:
    """phi_j(tau) = ReLU(sum_i w_ij cos(pi i tau) + b_j), i = 1..cosines, [width].

    i starts at 1: cos(0) would only repeat the bias.
    """
    assert fraction.ndim == 0, fraction.shape
    order = jnp.arange(1, config.cosines + 1, dtype=jnp.float32)
    # The angle reaches 200, where float32 is 1e-5 coarse. That belongs to what is learnt, however wide the weights are.
    angle = (jnp.pi * fraction * order).astype(params["embedding"]["bias"].dtype)
    return jax.nn.relu(dense(params["embedding"], jnp.cos(angle), config.compute))


def modulated_features(config: CriticConfig, params: Params, feature: Array, fractions: Array) -> Array:
    """feature * phi(tau) for every fraction: what a head sees, [fractions, width]."""
    assert feature.shape == (config.width,) and fractions.ndim == 1, (feature.shape, fractions.shape)
    return jax.vmap(lambda fraction: feature * embedding(config, params, fraction))(fractions)


def _unbounded_quantiles(
    config: CriticConfig, params: Params, observation: Array, action: Array, condition: Array, fractions: Array
) -> Array:
    feature = features(config, params, observation, action, condition)
    modulated = modulated_features(config, params, feature, fractions)

    def one_head(head: Params) -> Array:
        return jax.vmap(lambda x: bronet.apply(config.head, head, x))(modulated)

    return jax.vmap(one_head)(params["heads"])


def reward_quantiles(
    config: CriticConfig, params: Params, observation: Array, action: Array, condition: Array, fractions: Array
) -> Array:
    """Quantiles of the discounted return for one (s, a, z), [heads, fractions]."""
    return _unbounded_quantiles(config, params, observation, action, condition, fractions)


def cost_quantiles(
    config: CriticConfig, params: Params, observation: Array, action: Array, condition: Array, fractions: Array
) -> Array:
    """Quantiles of the discounted cost for one (s, a, z), [heads, fractions], never negative."""
    return jax.nn.softplus(_unbounded_quantiles(config, params, observation, action, condition, fractions))


def pair_quantiles(
    config: CriticConfig, pair: Params, observations: Array, actions: Array, conditions: Array, fractions: Array
) -> Array:
    """Both critics on a batch, [REWARD or COST, heads, batch, fractions].

    The same numbers as `reward_quantiles` and `cost_quantiles` give example by example. The ensemble axes are outside
    and the batch inside, the order in which batched matrix products come out: with the batch axis outside, the compiled
    program transposes the activations around every layer.

    Args:
        observations, actions, conditions: [batch, ...].
        fractions: [REWARD or COST, batch, fractions].
    """
    assert fractions.shape[:2] == (2, observations.shape[0]), (observations.shape, fractions.shape)

    def one_critic(params: Params, fractions: Array) -> Array:
        feature = jax.vmap(lambda *example: features(config, params, *example))(observations, actions, conditions)
        modulated = jax.vmap(lambda x, taus: modulated_features(config, params, x, taus))(feature, fractions)

        def one_head(head: Params) -> Array:
            return jax.vmap(jax.vmap(lambda x: bronet.apply(config.head, head, x)))(modulated)

        return jax.vmap(one_head)(params["heads"])

    values = jax.vmap(one_critic)(pair, fractions)
    return jnp.stack([values[REWARD], jax.nn.softplus(values[COST])])
