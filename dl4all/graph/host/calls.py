"""The calls of NumPy that a graph of the CPU makes, with where their arrays lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import DeviceError
from dl4all.graph.ir.graph import Binding, BoundFill, Graph, HostCall
from dl4all.ops.core.kernels.host_work import ArrayView, BodyCall, HostWork, WorkKernel
from dl4all.scheduler.push_constants import VaryingFloat, VaryingInt

BYTE = np.dtype(np.uint8)


class ArrayAt(NamedTuple):
    """An array in a buffer; the view's offset counts from the start of the buffer."""

    buffer: int
    view: ArrayView

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte that the elements lie in, and the end."""
        shape, dtype, strides, offset = self.view
        if 0 in shape:
            return offset, offset
        ends = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low, high = (sum(end for end in ends if (end < 0) == below) for below in (True, False))
        return offset + low, offset + high + dtype.itemsize


@dataclass(frozen=True)
class PreparedCall:
    """``function(*arrays, *numbers)``, which writes some of the arrays."""

    name: str
    function: Callable[..., object]
    arrays: tuple[ArrayAt, ...]
    writes: tuple[bool, ...]
    numbers: tuple[Any, ...] = ()
    kernel: WorkKernel | None = None  # does the same, where there is a compiler

    @property
    def read(self) -> tuple[ArrayAt, ...]:
        return tuple(array for array, write in zip(self.arrays, self.writes, strict=True) if not write)

    @property
    def written(self) -> tuple[ArrayAt, ...]:
        return tuple(array for array, write in zip(self.arrays, self.writes, strict=True) if write)

    @property
    def varies(self) -> bool:
        """Whether a number is another one in each call of the graph."""
        numbers = list(self.numbers)
        if isinstance(self.function, BodyCall):
            numbers += [*self.function.operands, *self.function.arguments.values()]
        return any(isinstance(number, (VaryingInt, VaryingFloat)) for number in numbers)


def calls_of(graph: Graph) -> list[PreparedCall]:
    """The calls in order, those of the preamble first: nobody counts changes of the CPU's memory by NumPy.

    Raises:
        DeviceError: a command is none of the host.
    """
    return [
        call
        for node in (*graph.preamble, *graph.nodes)
        for command in node.commands
        for call in _calls(command)
    ]


def _calls(command: Any) -> Iterator[PreparedCall]:
    if isinstance(command, HostCall):
        work = command.run
        if isinstance(work, HostWork):
            arrays = tuple(
                ArrayAt(binding.buffer, view._replace(offset=view.offset + binding.offset))
                for binding, view in zip(command.bindings, work.views, strict=True)
            )
            yield PreparedCall(command.name, work.function, arrays, command.writes, work.numbers, work.kernel)
        else:
            yield PreparedCall(command.name, work, tuple(map(_bytes, command.bindings)), command.writes)
    elif isinstance(command, BoundFill):
        piece = _bytes(command.binding)
        words = ArrayView((command.binding.nbytes // 4,), np.dtype(np.uint32), (4,), piece.view.offset)
        fill = _Fill(command.word)
        yield PreparedCall("fill", fill, (ArrayAt(piece.buffer, words),), (True,))
    else:
        raise DeviceError(
            f"[compile] the CPU runs no {type(command).__name__}; the graph is another device's"
        )


def _bytes(binding: Binding) -> ArrayAt:
    return ArrayAt(binding.buffer, ArrayView((binding.nbytes,), BYTE, (1,), binding.offset))


@dataclass(frozen=True)
class _Fill:
    word: int

    def __call__(self, words: Any) -> None:
        words.fill(self.word)


def is_contiguous(view: ArrayView) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    step = view.dtype.itemsize
    for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size != 1 and stride != step:
            return 0 in view.shape
        step *= size
    return True
