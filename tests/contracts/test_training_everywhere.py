"""The contract of `test_methods` in worlds that are dear to compile: trained, resumed, repeated, exported, deployed.

One method by default, which takes twenty seconds of compiling; all of them under `make soak`.
"""

from pathlib import Path

import jax
import numpy as np
import pytest

from ashore.experiments import exporting
from ashore.learning import checkpoint
from ashore.methods.registry import METHODS
from contracts.training_runs import (
    OTHERS,
    TRAINED,
    begin,
    deployed,
    go_on,
    numbers,
    same,
    smoke,
    starting,
    trained,
    write_trained,
)
from volumes import SOAK


@pytest.mark.parametrize("name", TRAINED if SOAK else ["risk_adaptive"])
@pytest.mark.parametrize("task_name", OTHERS)
def test_it_trains_resumes_repeats_and_deploys(task_name: str, name: str, tmp_path: Path):
    before, (after, metrics) = begin(task_name, name, 0), trained(task_name, name)
    assert int(after.learner.updates) == 21 and int(after.learner.skipped) == 0
    assert all(np.isfinite(leaf).all() for leaf in numbers(after) if np.issubdtype(leaf.dtype, np.floating))
    assert {"cost_rate", "multiplier", "kl", "episode_return", "episode_cost"} <= set(metrics)
    untouched = {part for part, weights in before.learner.params.items() if same(weights, after.learner.params[part])}
    assert untouched == set(METHODS[name].untrained)
    # A second run of the same key, interrupted after a third of it. The program is compiled once for both.
    early, _ = go_on(task_name, name, before, 1)
    checkpoint.save(tmp_path / "kept", early, smoke(task_name).chunk, {})
    template = jax.eval_shape(starting(task_name, name), jax.random.key(0))
    resumed, _ = go_on(task_name, name, checkpoint.restore(tmp_path / "kept", template).state, 2)
    assert same(resumed, after)
    run = write_trained(task_name, name, tmp_path / "run")
    made = exporting.export_run(exporting.load_trained(run, 0), tmp_path / "b", None)
    seen = deployed(made.path, task_name)
    assert len(seen) == 30 and {moment.result.source for moment in seen} == {"nominal"}
    assert all(moment.evidence.used for moment in seen)
