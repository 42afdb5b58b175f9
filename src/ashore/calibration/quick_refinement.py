"""Algorithm 1 for one decision on an accelerator: what `refinement` computes, in a chain half as long.

A single decision keeps no accelerator busy: its time is the number of layers that have to wait for one another. Two
things make them fewer.

- An action is a few numbers, so gradients are carried forward beside the values instead of back through the network:
  one pass of L layers where reverse mode needs 2 L. More is multiplied, and nobody waits for that.
- What comes next is asked for in one pass: the reward gradient at the iterate, from which the next step starts, and the
  cost of the candidate, which decides whether there is a next step. The two critics have the same shape.

With K steps that makes 1 + 2 K passes instead of 1 + 5 K. Over a batch of worlds, where work counts, reverse mode is
the better one.
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


class _Progress(NamedTuple):
    """The iteration between two steps; `judged` decides whether it goes on."""

    iterate: Array
    reward_gradient: Array
    """That of the reward at the iterate."""
    judged: Array
    best: Array
    best_cost: Array
    steps: Array


@dataclass(frozen=True)
class _Asked:
    """Both critics in one state."""

    config: CriticConfig
    critics: Params
    observation: Array
    condition: Array
    embeddings: Array
    """Of the fractions at which each critic is read, [REWARD or COST, fraction, width]."""

    @classmethod
    def at(cls, nets: Architecture, critics: Params, observation: Array, condition: Array, eta: Array) -> "_Asked":
        fractions = jnp.stack([quantiles.midpoints(level, nets.sizes.fractions) for level in (0.0, eta)])
        embed = jax.vmap(jax.vmap(lambda params, tau: critic.embedding(nets.critic, params, tau), (None, 0)))
        return cls(nets.critic, critics, observation, condition, embed(critics, fractions))

    def look(self, iterate: Array, candidate: Array) -> tuple[Array, Array]:
        """The reward gradient at the iterate, and the cost of the candidate."""
        rows = jnp.stack([self._about(iterate), self._about(candidate)])
        raw = jax.vmap(lambda *one: _forward(self.config, *one))(self.critics, rows, self.embeddings)
        return jnp.mean(raw[REWARD], axis=(0, 2))[1:], _worst_head(raw[COST])[0]

    def cost_gradient(self, action: Array) -> Array:
        """That of the greatest head."""
        params = critic.one_of(self.critics, COST)
        return _worst_head(_forward(self.config, params, self._about(action), self.embeddings[COST]))[1:]

    def _about(self, action: Array) -> Array:
        """What a critic is asked, and the directions in which the action can go, [1 + actions, inputs]."""
        directions = jnp.eye(action.shape[0], dtype=jnp.float32)
        around = ((0, 0), (self.observation.shape[0], self.condition.shape[0]))
        asked = jnp.concatenate([self.observation, action, self.condition])
        return jnp.concatenate([asked[None], jnp.pad(directions, around)])


def refine(
    config: RefinementConfig,
    nets: Architecture,
    critics: Params,
    observation: Array,
    condition: Array,
    nominal: Array,
    eta: Array,
    threshold: float,
) -> Refined:
    """The action to execute in one state, as `refinement.refine` with `refinement.critic_values` finds it.

    Args:
        critics: the pair, reward first.
        observation: normalised.
        condition: what the critics are conditioned on, see `architecture.condition`.
        nominal: a_0, inside the box.
        eta: risk level, a scalar.
        threshold: d, in the unit of Q_c.
    """
    assert nominal.ndim == 1 and eta.ndim == 0, (nominal.shape, eta.shape)
    share, asked = refinement.weight(config, eta), _Asked.at(nets, critics, observation, condition, eta)

    def sent(iterate: Array) -> Array:
        return iterate if config.weight == "full" else refinement.project(nominal + share * (iterate - nominal))

    def unfinished(now: _Progress) -> Array:
        return triggered & (now.steps < config.steps) & (now.judged > threshold)

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
    start = _Progress(nominal, first_gradient, nominal_cost, nominal, nominal_cost, jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(unfinished, one_step, start)
    if config.keep == "best":
        action, cost = end.best, end.best_cost
    else:
        action = sent(end.iterate)
        cost = end.judged if config.weight == "full" else asked.look(action, action)[1]
    return refinement.executed(nominal, nominal_cost, triggered, action, cost, end.steps)


def _worst_head(raw: Array) -> Array:
    """Cost of the greatest head, the first on a tie, and its gradient, [1 + actions].

    Args:
        raw: what `_forward` gives, [head, 1 + actions, fraction].
    """
    value = jax.nn.softplus(raw[:, 0])
    slopes = jax.nn.sigmoid(raw[:, :1]) * raw[:, 1:]
    by_head = jnp.concatenate([jnp.mean(value, axis=1)[:, None], jnp.mean(slopes, axis=2)], axis=1)
    return by_head[jnp.argmax(by_head[:, 0])]


def _forward(config: CriticConfig, params: Params, x: Array, embedding: Array) -> Array:
    """Values of one critic before its last step, and their derivatives, [head, 1 + actions, fraction].

    The first row along the axis [1 + actions] is the value and the others are derivatives, from the first layer to the
    last: what is linear treats them alike, and a bias belongs to the value alone.
    """
    act = config.activation
    for i in range(config.feature_layers):
        dense, norm = params["features"][f"dense{i}"], params["features"][f"norm{i}"]
        x = _activation(act, _normed_dense(dense, norm, x, config.compute))
    modulated = x[:, None, :] * embedding[None].astype(x.dtype)

    def head(weights: Params) -> Array:
        def layer(block: Params, i: int, x: Array) -> Array:
            return _normed_dense(block[f"dense{i}"], block[f"norm{i}"], x, config.compute)

        h = _activation(act, layer(weights["input"], 0, modulated))
        for i in range(config.blocks):
            block = weights[f"block{i}"]
            h = h + layer(block, 1, _activation(act, layer(block, 0, h)))
        return _dense(weights["output"], h, config.compute)[..., 0]

    return jax.vmap(head)(params["heads"])


def _dense(params: Params, x: Array, compute: str) -> Array:
    """`layers.dense` of values and derivatives, float32 out."""
    dtype, precision = COMPUTE[compute]
    product = jnp.matmul(x.astype(dtype), params["kernel"].astype(dtype), precision=precision).astype(jnp.float32)
    is_value = (jnp.arange(x.shape[0]) == 0).astype(jnp.float32)
    return product + is_value.reshape(-1, *(1,) * (x.ndim - 1)) * _lengthwise(params["bias"], x)


def _normed_dense(params: Params, norm: Params, x: Array, compute: str) -> Array:
    """`layers.normed_dense` of values and derivatives.

    With n = (x - mean) r the normal value and c the centred derivative, that of n is r (c - n mean(n c)).
    """
    wide = _dense(params, x, compute)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    size = jax.lax.rsqrt(jnp.mean(jnp.square(centred[:1]), axis=-1, keepdims=True) + NORM_EPSILON)
    normal = centred[:1] * size
    along = jnp.mean(normal * centred[1:], axis=-1, keepdims=True)
    scale, bias = _lengthwise(norm["scale"], x), _lengthwise(norm["bias"], x)
    slopes = size * (centred[1:] - normal * along) * scale
    return jnp.concatenate([normal * scale + bias, slopes]).astype(COMPUTE[compute][0])


def _lengthwise(vector: Array, x: Array) -> Array:
    """A vector along the last axis of x."""
    return vector.reshape(*(1,) * (x.ndim - 1), -1)


def _activation(name: str, x: Array) -> Array:
    value = x[:1]
    _, slope = jax.jvp(ACTIVATIONS[name], (value,), (jnp.ones_like(value),))
    return jnp.concatenate([ACTIVATIONS[name](value), slope * x[1:]])
