"""A trained policy deployed in batches of worlds whose physics may change: what the runtime's detector would see.

The physics of a world may switch between two decisions. Played again from the same seed with another detector, or with
none, a stream is the same up to the first alarm.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ashore.calibration.careful_deployment import start_worlds
from ashore.calibration.careful_policy import CarefulPolicy
from ashore.calibration.risk_level import Levels, careful_start, level_at, on_device
from ashore.environments import rollout
from ashore.environments.base import Task
from ashore.environments.rollout import Worlds
from ashore.experiments.jax_twin import Twin
from ashore.learning import normalisation
from ashore.networks import dynamics_head, encoder
from ashore.networks.encoder import NaturalPosterior
from ashore.types import Array, Parameters, Transition
from ashore_runtime.change import DOUBT
from ashore_runtime.limits import Limits
from ashore_runtime.schema import Calibration, ChangeCalibration, WorldCalibration

UNDISTURBED = ChangeCalibration(threshold=float("inf"))
"""A detector that never speaks."""
_NEVER = -1


class Schedule(NamedTuple):
    """The risk level by number of transitions, and by what is believed where there is a world table."""

    counts: tuple[int, ...]
    levels: tuple[float, ...] | WorldCalibration
    tempering: float
    patience: int = Limits().patience
    """Transitions after an alarm for which caution is not given up."""


class Streams(NamedTuple):
    """What happened in every world, [world, decision]."""

    gain: np.ndarray
    """What the detector accumulates, in nats; NaN where a transition was lost."""
    surprise: np.ndarray
    """NaN where a transition was lost."""
    cost: np.ndarray
    reward: np.ndarray
    eta: np.ndarray
    alarm: np.ndarray
    """Whether the transition was an alarm, after which the posterior started afresh."""


def schedule_of(calibration: Calibration | None) -> Schedule:
    """The schedule of a bundle; without one, no caution."""
    if calibration is None:
        return Schedule((0,), (0.0,), 1.0)
    return Schedule(calibration.counts, calibration.world or calibration.eta, calibration.tempering)


def streams(
    task: Task,
    found: Twin,
    schedule: Schedule,
    before: Parameters,
    after: Parameters,
    seed: int,
    decisions: int,
    change_at: np.ndarray | int = _NEVER,
    detector: ChangeCalibration = UNDISTURBED,
) -> Streams:
    """Deploy in one world per parameter vector.

    Args:
        before, after: physics up to and from decision `change_at` on.
        decisions: how long.
        change_at: when the physics switch, of every world or [world]; -1 for never.
        detector: what is an alarm.
    """
    worlds = len(jax.tree.leaves(before)[0])
    keys = jax.random.split(jax.random.key(seed), worlds)
    rows = _deploy(
        task,
        found.policy,
        found.weights,
        jnp.float32(schedule.tempering),
        before,
        after,
        keys,
        on_device(np.asarray(schedule.levels) if isinstance(schedule.levels, tuple) else schedule.levels),
        jnp.asarray(np.broadcast_to(change_at, worlds), jnp.int32),
        _Watch(*(jnp.float32(getattr(detector, name)) for name in _Watch._fields)),
        counts=schedule.counts,
        patience=schedule.patience,
        decisions=decisions,
    )
    return Streams(*(np.asarray(row).swapaxes(0, 1) for row in jax.device_get(rows)))


class _Watch(NamedTuple):
    """The numbers of a `ChangeCalibration`, on the device: another threshold is no other program."""

    threshold: Array
    drift: Array
    clip: Array
    memory: Array


class _Deployed(NamedTuple):
    """What is carried from one decision to the next, worlds first."""

    worlds: Worlds
    posterior: NaturalPosterior
    total: Array
    """The CUSUM."""
    recent: NaturalPosterior
    fresh: NaturalPosterior
    """As in `ashore_runtime.change`."""
    held: Array
    """Transitions for which caution must not be given up, int32."""
    least: Array
    """Risk level below which it is not given up meanwhile: that of the last decision, or the careful start."""
    alarms: Array
    """Those of late, as in `ashore_runtime.change`."""


@partial(jax.jit, static_argnames=("task", "policy", "counts", "patience", "decisions"))
def _deploy(
    task: Task,
    policy: CarefulPolicy,
    weights: Any,
    tempering: Array,
    before: Parameters,
    after: Parameters,
    keys: Array,
    levels: Levels,
    change_at: Array,
    watch: _Watch,
    *,
    counts: tuple[int, ...],
    patience: int,
    decisions: int,
) -> tuple[Array, ...]:
    prior = jax.vmap(lambda _: encoder.prior(policy.latent))(keys)
    act = jax.vmap(policy.act, in_axes=(None, 0, 0, 0))
    evidence = jax.vmap(policy.evidence, in_axes=(None, 0))
    judge = jax.vmap(partial(_judge, policy, weights))

    def one_decision(carry: _Deployed, now: Array) -> tuple[_Deployed, tuple[Array, ...]]:
        latent = jax.vmap(encoder.mean)(carry.posterior)
        eta, held = _level(counts, levels, patience, carry, latent)
        decision = act(weights, carry.worlds.observation, latent, eta)
        changed = (change_at >= 0) & (now >= change_at)
        physics = jax.tree.map(lambda old, new: jnp.where(changed, new, old), before, after)
        worlds, transition, _ = rollout.advance(task, carry.worlds, decision.action, physics)
        gain, surprise = judge(transition, latent, jax.vmap(encoder.mean)(carry.recent))
        said = evidence(weights, transition)
        said = said._replace(
            weighted_mean_sum=tempering * said.weighted_mean_sum, precision_sum=tempering * said.precision_sum
        )
        # As the runtime does it: judged, then learnt from, then begun afresh where that was an alarm.
        total = jnp.maximum(carry.total + jnp.clip(gain, -watch.clip, watch.clip) - watch.drift, 0.0)
        alarm = total > watch.threshold * 2.0**carry.alarms
        alarms = (1.0 - 1.0 / DOUBT) * carry.alarms
        recent = _faded(watch.memory, carry.recent, said)
        fresh = _where(total > 0.0, _faded(watch.memory, carry.fresh, said), prior)
        following = _Deployed(
            worlds,
            _where(alarm, fresh, encoder.merge(carry.posterior, said)),
            jnp.where(alarm, 0.0, total),
            _where(alarm, fresh, recent),
            _where(alarm, prior, fresh),
            jnp.where(alarm, patience, held),
            jnp.where(alarm, jnp.maximum(eta, careful_start(levels)), eta),
            jnp.where(alarm, alarms + 1.0, alarms),
        )
        following = _unless_lost(transition.diverged, carry, following)
        return following, (gain, surprise, transition.cost, transition.reward, eta, alarm)

    nothing = jnp.zeros(keys.shape[0], jnp.int32)
    total = jnp.zeros(keys.shape[0], jnp.float32)
    first = jnp.full_like(total, careful_start(levels))
    start = _Deployed(start_worlds(task, keys, before), prior, total, prior, prior, nothing, first, total)
    return jax.lax.scan(one_decision, start, jnp.arange(decisions, dtype=jnp.int32))[1]


def _level(
    counts: tuple[int, ...], levels: Levels, patience: int, carry: _Deployed, latent: Array
) -> tuple[Array, Array]:
    """The risk level of a decision, and how many transitions after it caution must not be given up."""
    eta = jax.vmap(lambda seen, belief: level_at(counts, levels, seen, belief))(carry.posterior.count, latent)
    eta = jnp.where(carry.held > 0, jnp.maximum(carry.least, eta), eta)
    # It rose with the transition before this decision, which counts towards the wait.
    wait = jnp.where(eta > carry.least, patience // 2, 0)
    return eta, jnp.maximum(jnp.maximum(carry.held, wait) - 1, 0)


def _faded(memory: Array, found: NaturalPosterior, said: NaturalPosterior) -> NaturalPosterior:
    """As `posterior.fade` and then `add`."""
    share = 1.0 - 1.0 / memory
    count = jnp.minimum(found.count, memory.astype(jnp.int32) - 1)
    return encoder.merge(NaturalPosterior(share * found.weighted_mean_sum, share * found.precision_sum, count), said)


def _unless_lost(lost: Array, carry: _Deployed, following: _Deployed) -> _Deployed:
    """A transition that was lost leaves no trace in the runtime; its gain is not a number, and so no alarm."""
    return following._replace(
        total=jnp.where(lost, carry.total, following.total),
        recent=_where(lost, carry.recent, following.recent),
        fresh=_where(lost, carry.fresh, following.fresh),
        alarms=jnp.where(lost, carry.alarms, following.alarms),
    )


def _where(mask: Array, chosen: NaturalPosterior, other: NaturalPosterior) -> NaturalPosterior:
    """One posterior per world, chosen where the mask is true."""
    return jax.tree.map(lambda new, old: jnp.where(mask.reshape(-1, *(1,) * (old.ndim - 1)), new, old), chosen, other)


def _judge(
    policy: CarefulPolicy, weights: Any, transition: Transition, latent: Array, recent: Array
) -> tuple[Array, Array]:
    """Gain and surprise of one transition, as the runtime computes them (`PolicyNetworks`); NaN if it diverged."""
    params, normalisers = weights
    nets = policy.nets
    index = jnp.asarray(nets.features, jnp.int32)
    seen = normalisation.see(nets, normalisers.observation, transition.observation)
    moved = transition.next_observation[index] - transition.observation[index]
    target = normalisation.dynamics_target(normalisers, moved, transition.reward, transition.cost)
    head, features = params["dynamics"], len(nets.features)

    def judged(z: Array) -> tuple[Array, Array]:
        said = dynamics_head.apply(nets.dynamics, head, seen, transition.action, z)
        mean, log_scale = dynamics_head.expected(nets.dynamics, head, said)
        squares = jnp.square((target - mean) * jnp.exp(-log_scale))
        return -jnp.sum((0.5 * squares + log_scale)[:features]), jnp.mean(squares)

    (by_all, surprise), (by_recent, _) = judged(latent), judged(recent)
    lost = transition.diverged
    return jnp.where(lost, jnp.nan, by_recent - by_all), jnp.where(lost, jnp.nan, surprise)
