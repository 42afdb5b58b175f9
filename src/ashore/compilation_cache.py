"""Compiled programs kept between processes, because compiling a world takes longer than stepping it.

Only programs switch this on (the command line, the tests): importing the library never writes to anybody's disk.
"""

import os
from pathlib import Path

import jax


def cache_folder() -> Path:
    """Where Ashore keeps what it can make again: `ASHORE_CACHE`, or `ashore` in the user's cache folder."""
    chosen = os.environ.get("ASHORE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user_cache).expanduser() / "ashore"


def keep_compiled_programs() -> Path:
    """Let JAX store and reuse compiled programs; returns the folder. A folder the user gave to JAX itself is kept."""
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder() / "xla")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return folder
