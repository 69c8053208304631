"""The numbers of an inference queue."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

REMEMBERED = 4096  # requests whose latencies count
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class InferenceStats:
    """Statistics of an inference queue so far."""

    requests: int
    """That were answered, failed ones among them."""
    batches: int
    waiting: int
    """Rows that wait for a device."""
    batch_sizes: dict[int, int]
    """The number of batches that were computed, by their rows."""
    batch_seconds: dict[int, float]
    """The seconds that they took together, by their rows."""
    shares: dict[str, float]
    """The part of the requests that each device answered."""
    latency: dict[int, float]
    """Seconds from submission to answer by percentile (50, 95, 99), of the latest requests."""

    @property
    def mean_batch(self) -> float:
        """Requests in a batch."""
        return self.requests / self.batches if self.batches else 0.0


class InferenceTotals:
    """Counts of a queue's batches; whoever changes or reads them holds the queue's lock."""

    def __init__(self) -> None:
        self.latencies: deque[float] = deque(maxlen=REMEMBERED)
        """Seconds from submission to answer, of the latest requests."""
        self._requests = 0
        self._sizes: Counter[int] = Counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def count(self, requests: int, rows: int, seconds: float) -> None:
        """Count a batch of so many requests and rows, which took so long."""
        self._requests += requests
        self._sizes[rows] += 1
        self._seconds[rows] += seconds

    def stats(self, waiting: int, answered: Mapping[str, int]) -> InferenceStats:
        """The statistics so far, with the rows that wait and the requests that each device answered."""
        latencies = np.array(self.latencies)
        total = max(1, sum(answered.values()))
        return InferenceStats(
            requests=self._requests,
            batches=self._sizes.total(),
            waiting=waiting,
            batch_sizes=dict(self._sizes),
            batch_seconds=dict(self._seconds),
            shares={device: count / total for device, count in answered.items()},
            latency={
                p: float(np.percentile(latencies, p)) if latencies.size else math.nan for p in PERCENTILES
            },
        )
