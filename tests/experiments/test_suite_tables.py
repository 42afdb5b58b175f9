"""Tables and figures of suites: from artifacts alone, equal to what is worked out by hand, missing where missing."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from ashore.cli.main import main
from ashore.experiments import decision_work, paper_numbers, suite_cells, suite_evaluation, suite_results, suites
from ashore.experiments.decision_work import WorkConfig
from ashore.experiments.statistics import estimate
from ashore.experiments.suite_evaluation import Evaluation
from ashore.experiments.suites import Shown
from ashore.networks.architecture import Sizes
from experiments import toy_suite

SHIFTS = ("nominal", "train", "deploy")
# [seed, environment, episode]: environments of 2 and 6 for one seed, of 4 and 8 for the other.
COST = np.array([[[1.0, 3.0], [5.0, 7.0]], [[3.0, 5.0], [7.0, 9.0]]])
SEEN = [[2.0, 6.0], [4.0, 8.0]]

# The rows of the paper's tables as its source has them, without the commands that only set type.
TABLE_1 = r"""
Rew.  & $35.17{\pm}3.94$ & $92.98{\pm}2.07$ & $61.20{\pm}7.22$ & $35.45{\pm}3.67$ & $30.20{\pm}5.57$ \\
Cost  & $9.46{\pm}0.51$ & $9.70{\pm}0.92$ & $9.63{\pm}1.09$ & $9.95{\pm}1.00$ & $9.76{\pm}1.22$ \\
Rew.  & $49.59{\pm}8.52$ & $91.43{\pm}7.25$ & $83.17{\pm}10.79$ & $43.44{\pm}4.14$ & $12.90{\pm}9.32$ \\
Cost  & $8.86{\pm}0.85$ & $29.62{\pm}3.73$ & $35.92{\pm}5.45$ & $11.20{\pm}1.65$ & $24.07{\pm}2.55$ \\
Rew.  & $434.10{\pm}67.06$ & $477.70{\pm}55.44$ & $455.19{\pm}67.43$ & $441.34{\pm}75.59$ & $434.81{\pm}82.98$ \\
Cost  & $14.00{\pm}1.27$ & $19.27{\pm}0.94$ & $15.38{\pm}1.41$ & $15.55{\pm}1.88$ & $21.03{\pm}1.72$ \\
O.R.  & $0.43{\pm}0.13$ & $0.45{\pm}0.12$ & $0.61{\pm}0.133$ & $0.45{\pm}0.09$ & $0.50{\pm}0.10$ \\
Jerk  & $2.96{\pm}1.77$ & $3.23{\pm}0.62$ & $4.85{\pm}1.65$ & $3.45{\pm}0.72$ & $4.06{\pm}1.98$ \\
Fuel  & $0.316{\pm}0.029$ & $0.311{\pm}0.005$ & $0.341{\pm}0.131$ & $0.316{\pm}0.006$ & $0.324{\pm}0.074$ \\
Rew.  & $364.85{\pm}160.74$ & $284.44{\pm}275.72$ & $405.28{\pm}175.50$ & $279.88{\pm}200.05$ & $365.99{\pm}181.04$ \\
Cost  & $16.80{\pm}3.33$ & $30.98{\pm}3.99$ & $21.58{\pm}4.47$ & $18.53{\pm}4.15$ & $27.80{\pm}4.00$ \\
O.R.  & $0.47{\pm}0.13$ & $0.50{\pm}0.34$ & $0.60{\pm}0.15$ & $0.47{\pm}0.18$ & $0.53{\pm}0.15$ \\
Jerk  & $2.86{\pm}1.90$ & $3.49{\pm}3.88$ & $3.71{\pm}1.73$ & $3.62{\pm}2.03$ & $4.51{\pm}1.59$ \\
Fuel  & $0.314{\pm}0.026$ & $0.354{\pm}0.053$ & $0.321{\pm}0.019$ & $0.322{\pm}0.028$ & $0.327{\pm}0.019$ \\
"""
ABLATION = r"""
Reward & $92.98{\pm}2.07$ & $33.11{\pm}4.81$ & -- & $35.17{\pm}3.94$ \\
Cost   & $9.70{\pm}0.92$ & $9.18{\pm}0.40$ & -- & $9.46{\pm}0.51$ \\
Reward & $91.43{\pm}7.25$ & $46.09{\pm}5.20$ & $54.21{\pm}8.70$ & $49.59{\pm}8.52$ \\
Cost   & $29.62{\pm}3.73$ & $10.75{\pm}1.91$ & $10.12{\pm}1.53$ & $8.86{\pm}0.85$ \\
"""
REFINEMENT = r"""
5  & 0.01 & 0.05 & 0.0 & $3.51{\pm}0.27$ \\
5  & 0.10 & 0.05 & 1.0 & $3.54{\pm}0.32$ \\
5  & 0.01 & 0.30 & 1.0 & $3.55{\pm}0.28$ \\
5  & 0.10 & 0.30 & 0.0 & $3.56{\pm}0.28$ \\
15 & 0.01 & 0.05 & 1.0 & $9.18{\pm}0.47$ \\
15 & 0.10 & 0.05 & 0.0 & $9.19{\pm}0.56$ \\
15 & 0.01 & 0.30 & 0.0 & $9.17{\pm}0.39$ \\
15 & 0.10 & 0.30 & 1.0 & $9.19{\pm}0.58$ \\
"""


def printed(source: str) -> list[tuple[float, float]]:
    return [(float(mean), float(spread)) for mean, spread in re.findall(r"\$([\d.]+)\{\\pm\}([\d.]+)\$", source)]


@pytest.mark.parametrize(("label", "source"), [(paper_numbers.TABLE_1, TABLE_1), (paper_numbers.ABLATION, ABLATION)])
def test_the_papers_numbers_are_those_of_its_source_in_its_order(label, source):
    mine = [(number.mean, number.deviation) for number in paper_numbers.NUMBERS if number.label == label]
    assert mine == printed(source)


def test_the_papers_refinement_times_are_those_of_its_source():
    rows = [line.replace("\\\\", "").split("&") for line in REFINEMENT.strip().splitlines()]
    expected = [(int(row[0]), *map(float, row[1:4]), *printed(row[4])[0]) for row in rows]
    assert list(paper_numbers.REFINEMENT_TIMES) == expected


def test_a_number_is_found_by_its_place():
    found = paper_numbers.find(paper_numbers.TABLE_1, "Platoon", "spidr", "Deploy", "fuel")
    assert found is not None and (found.mean, found.deviation) == (0.322, 0.028)
    assert paper_numbers.find(paper_numbers.ABLATION, "PointGoal2", "without_risk_adaptation", "Train", "cost") is None


@pytest.fixture(autouse=True)
def carts(monkeypatch):
    toy_suite.register(monkeypatch)


def evaluation(cost: np.ndarray, earned: float = 10.0) -> Evaluation:
    """The same in all three shifts; an episode of 20 decisions is 4 windows."""
    everywhere = np.repeat(cost[:, None], 3, axis=1)
    windows = np.repeat(everywhere, 4, axis=3) / 4.0
    nothing = np.zeros(everywhere.shape[:3])
    eta = np.full((2, 3, 40), 0.5)
    return Evaluation(
        SHIFTS,
        earned * everywhere,
        everywhere,
        {"distance": everywhere},
        earned * windows,
        windows,
        eta,
        nothing,
        nothing,
    )


def finish(
    pool,
    method: str,
    cost: np.ndarray,
    worlds: str = "same",
    own: str = "train",
    weights: str | None = None,
    earned: float = 10.0,
):
    """A cell that somebody made."""
    folder = pool / "toy" / "Cart" / method
    facts = {
        "settings_sha256": "abc",
        "worlds_sha256": dict.fromkeys(SHIFTS, worlds),
        "own": own,
        "seeds": 2,
        "environments": 2,
        "episodes": 2,
        "window": 5,
        "decisions_per_episode": 20,
        "budget": {"per_episode": 2.0},
    }
    suite_evaluation.write(folder, evaluation(cost, earned), facts)
    suite_cells.write_summary(folder, {"settings_sha256": "abc", "weights_sha256": weights and [weights]})


def test_the_table_equals_statistics_worked_out_by_hand(tmp_path, capsys):
    finish(tmp_path, "nominal", COST)
    assert main(["suite", "table", "toy", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    folder = tmp_path / "toy" / "reports" / "toy"
    content = json.loads((folder / "table.json").read_text())
    ours = {(row["worlds"], row["metric"]): row for row in content["outcomes"] if row["method"] == "nominal"}
    row = ours["Train", "cost"]
    # Environments over seeds: 3 and 7, so the mean is 5 and the deviation across environments 2.
    assert (row["mean"], row["deviation"], row["seeds"], row["environments"], row["episodes"]) == (5.0, 2.0, 2, 2, 2)
    interval = estimate(np.array(SEEN))
    assert (row["low"], row["high"], row["budget"]) == (interval.low, interval.high, 2.0) and row[
        "remark"
    ] == "in train"
    assert ours["Train", "return"]["mean"] == 50.0 and ours["Train", "cost / budget"]["mean"] == 2.5
    # First episodes cost 1, 5, 3 and 7; three environments of four are above 2.
    assert ours["Train", "cost, first episode"]["mean"] == 4.0
    assert ours["Train", "worlds over budget"]["mean"] == 0.75
    # Two shifts taken together have twice the environments.
    assert ours["Both", "cost"]["environments"] == 4 and ours["Both", "cost"]["mean"] == 5.0
    assert f"| 5.00 ± 2.00 [{interval.low:.2f}, {interval.high:.2f}] |" in shown
    with (folder / "table.csv").open() as file:
        by_csv = [row for row in csv.DictReader(file) if (row["method"], row["metric"]) == ("nominal", "cost")]
    assert [float(row["mean"]) for row in by_csv] == [5.0, 5.0]


def test_a_missing_cell_is_shown_as_missing_and_never_as_zero(tmp_path, capsys):
    finish(tmp_path, "nominal", COST)
    begun = tmp_path / "toy" / "Cart" / "risk_adaptive"
    begun.mkdir(parents=True)
    assert main(["suite", "table", "toy", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    first = next(line for line in shown.splitlines() if line.startswith("| cost, per episode"))
    assert first.split(" | ")[2:4] == ["missing", "missing"] and first.endswith("| missing |")
    assert "Ours on Cart is missing: not finished." in shown
    assert "Ours w/o R.A. on Cart is missing: not begun." in shown
    rows = json.loads((tmp_path / "toy" / "reports" / "toy" / "table.json").read_text())["outcomes"]
    absent = [row for row in rows if row["method"] != "nominal"]
    assert absent and all(row["mean"] is None and row["remark"].startswith("missing: ") for row in absent)
    with (tmp_path / "toy" / "reports" / "toy" / "table.csv").open() as file:
        assert {row["mean"] for row in csv.DictReader(file) if row["method"] != "nominal"} == {""}


def test_damaged_numbers_are_missing_too(tmp_path):
    finish(tmp_path, "nominal", COST)
    file = tmp_path / "toy" / "Cart" / "nominal" / "evaluation" / "worlds.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    (found,) = [one for one in suite_results.open_book("toy", tmp_path, None).cells if one.cell.method == "nominal"]
    assert found.evaluation is None and "was changed after it was written" in found.missing


def test_methods_that_met_different_worlds_are_called_not_comparable(tmp_path):
    finish(tmp_path, "nominal", COST)
    finish(tmp_path, "full_push", COST, worlds="others")
    said = suite_results.remarks(suite_results.open_book("toy", tmp_path, None))
    assert "NOT COMPARABLE: the methods met different worlds of Cart, deploy." in said


def compared(pool, first: str, second: str) -> dict[tuple[str, str], dict[str, str]]:
    assert main(["suite", "compare", "toy", first, second, "--out", str(pool), "--to", str(pool / "to")]) == 0
    with (pool / "to" / f"{first}_less_{second}.csv").open() as file:
        return {(row["worlds"], row["metric"]): row for row in csv.DictReader(file)}


def test_two_methods_are_compared_world_by_world(tmp_path, capsys):
    # Dearer by 1 in every world: worlds differ, the difference does not.
    finish(tmp_path, "nominal", np.repeat(COST[:1] + 1.0, 2, axis=0))
    finish(tmp_path, "full_push", np.repeat(COST[:1], 2, axis=0))
    rows = compared(tmp_path, "nominal", "full_push")
    row = rows["Both", "cost"]
    assert [float(row[key]) for key in ("mean", "deviation", "low", "high")] == [1.0, 0.0, 1.0, 1.0]
    assert (float(row["first_mean"]), float(row["second_mean"]), row["environments"]) == (5.0, 4.0, "4")
    assert float(rows["Train", "return"]["mean"]) == 10.0
    # Of environments at 2 and 6 one is over the budget of 2, of those at 3 and 7 both.
    assert float(rows["Train", "worlds over budget"]["mean"]) == 0.5
    assert "| 5.0 / 4.0: **+1.0** [+1.0, +1.0] |" in capsys.readouterr().out


def test_ways_to_deploy_one_run_are_compared_seed_by_seed(tmp_path):
    # Seed 1 is dearer than seed 0 by 2 either way. With seeds drawn for each the interval would reach from -3 to 1.
    finish(tmp_path, "risk_adaptive", COST, weights="w")
    finish(tmp_path, "without_risk_adaptation", COST + 1.0, weights="w")
    row = compared(tmp_path, "risk_adaptive", "without_risk_adaptation")["Train", "cost"]
    assert [float(row[key]) for key in ("mean", "low", "high")] == [-1.0, -1.0, -1.0]
    finish(tmp_path, "without_risk_adaptation", COST + 1.0, weights="v")
    row = compared(tmp_path, "risk_adaptive", "without_risk_adaptation")["Train", "cost"]
    assert [float(row[key]) for key in ("mean", "low", "high")] == [-1.0, -3.0, 1.0]


def test_worlds_that_go_by_two_names_are_compared_once(tmp_path, monkeypatch):
    again = Shown("Cart", "Train ranges", ("train",))
    monkeypatch.setitem(suites.SUITES, "toy", replace(suites.SUITES["toy"], shown=(*suites.SUITES["toy"].shown, again)))
    finish(tmp_path, "nominal", COST)
    finish(tmp_path, "full_push", COST)
    assert {worlds for worlds, _ in compared(tmp_path, "nominal", "full_push")} == {"Train", "Both"}
    # Where their own ranges differ, those that everybody met are all there is.
    finish(tmp_path, "nominal", COST, own="nominal")
    assert {worlds for worlds, _ in compared(tmp_path, "nominal", "full_push")} == {"Both", "Train ranges"}


def test_what_is_left_out_of_a_comparison_stands_on_its_page(tmp_path, capsys):
    finish(tmp_path, "nominal", COST, own="nominal")
    finish(tmp_path, "full_push", COST)
    assert {worlds for worlds, _ in compared(tmp_path, "nominal", "full_push")} == {"Both"}
    assert "- 'nominal' and 'full_push' did not meet the same worlds of Cart, Train." in capsys.readouterr().out


def test_what_cannot_be_compared_is_said(tmp_path, capsys):
    finish(tmp_path, "nominal", COST)
    finish(tmp_path, "full_push", COST, worlds="others")
    for second, why in {
        "full_push": "'nominal' and 'full_push' did not meet the same worlds of Cart, Train.",
        "risk_adaptive": "'risk_adaptive' on Cart has no numbers in",
        "nobody": "Unknown method of this suite 'nobody': choose from risk_adaptive,",
    }.items():
        assert main(["suite", "compare", "toy", "nominal", second, "--out", str(tmp_path)]) == 2
        assert why in capsys.readouterr().err


@pytest.fixture
def levels(monkeypatch, tmp_path):
    """Ours at levels 0 and 0.4, where it pays half; a unit of cost earns 10."""
    cells = (*toy_suite.SUITE.cells, suites.Cell("Cart", "level_0.4"))
    monkeypatch.setitem(suites.SUITES, "toy", replace(toy_suite.SUITE, cells=cells))
    finish(tmp_path, "risk_adaptive", COST, weights="w")
    finish(tmp_path, "without_risk_adaptation", COST, weights="w")
    finish(tmp_path, "level_0.4", COST / 2.0, weights="w")


AT_EQUAL_COST = ["suite", "compare", "toy", "risk_adaptive", "nominal", "--at-equal-cost"]


def test_return_is_compared_at_the_cost_of_the_other(levels, tmp_path, capsys):
    # Three quarters of the cost of level 0 (5 on average) are that of level 0.2. There ours earns 37.5, the other 30.
    finish(tmp_path, "nominal", 0.75 * COST, earned=8.0)
    assert main([*AT_EQUAL_COST, "--out", str(tmp_path), "--to", str(tmp_path / "to")]) == 0
    assert "| Cart, Both | 3.8 | 30.0 | 37.5 | 0.20 | **+7.5** [" in capsys.readouterr().out
    with (tmp_path / "to" / "risk_adaptive_less_nominal_at_equal_cost.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["worlds"] for row in rows] == ["Train", "Both"] and float(rows[0]["low"]) < 7.5
    assert main(["suite", "figures", "toy", "--out", str(tmp_path), "--to", str(tmp_path / "to")]) == 0
    assert (tmp_path / "to" / "reward_cost.png").stat().st_size > 1000


def test_what_cannot_be_compared_at_equal_cost_is_said(levels, tmp_path, capsys):
    def complaint(first: str = "risk_adaptive") -> str:
        words = [first if word == "risk_adaptive" else word for word in AT_EQUAL_COST]
        assert main([*words, "--out", str(tmp_path)]) == 2
        return capsys.readouterr().err

    assert "'nominal' on Cart has no numbers in" in complaint()
    finish(tmp_path, "nominal", 2.0 * COST)
    assert (
        "'nominal' pays 10.0 in Cart, Train, which no measured level of 'risk_adaptive' does: 2.5 to 5.0."
        in complaint()
    )
    finish(tmp_path, "nominal", COST, worlds="others")
    assert "'risk_adaptive' and 'nominal' did not meet the same worlds of Cart, Train." in complaint()
    assert "'full_push' takes no risk levels: what has cells at fixed ones is 'risk_adaptive'." in complaint(
        "full_push"
    )
    finish(tmp_path, "nominal", COST)
    finish(tmp_path, "level_0.4", COST, weights="w")
    assert "The cost of 'risk_adaptive' does not fall from level to level in Cart, Train." in complaint()
    finish(tmp_path, "level_0.4", COST / 2.0, weights="v")
    assert "The levels of 'risk_adaptive' on Cart do not belong to one run" in complaint()
    (tmp_path / "toy" / "Cart" / "level_0.4" / "summary.json").unlink()
    assert "'level_0.4' on Cart has no numbers in" in complaint()


def test_the_papers_rows_stand_beside_ours_even_where_nothing_is_there_yet(tmp_path, capsys):
    assert main(["suite", "table", "table1", "--out", str(tmp_path), "--to", str(tmp_path / "t")]) == 0
    lines = capsys.readouterr().out.splitlines()
    deploy = lines[lines.index("## PointGoal2, Deploy (medium)") :]
    cost = next(place for place, line in enumerate(deploy) if line.startswith("| cost, per episode"))
    assert (
        deploy[cost] == "| cost, per episode | ashore (budget 25) | missing | missing | missing | missing | missing |"
    )
    assert deploy[cost + 1] == (
        "|  | paper (budget 10) | 8.86 ± 0.85 | 29.62 ± 3.73 | 35.92 ± 5.45 | 11.20 ± 1.65 | 24.07 ± 2.55 |"
    )
    # Ratios to the budget, for what the units hide: 8.86 / 10.
    assert "0.886 ± 0.085" in deploy[cost + 3]
    rows = json.loads((tmp_path / "t" / "table.json").read_text())["outcomes"]
    paper = [row for row in rows if row["source"] == "paper" and row["metric"] != "cost / budget"]
    assert {row["where"] for row in paper if row["mean"] is not None} == {
        paper_numbers.TABLE_1,
        paper_numbers.FVD_SENTENCE,
    }
    # All of Table 1 and the three figures of FVD; jerk stands beside both integrals.
    expected = sum(number.label != paper_numbers.ABLATION for number in paper_numbers.NUMBERS)
    jerk = sum(number.metric == "jerk" and number.label != paper_numbers.ABLATION for number in paper_numbers.NUMBERS)
    assert sum(row["mean"] is not None for row in paper) == expected + jerk


def test_figures_come_with_their_data_and_leave_out_what_is_missing(tmp_path, capsys):
    finish(tmp_path, "nominal", COST)
    finish(tmp_path, "risk_adaptive", COST / 2.0)
    run = tmp_path / "toy" / "Cart" / "risk_adaptive"
    plan = suite_cells.plans(suite_cells.Request("toy", tmp_path, only="method=risk_adaptive"))[0]
    assert isinstance(plan.settings, suite_cells.CellSettings) and plan.settings.run is not None
    toy_suite.training.begin(plan.settings.run, run)
    toy_suite.train(run, None, lambda: False)
    config = toy_suite.SCALE
    toy_suite.calibrate(run, 0, config.caution, config.calibration, lambda _: None, None)
    assert main(["suite", "figures", "toy", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    folder = tmp_path / "toy" / "reports" / "toy"
    of_training = ["training_Cart", "encoder_Cart", "charge_Cart"]
    for name in ["reward_cost", "shifts", "deployment_Cart_deploy", *of_training, "calibration_Cart"]:
        assert f"figure: {folder / name}.png" in shown
        assert (folder / f"{name}.png").stat().st_size > 1000
    with (folder / "deployment_Cart_deploy.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"nominal", "risk_adaptive"}
    mine = [row for row in rows if (row["method"], row["stretch"]) == ("nominal", "window")]
    # Eight windows of five decisions; the first costs what the first episode costs, (1 + 5 + 3 + 7) / 4.
    assert [int(row["ends"]) for row in mine] == list(range(5, 45, 5)) and float(mine[0]["cost_mean"]) == 4.0
    assert float(mine[-1]["eta"]) == 0.5
    with (folder / "training_Cart.csv").open() as file:
        assert [row["episode_return"] for row in csv.DictReader(file)] == ["", "", "1.0", "3.0"]
    with (folder / "encoder_Cart.csv").open() as file:
        probed = [row["probe_force"] for row in csv.DictReader(file)]
    assert probed == ["0.9", "", "0.9", ""]
    with (folder / "charge_Cart.csv").open() as file:
        charged = [(row["method"], row["cost_rate"], row["penalty_rate"]) for row in csv.DictReader(file)]
    assert charged == 2 * [("risk_adaptive", "4.0", "90.0"), ("risk_adaptive", "2.0", "0.0")]
    with (folder / "calibration_Cart.csv").open() as file:
        first, *_, last = csv.DictReader(file)
    assert (first["epsilon"], first["Delta_c(0.9)"], last["L_c"]) == ("1.0", "0.2", "")


def test_the_work_of_a_decision_is_counted_from_the_graph(monkeypatch):
    # Every number of steps is a program of its own to compile; one shows how it is timed.
    monkeypatch.setattr(paper_numbers, "REFINEMENT_TIMES", paper_numbers.REFINEMENT_TIMES[:2])
    sizes = Sizes(
        critic_width=8, fractions=2, hidden=(4,), critic_blocks=1, critic_heads=2, cosines=3, latent=2, context=6
    )
    measured = decision_work.measure("Cart", WorkConfig(sizes=sizes, repeats=2))
    counted = {row.component: row for row in decision_work.components(measured)}
    # Two numbers seen and a latent of two into 4, then 4 into one action: a multiplication and an addition each.
    assert counted["policy"].operations == 2 * (4 * 4 + 4 * 1) and counted["policy"].multiply_adds == 20
    # Six transitions of (s, a, s' - s, r, c) with one feature: 5 inputs into 4, then into means and precisions of two.
    one = 2 * (5 * 4 + 4 * 4)
    assert counted["encoder"].operations == 6 * one and counted["encoder, one more transition"].operations == one
    assert counted["eta"].operations == 0 and counted["eta"].paper_operations is None
    # As the paper counts: features of (s, a, z), two layers; three cosines a fraction; two heads of 1 + 2 dense layers
    # and a scalar.
    forward = (5 * 8 + 8 * 8) + 2 * 3 * 8 + 2 * 2 * (3 * 8 * 8 + 8)
    assert counted["critic forward"].multiply_adds == forward
    # Five steps of five passes and the judgement of the nominal action; a backward pass to the action alone skips the
    # embedding, which does not depend on it.
    assert counted["refinement"].multiply_adds is not None
    assert 24 * forward < counted["refinement"].multiply_adds < 26 * forward
    times = decision_work.refinement_times(measured)
    assert [row.source for row in times] == ["ashore"] * 2 + ["paper"] * 2
    assert all(row.milliseconds > 0 for row in times)
