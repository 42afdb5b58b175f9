"""How much of a fault test is run: a little by default, so that it stays in `make test`; a lot under `make soak`.

ASHORE_SOAK multiplies the long volumes: 1 is `make soak`, about ten minutes on two cores; 50 is a night.
"""

import os

from hypothesis import HealthCheck, settings

SOAK = float(os.environ.get("ASHORE_SOAK") or 0.0)


def volume(usual: int, long: int) -> int:
    """How often to do something: `usual` times, or `long` times the factor when soaking."""
    return max(usual, round(long * SOAK)) if SOAK else usual


def examples(usual: int, long: int) -> settings:
    """The same for a property: as many examples, none of them judged by how long it takes."""
    unhurried = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=volume(usual, long), deadline=None, suppress_health_check=unhurried)
