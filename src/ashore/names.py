"""Looking a name up: an unknown one is answered in one sentence, with the nearest match."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class UnknownName(ValueError):
    """Somebody asked for a thing by a name that nothing has; the message is a sentence for that person."""


def lookup(kind: str, name: str, table: Mapping[str, Value]) -> Value:
    """The entry called `name`, or an `UnknownName` that says which `kind` of thing was asked for."""
    if name not in table:
        raise UnknownName(unknown(kind, name, table))
    return table[name]


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence about a name that is not known: the nearest known one, or all of them when none is near."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"Unknown {kind} '{name}': did you mean '{near}'?"
    if not names:
        return f"Unknown {kind} '{name}': there are none."
    return f"Unknown {kind} '{name}': choose from {', '.join(names)}."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, whatever its case; None when nothing looks like it."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[found[0]] if found else None
