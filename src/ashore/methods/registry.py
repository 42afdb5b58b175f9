"""The registry of methods: to add one, add an entry (see docs/add_a_method.md)."""

from ashore import names
from ashore.methods.base import Method
from ashore.methods.domain_randomisation import DOMAIN_RANDOMISATION
from ashore.methods.fvd import FVD
from ashore.methods.nominal import NOMINAL
from ashore.methods.pearl import PEARL
from ashore.methods.risk_adaptive import RISK_ADAPTIVE
from ashore.methods.robust import ROBUST
from ashore.methods.spidr import SPIDR
from ashore.methods.without_risk_adaptation import WITHOUT_RISK_ADAPTATION

METHODS: dict[str, Method] = {
    "risk_adaptive": RISK_ADAPTIVE,
    "without_risk_adaptation": WITHOUT_RISK_ADAPTATION,
    "nominal": NOMINAL,
    "domain_randomisation": DOMAIN_RANDOMISATION,
    "spidr": SPIDR,
    "robust": ROBUST,
    "pearl": PEARL,
    "fvd": FVD,
}


def lookup(name: str) -> Method:
    """The method called `name`; an unknown name is an error with the nearest match."""
    return names.lookup("method", name, METHODS)
