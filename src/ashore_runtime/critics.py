"""The two quantile critics Z_tau(s, a, z), read at fixed fractions, and their gradient towards the action.

    features(s, a, z) * ReLU(W cos(pi i tau), i = 1..64)  ->  BroNet heads  ->  one value per head and fraction

    Q_r = mean over heads and fractions of [0, 1];   Q_c^eta = max over heads of the mean over fractions of [eta, 1]

What does not depend on the action is computed once per observation, what depends on eta alone once per eta. Heads and
fractions are axes of one stacked product. The greater head alone decides Q_c, so only that head is differentiated.
"""

from typing import Protocol

import numpy as np

from ashore_runtime.layers import Activation, NormedDense, Weights, weight
from ashore_runtime.schema import Network


class ActionCritics(Protocol):
    """What Algorithm 1 asks about an action in one state; anything that answers can be refined against."""

    def cost(self, action: np.ndarray) -> float:
        """Q_c^eta."""
        ...

    def cost_gradient(self, action: np.ndarray) -> np.ndarray: ...

    def reward_gradient(self, action: np.ndarray) -> np.ndarray: ...


def midpoints(level: float, count: int) -> np.ndarray:
    """Midpoints of `count` equal cells of [level, 1], float32: level + (1 - level)(i - 1/2) / count.

    In whole numbers, as in training: a compiler may round a product before it adds to it or not, and the last bit of a
    fraction is 1e-5 in the cosines below.
    """
    bits = midpoint_bits(count)
    whole = int(np.round(np.float32(level) * np.float32(1 << bits)))
    odd = np.arange(1, 2 * count, 2, dtype=np.int64)
    parts = whole * (2 * count - odd) + (odd << bits)
    return parts.astype(np.float32) * np.float32(0.5**bits / (2 * count))


def midpoint_bits(count: int) -> int:
    """Binary digits to which `midpoints` reads a level: all that float32 has, or as many as 32-bit numbers allow."""
    return min(24, 31 - (2 * count).bit_length())


class Critic:
    """One implicit quantile critic for one (s, z) at a time: `prepare` it, then ask about actions."""

    def __init__(self, weights: Weights, prefix: str, network: Network, observation: int, action: int, cost: bool):
        width, rows, heads = network.critic_width, network.fractions, network.critic_heads
        self._cost = cost
        self._sizes = (observation, action, network.context)
        self._rows = rows
        inputs = sum(self._sizes)
        self._features = [
            NormedDense(weights, f"{prefix}/features", i, 1, 1, inputs if i == 0 else width, width)
            for i in range(network.feature_layers)
        ]
        first = self._features[0].kernel[0]
        dtype = first.dtype
        self._feature_acts = [Activation(network.activation, (1, 1, width), dtype) for _ in self._features]
        self._of_state = np.ascontiguousarray(np.delete(first, np.s_[observation : observation + action], axis=0))
        self._of_action = np.ascontiguousarray(first[observation : observation + action])
        self._embedding = (
            weight(weights, f"{prefix}/embedding/kernel", (network.cosines, width)),
            weight(weights, f"{prefix}/embedding/bias", (width,)),
        )
        self._orders = np.arange(1, network.cosines + 1, dtype=np.float32)

        def normed(block: str, index: int) -> tuple[NormedDense, Activation]:
            layer = NormedDense(weights, f"{prefix}/heads/{block}", index, heads, rows, width, width)
            return layer, Activation(network.activation, (heads, rows, width), dtype)

        self._input = normed("input", 0)
        self._blocks = [(normed(f"block{i}", 0), normed(f"block{i}", 1)[0]) for i in range(network.critic_blocks)]
        self._output = weight(weights, f"{prefix}/heads/output/kernel", (heads, width, 1))
        self._output_bias = weight(weights, f"{prefix}/heads/output/bias", (heads, 1))
        self._base = np.zeros(width, dtype)
        self._modulated = np.empty((1, rows, width), dtype)
        self._residual = np.empty((heads, rows, width), dtype)
        self._values = np.empty((heads, rows, 1), dtype)
        self._gradient = np.empty((heads, rows, width), dtype)
        self._levels: dict[float, np.ndarray] = {}
        self.at_level(0.0)

    def at_level(self, level: float) -> None:
        """Read the quantile function at midpoints of [level, 1] from now on."""
        if level not in self._levels:
            if len(self._levels) >= _MOST_LEVELS:
                self._levels.clear()
            # In float32 and this order of products, as in training: pi tau i reaches 200, where that is 1e-5 coarse.
            angles = (np.float32(np.pi) * midpoints(level, self._rows))[:, None] * self._orders
            kernel, bias = self._embedding
            self._levels[level] = np.maximum(np.cos(angles.astype(kernel.dtype)) @ kernel + bias, np.float32(0.0))
        self._phi = self._levels[level]

    def prepare(self, observation: np.ndarray, context: np.ndarray) -> None:
        """Everything that does not depend on the action, for one normalised observation and one context."""
        assert observation.shape == self._sizes[:1] and context.shape == self._sizes[2:]
        np.matmul(np.concatenate([observation, context]), self._of_state, out=self._base)
        self._base += self._features[0].bias[0, 0]

    def quantiles(self, action: np.ndarray) -> np.ndarray:
        """Values at the fractions, [heads, fractions]; a cost is never negative."""
        values = self._raw(action)
        return np.logaddexp(np.float32(0.0), values) if self._cost else values

    def value(self, action: np.ndarray) -> float:
        """Q_r or Q_c^eta."""
        per_head = self.quantiles(action).mean(axis=1)
        return float(per_head.max() if self._cost else per_head.mean())

    def value_and_gradient(self, action: np.ndarray) -> tuple[float, np.ndarray]:
        """Q_r or Q_c^eta, and its gradient towards the action."""
        raw = self._raw(action)
        heads, rows = raw.shape
        if self._cost:
            per_head = np.logaddexp(np.float32(0.0), raw).mean(axis=1)
            first = int(per_head.argmax())
            chosen = slice(first, first + 1)
            value = float(per_head[first])
            # The slope of a softplus is the logistic function, here in a form that cannot overflow.
            slopes = (0.5 / rows) * (1.0 + np.tanh(0.5 * raw[chosen]))
        else:
            chosen = slice(0, heads)
            value = float(raw.mean(axis=1).mean())
            slopes = np.full((heads, rows), 1.0 / (heads * rows), raw.dtype)
        return value, self._towards_action(slopes, chosen)

    def _raw(self, action: np.ndarray) -> np.ndarray:
        assert action.shape == self._sizes[1:2]
        feature = self._features[0].forward_from(self._base + action @ self._of_action)
        feature = self._feature_acts[0].forward(feature)
        for layer, act in zip(self._features[1:], self._feature_acts[1:], strict=True):
            feature = act.forward(layer.forward(feature))
        np.multiply(feature[0], self._phi, out=self._modulated[0])
        layer, act = self._input
        h = act.forward(layer.forward(self._modulated))
        for (first, act), second in self._blocks:
            h = np.add(h, second.forward(act.forward(first.forward(h))), out=self._residual)
        np.matmul(h, self._output, out=self._values)
        return self._values[..., 0] + self._output_bias

    def _towards_action(self, slopes: np.ndarray, chosen: slice) -> np.ndarray:
        gradient = self._gradient[chosen]
        np.multiply(slopes[..., None], self._output[chosen, :, 0][:, None], out=gradient)
        for (first, act), second in reversed(self._blocks):
            # The residual path carries `gradient` on unchanged; the branch is added to it.
            branch = second.backward(gradient.copy(), chosen)
            gradient += first.backward(act.backward(branch, chosen), chosen)
        layer, act = self._input
        modulated = layer.backward(act.backward(gradient, chosen), chosen)
        feature = np.einsum("hfw,fw->w", modulated, self._phi)[None, None]
        one = slice(0, 1)
        for layer, act in zip(self._features[:0:-1], self._feature_acts[:0:-1], strict=True):
            feature = layer.backward(act.backward(feature, one), one)
        feature = self._features[0].backward_to_product(self._feature_acts[0].backward(feature, one), one)
        return self._of_action @ feature[0, 0]


_MOST_LEVELS = 64
"""Embeddings kept at once; a schedule has some twenty levels."""


class CriticPair:
    """Reward and cost critic of one state: the answers of the networks to what Algorithm 1 asks."""

    def __init__(self, weights: Weights, network: Network, observation: int, action: int) -> None:
        self.reward_critic = Critic(weights, "critic_reward", network, observation, action, cost=False)
        self.cost_critic = Critic(weights, "critic_cost", network, observation, action, cost=True)
        self._state: tuple[np.ndarray, np.ndarray] | None = None

    def prepare(self, observation: np.ndarray, context: np.ndarray, eta: float) -> None:
        """Ask about this state from now on. The reward critic is prepared when it is first needed."""
        self.cost_critic.at_level(eta)
        self.cost_critic.prepare(observation, context)
        self._state = (observation, context)

    def cost(self, action: np.ndarray) -> float:
        """Q_c^eta."""
        return self.cost_critic.value(action)

    def cost_gradient(self, action: np.ndarray) -> np.ndarray:
        """Of Q_c^eta, towards the action."""
        return self.cost_critic.value_and_gradient(action)[1]

    def reward_gradient(self, action: np.ndarray) -> np.ndarray:
        """Of Q_r, towards the action."""
        if self._state is not None:
            self.reward_critic.prepare(*self._state)
            self._state = None
        return self.reward_critic.value_and_gradient(action)[1]
