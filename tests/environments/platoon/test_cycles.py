"""Drive cycles: what is shipped, what is refused, and which windows are replayed."""

from pathlib import Path

import jax
import numpy as np
import pytest

from ashore.environments.platoon import Platoon, PlatoonConfig, PlatoonCWorld, PlatoonParameters
from ashore.environments.platoon.cycles import SHIPPED, fixed_trace, load, parse, training_traces

HEADER = "time_s,speed_mps\n"


@pytest.mark.parametrize(
    ("name", "seconds", "miles", "top_mph"),
    # The figures that the schedules' publisher gives.
    [
        ("udds", 1369, 7.45, 56.7),
        ("ftp75", 1874, 11.04, 56.7),
        ("nycc", 598, 1.18, 27.7),
        ("hwfet", 765, 10.26, 59.9),
        ("us06", 600, 8.01, 80.3),
    ],
)
def test_shipped_cycles(name: str, seconds: int, miles: float, top_mph: float) -> None:
    cycle = load(name)
    assert cycle.duration == seconds
    assert np.trapezoid(cycle.speed, dx=cycle.step) / 1609.344 == pytest.approx(miles, abs=0.01)
    assert cycle.speed.max() / 0.44704 == pytest.approx(top_mph, abs=0.05)


def test_every_cycle_is_listed() -> None:
    folder = Path(__file__).parents[3] / "src/ashore/environments/platoon/drive_cycles"
    assert {path.stem for path in folder.glob("*.csv")} == set(SHIPPED)
    assert all(name in (folder / "README.md").read_text(encoding="utf-8") for name in SHIPPED)


def test_interpolation_is_linear() -> None:
    cycle = parse("mine", HEADER + "0,1\n0.5,2\n1.0,0\n")
    # A quarter of the way from 1 to 2; half of the way from 2 to 0; a sample itself.
    np.testing.assert_allclose(cycle.at(np.array([0.125, 0.75, 1.0])), [1.25, 1.0, 0.0])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: the header must be 'time_s,speed_mps', not ''"),
        ("0,1\n1,2\n2,3\n", "line 1: the header must be 'time_s,speed_mps', not '0,1'"),
        ("time,speed\n0,1\n1,2\n", "line 1: the header"),
        (HEADER + "0,1\n", "line 2: the file ends here, but a trace needs two samples"),
        (HEADER + "0,1\n1,fast\n", "line 3: 'fast' is not a finite number"),
        (HEADER + "0,1\n1,nan\n", "line 3: 'nan' is not a finite number"),
        (HEADER + "0,1\n1,\n", "line 3: '' is not a finite number"),
        (HEADER + "0,1\n\n2,1\n", "line 3: expected two numbers"),
        (HEADER + "0,1\n1,2,3\n", "line 3: expected two numbers separated by a comma, not '1,2,3'"),
        (HEADER + "0,1\n1,-0.1\n", "line 3: the speed -0.1 m/s is negative"),
        (HEADER + "0,1\n1,90\n", "line 3: the speed 90 exceeds 45 m/s"),
        (HEADER + "0,1\n0,1\n", "line 3: time must increase"),
        (HEADER + "0,1\n1,1\n2.5,1\n", "line 4: time must increase by a constant 1 s, but 2.5 s stands"),
        (HEADER + "0,1\n1,1\n2,1\n1,1\n", "line 5: time must increase by a constant 1 s, but 1 s stands"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="mine.csv") as caught:
        PlatoonConfig(cycles=(str(path),)).traces()
    assert complaint in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_other_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Unknown drive cycle 'uds': give one of udds"):
        load("uds")
    with pytest.raises(ValueError, match="Unknown drive cycle"):
        load(str(tmp_path))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not a text file"):
        load(str(tmp_path / "binary.csv"))
    short = tmp_path / "short.csv"
    short.write_text(HEADER + "".join(f"{second},{5 + second % 3}\n" for second in range(50)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"short.csv, line 51: the trace ends here after 49 s, too short for .* 50 s"):
        training_traces((str(short),), 50.0)
    parked = tmp_path / "parked.csv"
    parked.write_text(HEADER + "".join(f"{second},1\n" for second in range(60)), encoding="utf-8")
    with pytest.raises(ValueError, match="No 50 s window"):
        training_traces((str(parked),), 50.0)


def test_a_users_cycle_is_driven(tmp_path: Path, nominal: PlatoonParameters) -> None:
    # Ten samples a second, a byte-order mark and empty lines at the end, as a spreadsheet may leave them.
    path = tmp_path / "mine.csv"
    times = np.arange(0.0, 60.05, 0.1)
    rows = "".join(f"{time:.1f},{8 + 3 * np.sin(0.3 * time):.5f}\n" for time in times)
    path.write_text("\ufeff" + HEADER + rows + "\n\n", encoding="utf-8")
    traces = training_traces((str(path),), 50.0)
    assert len(traces.windows) == 11
    config = PlatoonConfig(fixed_window=(str(path), 10))
    start = Platoon(config).reset(jax.random.key(0), nominal).state
    assert float(start.speed[0]) == pytest.approx(8 + 3 * np.sin(0.3 * 10), abs=1e-5)
    world = PlatoonCWorld(config)
    world.start(0)
    world.step(np.zeros(1))
    # One decision later, in the middle between two samples.
    assert world.speed[0] == pytest.approx(8 + 3 * (np.sin(0.3 * 10) + np.sin(0.3 * 10.1)) / 2, abs=1e-5)


def test_training_windows_move_and_change() -> None:
    traces = training_traces(("udds", "nycc"), 50.0)
    kept = {(window.cycle, window.start) for window in traces.windows}
    times = np.arange(0.0, 50.01, 0.01)
    for index, cycle in enumerate(traces.cycles):
        for start in range(0, int(cycle.duration) - 49, 7):
            speed = cycle.at(start + times)
            # Away from the thresholds every sampling of the window agrees.
            if abs(speed.mean() - 2.0) > 0.01 and abs(speed.std() - 0.3) > 0.01:
                assert ((index, start) in kept) == (speed.mean() > 2.0 and speed.std() > 0.3)
    assert all(start + 50 <= traces.cycles[cycle].duration for cycle, start in traces.windows)
    # Counted once by hand-written loops over the two files.
    assert np.bincount([window.cycle for window in traces.windows]).tolist() == [1307, 423]


def test_a_fixed_window() -> None:
    traces = fixed_trace("udds", 160, 50.0)
    assert len(traces.windows) == 1
    assert traces.speeds(0, np.array([0.0, 50.0])) == pytest.approx(load("udds").speed[[160, 210]])
    with pytest.raises(ValueError, match="udds, line 1371: the trace ends here after 1369 s"):
        fixed_trace("udds", 1320, 50.0)
    with pytest.raises(ValueError, match="before the cycle"):
        fixed_trace("udds", -1, 50.0)
