"""Logs and results on a disk that fills up: a limit on the size of files stands for it."""

import contextlib
import json

import numpy as np
import pytest

from ashore.calibration.ledger import Ledger
from ashore.experiments.whole_lines import WholeLines
from experiments.full_disk import room_for


def test_a_full_disk_ends_the_log_at_a_whole_line(tmp_path):
    path, lost = tmp_path / "log.jsonl", []
    with contextlib.closing(WholeLines(path, lambda *told: lost.append(told))) as log, room_for(40):
        for number in range(10):
            log.add({"number": number})
    # {"number": 0} and the end of the line are 14 bytes: two fit into 40, and 12 bytes of the third were taken back.
    assert path.read_text() == '{"number": 0}\n{"number": 1}\n'
    ((where, problem),) = lost
    assert where == path and isinstance(problem, OSError)


def test_with_room_every_line_is_there_before_the_next(tmp_path):
    path = tmp_path / "log.jsonl"
    with contextlib.closing(WholeLines(path, lambda *told: pytest.fail(str(told)))) as log:
        for number in range(3):
            log.add({"number": number})
            assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == list(range(number + 1))


def test_a_result_that_does_not_fit_names_its_place_and_leaves_no_half(tmp_path):
    ledger = Ledger(tmp_path / "stages")
    with room_for(1000), pytest.raises(OSError, match="big.safetensors") as caught:
        ledger.keep("big", 10, lambda: {"numbers": np.zeros(10_000)})
    assert caught.value.filename == str(tmp_path / "stages/big.safetensors")
    assert not list((tmp_path / "stages").iterdir())
