"""Charts by hand: where points land, which numbers stand on the axes, what is drawn of very many points."""

import re

import pytest

from ashore.experiments.report_axes import Axis
from ashore.experiments.report_charts import Mark, Rule, Series, draw, legend

X = Axis("x")


def drawn(series, x=X, y=None, **more):
    chart = draw("A chart", x, y or Axis("y", zero=True), series, **more)
    assert chart is not None
    return chart


def test_points_land_where_they_belong():
    # y reaches from 0 to 10 and 6 % of that above: 5 is at 5 / 10.6 of the height, counted from below.
    chart = drawn([Series("a", [0.0, 5.0, 10.0], [0.0, 5.0, 10.0], 0)], rules=[Rule(5.0, "half")])
    assert chart.curves[0].path == "M0.0 1000.0h0L500.0 528.3L1000.0 56.6"
    assert chart.rules[0].at == pytest.approx(100.0 * (1.0 - 5.0 / 10.6), abs=0.01)
    assert [(tick.at, tick.text) for tick in chart.x_ticks] == [(20.0 * i, str(2 * i)) for i in range(6)]


def test_a_gap_is_a_gap_and_a_lonely_point_a_dot():
    chart = drawn([Series("a", [0.0, 1.0, 2.0, 3.0], [1.0, None, float("nan"), 1.0], 0)])
    assert re.findall("[MLhHV]", chart.curves[0].path) == ["M", "h", "M", "h"]
    assert draw("Nothing", X, X, [Series("a", [0.0], [None], 0)]) is None


def test_a_step_goes_along_before_it_goes_up():
    chart = drawn([Series("a", [0.0, 1.0], [1.0, 0.0], 0, stepped=True)])
    assert chart.curves[0].path == "M0.0 56.6h0H1000.0V1000.0"


def test_counts_have_a_place_for_zero():
    # 0, 1, 2, 4, 8 are equally far apart.
    counts = [0.0, 1.0, 2.0, 4.0, 8.0]
    chart = drawn([Series("a", counts, counts, 0)], Axis("N", "counts"))
    assert [(tick.at, tick.text) for tick in chart.x_ticks] == [(0, "0"), (25, "1"), (50, "2"), (75, "4"), (100, "8")]


@pytest.mark.parametrize(
    ("high", "texts"),
    [
        (13_762_560.0, ["0", "5 M", "10 M"]),
        (0.012, ["0", "0.0025", "0.0050", "0.0075", "0.0100"]),
        (3.0, ["0", "1", "2", "3"]),
        (24_000.0, ["0", "5 k", "10 k", "15 k", "20 k"]),
    ],
)
def test_numbers_on_an_axis_are_round(high, texts):
    chart = drawn([Series("a", [0.0, high], [0.0, 1.0], 0)])
    assert [tick.text for tick in chart.x_ticks] == texts


def test_a_logarithmic_axis_counts_in_decades():
    chart = drawn([Series("a", [0.0, 1.0], [1.0, 1000.0], 0, "specks")], y=Axis("ms", "log"))
    assert [tick.text for tick in chart.y_ticks] == ["1", "10", "100", "1000"]


def test_lower_values_are_drawn_at_the_least():
    chart = drawn([Series("a", [0.0, 1.0], [-1000.0, 1.0], 0)], y=Axis("R2", least=-0.25))
    low, high = (float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", chart.curves[0].path))
    assert 900 < low < 1000 and 0 < high < 100


def test_of_very_many_points_the_extremes_are_kept():
    values = [0.0] * 100_000
    values[54_321] = 7.0
    chart = drawn([Series("a", [float(i) for i in range(100_000)], values, 0)])
    assert chart.curves[0].path.count("L") <= 1200
    assert " 56.6" in chart.curves[0].path


def test_intervals_are_bars_and_names_do_not_lie_on_each_other():
    points = Series("a", [1.0, 1.1], [5.0, 5.0], 2, "dots", names=["one", "two"])
    chart = drawn([points._replace(interval=[(4.0, 6.0), (None, None)], x_interval=[(0.5, 1.5), (1.0, 1.2)])])
    assert len(chart.points) == 2 and len(chart.bars) == 3
    assert abs(chart.names[0].y - chart.names[1].y) > 5
    assert chart.points[0].words == "a, one: x 1, y 5"


def test_a_legend_has_one_line_for_each_key():
    lines = [
        Series("mean", [], [], 9, key=0),
        Series("seed 0", [], [], 9, "thin", key=0),
        Series("b", [], [], 1, key=1),
    ]
    assert [(key.name, key.tone, key.look) for key in legend(lines)] == [("mean", 1, "line"), ("b", 1, "line")]


def test_moments_are_marked():
    chart = drawn([Series("a", [0.0, 10.0], [1.0, 2.0], 0)], marks=[Mark(2.5, "episode"), Mark(5.0, "change")])
    assert chart.marks == [(25.0, "episode"), (50.0, "change")]
