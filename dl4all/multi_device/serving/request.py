"""One input of a model whose output is to come."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import DTYPES
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.streams.task import State, Task
from dl4all.tensor.creation import from_numpy, tensor
from dl4all.tensor.tensor import Tensor

Key: TypeAlias = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
"""Shape and dtype of each input. Requests of one key go into one batch."""


class RequestQueue(Protocol):
    """The queue that a request waits in, as the request knows it."""

    def hasten(self, request: Request) -> None:
        """Somebody waits for it, on a virtual clock: no more requests will come before it is done."""

    def forget(self, request: Request) -> None:
        """It was cancelled while it waited."""


class Request(Task):
    """A pending request of :meth:`dl4all.InferenceQueue.submit`: the output comes as :meth:`result`.

    Example:
        >>> import dl4all as dl
        >>> with dl.InferenceQueue(dl.nn.ReLU(), dl.DeviceGroup(["cpu"])) as queue:
        ...     request = queue.submit([-1.0, 2.0])
        ...     request.result(timeout=10).tolist()
        [0.0, 2.0]
    """

    __slots__ = ("_owner", "inputs", "key")

    def __init__(
        self, inputs: tuple[npt.NDArray[Any], ...], owner: RequestQueue, *, on_virtual_clock: bool
    ) -> None:
        super().__init__(_nothing, "request", on_virtual_clock=on_virtual_clock)
        self.inputs = inputs
        self.key: Key = tuple((array.shape, array.dtype) for array in inputs)
        self._owner: RequestQueue | None = owner

    def cancel(self) -> bool:
        """Take the request back; returns whether it was still waiting."""
        owner = self._owner
        cancelled = super().cancel()
        if cancelled and owner is not None:
            owner.forget(self)
        return cancelled

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the output, at most `timeout` seconds of its clock; returns whether it has come."""
        owner = self._owner
        if self.on_virtual_clock and owner is not None and self.state == "waiting":
            owner.hasten(self)
        return super().wait(timeout)

    def end(self, state: State, outcome: Any) -> None:
        """Keep the output, or why there is none."""
        super().end(state, outcome)
        self.inputs, self._owner = (), None


def _nothing() -> None:
    """A request is computed with others, not by itself."""


def host_array(value: Any) -> npt.NDArray[Any]:
    """A copy of an input in host memory.

    Raises:
        DTypeError: it is nothing that a tensor can be made of.
    """
    if isinstance(value, np.ndarray) and value.dtype in DTYPES:
        return np.array(value)
    return tensor(value.detach() if isinstance(value, Tensor) else value, device="cpu").numpy()


def rows(output: Any, count: int) -> list[Any]:
    """The output of a batch as one for each request, on the CPU, with memory of its own.

    Tuples, lists and dicts of tensors come apart as well.

    >>> import dl4all as dl
    >>> [row["scores"].tolist() for row in rows({"scores": dl.tensor([[1.0], [2.0]])}, 2)]
    [[1.0], [2.0]]

    Raises:
        ArgumentError: it is something else, or a first axis is not that of the batch.
    """
    if isinstance(output, dict):
        parts = [rows(part, count) for part in output.values()]
        return [dict(zip(output, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(output, (tuple, list)):
        made = type(output)._make if hasattr(output, "_make") else type(output)
        return [made(row) for row in zip(*(rows(part, count) for part in output), strict=True)]
    if not isinstance(output, Tensor) or output.shape[:1] != (count,):
        got = f"shape {output.shape}" if isinstance(output, Tensor) else type(output).__name__
        raise ArgumentError(
            f"[InferenceQueue] expected outputs whose first axis is the batch of {count}, got {got}; have "
            "the model return a row for each input"
        )
    array, host = output.detach().numpy(), open_device("cpu")
    return [from_numpy(np.array(array[i]), host) for i in range(count)]
