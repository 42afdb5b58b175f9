"""The careful policy: how an observation, what is believed about the world, and a risk level become an action.

Caution comes from one of three places. `refinement` is the paper's: the nominal action is refined by Algorithm 1.
`actor` needs a policy that was trained to take the risk level as an input, and no refinement. `both` does both.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ashore.calibration import refinement
from ashore.calibration.refinement import RefinementConfig
from ashore.learning import normalisation
from ashore.learning.collect import update_posterior
from ashore.networks import actor, architecture, encoder
from ashore.networks.architecture import Architecture
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Transition

Caution = Literal["refinement", "actor", "both"]
CAUTIONS: tuple[Caution, ...] = ("refinement", "actor", "both")


class Decision(NamedTuple):
    """One action and what caution had to do with it."""

    action: Array
    triggered: Array
    """Whether the nominal action did not fit the budget at this risk level, bool; false where nobody asked."""
    cost_before: Array
    """Predicted Q_c^eta of the nominal action, NaN where nobody asked."""
    cost_after: Array
    """Predicted Q_c^eta of `action`, NaN where nobody asked."""
    steps: Array
    """Gradient steps taken, int32."""


class Situation(NamedTuple):
    """What a decision starts from."""

    seen: Array
    """The observation, as the networks get it."""
    condition: Array
    """What actor and critics are conditioned on."""
    nominal: Array
    """The actor's action."""


class Agent(Protocol):
    """What calibration needs to know of a policy, for one world at a time.

    Implementations are immutable and hashable: they are static arguments of `jit`, and the numbers they act with travel
    separately, as `weights`.
    """

    @property
    def latent(self) -> int:
        """Numbers in which a world is described."""
        ...

    def act(self, weights: Any, observation: Array, latent: Array, eta: Array) -> Decision:
        """The action at risk level eta, given a belief about the world."""
        ...

    def evidence(self, weights: Any, transition: Transition) -> NaturalPosterior:
        """What one transition says about the world; nothing if it diverged."""
        ...


@dataclass(frozen=True)
class CarefulPolicy:
    """A trained policy with its caution; its weights are (params, normalisers)."""

    nets: Architecture
    budget: float
    """The cost limit in the critics' unit: discounted."""
    caution: Caution = "refinement"
    refinement: RefinementConfig = RefinementConfig()

    def __post_init__(self) -> None:
        if self.caution not in CAUTIONS:
            raise ValueError(f"Caution comes from {', '.join(CAUTIONS)}, not from '{self.caution}'.")
        if self.caution != "refinement" and not self.nets.risk_conditioned:
            raise ValueError(
                f"Caution '{self.caution}' needs a policy that takes a risk level; this one was trained without "
                "(train it with --set risk.conditioned=true)."
            )

    @property
    def latent(self) -> int:
        """Numbers in which a world is described."""
        return self.nets.sizes.latent

    @property
    def threshold(self) -> float:
        """What the upper-tail cost of an action may be, in the critics' unit."""
        return self.refinement.threshold_scale * self.budget

    def situation(self, weights: Any, observation: Array, latent: Array, eta: Array) -> Situation:
        """What actor and critics see of one raw observation, one latent and a risk level, and the actor's answer."""
        params, normalisers = weights
        seen = normalisation.see(self.nets, normalisers.observation, observation)
        # Under `refinement` a policy that takes a risk level acts, and is judged, as the risk-neutral one.
        level = jnp.zeros_like(eta) if self.caution == "refinement" else eta
        condition = architecture.condition(self.nets, latent, level)
        return Situation(seen, condition, actor.apply(self.nets.actor, params["actor"], seen, condition))

    def act(self, weights: Any, observation: Array, latent: Array, eta: Array) -> Decision:
        """The action at risk level eta for one raw observation and one latent."""
        seen, condition, nominal = self.situation(weights, observation, latent, eta)
        if self.caution == "actor":
            unknown = jnp.full((), jnp.nan, nominal.dtype)
            return Decision(nominal, jnp.zeros((), bool), unknown, unknown, jnp.zeros((), jnp.int32))
        values = refinement.critic_values(self.nets, weights[0]["critics"], seen, condition, eta)
        return Decision(*refinement.refine(self.refinement, values, nominal, eta, self.threshold))

    def evidence(self, weights: Any, transition: Transition) -> NaturalPosterior:
        """What one transition says about the world: one Gaussian factor, or nothing if it diverged."""
        params, normalisers = weights
        batch = jax.tree.map(lambda part: part[None], (encoder.prior(self.latent), transition))
        said = update_posterior(self.nets, params, normalisers, *batch)
        return jax.tree.map(lambda part: part[0], said)
