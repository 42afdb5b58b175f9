"""JSON from a stranger: bounded in size and depth, no key twice, no number that is not one; and one way to write it."""

import json
from math import isfinite
from typing import Any, NoReturn

from ashore_runtime.refusal import Refused

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
_SHOWN = 32
"""Characters of a stranger's text that a refusal repeats."""


def parse(data: bytes, what: str) -> Any:
    """The value that `data` holds.

    Args:
        data: UTF-8 text.
        what: how to call it when it is refused.
    """
    if len(data) > MAX_BYTES:
        raise Refused(f"{what} is {len(data)} bytes long, and at most {MAX_BYTES} are read.")

    def object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Refused(f"{what} names a key twice.")
        return found

    def no_constant(name: str) -> NoReturn:
        raise Refused(f"{what} holds {name} where a number belongs.")

    def finite(text: str) -> float:
        # 1e400 is JSON, and infinity all the same.
        return float(text) if isfinite(float(text)) else no_constant(text[:_SHOWN])

    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=object_from_pairs,
            parse_constant=no_constant,
            parse_float=finite,
        )
    except RecursionError as error:
        raise Refused(f"{what} is nested deeper than {MAX_DEPTH} levels.") from error
    except Refused:
        raise
    except ValueError as error:
        raise Refused(f"{what} is not JSON.") from error
    if _deeper_than(value, MAX_DEPTH):
        raise Refused(f"{what} is nested deeper than {MAX_DEPTH} levels.")
    return value


def serialise(value: Any) -> bytes:
    """The one text for a value: sorted keys, two spaces, a final newline. The same value gives the same bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def _deeper_than(value: Any, levels: int) -> bool:
    # Breadth first and without recursion, so that the check itself cannot be made to overflow.
    layer = [value]
    for _ in range(levels + 1):
        below: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        layer = below
        if not layer:
            return False
    return True
