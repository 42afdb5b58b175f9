"""Killed at any moment, a runtime comes back with what it had learnt, and never acting."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ashore_runtime import Limits, Mode, Refused, Runtime
from ashore_runtime import journal as journals
from runtime import small_bundle
from volumes import volume

# A deployment that says after each transition how many are in the posterior, until it is killed. It has no deadline, so
# that a busy machine refines as far as an idle one and learns the same.
LOOP = """
import sys
import numpy as np
from ashore_runtime import Limits, Runtime

runtime = Runtime.load(sys.argv[1], journal=sys.argv[2], limits=Limits(deadline=float("inf")))
runtime.arm()
generator = np.random.default_rng(0)
while True:
    observation = generator.uniform(-1, 1, 4)
    runtime.act(observation)
    evidence = runtime.observe(observation + 0.1, 0.0, 0.0)
    print(evidence.n_real, flush=True)
"""


def deployed(folder: Path, journal: Path | None, count: int) -> Runtime:
    """What `LOOP` is after so many transitions."""
    runtime = Runtime.load(folder, journal=journal, limits=Limits(deadline=float("inf")), freeze=False)
    runtime.arm()
    generator = np.random.default_rng(0)
    for _ in range(count):
        observation = generator.uniform(-1, 1, 4)
        runtime.act(observation)
        runtime.observe(observation + 0.1, 0.0, 0.0)
    return runtime


@pytest.mark.parametrize("seed", range(volume(3, 40)))
def test_kill_9_loses_at_most_one_transition(bundle_folder: Path, tmp_path: Path, seed):
    journal = tmp_path / "run.jnl"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", LOOP, str(bundle_folder), str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(float(np.random.default_rng(seed).uniform(0.0, 0.2)))
        process.send_signal(signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().splitlines() if line.strip()]
    begun, worked = time.monotonic(), time.thread_time()
    runtime = Runtime.resume(journal, rule="trust", freeze=False)
    # A second of this thread's own work, in which all of it is done; a busy machine may make it wait for longer.
    assert time.thread_time() - worked <= 1.0 and time.monotonic() - begun < 5.0
    assert runtime.state is Mode.READY
    # It may have been killed between writing a transition and saying so, and a line may be torn.
    assert max(said, default=1) - 1 <= runtime.posterior.count <= max(said, default=1) + 2
    # Nobody was there to see what it had learnt, but the same again gives the same, to the last bit.
    transitions = sum(record.kind == journals.TRANSITION for record in journals.records(journal))
    again = deployed(bundle_folder, None, transitions)
    assert again.posterior.count == runtime.posterior.count > 0
    np.testing.assert_array_equal(runtime.posterior.precision_sum, again.posterior.precision_sum)
    np.testing.assert_array_equal(runtime.posterior.weighted_mean_sum, again.posterior.weighted_mean_sum)
    assert runtime.snapshot() == again.snapshot(), "level and change detector"
    runtime.close()


@pytest.mark.parametrize(("rule", "count", "eta"), [("trust", 17, 0.0), ("discount", 8, 0.3), ("reset", 0, 0.9)])
def test_resume_rules(bundle_folder: Path, tmp_path: Path, rule, count, eta):
    first = deployed(bundle_folder, tmp_path / "run.jnl", 17)
    learnt = first.posterior
    first.close()
    runtime = Runtime.resume(tmp_path / "run.jnl", rule=rule, freeze=False)
    assert runtime.state is Mode.READY and runtime.posterior.count == count and runtime.eta == eta
    share = {"trust": 1.0, "discount": 0.5, "reset": 0.0}[rule]
    np.testing.assert_array_equal(runtime.posterior.precision_sum, share * learnt.precision_sum)
    runtime.close()
    # What the rule made of it is what the next one finds.
    again = Runtime.resume(tmp_path / "run.jnl", rule="trust", freeze=False)
    assert again.posterior.count == count
    again.close()


def test_loading_never_throws_away_what_an_earlier_run_has_learnt(bundle_folder: Path, tmp_path: Path):
    journal = tmp_path / "run.jnl"
    deployed(bundle_folder, journal, 0).close()
    deployed(bundle_folder, journal, 3).close()
    whole = journal.read_bytes()
    with pytest.raises(Refused, match="run.jnl holds .* continue it with Runtime.resume, or choose another file."):
        Runtime.load(bundle_folder, journal=journal, freeze=False)
    assert journal.read_bytes() == whole
    # As if it had been killed while the journal was put aside.
    journal.rename(journals.previous(journal))
    with pytest.raises(Refused, match="Runtime.resume"):
        Runtime.load(bundle_folder, journal=journal, freeze=False)
    with pytest.raises(Refused, match="cannot be written"):
        Runtime.load(bundle_folder, journal=tmp_path / ("x" * 300), freeze=False)


def test_a_journal_cut_at_any_byte_gives_back_what_was_whole(bundle_folder: Path, tmp_path: Path):
    journal = tmp_path / "run.jnl"
    runtime = deployed(bundle_folder, journal, 0)
    ends, snapshots = [journal.stat().st_size], [runtime.snapshot()]
    generator = np.random.default_rng(0)
    for _ in range(3):
        observation = generator.uniform(-1, 1, 4)
        runtime.act(observation)
        runtime.observe(observation + 0.1, 0.0, 0.0)
        # The transition is the last that is written, so that the file ends with it.
        ends.append(journal.stat().st_size)
        snapshots.append(runtime.snapshot())
    runtime.close()
    # The name of the format, length and checksum, one byte for the kind, and what the first record says.
    begun = 8 + 8 + 1 + len(next(journals.records(journal)).body)
    assert begun < ends[0]
    for length in reversed(range(ends[-1] + 1)):
        os.truncate(journal, length)
        if length < begun:
            with pytest.raises(Refused, match="does not begin" if length >= 8 else "is not a journal"):
                journals.last_state(journal)
            continue
        _, state = journals.last_state(journal)
        runtime.restore(state)
        assert runtime.snapshot() == snapshots[sum(end <= length for end in ends[1:])]


def test_a_journal_belongs_to_its_bundle(bundle_folder: Path, tmp_path: Path):
    journal = tmp_path / "run.jnl"
    deployed(bundle_folder, journal, 3).close()
    other = small_bundle.write(tmp_path / "other", seed=1)
    with pytest.raises(Refused, match="belongs to another bundle"):
        Runtime.resume(journal, other, freeze=False)
    with pytest.raises(Refused, match="cannot be read"):
        Runtime.resume(tmp_path / "nothing.jnl", freeze=False)
    with pytest.raises(Refused, match="resume rule"):
        Runtime.resume(journal, rule="hope", freeze=False)


def test_a_rotated_journal_still_knows_everything(bundle_folder: Path, tmp_path: Path):
    journal = tmp_path / "run.jnl"
    runtime = deployed(bundle_folder, journal, 2)
    assert runtime._logbook.journal is not None
    runtime._logbook.journal._max_bytes = 4000
    generator = np.random.default_rng(1)
    for _ in range(40):
        observation = generator.uniform(-1, 1, 4)
        runtime.act(observation)
        runtime.observe(observation + 0.1, 0.0, 0.0)
    runtime.close()
    assert journals.previous(journal).exists()
    again = Runtime.resume(journal, rule="trust", freeze=False)
    assert again.posterior.count == 42
    again.close()
