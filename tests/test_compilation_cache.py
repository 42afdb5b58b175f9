import os
import subprocess
import sys
from pathlib import Path

from ashore.compilation_cache import cache_folder

PROGRAM = "from ashore.compilation_cache import keep_compiled_programs as keep; import jax; print(keep())"


def test_the_folder_follows_the_users_wishes(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.delenv("ASHORE_CACHE", raising=False)
    assert cache_folder() == Path("/somewhere/ashore")
    monkeypatch.setenv("ASHORE_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    monkeypatch.delenv("ASHORE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "ashore"


def _shown(program: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_programs_are_kept_where_we_say(tmp_path):
    assert _shown(PROGRAM, ASHORE_CACHE=str(tmp_path)) == str(tmp_path / "xla")


def test_a_folder_given_to_jax_itself_is_kept(tmp_path):
    assert _shown(PROGRAM, ASHORE_CACHE="/unused", JAX_COMPILATION_CACHE_DIR=str(tmp_path)) == str(tmp_path)


def test_importing_the_library_keeps_nothing(tmp_path):
    program = "import ashore.environments.rollout, jax; print(jax.config.jax_compilation_cache_dir)"
    assert _shown(program, ASHORE_CACHE=str(tmp_path)) == "None"
