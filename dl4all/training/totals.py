"""Sums of the loss and the metrics over the samples of an epoch, without a wait for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dl4all.autograd import no_grad
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor

CAPACITY = 256
"""The number of numbers of a column that wait on the device at most."""


class Totals:
    """Sums of columns of numbers, each number the mean over some samples.

    A number that is a tensor stays on its device, beside those of other batches, until the sums are read.
    The host adds them up in float64, in the order in which they came: when they are read makes no difference.
    """

    def __init__(self) -> None:
        self.samples = self.batches = 0
        self._sums: dict[str, float] = {}
        self._waiting: dict[str, _Waiting] = {}

    def add(self, name: str, mean: float | Tensor, count: int) -> None:
        """Add the mean over `count` samples to a column."""
        self._sums.setdefault(name, 0.0)
        waiting = self._waiting.get(name)
        if waiting is not None and not waiting.takes(mean):
            self._read(name)
            waiting = None
        if not isinstance(mean, Tensor):
            self._sums[name] += mean * count
            return
        if waiting is None:
            waiting = self._waiting[name] = _Waiting(mean)
        waiting.add(mean, count)

    def means(self) -> dict[str, float]:
        """The mean of each column over all samples."""
        return {name: total / self.samples for name, total in self._read_all().items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything that was added."""
        return {"samples": self.samples, "batches": self.batches, "sums": dict(self._read_all())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of :meth:`state_dict`."""
        self.samples, self.batches, self._sums = state["samples"], state["batches"], dict(state["sums"])
        self._waiting = {}

    def _read_all(self) -> dict[str, float]:
        for name in list(self._waiting):
            self._read(name)
        return self._sums

    def _read(self, name: str) -> None:
        """Add what waits on the device to the column."""
        for mean, count in self._waiting.pop(name).read():
            self._sums[name] += mean * count


class _Waiting:
    """Numbers of a column that are still on the device, and their counts of samples."""

    def __init__(self, like: Tensor) -> None:
        # Copied into one tensor, because a metric may change its own later, and to be read by one download.
        self._values = empty(CAPACITY, dtype=like.dtype, device=like.device)
        self._counts: list[int] = []

    def takes(self, value: float | Tensor) -> bool:
        """Whether there is room for this number."""
        return (
            isinstance(value, Tensor)
            and (value.dtype, value.device) == (self._values.dtype, self._values.device)
            and len(self._counts) < CAPACITY
        )

    @no_grad()
    def add(self, value: Tensor, count: int) -> None:
        self._values[len(self._counts)] = value.detach().reshape(())
        self._counts.append(count)

    def read(self) -> list[tuple[float, int]]:
        values = self._values[: len(self._counts)].tolist()
        return list(zip(values, self._counts, strict=True))
