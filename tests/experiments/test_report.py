"""The page about a folder: its numbers are those of the files, it is harmless, and what is not there is not in it."""

import base64
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import browser
from ashore.cli.main import main
from ashore.experiments import provenance, records, report, report_charts, report_sources
from ashore.experiments.report import write_report
from ashore.experiments.report_parts import Charts
from experiments import report_artifacts as artifacts

VOID = {"meta", "link", "input", "br", "img", "hr"}
WIDTHS = {"phone": (390, 844), "desktop": (1440, 900)}


class Page(HTMLParser):
    """A page as a reader that forgives nothing sees it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.section = ""
        self.numbers: dict[str, list[tuple[float, str]]] = {}
        """Exact and shown, by the anchor of the section."""
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self.section = dict(attrs)["id"] or ""
        if tag == "data":
            self.numbers.setdefault(self.section, []).append((float(dict(attrs)["value"] or "nan"), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)
        if self.open and self.open[-1] == "data":
            exact, _ = self.numbers[self.section][-1]
            self.numbers[self.section][-1] = (exact, data)

    @property
    def anchors(self) -> list[str]:
        return [attributes["id"] or "" for tag, attributes in self.tags if tag == "section"]

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.words).split())

    def exact(self, section: str) -> set[float]:
        return {number for number, _ in self.numbers[section]}


def read(folder: Path, **options) -> Page:
    return Page(write_report(folder, **options).path.read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return artifacts.whole_run(tmp_path_factory.mktemp("runs") / "careful run")


@pytest.fixture(scope="module")
def page(run):
    return read(run)


def test_everything_has_its_section_and_its_entry_in_the_contents(page):
    expected = ["glance", "training", "evaluation", "calibration", "frontier", "deployment", "videos", "provenance"]
    assert page.anchors == expected
    assert [attributes["href"] for tag, attributes in page.tags if tag == "a"] == [f"#{name}" for name in expected]


def test_the_last_row_of_training_is_that_of_the_file(page, run):
    last = list(records.read(run))[-1]
    for name in ("episode_return", "episode_cost", "multiplier", "kl", "probe_thrust_per_mass", "actor_loss"):
        assert {*last[name], sum(last[name]) / artifacts.SEEDS} <= page.exact("training"), name
    for title in ("Return", "Cost", "Multiplier", "KL of the posterior from the prior", "Probe of thrust per mass"):
        assert f"{title} " in page.said
    assert "budget 25" in page.said and "PointGoal2 as this version" not in page.said


def test_curves_have_a_line_per_seed_and_their_mean(run):
    chart = next(c for c in _charts(run, "training") if c.title == "Return")
    assert [curve.look for curve in chart.curves] == ["thin"] * artifacts.SEEDS + ["line"]
    # Before the first episode has ended there is no return: 11 of 12 rows are points of one piece.
    assert all(curve.path.count("M") == 1 and curve.path.count("L") == 10 for curve in chart.curves)
    (cost,) = [c for c in _charts(run, "training") if c.title == "Cost"]
    assert [rule.label for rule in cost.rules] == ["budget 25"]


def _charts(folder: Path, anchor: str) -> list[report_charts.Chart]:
    """The charts of a section that are not folded away."""
    holdings = report_sources.look(folder)
    sections = {section.anchor: section for section in report._sections(holdings, [], [])}
    return [chart for block in sections[anchor].blocks if isinstance(block, Charts) for chart in block.charts]


def test_evaluations_are_those_of_the_files(page, run):
    for name in ("evaluation.json", "evaluation_under_cost_attack.json"):
        for shift, result in json.loads((run / name).read_text())["shifts"].items():
            for part in ("episode_return", "episode_cost", "first_cost"):
                assert set(result[part].values()) <= page.exact("evaluation"), (name, shift, part)
            assert set(result["metrics"]["goals_reached"].values()) <= page.exact("evaluation")
            assert result["episode_cost"]["mean"] / 25.0 in page.exact("evaluation")
    assert "An attacker who maximises cost disturbs" in page.said and "16 worlds per shift x 4 episodes" in page.said


def test_numbers_are_shown_rounded_and_with_a_true_minus(page):
    shown = {exact: words for numbers in page.numbers.values() for exact, words in numbers}
    for exact, words in shown.items():
        digits = len(words.partition(".")[2]) if "e" not in words else 20
        rounded = float(words.replace(",", "").replace("\N{MINUS SIGN}", "-"))
        assert rounded == pytest.approx(exact, abs=0.51 * 10**-digits, rel=0.06 if "e" in words else 0), (exact, words)
        assert "-" not in words


def test_the_calibration_is_that_of_the_file_and_costs_are_per_episode(page, run):
    content = json.loads((run / "calibration/seed_0/calibration.json").read_text())
    found = page.exact("calibration")
    assert {*content["counts"], *content["eta"], *content["epsilon"], *content["spread"]} <= found
    assert {*content["per_episode"]["direct"], *content["per_episode"]["lipschitz"]} <= found
    # 25 per episode are 10 discounted: 6.5 and 12.5 are 16.25 and 31.25; of 10 + 3 x 2 at N = 0, 15 are not the budget.
    assert {16.25, 31.25, 15.0, 2.5} <= found
    assert {19, 11, 0.95, 0.55, 0.95 * 0.8} <= found
    assert page.said.count("infeasible") >= 2 and "Infeasible at N = 0: " in page.said
    assert content["assumptions"][0] in page.said
    (bound,) = [c for c in _charts(run, "calibration") if c.title.startswith("Realised cost")]
    assert [curve.name for curve in bound.curves] == [
        "the theorem's bound: budget + L_c epsilon",
        "belief held, eta = 0, mean",
        "belief held, eta = 0, level 0.9",
        "realised by the schedule, mean",
        "realised at eta = 0, mean",
    ]


def test_the_frontier_is_that_of_the_file(page, run):
    curves = json.loads((run / "calibration/seed_0/frontier.json").read_text())["curves"]
    for by_shift in curves.values():
        assert {*by_shift["train"]["episode_cost"], *by_shift["train"]["episode_return"]} <= page.exact("frontier")


def test_the_deployment_is_that_of_the_files(page, run):
    summary = json.loads((run / "deployment/summary.json").read_text())
    found = page.exact("deployment")
    assert {summary["mean_return"], summary["mean_cost"], *summary["latency_ms"].values()} <= found
    assert {episode[part] for episode in summary["episodes"] for part in ("return", "cost")} <= found
    strips = {chart.title: chart for chart in _charts(run, "deployment")}
    assert list(strips) == ["Cost of the episode", "Risk level, eta", "Posterior spread", "Refinement steps", "Latency"]
    # A line for each of three episodes; 120 decisions are as many specks; two borders and one change are marked.
    assert len(strips["Cost of the episode"].curves) == 3
    assert strips["Latency"].curves[0].path.count("M") == 120
    assert [kind for _, kind in strips["Latency"].marks] == ["episode", "episode", "change"]
    assert [rule.label for rule in strips["Latency"].rules] == ["control period 80 ms"]


def test_how_it_was_made_is_as_it_was_noted(page):
    note = "ashore train PointGoal2 risk_adaptive --preset gpu --seeds 3"
    for words in (note, "0.11.2", "A processor", "gpu: NVIDIA H200", '"task_preset": "default"'):
        assert words in page.said


def test_the_page_loads_nothing(page):
    assert not {"script", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "srcset", "poster", "data", "action") or (name == "href" and tag != "a"):
                assert (value or "").startswith("data:"), (tag, name, value)
            if name == "href" and tag == "a":
                assert (value or "").startswith("#")
    assert "http://" not in page.text and "https://" not in page.text and "url(" not in page.text
    policy = [attributes for tag, attributes in page.tags if attributes.get("http-equiv")]
    assert "default-src 'none'" in (policy[0]["content"] or "")


def test_names_from_files_are_harmless(tmp_path):
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    folder = tmp_path / "<script>alert(0)<b>"
    artifacts.config(folder, evil, task=evil)
    artifacts.metrics(folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps({**row, evil: [1.0] * 3}) + "\n" for row in rows))
    shifts = artifacts.evaluation(folder)["shifts"]
    artifacts.write_json(folder / "evaluation.json", {"protocol": {"attack": evil}, "shifts": {evil: shifts["train"]}})
    artifacts.deployment(folder / evil.replace("/", ""))
    summary = json.loads((folder / evil.replace("/", "") / "summary.json").read_text())
    artifacts.write_json(folder / evil.replace("/", "") / "summary.json", {**summary, "task": evil, evil: evil})
    calibration = artifacts.calibration(folder)
    calibration |= {"rule": evil, "assumptions": [evil]}
    artifacts.write_json(folder / "calibration/seed_0/calibration.json", calibration)
    page = read(folder)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert page.said.count("<script>alert(1)</script>") > 5 and "<script>alert(0)<b>" in page.said


def test_what_is_not_there_is_not_mentioned(tmp_path):
    artifacts.metrics(tmp_path / "run")
    page = read(tmp_path / "run")
    assert page.anchors == ["glance", "training"]
    for word in ("valuation", "alibration", "eployment", "ideo", "achine", "budget"):
        assert word not in page.said, word
    artifacts.config(tmp_path / "run")
    page = read(tmp_path / "run")
    assert page.anchors == ["glance", "training", "provenance"] and "PointGoal2 as this version of Ashore" in page.said
    alone = artifacts.deployment(tmp_path / "alone")
    page = read(tmp_path / "alone")
    assert page.anchors == ["glance", "deployment", "provenance"] and alone["mean_cost"] in page.exact("deployment")


def test_a_run_that_has_only_begun_has_no_empty_charts(tmp_path):
    artifacts.config(tmp_path)
    artifacts.metrics(tmp_path, rows=1)
    chart = _charts(tmp_path, "training")
    assert "Return" not in [one.title for one in chart] and "Multiplier" in [one.title for one in chart]
    (tmp_path / "metrics.jsonl").write_text("")
    assert read(tmp_path).anchors == ["glance", "provenance"]


def test_videos_are_inside_until_the_page_is_large_enough(tmp_path):
    (tmp_path / "small.mp4").write_bytes(b"s" * 1000)
    (tmp_path / "large.mp4").write_bytes(b"l" * 3_000_000)
    written = write_report(tmp_path, tmp_path / "page.html", video_mebibytes=1.0)
    page = Page(written.path.read_text())
    assert written.left_out == ["large.mp4 (2.9 MiB)"] and "Left out, because" in page.said
    (source,) = [attributes["src"] or "" for tag, attributes in page.tags if tag == "video"]
    assert base64.b64decode(source.removeprefix("data:video/mp4;base64,")) == b"s" * 1000
    both = Page(write_report(tmp_path).path.read_text())
    assert sum(tag == "video" for tag, _ in both.tags) == 2 and "Left out" not in both.said


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    pool = tmp_path_factory.mktemp("suites")
    for seed, method in enumerate(("nominal", "risk_adaptive", "robust")):
        artifacts.cell(pool, method, seed)
    artifacts.cell(pool, "without_risk_adaptation", 3, trained=False)
    artifacts.cell(pool, "fvd", 4, trained=False, task="Platoon")
    shutil.copytree(pool / "gpu/PointGoal2/robust", pool / "gpu/PointGoal2/robust.replaced_1")
    for seed in range(2):
        artifacts.calibration(pool / "gpu/PointGoal2/risk_adaptive", seed)
    return pool


def test_a_suite_has_a_point_for_every_method_and_shift(suite):
    page = read(suite, out=suite / "pages" / "suite.html")
    for summary in suite.glob("gpu/*/*/summary.json"):
        if "replaced" not in summary.parent.name:
            for result in json.loads(summary.read_text())["results"].values():
                assert {*result["cost"].values(), *result["return"].values()} <= page.exact("evaluation")
    charts = _charts(suite, "evaluation")
    points = {
        chart.title: [point.words.partition(":")[0] for point in chart.points] for chart in charts if chart.points
    }
    methods = ["nominal", "risk_adaptive", "robust", "without_risk_adaptation"]
    assert points == {
        "Return against cost": list(artifacts.SHIFTS),
        **{shift.capitalize(): methods for shift in artifacts.SHIFTS},
    }
    assert all(rule.label == "budget 25" for chart in charts for rule in chart.rules)
    assert "Platoon" in page.said and "replaced" not in page.said


def test_a_suite_shows_how_caution_relaxed_where_there_was_any(suite):
    (chart,) = [chart for chart in _charts(suite, "evaluation") if "risk level" in chart.title]
    assert chart.title == "risk_adaptive, risk level eta" and "transitions" in chart.x_label
    assert [curve.name for curve in chart.curves] == list(artifacts.SHIFTS)
    # In each shift from 0.9 at the first decision to 0.2 at the last one.
    (ours,) = [run for run in report_sources.look(suite).runs if run.name == "risk_adaptive"]
    for shift in ours.evaluations["evaluation"]["shifts"].values():
        eta = shift["eta"]
        assert (eta["decisions"][0], eta["decisions"][-1]) == (1, 1000)
        assert eta["mean"] == pytest.approx([0.9 - 0.7 * (at - 1) / 999 for at in eta["decisions"]])


def test_a_method_has_the_same_colour_everywhere_in_a_suite(suite):
    (returns,) = [chart for chart in _charts(suite, "training") if chart.title == "Return"]
    (points,) = [chart.points for chart in _charts(suite, "evaluation") if chart.title == "High"]
    by_name = {curve.name: curve.tone for curve in returns.curves}
    assert {point.words.partition(":")[0]: point.tone for point in points} == {**by_name, "without_risk_adaptation": 3}
    assert [curve.look for curve in returns.curves] == ["line", "thin", "thin", "thin"] * 3


def test_several_calibrations_are_compared_first(suite):
    schedules, *others = _charts(suite, "calibration")
    assert [curve.name for curve in schedules.curves] == [
        "risk_adaptive, seed 0",
        "risk_adaptive, seed 1",
    ] and not others


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (lambda folder: None, "There is no folder {folder}."),
        (lambda folder: folder.write_text(""), "{folder} is not a folder: a report is about the folder of a run"),
        (lambda folder: folder.mkdir(), "{folder} holds nothing to report: neither a run (config.json, metrics.jsonl"),
        (
            lambda folder: artifacts.write_json(folder / "evaluation.json", {"protocol": {}}),
            "{folder}/evaluation.json lacks shifts: it is not of the form that Ashore writes.",
        ),
        (
            lambda folder: (artifacts.config(folder), (folder / "evaluation.json").write_text("{")),
            "{folder}/evaluation.json cannot be read as JSON (",
        ),
        (lambda folder: artifacts.write_json(folder / "evaluation.json", []), "{folder}/evaluation.json holds no JSON"),
        (
            lambda folder: artifacts.write_json(folder / "evaluation.json", {"shifts": {"train": {}}}),
            "{folder}/evaluation.json lacks return or cost of 'train': it is not of the form that Ashore writes.",
        ),
        (
            lambda folder: artifacts.write_json(
                folder / "calibration/seed_0/calibration.json", artifacts.calibration(folder) | {"eta": [0.5]}
            ),
            "{folder} holds a file that is not of the form that Ashore writes (ValueError: ",
        ),
    ],
)
def test_bad_input_is_answered_in_one_sentence(prepare, complaint, tmp_path, capsys):
    folder = tmp_path / "it"
    prepare(folder)
    assert main(["report", str(folder)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith(f"ashore: {complaint.format(folder=folder)}")
    assert shown.err.count("\n") == 1 and not (tmp_path / "it" / "report.html").exists()


def test_bad_options_are_answered_in_one_sentence(run, tmp_path, capsys):
    assert main(["report", str(run), "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder: say which file the page shall be." in capsys.readouterr().err
    assert main(["report", str(run), "--video-mib", "-1"]) == 2
    assert "must not be negative" in capsys.readouterr().err


def test_by_command_the_page_is_in_the_folder(run, capsys):
    assert main(["report", str(run), "--video-mib", "0"]) == 0
    shown = capsys.readouterr().out
    assert (
        shown.startswith("left out, too large: deployment/deployment.mp4 (") and f"report: {run}/report.html" in shown
    )


def test_the_same_folder_gives_the_same_page(run, tmp_path):
    texts = [write_report(run, tmp_path / name).path.read_bytes() for name in ("a.html", "b.html")]
    assert texts[0] == texts[1] and not list(tmp_path.glob("*.unfinished"))


def test_commands_are_noted_with_versions_and_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/ashore", "train", "Platoon", "a name"])
    provenance.note(tmp_path)
    monkeypatch.setattr("sys.argv", ["/somewhere/pytest"])
    provenance.note(tmp_path)
    with (tmp_path / provenance.FILE).open("a") as file:
        file.write('{"cut sho')
    first, second = provenance.read(tmp_path)
    assert first["command"] == "ashore train Platoon 'a name'" and second["command"] is None
    assert {"jax", "ashore"} <= set(first["versions"]) and first["machine"]["threads"] >= 1


@pytest.mark.skipif(browser.program() is None, reason="there is no browser on this machine")
def test_a_browser_shows_it_on_a_phone_and_on_a_desktop(run, suite, tmp_path):
    pages = [write_report(folder, tmp_path / f"{number}.html").path for number, folder in enumerate((run, suite))]
    with browser.browser() as opened:
        for page in pages:
            for width, height in WIDTHS.values():
                opened.open(page, width, height, dark=width == 390)
                assert opened.complaints == [] and opened.asked_for == [page.resolve().as_uri()]
                assert opened.value("document.documentElement.scrollWidth") <= width
                # Letters keep their size, whatever the width.
                assert opened.value("getComputedStyle(document.querySelector('.plot text')).fontSize") == "12px"
                assert opened.value("document.querySelector('.plot > svg').clientWidth") > 200
                opened.value("document.querySelectorAll('details').forEach(part => part.open = true)")
                assert opened.value("document.documentElement.scrollWidth") <= width
                opened.value("window.scrollTo(0, 3000)")
                assert 0 <= opened.value("document.querySelector('nav').getBoundingClientRect().top") < 50
        opened.open(pages[0], *WIDTHS["desktop"])
        opened.value("document.querySelector('#training .legend input').click()")
        shown = """[...document.querySelector('#training .charts').querySelectorAll('.plot path')]
            .filter(part => getComputedStyle(part).display != 'none').map(part => part.classList.contains('k0'))"""
        assert opened.value(shown) and not any(opened.value(shown))
        size = """new Promise(done => {
            const film = document.querySelector('video')
            const look = () => film.readyState ? done([film.videoWidth, film.videoHeight]) : setTimeout(look, 20)
            look()
        })"""
        assert opened.value(size) == [64, 48]
