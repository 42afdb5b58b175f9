"""Which networks the agent has, in which sizes, and under which names their weights are stored."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ashore import sensible
from ashore.networks import actor, critic, dynamics_head, encoder
from ashore.networks.actor import ActorConfig
from ashore.networks.critic import COST, REWARD, CriticConfig
from ashore.networks.dynamics_head import DynamicsConfig
from ashore.networks.encoder import EncoderConfig
from ashore.networks.layers import COMPUTE, Params
from ashore.types import Array

SHARPENED = ((8, 4.0), (32, 6.0))
"""Powers to which a closeness is raised for the networks, and what each is multiplied by.

With a lidar of 3 m range, 0.2 m and 0.3 m are 0.933 and 0.9: an eighth of a standard deviation apart, and the
difference between paying and not paying. Raised to the 32nd power they are 0.11 and 0.03. See docs/decisions/0007.
"""

SOONEST = 5.0
"""Where the inverse time to a collision is cut off for the networks, after its scale."""

CRITIC_NAMES = {"critic_reward": REWARD, "critic_cost": COST}
"""Name on disk of each critic of the stacked pair."""


@dataclass(frozen=True)
class Sizes:
    """How large the networks are, whatever the task."""

    critic_width: int = 256
    fractions: int = 16
    """Quantile fractions per evaluation: online (N), target (N') and in the actor's loss (K)."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Hidden layers of actor, encoder and dynamics head."""
    latent: int = 5
    context: int = 128
    """Most transitions in one training context (M)."""
    critic_blocks: int = 2
    critic_heads: int = 2
    cosines: int = 64
    activation: str = "relu"
    """Activation of the critics: `relu` or `silu`."""
    dynamics_scale: str = "learnt"
    """Scale of the dynamics likelihood: `learnt` per target, `predicted` per decision, or `unit` (see docs/decisions,
    4 and 14)."""
    action_scale: float = 1.0
    """What actions are multiplied by before critics, encoder and dynamics head get them: one over the size that is
    usual. An input of a tenth of the size of the others is learnt about last (see docs/decisions/0014)."""
    compute: str = "float32"
    """Matrix products in `float32`, `tensorfloat32` or `bfloat16`; weights and outputs are always float32. In `float64`
    they are that, too; it is for comparing implementations, under `jax.enable_x64`."""

    def __post_init__(self) -> None:
        sensible.at_least(self, 1, "critic_width", "fractions", "latent", "context", "cosines")
        # A deployed policy that nobody refines has no critics, and so no heads.
        sensible.at_least(self, 0, "critic_blocks", "critic_heads")
        if not 0.0 < self.action_scale < float("inf"):
            raise ValueError(f"action_scale must be positive, not {self.action_scale}.")
        if min(self.hidden, default=1) < 1:
            raise ValueError(f"hidden layers have at least one unit each, not {self.hidden}.")
        if self.compute not in COMPUTE:
            raise ValueError(f"compute must be one of {', '.join(COMPUTE)}, not '{self.compute}'.")
        if self.compute == "float64" and jnp.result_type(float) != jnp.float64:
            raise ValueError("compute float64 is for comparing implementations, under jax.enable_x64(True).")


SIZES = {
    "paper": Sizes(critic_width=512, fractions=32),
    "standard": Sizes(critic_width=256, fractions=16),
    "small": Sizes(critic_width=64, fractions=8, hidden=(64, 64)),
}


@dataclass(frozen=True)
class Architecture:
    """The agent's networks for one task."""

    observation: int
    action: int
    features: tuple[int, ...]
    """The task's dynamics features: indices into the observation."""
    sizes: Sizes = Sizes()
    risk_conditioned: bool = False
    """Actor and critics also get the risk level eta: one policy for every degree of caution."""
    closeness: tuple[int, ...] = ()
    """Observed closenesses whose near range the networks get enlarged (see `normalisation.see`)."""

    contrasts: tuple[tuple[int, int, float], ...] = ()
    """(first, second, scale): differences of observed numbers that the networks get as well."""

    approaches: tuple[tuple[int, int, int, float, float], ...] = ()
    """`types.Approach`es: the networks also get how soon these gaps close. See docs/decisions/0010."""

    @property
    def seen(self) -> int:
        """Numbers that actor, critics and dynamics head see of an observation."""
        enlarged = len(SHARPENED) * len(self.closeness)
        return self.observation + enlarged + len(self.contrasts) + len(self.approaches)

    @property
    def condition(self) -> int:
        """Numbers that actor and critics are conditioned on."""
        return self.sizes.latent + int(self.risk_conditioned)

    @property
    def actor(self) -> ActorConfig:
        sizes = self.sizes
        return ActorConfig(self.seen, self.action, self.condition, sizes.hidden, sizes.compute)

    @property
    def critic(self) -> CriticConfig:
        sizes = self.sizes
        return CriticConfig(
            self.seen,
            self.action,
            condition=self.condition,
            width=sizes.critic_width,
            cosines=sizes.cosines,
            heads=sizes.critic_heads,
            blocks=sizes.critic_blocks,
            activation=sizes.activation,
            action_scale=sizes.action_scale,
            compute=sizes.compute,
        )

    @property
    def encoder(self) -> EncoderConfig:
        sizes = self.sizes
        return EncoderConfig(
            len(self.features), self.action, sizes.latent, sizes.hidden, sizes.action_scale, sizes.compute
        )

    @property
    def dynamics(self) -> DynamicsConfig:
        sizes = self.sizes
        return DynamicsConfig(
            self.seen,
            self.action,
            len(self.features),
            sizes.latent,
            sizes.hidden,
            sizes.dynamics_scale,
            sizes.action_scale,
            sizes.compute,
        )


def condition(architecture: Architecture, latent: Array, risk_level: Array | float) -> Array:
    """What actor and critics are conditioned on: z, or (z, eta) where the policy takes a risk level."""
    assert latent.shape == (architecture.sizes.latent,), latent.shape
    if not architecture.risk_conditioned:
        return latent
    level = jnp.asarray(risk_level, latent.dtype)
    assert level.ndim == 0, level.shape
    return jnp.append(latent, level)


def init(key: Array, architecture: Architecture) -> Params:
    """Weights of all networks, each from a key of its own: `actor`, `critics` (a pair), `encoder`, `dynamics`."""
    keys = jax.random.split(key, 4)
    return {
        "actor": actor.init(keys[0], architecture.actor),
        "critics": critic.init_pair(keys[1], architecture.critic),
        "encoder": encoder.init(keys[2], architecture.encoder),
        "dynamics": dynamics_head.init(keys[3], architecture.dynamics),
    }


def _first_layer(architecture: Architecture) -> str:
    """Of actor, encoder and dynamics head, by the name of its weights."""
    return "dense0" if architecture.sizes.hidden else "output"


def deaf_to_latent(architecture: Architecture, actor: Params) -> Params:
    """The actor with zeros where its first layer multiplies the latent."""
    first = _first_layer(architecture)
    begin = architecture.seen
    kernel = actor[first]["kernel"].at[begin : begin + architecture.sizes.latent].set(0.0)
    return actor | {first: actor[first] | {"kernel": kernel}}


def with_scale_inside(architecture: Architecture, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Named weights of the same networks for actions as they are: `action_scale` multiplied into the first kernels.

    What travels to a robot then has no such scale, and nobody there can forget it.
    """
    first = _first_layer(architecture)
    before_action = {
        **{f"{name}/features/dense0/kernel": architecture.critic.observation for name in CRITIC_NAMES},
        f"encoder/{first}/kernel": architecture.encoder.features,
        f"dynamics/network/{first}/kernel": architecture.dynamics.observation,
    }
    scaled = dict(weights)
    for name, begin in before_action.items():
        if name in weights:
            rows = np.ones((len(weights[name]), 1), np.float32)
            rows[begin : begin + architecture.action] = architecture.sizes.action_scale
            scaled[name] = weights[name] * rows
    return scaled


def named_weights(params: Params) -> dict[str, Array]:
    """All weights by name, such as `critic_cost/heads/block0/dense0/kernel`, sorted; the pair is taken apart."""
    separate = {name: tree for name, tree in params.items() if name != "critics"}
    if "critics" in params:
        for name, place in CRITIC_NAMES.items():
            separate[name] = critic.one_of(params["critics"], place)
    leaves = jax.tree.leaves_with_path(separate)
    return dict(sorted(("/".join(entry.key for entry in path), leaf) for path, leaf in leaves))


def from_named_weights(weights: Mapping[str, Array | np.ndarray]) -> Params:
    """The inverse of `named_weights`."""
    separate: Params = {}
    for name, leaf in weights.items():
        *folders, last = name.split("/")
        node = separate
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = jnp.asarray(leaf)
    present = [name for name in CRITIC_NAMES if name in separate]
    if not present:
        return separate
    if len(present) != len(CRITIC_NAMES):
        raise ValueError(f"Weights hold {present[0]} alone; the critics come as a pair.")
    pair = [separate.pop(name) for name in CRITIC_NAMES]
    return {**separate, "critics": jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair)}
