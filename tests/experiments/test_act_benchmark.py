import json

import pytest

from ashore.cli.main import main
from ashore.experiments import act_benchmark


def test_a_decision_is_measured_part_by_part(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(act_benchmark, "STEPS", (5,))
    out = tmp_path / "act.json"
    words = ["bench", "act", "--sizes", "small", "--backends", "numpy", "--repeats", "5", "--out", str(out)]
    assert main(words) == 0
    assert "the paper" in capsys.readouterr().out
    content = json.loads(out.read_text())
    rows = {(row["backend"], row["what"]): row for row in content["rows"]}
    assert {("numpy", "act K=5"), ("numpy", "act, nominal action fits")} <= set(rows)
    for what in ("actor", "upper-tail cost", "cost gradient", "reward gradient", "act, nominal action fits"):
        assert 0 < rows["numpy", what]["p50"] <= rows["numpy", what]["p99"]
    assert rows["numpy", "act K=5"]["p50"] > rows["numpy", "act, nominal action fits"]["p50"]
    assert content["paper_ms"] == {"K=5": 3.51, "K=15": 9.18}


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
