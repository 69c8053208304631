"""Nodes that passes make of ops: the commands that an op would give for operands that have no memory yet.

The op is computed with stand-ins for tensors, whose storages have a size and nothing else, while a capture
notes what the device is asked for and keeps it from being done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dl4all.allocator.allocation import aligned
from dl4all.allocator.storage import Storage
from dl4all.graph.ir.graph import (
    Argument,
    Binding,
    BoundFill,
    BoundLaunch,
    Command,
    Graph,
    GraphBuffer,
    HostCall,
    Node,
    Operand,
    Shape,
    Value,
)
from dl4all.ops.core import tape
from dl4all.ops.core.op import REGISTRY, Op
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.memory.copy import copy_into
from dl4all.runtime.protocols import Span
from dl4all.scheduler import listeners
from dl4all.scheduler.device.current import device as device_called
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.scheduler.listeners.capture import Capture, lock
from dl4all.scheduler.push_constants import Again, Mark
from dl4all.tensor.tensor import Tensor


class CannotRecapture(Exception):
    """An op's commands cannot be found without its operands' contents, or not for new memory."""


class Draft:
    """The buffers of a graph that is being made of another one, and what makes nodes for it.

    A pass makes one for each graph that it is given. New buffers have numbers behind the others.

    >>> import dl4all as dl
    >>> from dl4all.graph.ir.graph import GraphBuffer, Graph, Operand, Value
    >>> draft = Draft(Graph("cpu", {0: GraphBuffer(0, 8, "input")}, ()))
    >>> x = Operand(Value(0, 0), (2,), "float32", (1,))
    >>> draft.node("mul", (x, x)).result
    Operand(value=Value(buffer=1, version=1), shape=(2,), dtype='float32', strides=(1,), offset=0)
    """

    def __init__(self, graph: Graph) -> None:
        self.device = device_called(graph.device)
        self.buffers = dict(graph.buffers)
        self._next = max(self.buffers, default=-1) + 1

    def buffer(self, nbytes: int, name: str = "") -> GraphBuffer:
        """A new temporary."""
        made = self.buffers[self._next] = GraphBuffer(self._next, nbytes, "temporary", name)
        self._next += 1
        return made

    def node(
        self,
        op: str,
        operands: Sequence[Argument],
        arguments: Mapping[str, Any] | None = None,
        result: Operand | None = None,
        line: str = "",
    ) -> Node:
        """A node that computes an op.

        Args:
            op: its name.
            operands: as in :class:`~dl4all.graph.ir.graph.Node`, one for each of ``Op.arrays``.
            arguments: the others of its arguments; those left out have their defaults.
            result: where to write it: a contiguous whole buffer, by default a new temporary.
            line: of the caller, for readers.

        Raises:
            CannotRecapture: the op moves something between host and device, or draws random numbers.
            ShapeError, DTypeError, ArgumentError: the op does not take these operands.
        """
        declared = REGISTRY[op]
        bound = {**declared._defaults, **(arguments or {})}
        storages: dict[int, Storage] = {}
        tensors = [self._stand_in(operand, storages) for operand in operands]
        shape, dtype = declared.infer(*tensors, **bound)
        if result is None:
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            value = Value(self.buffer(nbytes, op).number, 1)
            result = Operand(value, shape, dtype.name, contiguous_strides(shape))
        if (result.shape, result.dtype, result.offset) != (shape, dtype.name, 0):
            raise CannotRecapture(f"{op} gives {dtype} {shape}, not {result}")
        commands, inner = self._commands(declared, tensors, bound, storages, result)
        reads = dict.fromkeys(operand.value for operand in operands if isinstance(operand, Operand))
        writes = (result.value, *(Value(buffer.number, 1) for buffer in inner))
        named = tuple(bound.items())
        return Node(op, op, tuple(operands), named, result, tuple(reads), writes, commands, line=line)

    def copies(self, pairs: Iterable[tuple[Operand, Operand]]) -> tuple[Command, ...]:
        """The commands that copy the elements of operands into the places of others.

        Args:
            pairs: a target and a source each, of one shape and dtype, in different buffers.

        Raises:
            CannotRecapture: a copy goes by way of the host, or needs memory of its own.
        """
        storages: dict[int, Storage] = {}
        log = _Log(self.device)
        with log.listening():
            for target, source in pairs:
                copy_into(self._stand_in(target, storages), self._stand_in(source, storages))
        if log.allocations:
            raise CannotRecapture("copies need memory of their own")
        numbers = {id(storage): number for number, storage in storages.items()}
        return tuple(make([numbers[id(storage)] for storage in used]) for make, used in log.commands)

    def _stand_in(self, operand: Argument, storages: dict[int, Storage]) -> Any:
        """A tensor without memory in place of an operand; those of one buffer share a storage."""
        if not isinstance(operand, Operand):
            return operand
        number = operand.value.buffer
        if number not in storages:
            storages[number] = _stand_in_storage(self.buffers[number].nbytes)
        dtype, strides = np.dtype(operand.dtype), operand.strides
        return Tensor(storages[number], operand.shape, dtype, self.device, strides, operand.offset)

    def _commands(
        self,
        op: Op[...],
        tensors: Sequence[Any],
        arguments: dict[str, Any],
        storages: Mapping[int, Storage],
        result: Operand,
    ) -> tuple[tuple[Command, ...], list[GraphBuffer]]:
        """The op's commands on its device, and the temporaries that they use."""
        log = _Log(self.device)
        with log.listening():
            out = op.compute(list(tensors), arguments)
        numbers = {id(storage): number for number, storage in storages.items()}
        numbers[id(out.storage)] = result.value.buffer
        inner = []
        for storage in log.allocations:
            if id(storage) not in numbers and any(storage in used for _, used in log.commands):
                inner.append(self.buffer(storage.nbytes, op.name))
                numbers[id(storage)] = inner[-1].number
        if not all(id(storage) in numbers for _, used in log.commands for storage in used):
            raise CannotRecapture(f"{op.name} uses memory that is neither its operands' nor new")
        return tuple(make([numbers[id(storage)] for storage in used]) for make, used in log.commands), inner


class _Log(Capture):
    """A capture that notes the commands of one device and thread, and has none of them run."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.allocations: list[Storage] = []
        # What makes each command of the numbers of its buffers, and their storages.
        self.commands: list[tuple[Callable[[list[int]], Command], tuple[Storage, ...]]] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Within the ``with`` block it notes what this thread asks of the device."""
        with lock, tape.gradients(False), listeners.suspended(), listeners.listening(self):
            yield

    def allocating(self, device: Device, nbytes: int, tag: str) -> Storage | None:
        if device is not self.device:
            return None
        if tag == "upload":  # contents of the host follow, and there is nothing to copy them to
            self.refused("uploads from the host")
        self.allocations.append(_stand_in_storage(nbytes))
        return self.allocations[-1]

    def launching(
        self, device: Device, launch: Launch, writes: Sequence[bool], storages: Sequence[Storage]
    ) -> bool:
        if device is not self.device:
            return False
        sizes = [storage.span.nbytes for storage in storages]

        def make(numbers: list[int]) -> Command:
            bindings = (Binding(n, 0, nbytes) for n, nbytes in zip(numbers, sizes, strict=True))
            return BoundLaunch(launch, tuple(bindings), tuple(writes))

        self.commands.append((make, tuple(storages)))
        return True

    def filling(self, device: Device, storage: Storage, word: int, first: int, count: int) -> bool:
        if device is not self.device:
            return False
        self.commands.append(
            (lambda numbers: BoundFill(Binding(numbers[0], 4 * first, 4 * count), word), (storage,))
        )
        return True

    def host_call(
        self,
        device: Device,
        name: str,
        work: Callable[..., None],
        marks: Sequence[Mark],
        pieces: Sequence[tuple[Storage, int, int]],
        writes: Sequence[bool],
    ) -> bool:
        if device is not self.device:
            return False
        ranges = [(start, nbytes) for _, start, nbytes in pieces]

        def make(numbers: list[int]) -> Command:
            bindings = (Binding(n, *piece) for n, piece in zip(numbers, ranges, strict=True))
            return HostCall(name, work, tuple(bindings), tuple(writes))

        self.commands.append((make, tuple(storage for storage, _, _ in pieces)))
        return True

    def read(self, device: Device) -> None:
        if device is self.device:
            self.refused("reads elements of a tensor on the host")

    def refused(self, what: str) -> None:
        raise CannotRecapture(what)

    def vary(self, name: str, numbers: Sequence[int | float], again: Again) -> list[Any]:
        self.refused("takes numbers that are others in each call")
        return list(numbers)

    def depends(self, holds: Callable[[], bool]) -> None:
        self.refused("depends on a state")

    def index_check(self, number: int) -> int:
        self.refused("checks indices")
        return number


def _stand_in_storage(nbytes: int) -> Storage:
    return Storage(Span(None, 0, aligned(nbytes, 4)), nbytes)


def shaped(operand: Operand, shape: Shape) -> Operand:
    """A contiguous operand's elements in another shape."""
    return replace(operand, shape=shape, strides=contiguous_strides(shape))
