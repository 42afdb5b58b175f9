"""MJX re-exports through modules that the type checker cannot follow into MuJoCo's compiled layer."""

from typing import Any

def __getattr__(name: str) -> Any: ...
