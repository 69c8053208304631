"""Requests to a device, and their time at given speeds.

The model has one term for each cause: ``seconds = launches * launch + bytes / bandwidth + flops / rate``,
with a rate for each class of kernels. It is linear, so work adds up and scales with a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Speeds:
    """The speeds of a device. Seconds for each unit; what has no class of its own has the common rate."""

    launch: float = 0.0  # of one kernel
    per_byte: float = 0.0  # of the device's memory, read or written
    per_flop: float = 0.0
    per_flop_of: Mapping[str, float] = field(default_factory=dict)  # by the class of kernels, or its family
    transfer: float = 0.0  # of one copy between the host and the device, whatever its size
    per_byte_up: float = 0.0  # from the host to the device
    per_byte_down: float = 0.0

    def per_flop_in(self, kind: str) -> float:
        """Seconds of an operation in kernels of a class: its own, its family's, or the common ones.

        >>> speeds = Speeds(per_flop=3.0, per_flop_of={"conv": 2.0, "conv.conv_weight": 1.0})
        >>> [speeds.per_flop_in(kind) for kind in ("conv.conv_weight", "conv.conv2d", "linalg.matmul")]
        [1.0, 2.0, 3.0]
        """
        known = self.per_flop_of
        return known[kind] if kind in known else known.get(kind.partition(".")[0], self.per_flop)

    def upload(self, nbytes: float) -> float:
        """Seconds of a copy from the host."""
        return self.transfer + nbytes * self.per_byte_up

    def download(self, nbytes: float) -> float:
        """Seconds of a copy to the host."""
        return self.transfer + nbytes * self.per_byte_down


@dataclass
class WorkCounts:
    """Launches, bytes of operands and results, and floating point operations by class of kernels.

    >>> (WorkCounts(1, 100.0) + WorkCounts(2, 50.0, {"conv": 8.0}) * 2).seconds(Speeds(1.0, 0.1, 0.5))
    33.0
    """

    launches: float = 0.0
    nbytes: float = 0.0
    flops: dict[str, float] = field(default_factory=dict)

    def count(self, kind: str, nbytes: float, flops: float) -> None:
        """Add one launch of a kernel of a class."""
        self.launches += 1
        self.nbytes += nbytes
        if flops:
            self.flops[kind] = self.flops.get(kind, 0.0) + flops

    def __add__(self, other: WorkCounts) -> WorkCounts:
        kinds = self.flops.keys() | other.flops.keys()
        flops = {kind: self.flops.get(kind, 0.0) + other.flops.get(kind, 0.0) for kind in kinds}
        return WorkCounts(self.launches + other.launches, self.nbytes + other.nbytes, flops)

    def __sub__(self, other: WorkCounts) -> WorkCounts:
        return self + other * -1.0

    def __mul__(self, factor: float) -> WorkCounts:
        flops = {kind: count * factor for kind, count in self.flops.items()}
        return WorkCounts(self.launches * factor, self.nbytes * factor, flops)

    def seconds(self, speeds: Speeds) -> float:
        """The seconds of a device of these speeds."""
        arithmetic = sum(count * speeds.per_flop_in(kind) for kind, count in self.flops.items())
        return self.launches * speeds.launch + self.nbytes * speeds.per_byte + arithmetic
