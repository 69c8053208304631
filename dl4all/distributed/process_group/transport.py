"""The interface of what carries arrays of the host between processes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class ReduceOp(enum.Enum):
    """The operation by which a collective makes one tensor of all processes'.

    Example:
        >>> import dl4all as dl
        >>> [op.name for op in dl.distributed.ReduceOp]
        ['SUM', 'AVG', 'PRODUCT', 'MIN', 'MAX', 'BAND', 'BOR', 'BXOR']
    """

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


class ArrayTransfer(Protocol):
    """Arrays on their way. Whoever began it leaves them alone until :meth:`wait` has returned."""

    def is_completed(self) -> bool:
        """Whether it has ended; never waits."""

    def wait(self) -> None:
        """Wait for its end; raises what the transport raises."""


class Transport(Protocol):
    """A way between processes, which call its methods in the same order.

    Arrays are contiguous, have one axis but for the first one of `parts`, which is that of the ranks, and
    belong to nobody else. Ranks are those within the transport. No method waits.
    """

    rank: int
    world_size: int
    computes: frozenset[np.dtype[Any]]
    """The dtypes that it can reduce; it can move any."""

    def all_reduce(self, array: Array, op: ReduceOp) -> ArrayTransfer:
        """Reduce in place, the same bits in every process."""

    def all_gather(self, array: Array, parts: Array) -> ArrayTransfer: ...

    def broadcast(self, array: Array, source: int) -> ArrayTransfer: ...

    def gather(self, array: Array, parts: Array | None, destination: int) -> ArrayTransfer: ...

    def scatter(self, array: Array, parts: Array | None, source: int) -> ArrayTransfer: ...

    def reduce_scatter(self, array: Array, parts: Array, op: ReduceOp) -> ArrayTransfer: ...

    def send(self, array: Array, destination: int, tag: int) -> ArrayTransfer: ...

    def receive(self, array: Array, source: int, tag: int) -> ArrayTransfer: ...

    def subgroup(self, ranks: Sequence[int], timeout: timedelta) -> Transport:
        """A transport of its own between some of the processes, which all call this."""

    def close(self) -> None:
        """Give up the connections."""
