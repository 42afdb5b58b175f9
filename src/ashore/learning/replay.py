"""Replay by task: one ring of decisions per simulated world, on the device, in fixed shapes.

All worlds step together, so one cursor serves every ring and a new decision is one slice written in place. What a
decision needs later is kept and nothing else: divergence is the `valid` flag, and the change of the dynamics features
is stored in float32 beside the observations, because the difference of two observations rounded to bfloat16 would say
little about the physics.

An entry that is not valid (never written, diverged, not finite) is zeroed and can never be drawn.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ashore.types import Array, Transition, Unearned


@dataclass(frozen=True)
class ReplayConfig:
    """Size of the rings and of what is drawn from them."""

    tasks: int
    observation: int
    action: int
    features: tuple[int, ...]
    """Indices of the dynamics features in the observation."""
    capacity: int = 1024
    """Decisions kept per task."""
    storage_dtype: str = "float32"
    """Observations in `float32` or `bfloat16` (half the memory); everything else is float32."""
    batch_tasks: int = 16
    batch_transitions: int = 32
    """Transitions per drawn task."""
    context: int = 128
    """Places of a context (M)."""
    window: int = 1024
    """Contexts come from this many last decisions of the task (W)."""
    steps: int = 1
    """Decisions that are followed from a drawn one on before a critic is asked (the n of n-step targets)."""
    context_sizes: str = "log-uniform"
    """How many places of a context are filled: every scale alike (`log-uniform`), or every number (`uniform`)."""
    contiguous: float = 0.5
    """Share of contexts that are consecutive decisions, as a deployed policy meets them; the others are spread."""
    penalised: bool = False
    """Whether a decision also has a penalty that its cost critic is to believe in."""
    unearned: Unearned | None = None
    """Which share of the reward no action changes, to be told apart."""

    def __post_init__(self) -> None:
        if self.storage_dtype not in ("float32", "bfloat16"):
            raise ValueError(f"Observations are stored as float32 or bfloat16, not '{self.storage_dtype}'.")
        if not 1 <= self.window <= self.capacity:
            raise ValueError(f"A context window of {self.window} does not fit a ring of {self.capacity} decisions.")
        if not 1 <= self.steps <= self.capacity:
            raise ValueError(f"Targets over {self.steps} decisions do not fit a ring of {self.capacity} decisions.")
        if max(self.context * self.window, self.batch_tasks * self.tasks) >= 1 << 31:
            raise ValueError("Rings this large need more than 32-bit indices.")


class Experience(NamedTuple):
    """Decisions as they are stored: fields [task, time, ...] in the ring, [task, transition, ...] in a batch."""

    observation: Array
    action: Array
    reward: Array
    cost: Array
    next_observation: Array
    change: Array
    """next_observation - observation at the dynamics features, exact."""
    terminated: Array
    ended: Array
    """The episode went no further, for whatever reason: the next entry belongs to another one."""
    penalty: Array | None = None
    """What the cost critic is to add to the cost, in the unit of the cost; None where no method asked for it."""


class Ahead(NamedTuple):
    """What followed each drawn decision within its episode, it included; fields [task, transition, ...].

    Places past the end of the episode, the newest decision or a missing one hold zeros.
    """

    reward: Array
    """[task, transition, step]."""
    cost: Array
    penalty: Array | None
    unearned: Array | None
    """The share of the reward that no action changes; None where the task declares none."""
    steps: Array
    """How many were followed, at least 1, int32."""
    observation: Array
    """What was observed after the last of them."""
    terminated: Array
    """Whether the task itself ended there."""


class Context(NamedTuple):
    """What the encoder may see of each drawn task, padded with zeros; fields [task, place, ...]."""

    feature_values: Array
    """The observation at the dynamics features."""
    action: Array
    change: Array
    reward: Array
    cost: Array
    mask: Array
    """Which places hold a decision, bool [task, place]."""


class ReplayState(NamedTuple):
    """The rings of all tasks."""

    experience: Experience
    valid: Array
    """Which entries may be drawn, bool [task, time]."""
    valid_count: Array
    """Their number per task, int32 [task]."""
    cursor: Array
    """Where the next decision goes, int32."""


def _empty(config: ReplayConfig) -> ReplayState:
    def ring(dtype: str, *shape: int) -> Array:
        return jnp.zeros((config.tasks, config.capacity, *shape), dtype)

    return ReplayState(
        experience=Experience(
            observation=ring(config.storage_dtype, config.observation),
            action=ring("float32", config.action),
            reward=ring("float32"),
            cost=ring("float32"),
            next_observation=ring(config.storage_dtype, config.observation),
            change=ring("float32", len(config.features)),
            terminated=ring("bool"),
            ended=ring("bool"),
            penalty=ring("float32") if config.penalised else None,
        ),
        valid=ring("bool"),
        valid_count=jnp.zeros(config.tasks, jnp.int32),
        cursor=jnp.zeros((), jnp.int32),
    )


def bytes_needed(config: ReplayConfig) -> int:
    """Memory of the rings, from the shapes `init` would allocate, without allocating any."""
    shapes = jax.eval_shape(lambda: _empty(config))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def init(config: ReplayConfig, limit_bytes: int | None = None) -> ReplayState:
    """Empty rings.

    Raises:
        MemoryError: the rings need more than `limit_bytes`; nothing was allocated.
    """
    needed = bytes_needed(config)
    if limit_bytes is not None and needed > limit_bytes:
        raise MemoryError(
            f"Replay of {config.tasks} tasks x {config.capacity} decisions needs {needed / 2**30:.2f} GiB, and "
            f"{limit_bytes / 2**30:.2f} GiB are allowed: keep fewer decisions per task (capacity), fewer tasks, or "
            f"store observations as bfloat16 (now {config.storage_dtype})."
        )
    return _empty(config)


def add(
    config: ReplayConfig, state: ReplayState, transition: Transition, valid: Array, penalty: Array | None = None
) -> ReplayState:
    """Write one decision of every task over the oldest one.

    Args:
        transition: fields [task, ...].
        valid: which of them are samples of the dynamics, bool [task]; pass `~transition.diverged`.
        penalty: what is to be added to the cost, [task]; given exactly where the rings are `penalised`.
    """
    assert (penalty is not None) == config.penalised, config.penalised
    assert transition.observation.shape == (config.tasks, config.observation), transition.observation.shape
    assert valid.shape == (config.tasks,) and valid.dtype == jnp.bool, (valid.shape, valid.dtype)
    index = jnp.asarray(config.features, jnp.int32)
    entry = Experience(
        observation=transition.observation,
        action=transition.action,
        reward=transition.reward,
        cost=transition.cost,
        next_observation=transition.next_observation,
        change=transition.next_observation[:, index] - transition.observation[:, index],
        terminated=transition.terminated,
        ended=transition.terminated | transition.truncated,
        penalty=penalty,
    )
    for field in jax.tree.leaves(entry):
        valid = valid & jnp.all(jnp.isfinite(field.astype(jnp.float32)).reshape(config.tasks, -1), axis=1)

    def write(ring: Array, field: Array) -> Array:
        kept = jnp.where(valid.reshape(-1, *(1,) * (field.ndim - 1)), field, jnp.zeros_like(field))
        return jax.lax.dynamic_update_index_in_dim(ring, kept.astype(ring.dtype), state.cursor, axis=1)

    replaced = jax.lax.dynamic_index_in_dim(state.valid, state.cursor, axis=1, keepdims=False)
    return ReplayState(
        experience=jax.tree.map(write, state.experience, entry),
        valid=jax.lax.dynamic_update_index_in_dim(state.valid, valid, state.cursor, axis=1),
        valid_count=state.valid_count + valid.astype(jnp.int32) - replaced.astype(jnp.int32),
        cursor=(state.cursor + 1) % config.capacity,
    )


def sample(config: ReplayConfig, state: ReplayState, key: Array) -> tuple[Experience, Ahead, Context]:
    """A batch of transitions, what followed each, and one context per drawn task, from the same tasks.

    Needs at least one valid entry somewhere (otherwise everything returned is zero).
    """
    task_key, transition_key, context_key = jax.random.split(key, 3)
    tasks = choose_tasks(state, task_key, config.batch_tasks)
    batch, ahead = sample_transitions(config, state, transition_key, tasks)
    return batch, ahead, sample_contexts(config, state, context_key, tasks)


def choose_tasks(state: ReplayState, key: Array, count: int) -> Array:
    """Distinct tasks among those that have a valid entry, int32 [count]; repeats only when there are fewer."""
    eligible = state.valid_count > 0
    ranks = _spread_ranks(key, count, jnp.sum(eligible.astype(jnp.int32)))
    return _places_of(eligible, ranks)


def sample_transitions(config: ReplayConfig, state: ReplayState, key: Array, tasks: Array) -> tuple[Experience, Ahead]:
    """For each of the tasks, transitions drawn uniformly from its valid entries, and what followed them."""
    assert tasks.ndim == 1, tasks.shape
    stored, steps = state.experience, jnp.arange(config.steps, dtype=jnp.int32)

    def slots(key: Array, task: Array) -> Array:
        ranks = jax.random.randint(key, (config.batch_transitions,), 0, jnp.maximum(state.valid_count[task], 1))
        return _places_of(state.valid[task], ranks)

    where = jax.vmap(slots)(jax.random.split(key, tasks.shape[0]), tasks)
    batch = jax.tree.map(lambda ring: ring[tasks[:, None], where], stored)
    batch = batch._replace(observation=_float32(batch.observation), next_observation=_float32(batch.next_observation))

    span = (where[..., None] + steps[None, None]) % config.capacity
    of_task = tasks[:, None, None]
    # A step is followed if the one before it was, went on, and is not the newest; the first always is.
    before, after = span[..., :-1], span[..., 1:]
    goes_on = ~stored.ended[of_task, before] & (after != state.cursor) & state.valid[of_task, after]
    followed = jnp.concatenate([jnp.ones_like(goes_on, shape=(*where.shape, 1)), goes_on], axis=-1)
    followed = jnp.cumprod(followed.astype(jnp.int32), axis=-1)
    count = jnp.sum(followed, axis=-1)
    last = (where + count - 1) % config.capacity

    def along(ring: Array) -> Array:
        return jnp.where(followed > 0, ring[of_task, span], 0.0)

    def given(share: Unearned) -> Array:
        seen = _float32(stored.next_observation[of_task, span, share.place])
        return jnp.where(followed > 0, share.weight * jnp.square(jnp.minimum(seen, share.highest)), 0.0)

    ahead = Ahead(
        reward=along(stored.reward),
        cost=along(stored.cost),
        penalty=None if stored.penalty is None else along(stored.penalty),
        unearned=None if config.unearned is None else given(config.unearned),
        steps=count,
        observation=_float32(stored.next_observation[tasks[:, None], last]),
        terminated=stored.terminated[tasks[:, None], last],
    )
    return batch, ahead


def _float32(values: Array) -> Array:
    return values.astype(jnp.float32)


def sample_contexts(config: ReplayConfig, state: ReplayState, key: Array, tasks: Array) -> Context:
    """For each of the tasks, N of its last W decisions, without repetition.

    By `context_sizes` N + 1 is log-uniform in 1..M + 1, so that every scale of experience from none to M is trained
    alike, or N is uniform in 0..M, so that most contexts have much to tell; N is cut to what the task has. The
    decisions are consecutive (with probability `contiguous`) or spread over the whole window.
    """
    assert tasks.ndim == 1, tasks.shape
    places = jnp.arange(config.context, dtype=jnp.int32)

    def draw(key: Array, task: Array) -> tuple[Array, Array]:
        size_key, spread_key, start_key, kind_key = jax.random.split(key, 4)
        ages = jnp.arange(config.window, dtype=jnp.int32)
        by_age = (state.cursor - 1 - ages) % config.capacity
        recent = state.valid[task, by_age]
        available = jnp.sum(recent.astype(jnp.int32))
        size = jnp.minimum(CONTEXT_SIZES[config.context_sizes](size_key, config.context), available)
        spread = _strata(spread_key, config.context, size, available)
        consecutive = jax.random.uniform(kind_key) < config.contiguous
        start = jax.random.randint(start_key, (), 0, jnp.maximum(available, 1))
        ranks = (start + jnp.where(consecutive, places, spread)) % jnp.maximum(available, 1)
        return by_age[_places_of(recent, ranks)], places < size

    where, mask = jax.vmap(draw)(jax.random.split(key, tasks.shape[0]), tasks)

    def gather(ring: Array) -> Array:
        rows = ring[tasks[:, None], where].astype(jnp.float32)
        return jnp.where(mask.reshape(*mask.shape, *(1,) * (rows.ndim - 2)), rows, 0.0)

    stored = state.experience
    feature_values = gather(stored.observation)[..., jnp.asarray(config.features, jnp.int32)]
    return Context(
        feature_values, gather(stored.action), gather(stored.change), gather(stored.reward), gather(stored.cost), mask
    )


def _log_uniform(key: Array, most: int) -> Array:
    """An int32 N in 0..most with N + 1 log-uniform."""
    draw = jnp.exp(jax.random.uniform(key) * math.log(most + 2))
    return jnp.clip(jnp.floor(draw).astype(jnp.int32) - 1, 0, most)


def _uniform(key: Array, most: int) -> Array:
    """An int32 N in 0..most."""
    return jax.random.randint(key, (), 0, most + 1)


CONTEXT_SIZES = {"log-uniform": _log_uniform, "uniform": _uniform}


def _strata(key: Array, places: int, size: Array, population: Array) -> Array:
    """One random rank in each of `size` equal strata of 0..population - 1: distinct where size <= population."""
    order = jnp.arange(places, dtype=jnp.int32)
    size = jnp.maximum(size, 1)
    low = order * population // size
    high = (order + 1) * population // size
    return low + jax.random.randint(key, (places,), 0, jnp.maximum(high - low, 1))


def _spread_ranks(key: Array, count: int, population: Array) -> Array:
    """`count` ranks of 0..population - 1, each rank equally likely, distinct where count <= population."""
    strata_key, start_key = jax.random.split(key)
    population = jnp.maximum(population, 1)
    # Strata differ in size by one; turning them by a random offset makes every rank equally likely again.
    start = jax.random.randint(start_key, (), 0, population)
    return (start + _strata(strata_key, count, jnp.int32(count), population)) % population


def _places_of(flags: Array, ranks: Array) -> Array:
    """Index of the (rank + 1)-th true flag, for each rank."""
    places = jnp.searchsorted(jnp.cumsum(flags.astype(jnp.int32)), ranks + 1)
    return jnp.minimum(places, flags.shape[0] - 1).astype(jnp.int32)
