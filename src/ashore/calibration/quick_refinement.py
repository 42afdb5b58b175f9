"""Algorithm 1 for one decision on an accelerator: what `refinement` computes, in a chain less than half as long.

A single decision keeps no accelerator busy: its time is the number of kernels that have to wait for one another. Four
things make them fewer.

- An action is a few numbers, so gradients are carried forward beside the values instead of back through the network:
  one pass of L layers where reverse mode needs 2 L. More is multiplied, and nobody waits for that.
- What comes next is asked for in one pass: the reward gradient at the iterate, from which the next step starts, and the
  cost of the candidate, which decides whether there is a next step. The two critics have the same shape. With K steps
  that makes 1 + 2 K passes instead of 1 + 5 K.
- Weights are centred beforehand, so that every layer's output has mean zero and its norm is one sum and no second one.
- What the first layer makes of state and belief is computed once; an action only adds its own few rows. What depends
  on the risk level alone is computed when that changes, which is rare.

Over a batch of worlds, where work counts, reverse mode is the better one.

Arrays have the axes [critic, head, row, fraction, width]. Along `row` the first is the value and the others are
derivatives by the action, from the first layer to the last: what is linear treats them alike, and a bias belongs to the
value alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore import quantiles
from ashore.calibration import refinement
from ashore.calibration.refinement import LEAST_GAIN, Refined, RefinementConfig
from ashore.networks import critic
from ashore.networks.architecture import Architecture
from ashore.networks.critic import COST, REWARD, CriticConfig
from ashore.networks.layers import ACTIVATIONS, COMPUTE, NORM_EPSILON, Params
from ashore.types import Array


class _Layer(NamedTuple):
    """Dense and layer norm."""

    kernel: Array
    """Centred over its outputs, [critic, head, in, out]; of the first layer only the rows of the action."""
    bias: Array
    """Centred, [critic, head, 1, 1, out], like the next two."""
    scale: Array
    shift: Array


class _Weights(NamedTuple):
    """Critics as `_forward` wants them."""

    first: _Layer
    features: tuple[_Layer, ...]
    heads: tuple[_Layer, ...]
    """The input layer, then two for every block."""
    output: Array
    output_bias: Array


class Prepared(NamedTuple):
    """Both critics, made ready once for all decisions."""

    pair: _Weights
    cost: _Weights
    """The cost critic once more: a slice of the pair would be copied in every step."""
    surroundings: Array
    """Rows of the first layer that belong to state and belief, [critic, head, in, out]."""
    embedding: Params
    """What `critic.embedding` reads, of both."""


class Level(NamedTuple):
    """A risk level, made ready for all decisions that are taken at it."""

    eta: Array
    embeddings: Array
    """Of the fractions at which each critic is read, [critic, 1, 1, fraction, width]."""


class _Progress(NamedTuple):
    """The iteration between two steps; `judged` decides whether it goes on."""

    iterate: Array
    reward_gradient: Array
    """That of the reward at the iterate."""
    judged: Array
    best: Array
    best_cost: Array
    steps: Array


def prepare(nets: Architecture, critics: Params) -> Prepared:
    """Make a pair of critics, reward first, ready for `refine`."""
    config, features, heads = nets.critic, critics["features"], critics["heads"]
    shared = [
        _layer(_one_head(features[f"dense{i}"]), _one_head(features[f"norm{i}"]), config)
        for i in range(config.feature_layers)
    ]
    begin, end = config.observation, config.observation + config.action
    kernel = _centred(features["dense0"]["kernel"])[:, None]
    of_head = [_layer(heads["input"]["dense0"], heads["input"]["norm0"], config)]
    for i in range(config.blocks):
        block = heads[f"block{i}"]
        of_head += [_layer(block[f"dense{j}"], block[f"norm{j}"], config) for j in range(2)]
    pair = _Weights(
        first=shared[0]._replace(kernel=config.action_scale * kernel[:, :, begin:end, None]),
        features=tuple(shared[1:]),
        heads=tuple(of_head),
        output=_along_width(heads["output"]["kernel"][..., 0]),
        output_bias=heads["output"]["bias"][..., None],
    )
    surroundings = jnp.concatenate([kernel[:, :, :begin], kernel[:, :, end:]], axis=2)
    cost = jax.tree.map(lambda leaf: leaf[COST : COST + 1], pair)
    return Prepared(pair, cost, surroundings, {"embedding": critics["embedding"]})


def at_level(nets: Architecture, prepared: Prepared, eta: Array) -> Level:
    """Make a risk level ready for `refine`."""
    fractions = jnp.stack([quantiles.midpoints(level, nets.sizes.fractions) for level in (0.0, eta)])
    embed = jax.vmap(jax.vmap(lambda params, tau: critic.embedding(nets.critic, params, tau), (None, 0)))
    embeddings = embed(prepared.embedding, fractions).astype(jnp.float32)
    return Level(eta, embeddings[:, None, None])


@dataclass(frozen=True)
class _Asked:
    """Both critics in one state."""

    config: CriticConfig
    prepared: Prepared
    embeddings: Array
    base: Array
    """What the first layer makes of state and belief, [critic, 1, 1, 1, width]."""

    @classmethod
    def at(cls, nets: Architecture, prepared: Prepared, level: Level, observation: Array, condition: Array) -> "_Asked":
        surroundings = jnp.concatenate([observation, condition])
        precision = jax.lax.Precision.HIGHEST
        base = jnp.einsum("i,chio->cho", surroundings, prepared.surroundings, precision=precision)
        return cls(nets.critic, prepared, level.embeddings, base[:, :, None, None])

    def look(self, iterate: Array, candidate: Array) -> tuple[Array, Array]:
        """The reward gradient at the iterate, and the cost of the candidate."""
        actions = jnp.stack([iterate, candidate])
        raw = _forward(self.config, self.prepared.pair, self.base, actions, self.embeddings)
        return jnp.mean(raw[REWARD], axis=(0, 2))[1:], _worst_head(raw[COST])[0]

    def cost_gradient(self, action: Array) -> Array:
        """That of the greatest head."""
        mine = slice(COST, COST + 1)
        raw = _forward(self.config, self.prepared.cost, self.base[mine], action[None], self.embeddings[mine])
        return _worst_head(raw[0])[1:]


def refine(
    config: RefinementConfig,
    nets: Architecture,
    prepared: Prepared,
    level: Level,
    observation: Array,
    condition: Array,
    nominal: Array,
    threshold: float,
) -> Refined:
    """The action to execute in one state, as `refinement.refine` with `refinement.critic_values` finds it.

    Args:
        prepared: the critics, from `prepare`.
        level: the risk level, from `at_level`.
        observation: normalised.
        condition: what the critics are conditioned on, see `architecture.condition`.
        nominal: a_0, inside the box.
        threshold: d, in the unit of Q_c.
    """
    eta = level.eta
    assert nominal.ndim == 1 and eta.ndim == 0, (nominal.shape, eta.shape)
    share, asked = refinement.weight(config, eta), _Asked.at(nets, prepared, level, observation, condition)

    def sent(iterate: Array) -> Array:
        return iterate if config.weight == "full" else refinement.project(nominal + share * (iterate - nominal))

    def one_step(now: _Progress) -> _Progress:
        moved = refinement.after_reward(config, now.reward_gradient, nominal, now.iterate)
        iterate = refinement.after_cost(config, asked.cost_gradient(moved), moved)
        candidate = iterate if config.keep == "last" else sent(iterate)
        reward_gradient, cost = asked.look(iterate, candidate)
        if config.keep == "last":
            return _Progress(iterate, reward_gradient, cost, now.best, now.best_cost, now.steps + 1)
        better = (cost <= threshold) | (cost < now.best_cost - LEAST_GAIN * jnp.abs(now.best_cost))
        best = jnp.where(better, candidate, now.best)
        best_cost = jnp.where(better, cost, now.best_cost)
        return _Progress(iterate, reward_gradient, best_cost, best, best_cost, now.steps + 1)

    first_gradient, nominal_cost = asked.look(nominal, nominal)
    triggered = (eta > 0.0) & (nominal_cost > threshold)
    end = _Progress(nominal, first_gradient, nominal_cost, nominal, nominal_cost, jnp.zeros((), jnp.int32))
    # Written out and masked: to ask whether to go on, or to begin at all, is to wait for the host.
    for _ in range(config.steps):
        unfinished, after = triggered & (end.judged > threshold), one_step(end)
        end = jax.tree.map(lambda new, old, go=unfinished: jnp.where(go, new, old), after, end)
    if config.keep == "best":
        action, cost = end.best, end.best_cost
    else:
        action = sent(end.iterate)
        cost = end.judged if config.weight == "full" else asked.look(action, action)[1]
    return refinement.executed(nominal, nominal_cost, triggered, action, cost, end.steps)


def _forward(config: CriticConfig, weights: _Weights, base: Array, actions: Array, embeddings: Array) -> Array:
    """Values of critics before their last step, and their derivatives, [critic, head, row, fraction].

    Args:
        actions: what each critic is asked about, [critic, action].
    """
    rows = weights.first.kernel
    value = base
    for i in range(config.action):
        value = value + actions[:, i].reshape(-1, 1, 1, 1, 1) * rows[:, :, i : i + 1]
    x = _activation(config, _normed(weights.first, jnp.concatenate([value, rows], axis=2)))
    for layer in weights.features:
        x = _activation(config, _normed(layer, _product(config, layer, x)))
    first, *blocks = weights.heads
    h = _activation(config, _normed(first, _product(config, first, x * embeddings)))
    for inner, outer in zip(blocks[::2], blocks[1::2], strict=True):
        between = _activation(config, _normed(inner, _product(config, inner, h)))
        h = h + _normed(outer, _product(config, outer, between))
    raw = jnp.sum(h * weights.output, axis=-1)
    return raw + jnp.where(_is_value(raw), weights.output_bias, 0.0)


def _product(config: CriticConfig, layer: _Layer, x: Array) -> Array:
    """Rows times a layer's kernel, every head its own, float32 out."""
    dtype, precision = COMPUTE[config.compute]
    critics, heads = layer.kernel.shape[:2]
    _, _, rows, fractions, width = x.shape
    flat = jnp.broadcast_to(x, (critics, heads, rows, fractions, width)).reshape(critics, heads, -1, width)
    product = jnp.matmul(flat.astype(dtype), layer.kernel, precision=precision, preferred_element_type=jnp.float32)
    return product.reshape(critics, heads, rows, fractions, -1)


def _normed(layer: _Layer, wide: Array) -> Array:
    """Bias and layer norm of values and derivatives, of which the mean is zero already.

    With n = x r the normal value, the derivative of n along c is r (c - n mean(n c)).
    """
    is_value = _is_value(wide)
    wide = wide + jnp.where(is_value, layer.bias, 0.0)
    value = wide[:, :, :1]
    along = jnp.mean(value * wide, axis=-1, keepdims=True)
    size = jax.lax.rsqrt(along[:, :, :1] + NORM_EPSILON)
    normal = value * size
    slopes = size * (wide - normal * (size * along))
    return jnp.where(is_value, normal, slopes) * layer.scale + jnp.where(is_value, layer.shift, 0.0)


def _activation(config: CriticConfig, x: Array) -> Array:
    value, act = x[:, :, :1], ACTIVATIONS[config.activation]
    _, slope = jax.jvp(act, (value,), (jnp.ones_like(value),))
    return jnp.where(_is_value(x), act(value), slope * x)


def _is_value(x: Array) -> Array:
    return (jnp.arange(x.shape[2]) == 0).reshape(-1, *(1,) * (x.ndim - 3))


def _worst_head(raw: Array) -> Array:
    """Cost of the greatest head, the first on a tie, and its gradient, [row].

    Args:
        raw: what `_forward` gives for one critic, [head, row, fraction].
    """
    value = raw[:, :1]
    known = jnp.concatenate([jax.nn.softplus(value), jax.nn.sigmoid(value) * raw[:, 1:]], axis=1)
    by_head = jnp.mean(known, axis=2)
    worst = by_head[0]
    for other in by_head[1:]:
        worst = jnp.where(other[0] > worst[0], other, worst)
    return worst


def _layer(dense: Params, norm: Params, config: CriticConfig) -> _Layer:
    return _Layer(
        _centred(dense["kernel"]).astype(COMPUTE[config.compute][0]),
        *(_along_width(vector) for vector in (_centred(dense["bias"]), norm["scale"], norm["bias"])),
    )


def _one_head(leaves: Params) -> Params:
    return jax.tree.map(lambda leaf: leaf[:, None], leaves)


def _along_width(vector: Array) -> Array:
    return vector[:, :, None, None]


def _centred(leaf: Array) -> Array:
    return leaf - jnp.mean(leaf, axis=-1, keepdims=True)
