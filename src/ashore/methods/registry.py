"""The registry of methods: to add one, add an entry."""

from ashore import names
from ashore.methods.base import Method
from ashore.methods.risk_adaptive import RISK_ADAPTIVE

METHODS: dict[str, Method] = {
    "risk_adaptive": RISK_ADAPTIVE,
}


def lookup(name: str) -> Method:
    """The method called `name`; an unknown name is an error with the nearest match."""
    return names.lookup("method", name, METHODS)
