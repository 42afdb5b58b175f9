"""What has happened so far, in numbers: decisions and transitions by what became of them, and decision times."""

import math
from collections import deque

from ashore_runtime.results import ActResult, Evidence

_LATENCIES = 4096


class Tallies:
    """Counts since loading, and the latencies of the last decisions."""

    def __init__(self) -> None:
        self._counts = {"decisions": 0, "missed": 0, "errors": 0, "changes": 0, "transitions": 0, "unused": 0}
        self._latencies: deque[int] = deque(maxlen=_LATENCIES)

    def decided(self, result: ActResult) -> None:
        """One more decision."""
        self._counts["decisions"] += 1
        self._counts["missed"] += result.missed
        self._latencies.append(result.t_total_ns)

    def observed(self, evidence: Evidence) -> None:
        """One more transition."""
        self._counts["transitions"] += 1
        self._counts["unused"] += not evidence.used

    def failed(self) -> None:
        """One more error inside."""
        self._counts["errors"] += 1

    def changed(self) -> None:
        """One more change of the world."""
        self._counts["changes"] += 1

    def counts(self) -> dict[str, int]:
        """By name."""
        return dict(self._counts)

    def latency_ms(self) -> dict[str, float]:
        """Percentiles of the last decisions."""
        latencies = sorted(self._latencies)

        def percentile(share: float) -> float:
            return latencies[max(0, math.ceil(share * len(latencies)) - 1)] * 1e-6 if latencies else 0.0

        return {"p50": percentile(0.5), "p99": percentile(0.99), "max": percentile(1.0)}
