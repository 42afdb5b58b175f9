"""What a run records: rows that survive, and the same rows for whoever asked for them."""

import json
import sys
from types import SimpleNamespace

import pytest

from ashore.experiments import records
from ashore.experiments.records import Records


class FakeWandb:
    """Stands in for the package: remembers what it was told."""

    def __init__(self):
        self.told, self.begun, self.finished = [], {}, False

    def init(self, **facts):
        self.begun = facts
        return SimpleNamespace(log=lambda scalars, step: self.told.append((step, scalars)), finish=self.finish)

    def finish(self):
        self.finished = True


def test_rows_beyond_the_step_are_forgotten_and_a_torn_line_too(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"decisions": 8}\n{"decisions": 16}\n{"decisions": 2')
    book = Records(tmp_path, 8)
    book.write({"decisions": 12, "kl": [1.0, None]})
    book.close()
    assert [row["decisions"] for row in records.read(tmp_path)] == [8, 12]


def test_weights_and_biases_gets_the_rows_where_it_is_asked_for(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    (tmp_path / "config.json").write_text(json.dumps({"seeds": 2}))
    book = Records(tmp_path, 0, wandb_project="harbour")
    book.write({"decisions": 4, "kl": [0.5, None], "env_steps": 32})
    book.close()
    assert fake.begun["project"] == "harbour" and fake.begun["config"] == {"seeds": 2}
    # One scalar per seed that has a number; counters are the step.
    assert fake.told == [(4, {"kl/seed_0": 0.5})] and fake.finished


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb"):
        records.require_wandb()
