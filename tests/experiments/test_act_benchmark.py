import json

import pytest

from ashore.cli.main import main
from ashore.experiments import act_benchmark, onnx_extra
from ashore.experiments.decision_parts import ACTOR, STEP
from experiments.test_decision_parts import ALL
from runtime import small_bundle

WHOLE = ("act, nominal action fits", "act K=5")


def test_a_decision_is_measured_whole_and_part_by_part(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(act_benchmark, "STEPS", (5,))
    out = tmp_path / "act.json"
    words = ["bench", "act", "--sizes", "small", "--backends", "numpy", "--repeats", "5", "--out", str(out)]
    assert main(words) == 0
    assert "the paper" in capsys.readouterr().out
    content = json.loads(out.read_text())
    rows = {row["what"]: row for row in content["rows"]}
    assert set(rows) == {*ALL, *WHOLE, "act, nominal action fits, and observe"}
    assert all(row["backend"] == "numpy" and row["size"] == "small" for row in rows.values())
    assert all(0 < row["p50"] <= row["p99"] and row["repeats"] == 5 for row in rows.values())
    assert rows["act K=5"]["p50"] > rows["act, nominal action fits"]["p50"]
    assert content["paper_ms"] == {"K=5": 3.51, "K=15": 9.18}


def test_implementations_have_rows_of_the_same_names_for_a_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr(act_benchmark, "STEPS", (5,))
    path, out = small_bundle.write(tmp_path / "toy.bundle"), tmp_path / "act.json"
    words = ["bench", "act", str(path), "--backends", "onnx", "jax-cpu", "--repeats", "2", "--out", str(out)]
    assert main(words) == 0
    rows = [(row["backend"], row["size"], row["what"]) for row in json.loads(out.read_text())["rows"]]
    expected = [("jax-cpu", "Toy", what) for what in (*ALL, *WHOLE)]
    if onnx_extra.available():
        expected = [("onnx", "Toy", what) for what in (ACTOR, STEP, "act K=5")] + expected
    assert rows == expected


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--sizes", "smal"], "Unknown size 'smal': did you mean 'small'?"),
        (["--backends", "nunpy"], "Unknown backend 'nunpy': did you mean 'numpy'?"),
        (["--repeats", "0"], "There must be something to measure"),
        (["nowhere.bundle"], "nowhere.bundle cannot be read"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(words, complaint, capsys):
    assert main(["bench", "act", *words]) == 2
    shown = capsys.readouterr().err
    assert complaint in shown and shown.count("\n") == 1
