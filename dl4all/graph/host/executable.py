"""A graph of the CPU made ready: memory planned, kernels given their addresses, bodies called unchecked.

What a kernel or a function writes into memory that it is given lies in one arena, planned by lifetimes. The
result of a body that makes its own array is not copied there: the array is the buffer's memory until its last
use. Inputs and results are other memory in each call; only the arrays that lie in it are made anew.
"""

from __future__ import annotations

import contextlib
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.allocator.planner import Lifetime, MemoryPlan, plan
from dl4all.allocator.storage import Storage
from dl4all.graph.host.blocks import Blocks
from dl4all.graph.host.calls import ArrayAt, PreparedCall, calls_of, is_contiguous
from dl4all.graph.host.fusion import fused
from dl4all.graph.host.launches import KernelCall, launched
from dl4all.graph.host.out_functions import body_function, out_function
from dl4all.graph.ir.graph import Graph
from dl4all.graph.run.executable import GiveNumbers, Numbers
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.ops.core.kernels.host_work import BodyCall
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.push_constants import MASK, VaryingFloat, VaryingInt

Bytes = npt.NDArray[np.uint8]
ALIGNMENT = 64  # of arrays: a line of the cache
SCRATCH = -1  # no buffer: what kernels use while they run lies where it is


class HostExecutable:
    """Runs a graph of the CPU.

    Args:
        graph: all of its commands are the host's.
        device: the CPU.
        memory: the storages of captured and constant buffers, by number; of others it is not used.

    Raises:
        DeviceError: the graph has commands that only other devices run.
        OutOfMemoryError: the arena does not fit.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        memory: Mapping[int, Storage],
    ) -> None:
        self.graph = graph
        self.device = device
        fixed = [
            n for n in memory if n in graph.buffers and graph.buffers[n].kind in ("captured", "constant")
        ]
        self._storages = {number: memory[number] for number in fixed}
        for number, data in graph.contents.items():
            self._storages[number] = device.memory.adopt(np.frombuffer(data, np.uint8).copy(), "compiled")
        graph, calls = fused(graph, calls_of(graph))
        self.graph = graph
        self.calls = [_into_memory(launched(call)) for call in calls]
        self.changed_outside = tuple(
            number
            for number in sorted({array.buffer for call in self.calls for array in call.written})
            if graph.buffers[number].kind == "captured"
        )
        written = {array.buffer for call in self.calls for array in call.written}
        read = {array.buffer for call in self.calls for array in call.read} - written
        self.reads_outside = tuple(memory[n] for n in sorted(read) if graph.buffers[n].kind == "captured")
        self._changes_inputs = tuple(i for i, n in enumerate(graph.inputs) if n in written)
        self.results = tuple(
            number for number, buffer in sorted(graph.buffers.items()) if buffer.kind in ("output", "state")
        )
        self._floating = _floating(graph, self.calls)
        self._slots: list[Any] = []  # the arrays of all calls, each once
        self._numbers: Numbers = {}
        self._memory: dict[int, Bytes] = {}  # of buffers that are other memory in each call
        self._places: dict[ArrayAt, int] = {}
        self._arrays: dict[int, list[tuple[int, ArrayAt]]] = defaultdict(list)  # slots by buffer
        self._addresses = {SCRATCH: 0}  # of buffers, for compiled kernels
        self._used = {array.buffer for call in self.calls for array in call.arrays}
        self._by_address = {a.buffer for call in self.calls if _is_kernel(call) for a in call.arrays}
        for call in self.calls:
            for array in () if _is_kernel(call) else call.arrays:
                if array not in self._places:
                    self._places[array] = len(self._slots)
                    self._arrays[array.buffer].append((len(self._slots), array))
                    self._slots.append(None)
        self.plan = self._place_arrays()
        self._steps = self._make_steps()
        self._warns = not all(map(_is_kernel, self.calls))  # NumPy says what overflows

    @property
    def dispatches(self) -> int:
        """The number of functions that a call runs."""
        return len(self.calls)

    def __call__(self, inputs: Sequence[Storage], numbers: GiveNumbers) -> dict[int, Storage]:
        """Run it.

        Args:
            inputs: the memory of the input buffers, in their order.
            numbers: gives the varying numbers of this call.

        Returns:
            The memory of results and state, by number of their buffer.
        """
        made: dict[int, Storage] = {}
        for number, storage in zip(self.graph.inputs, inputs, strict=True):
            if number in self._used:  # what no call uses may lie on another device
                storage.settle()
                self._bind(number, storage)
        for number in self.results:
            if number not in self._floating:
                made[number] = self.device.allocate(self.graph.buffers[number].nbytes, "compiled")
                self._bind(number, made[number])
        self._numbers = numbers()
        counters = self.device.counters
        counters.host_kernels += 1
        try:
            with np.errstate(all="ignore") if self._warns else contextlib.nullcontext():
                for step in self._steps:
                    step()
            for number in self.results:
                if number in self._floating:
                    made[number] = self.device.memory.adopt(self._memory[number], "compiled")
        finally:
            counters.host_finished += 1
            self._release((*self.graph.inputs, *self.results, *self._floating))
        for number in self.changed_outside:
            self._storages[number].version += 1
        for position in self._changes_inputs:
            inputs[position].version += 1
        return made

    # Memory

    def _place_arrays(self) -> MemoryPlan:
        """Plan the arena, and make the arrays that stay where they are."""
        spans: dict[int, tuple[int, int]] = {}
        for position, call in enumerate(self.calls):
            for array in call.arrays:
                first, _ = spans.get(array.buffer, (position, 0))
                spans[array.buffer] = first, position
        buffers = self.graph.buffers
        numbers = [
            n for n in spans if buffers[n].kind in ("temporary", "derived") and n not in self._floating
        ]
        scratch = {
            position: call.function.launch.scratch
            for position, call in enumerate(self.calls)
            if isinstance(call.function, KernelCall) and call.function.launch.scratch
        }
        lifetimes = [Lifetime(max(buffers[n].nbytes, 1), *spans[n]) for n in numbers]
        lifetimes += [Lifetime(nbytes, position, position) for position, nbytes in scratch.items()]
        made = plan(lifetimes, ALIGNMENT)
        self._blocks = [self.device.allocate(nbytes + ALIGNMENT, "arena") for nbytes in made.buffers]
        blocks = [_aligned(_memory_of(block)) for block in self._blocks]
        memory = {number: _memory_of(storage) for number, storage in self._storages.items()}
        places = [blocks[place.buffer][place.offset :] for place in made.places]
        memory |= dict(zip(numbers, places[: len(numbers)], strict=True))
        self._scratch = {  # addresses by the positions of calls
            position: place.ctypes.data
            for position, place in zip(scratch, places[len(numbers) :], strict=True)
        }
        for number, fixed in memory.items():
            self._addresses[number] = fixed.ctypes.data
            for slot, array in self._arrays[number]:
                self._slots[slot] = array.view.of(fixed)
        self._fixed = frozenset(memory)
        self._last_uses = {number: last for number, (_, last) in spans.items() if number in self._floating}
        return made

    def _bind(self, number: int, storage: Storage) -> None:
        """Let a buffer be this memory for the present call."""
        self._addresses[number] = storage.address
        arrays = self._arrays[number]
        if arrays:
            memory = self._memory[number] = _memory_of(storage)
            for slot, array in arrays:
                self._slots[slot] = array.view.of(memory)

    def _release(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._memory.pop(number, None)
            for slot, _ in self._arrays[number]:
                self._slots[slot] = None

    # Steps

    def _make_steps(self) -> list[Callable[[], object]]:
        steps: list[Callable[[], object]] = []
        ends: dict[int, list[int]] = defaultdict(list)
        for number, last in self._last_uses.items():
            if number not in self.results:
                ends[last].append(number)
        started: set[int] = set()
        for position, call in enumerate(self.calls):
            target = call.arrays[-1].buffer if call.arrays else -1
            if isinstance(call.function, KernelCall):
                steps.append(self._kernel_step(call, call.function.launch, position))
            elif target in self._floating and target not in started:
                started.add(target)
                steps.append(self._floating_step(call))
            else:
                steps.append(self._step(call))
            if position in ends:
                numbers = tuple(ends[position])
                steps.append(lambda numbers=numbers: self._release(numbers))  # type: ignore[misc]
        return steps

    def _kernel_step(self, call: PreparedCall, launch: HostLaunch, position: int) -> Callable[[], object]:
        """A launch of a compiled kernel."""
        addresses = self._addresses
        places = [(array.buffer, array.view.offset) for array in call.arrays]
        if launch.scratch:
            places.append((SCRATCH, self._scratch[position]))
        numbers = call.numbers
        if call.varies:
            return lambda: launch.run(
                [addresses[buffer] + offset for buffer, offset in places],
                [self._number(number) for number in numbers],
            )
        if all(array.buffer in self._fixed for array in call.arrays):
            return launch.bound([addresses[buffer] + offset for buffer, offset in places], numbers)
        return lambda: launch.run([addresses[buffer] + offset for buffer, offset in places], numbers)

    def _step(self, call: PreparedCall) -> Callable[[], object]:
        """A call that writes into memory that is there."""
        places = [self._places[array] for array in call.arrays]
        function, slots = call.function, self._slots
        if call.varies:
            return lambda: self._with_numbers(call)(*(slots[place] for place in places))
        numbers = call.numbers
        if all(array.buffer in self._fixed for array in call.arrays):
            arrays = tuple(slots[place] for place in places)
            if isinstance(function, Blocks):
                return function.bound(arrays)
            return lambda: function(*arrays, *numbers)
        if len(places) == 1:
            [place] = places
            return lambda: function(slots[place], *numbers)
        get = operator.itemgetter(*places)
        return lambda: function(*get(slots), *numbers)

    def _floating_step(self, call: PreparedCall) -> Callable[[], object]:
        """A call of a body whose result is the memory of a buffer."""
        body = call.function
        assert isinstance(body, BodyCall)
        *operands, target = call.arrays
        places = [self._places[array] for array in operands]
        slots, number, dtype = self._slots, target.buffer, target.view.dtype
        same = [slot for slot, array in self._arrays[number] if array == target]
        others = [(slot, array.view) for slot, array in self._arrays[number] if array != target]
        is_result, by_address = number in self.results, number in self._by_address
        function = None if call.varies else body_function(body, [array.view.dtype for array in operands])

        def step() -> None:
            arrays = [slots[place] for place in places]
            if function is not None:
                result = np.asarray(function(*arrays), dtype)
            else:
                now = self._body_now(body)
                result = np.asarray(now.result(arrays, now.arguments), dtype)
            # It may be a view of an operand, whose memory is its own.
            if (
                not result.flags.c_contiguous
                or any(result is a for a in arrays)
                or (result.base is not None and any(np.may_share_memory(a, result) for a in arrays))
            ):
                result = np.array(result, order="C")
            for slot in same:
                slots[slot] = result
            if by_address:
                self._addresses[number] = result.ctypes.data
            if others or is_result:
                memory = self._memory[number] = result.reshape(-1).view(np.uint8)
                for slot, view in others:
                    slots[slot] = view.of(memory)

        return step

    def _with_numbers(self, call: PreparedCall) -> Callable[..., object]:
        """The function of a call, with the varying numbers of now."""
        body = call.function
        if isinstance(body, BodyCall):
            return self._body_now(body)
        numbers = [self._number(number) for number in call.numbers]
        return lambda *arrays: body(*arrays, *numbers)

    def _body_now(self, body: BodyCall) -> BodyCall:
        operands = tuple(self._number(value) for value in body.operands)
        arguments = {name: self._number(value) for name, value in body.arguments.items()}
        return BodyCall(body.name, body.body, operands, arguments, body.deferred)

    def _number(self, value: Any) -> Any:
        """A number as it is in the present call, if it varies."""
        if not isinstance(value, (VaryingInt, VaryingFloat)):
            return value
        source, position, half = value.mark
        number = self._numbers[source][position]
        if half < 0:
            return number
        return int(number) >> 32 if half else int(number) & MASK


def _is_kernel(call: PreparedCall) -> bool:
    return isinstance(call.function, KernelCall)


def _into_memory(call: PreparedCall) -> PreparedCall:
    """A call whose function writes into its last array by itself, where there is such a function."""
    function = None if call.varies or _is_kernel(call) else out_function(call)
    return call if function is None else replace(call, function=function)


def _floating(graph: Graph, calls: Sequence[PreparedCall]) -> frozenset[int]:
    """Buffers whose memory is the array that a body returns: it is written whole, before anything else."""
    found, seen = set[int](), set[int]()
    for call in calls:
        if isinstance(call.function, BodyCall):
            buffer, view = call.arrays[-1]
            kind, nbytes = graph.buffers[buffer].kind, graph.buffers[buffer].nbytes
            whole = view.offset == 0 and is_contiguous(view) and 0 not in view.shape
            size = int(np.prod(view.shape, dtype=np.int64)) * view.dtype.itemsize
            if (
                kind in ("temporary", "derived", "output", "state")
                and buffer not in seen
                and whole
                and size == nbytes
            ):
                found.add(buffer)
        seen.update(array.buffer for array in call.arrays)
    return frozenset(found)


def _memory_of(storage: Storage) -> Bytes:
    memory: Bytes = storage.buffer.data[storage.span.offset :]
    return memory


def _aligned(memory: Bytes) -> Bytes:
    return memory[-memory.ctypes.data % ALIGNMENT :]
