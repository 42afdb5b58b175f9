"""MuJoCo's Python layer is compiled and carries no types: to the type checker, every name in it may be anything."""

from typing import Any

def __getattr__(name: str) -> Any: ...
