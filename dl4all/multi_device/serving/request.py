"""Inputs of a model whose outputs are to come."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, InferenceTimeoutError, ShapeError
from dl4all.ops.core.dtypes import DTYPES
from dl4all.ops.indexing.concatenation import cat
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.streams.task import State, Task
from dl4all.tensor.creation import from_numpy, tensor
from dl4all.tensor.tensor import Tensor

Key: TypeAlias = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
"""Shape without the batch axis, and dtype, of each input. Requests of one key go into one batch."""

logger = logging.getLogger("dl4all")


class RequestQueue(Protocol):
    """The queue that a request waits in, as the request knows it."""

    def hasten(self, request: Request) -> None:
        """Somebody waits for it, on a virtual clock: no more requests will come before it is done."""

    def forget(self, request: Request) -> None:
        """It was cancelled while it waited."""


class Request(Task):
    """A pending request of :meth:`dl4all.InferenceQueue.submit` or ``submit_batch``: the output comes as
    :meth:`result`.

    Args:
        inputs: each with the batch axis in front.
        owner: the queue.
        single: the output comes without the batch axis.
        expires: seconds after which it fails with ``InferenceTimeoutError`` if no device has begun with it.

    Example:
        >>> import dl4all as dl
        >>> with dl.InferenceQueue(dl.nn.ReLU(), dl.DeviceGroup(["cpu"])) as queue:
        ...     request = queue.submit([-1.0, 2.0])
        ...     request.result(timeout=10).tolist()
        [0.0, 2.0]
    """

    __slots__ = ("_callbacks", "_owner", "deadline", "expires", "inputs", "key", "rows", "single")

    def __init__(
        self,
        inputs: tuple[npt.NDArray[Any], ...],
        owner: RequestQueue,
        on_virtual_clock: bool,
        single: bool = True,
        expires: float | None = None,
    ) -> None:
        super().__init__(_nothing, "request", on_virtual_clock=on_virtual_clock)
        self.inputs = inputs
        self.rows = len(inputs[0])
        self.single = single
        self.key: Key = tuple((array.shape[1:], array.dtype) for array in inputs)
        self._owner: RequestQueue | None = owner
        self.expires = expires
        self.deadline = math.inf  # when it is too late to begin with it, on its clock; the queue says so
        self._callbacks: list[Callable[[Request], Any]] = []

    def add_done_callback(self, function: Callable[[Request], Any]) -> None:
        """Call a function with this request when it is done, or now if it is.

        It is called once, in the thread that ends the request, and must return soon: a device's thread waits
        for it. An exception of it is logged.

        Example:
            >>> import dl4all as dl
            >>> with dl.InferenceQueue(dl.nn.ReLU(), dl.DeviceGroup(["cpu"])) as queue:
            ...     queue.submit([-1.0, 2.0]).add_done_callback(lambda request: print(request.state))
            finished
        """
        self._callbacks.append(function)
        if self.done():
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                function = self._callbacks.pop(0)
            except IndexError:  # another thread has called the last one
                return
            try:
                function(self)
            except Exception:
                logger.exception("a callback of %r failed", self)

    def expire(self) -> None:
        """It is too late, unless a device has begun with it."""
        if self._take():
            late = f"[InferenceQueue] no device began with a request within {self.expires} seconds"
            self.end("failed", InferenceTimeoutError(late))

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
        if self._callbacks:
            self._call_back()


class SplitRequest(Request):
    """A request of more rows than a batch has: done when its parts are, which wait in the queue.

    Args:
        parts: requests of the rows, in their order.
    """

    __slots__ = ("_open", "parts")

    def __init__(self, parts: Sequence[Request], owner: RequestQueue) -> None:
        first = parts[0]
        super().__init__(first.inputs, owner, on_virtual_clock=first.on_virtual_clock, single=False)
        self.rows = sum(part.rows for part in parts)
        self.submitted = first.submitted
        self.parts = parts
        self._open = list(parts)
        for part in parts:
            part.add_done_callback(self._part_ended)

    def _part_ended(self, part: Request) -> None:
        self._open.remove(part)
        if part.state == "failed":
            for other in self.parts:
                other.cancel()
        if self._open or not self._take():  # of those who end the last parts, one goes on
            return
        self.begun = min((part.begun for part in self.parts if part.begun >= 0), default=math.nan)
        failed = [part for part in self.parts if part.state == "failed"]
        if failed:
            self.end("failed", failed[0]._outcome[0])
        elif any(part.state == "cancelled" for part in self.parts):
            self.end("cancelled", None)
        else:
            self.end("finished", joined([part._outcome for part in self.parts]))

    def cancel(self) -> bool:
        """Take back what has not begun; returns whether nothing of it had."""
        for part in self.parts:
            part.cancel()
        return self.state == "cancelled"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for all parts."""
        for part in self.parts:
            if self.on_virtual_clock and part._owner is not None and part.state == "waiting":
                part._owner.hasten(part)
        return Task.wait(self, timeout)


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


def batch_rows(inputs: Sequence[npt.NDArray[Any]]) -> int:
    """The number of rows of one request's inputs.

    Raises:
        ShapeError: one has no batch axis, or another number of rows than the first; or there are no rows.
    """
    shapes = [array.shape for array in inputs]
    counts = {shape[:1] for shape in shapes}
    if len(counts) != 1 or counts <= {(), (0,)}:
        raise ShapeError(
            "[InferenceQueue] expected inputs with the same number of rows, at least 1, as first axis; got "
            f"the shapes {', '.join(map(str, shapes))}"
        )
    return shapes[0][0]


def rows(output: Any, requests: Sequence[Request]) -> list[Any]:
    """The output of a batch as one for each of its requests, on the CPU.

    Tuples, lists and dicts of tensors come apart as well. An output of a single input has memory of its own;
    those of several rows are parts of the batch's.

    Raises:
        ArgumentError: it is something else, or a first axis is not that of the batch.
    """
    if isinstance(output, dict) and output:
        parts = [rows(part, requests) for part in output.values()]
        return [dict(zip(output, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(output, (tuple, list)) and output:
        made = _maker(output)
        return [made(row) for row in zip(*(rows(part, requests) for part in output), strict=True)]
    count = sum(request.rows for request in requests)
    if not isinstance(output, Tensor) or output.shape[:1] != (count,):
        got = f"shape {output.shape}" if isinstance(output, Tensor) else type(output).__name__
        raise ArgumentError(
            f"[InferenceQueue] expected outputs whose first axis is the batch of {count}, got {got}; have "
            "the model return a row for each input"
        )
    array, host, begin = output.detach().numpy(), open_device("cpu"), 0
    if all(request.single for request in requests):  # the usual case, and the quicker way
        return [from_numpy(np.array(row), host) for row in array]
    outputs = []
    for request in requests:
        own = np.array(array[begin]) if request.single else array[begin : begin + request.rows]
        outputs.append(from_numpy(own, host))
        begin += request.rows
    return outputs


def joined(outputs: Sequence[Any]) -> Any:
    """The outputs of several batches as that of one.

    >>> import dl4all as dl
    >>> joined([{"scores": dl.ones(2, 3)}, {"scores": dl.ones(1, 3)}])["scores"].shape
    (3, 3)
    """
    first = outputs[0]
    if isinstance(first, dict):
        return {key: joined([output[key] for output in outputs]) for key in first}
    if isinstance(first, (tuple, list)):
        return _maker(first)(joined(parts) for parts in zip(*outputs, strict=True))
    return cat(outputs)


def _maker(value: tuple[Any, ...] | list[Any]) -> Callable[[Any], Any]:
    """A function that makes a value of this type of its parts."""
    made: Callable[[Any], Any] = value._make if hasattr(value, "_make") else type(value)
    return made
