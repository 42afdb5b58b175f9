import importlib.metadata

import pytest

from ashore.cli.main import main
from ashore.experiments import machine_checks


def _status(name: str) -> machine_checks.Check:
    return machine_checks._LOOKS[name](name)


def test_a_machine_that_runs_the_tests_passes(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.startswith("fail")]
    for name in machine_checks._LOOKS:
        assert any(name in line for line in lines)


def test_engines_that_do_not_match_fail_with_a_fix(monkeypatch, capsys):
    true_version = importlib.metadata.version

    def version(package: str) -> str:
        return "1.2.3" if package == "mujoco-mjx" else true_version(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    check = _status("engines")
    assert check.status == "fail"
    assert check.fix == f"pip install 'mujoco-mjx=={true_version('mujoco')}'"
    assert main(["doctor"]) == 1
    assert "fix: pip install 'mujoco-mjx==" in capsys.readouterr().out


@pytest.mark.parametrize(("gibibytes", "status"), [(100.0, "ok"), (3.0, "warn"), (0.5, "fail")])
def test_disk_space_is_judged(monkeypatch, gibibytes, status):
    class Usage:
        free = gibibytes * 2**30

    monkeypatch.setattr(machine_checks.shutil, "disk_usage", lambda path: Usage)
    assert _status("disk").status == status


def test_a_missing_renderer_is_a_warning_that_names_the_packages(monkeypatch):
    monkeypatch.setattr(machine_checks, "_draws", lambda backend: False)
    check = _status("3D renderer")
    assert check.status == "warn"
    assert "apt-get install libegl1 libopengl0" in check.fix


def test_a_cache_that_cannot_be_written_is_a_warning(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("ASHORE_CACHE", str(blocked / "cache"))
    check = _status("compiled programs")
    assert check.status == "warn"
    assert "ASHORE_CACHE" in check.fix


def test_a_look_that_breaks_is_a_failed_check_and_not_a_crash(monkeypatch):
    def broken(name: str) -> machine_checks.Check:
        raise OSError("no such thing")

    monkeypatch.setattr(machine_checks, "_LOOKS", {"thing": broken})
    (check,) = machine_checks.check_machine()
    assert check.status == "fail"
    assert check.found == "OSError: no such thing"
