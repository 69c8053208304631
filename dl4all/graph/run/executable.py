"""A graph made ready for a device: memory planned, commands prepared, recorded, and replayed.

Temporaries lie in one arena, planned by their lifetimes. Inputs, results and state are other memory in each
call: commands that bind such a region are replaced where it has moved since the call before, and so are those
with varying push constants. Where the backend replays, all commands between two calls of the host are one
submission; elsewhere the same commands run one by one.
"""

from __future__ import annotations

import math
import weakref
from collections import ChainMap, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dl4all.allocator.allocation import aligned
from dl4all.allocator.planner import Arena, Lifetime
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.best_fit import GRAIN
from dl4all.graph.ir.graph import (
    Binding,
    BoundFill,
    BoundLaunch,
    Graph,
    HostCall,
    MultiTensorLaunch,
    Node,
    VaryingWord,
    buffers_of,
    shaders_of,
)
from dl4all.graph.run.multi_tensor_launches import ROW_BYTES, expand
from dl4all.ops.core.kernels.launch import pack, strided_grid
from dl4all.ops.core.kernels.multi_tensor import MultiTensor
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime import spirv
from dl4all.runtime.kompute.copies import FILL
from dl4all.runtime.protocols import Dispatch, Recording, Span
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.scheduler.push_constants import word_of
from dl4all.tensor.tensor import Tensor

STATE = "state"
"""The region of all state buffers: they lie in one block."""

FILL_WORKGROUP = 128
WORD = np.dtype(np.float32)

Numbers = Mapping[int, Sequence[int | float]]
"""The varying numbers of a call, by source."""

GiveNumbers = Callable[[], Numbers]
"""Takes the host's part of a call, and gives its varying numbers; called when there is memory for it."""


class _Template(NamedTuple):
    """The parts of a command that change per call."""

    moving: tuple[tuple[int, Hashable, int], ...]  # position of a span, its region, its offset in that
    varying: tuple[VaryingWord, ...]


class _CommandSequence:
    """Commands without a call of the host in between, which are recorded together.

    Args:
        device: runs them.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.commands: list[Dispatch] = []
        self._templates: dict[int, _Template] = {}
        self._users: dict[Hashable, list[int]] = defaultdict(list)  # positions of commands by region
        self._spans: dict[Hashable, Span] = {}  # of the regions, as the commands have them
        self.recording: Recording | None = None

    def add(
        self, command: Dispatch, varying: tuple[VaryingWord, ...], regions: Mapping[Hashable, Storage]
    ) -> None:
        position = len(self.commands)
        self.commands.append(command)
        moving = []
        for place, span in enumerate(command.spans):
            for key, storage in regions.items():
                whole = storage.span
                if span.buffer is whole.buffer and 0 <= span.offset - whole.offset < max(whole.nbytes, 1):
                    moving.append((place, key, span.offset - whole.offset))
                    self._users[key].append(position)
                    self._spans[key] = whole
                    break
        if moving or varying:
            self._templates[position] = _Template(tuple(moving), varying)

    def record(self) -> None:
        """Record the commands, where the backend replays."""
        if self._device.replays:
            self.recording = self._device.recordings.record(self.commands, self._templates)
            weakref.finalize(self, self._device.recordings.retire, self.recording).atexit = False

    def replay(self, regions: Mapping[Hashable, Storage], numbers: Numbers) -> None:
        """Run the commands, on the memory and with the numbers of this call."""
        changed = {position for position, template in self._templates.items() if template.varying}
        for key, span in self._spans.items():
            if span != regions[key].span:
                changed.update(self._users[key])
        self._spans = {key: regions[key].span for key in self._spans}
        changes = {position: self._command(position, numbers) for position in sorted(changed)}
        if self.recording is not None:
            self._device.recordings.replay(self.recording, changes)
        else:
            self._device.recordings.run_commands(self.commands)

    def _command(self, position: int, numbers: Numbers) -> Dispatch:
        """A command for the memory and the numbers of this call."""
        template, command = self._templates[position], self.commands[position]
        spans, push = list(command.spans), command.push
        for place, key, offset in template.moving:
            whole = self._spans[key]
            spans[place] = Span(whole.buffer, whole.offset + offset, spans[place].nbytes)
        if template.varying:
            words = bytearray(push)
            for offset, source, number, half in template.varying:
                words[offset : offset + 4] = word_of(numbers[source][number], half)
            push = bytes(words)
        made = self.commands[position] = command._replace(spans=spans, push=push)
        return made


def lifetimes(graph: Graph, nodes: Sequence[Node]) -> dict[int, Lifetime]:
    """When each temporary buffer is needed, in numbers of nodes."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, node in enumerate(nodes):
        for number in buffers_of(node):
            if graph.buffers[number].kind == "temporary":
                first.setdefault(number, position)
                last[number] = position
    return {
        number: Lifetime(max(graph.buffers[number].nbytes, 4), first[number], last[number])
        for number in first
    }


class Executable:
    """Runs a graph.

    Args:
        graph: of a device that runs programs.
        device: the device.
        memory: the storages of captured and constant buffers, by number.

    Raises:
        OutOfMemoryError: the arena does not fit.
    """

    def __init__(self, graph: Graph, device: Device, memory: Mapping[int, Storage]) -> None:
        self.graph = graph
        self.device = device
        self._memory = dict(memory)
        for number, data in graph.contents.items():
            self._memory[number] = device.upload(np.frombuffer(data, np.uint8))
        for number, buffer in graph.buffers.items():
            if buffer.kind == "derived":
                self._memory[number] = device.allocate(buffer.nbytes, "compiled")
        spirv.load_all(shaders_of(graph))
        self.arena = self._plan(graph.nodes)
        self._derived_from = tuple(
            self._memory[number]
            for number in sorted({value.buffer for node in graph.preamble for value in node.reads})
            if graph.buffers[number].kind == "captured"
        )
        self._derived_at: tuple[int, ...] | None = None  # versions that the preamble has seen
        written = sorted({value.buffer for node in graph.nodes for value in node.writes})
        self._changes_outside = tuple(memory[n] for n in written if graph.buffers[n].kind == "captured")
        read = {value.buffer for node in graph.nodes for value in node.reads} - set(written)
        self.reads_outside = tuple(memory[n] for n in sorted(read) if graph.buffers[n].kind == "captured")
        self._changes_inputs = tuple(i for i, n in enumerate(graph.inputs) if n in written)
        self._outputs = tuple(sorted(n for n, b in graph.buffers.items() if b.kind == "output"))
        self._layout, self._state_bytes = _block(graph, device)
        self._plans = MultiTensor()
        self._steps: list[_CommandSequence | HostCall] = []

    def _plan(self, nodes: Sequence[Node]) -> Arena | None:
        needed = lifetimes(self.graph, nodes)
        if not needed:
            return None
        arena = self.device.memory.arena(needed.values())
        for index, number in enumerate(needed):
            self._memory[number] = arena.storage(index)
        return arena

    @property
    def dispatches(self) -> int:
        """The number of dispatches of a call."""
        return sum(len(step.commands) for step in self._steps if isinstance(step, _CommandSequence))

    @property
    def recordings(self) -> list[Recording]:
        """The recordings of a call, in order; none before the first one, or where the backend has none."""
        found = (step.recording for step in self._steps if isinstance(step, _CommandSequence))
        return [recording for recording in found if recording is not None]

    def __call__(self, inputs: Sequence[Storage], numbers: GiveNumbers) -> dict[int, Storage]:
        """Run it.

        Args:
            inputs: the memory of the input buffers, in their order.
            numbers: gives the varying numbers of this call.

        Returns:
            The memory of results and state, by number of their buffer.

        Raises:
            OutOfMemoryError
        """
        for storage in inputs:
            if storage.pending is not None:
                storage.settle()
        self._run_preamble()
        made = {n: self.device.allocate(self.graph.buffers[n].nbytes, "compiled") for n in self._outputs}
        regions: dict[Hashable, Storage] = dict(zip(self.graph.inputs, inputs, strict=True))
        regions.update(made.items())
        if self._state_bytes:
            block = self.device.allocate(self._state_bytes, "compiled")
            regions[STATE] = block
            made.update(
                (n, _inside(block, offset, self.graph.buffers[n].nbytes)) for n, offset in self._layout
            )
        else:
            for number, _ in self._layout:
                made[number] = regions[number] = self.device.allocate(
                    self.graph.buffers[number].nbytes, "compiled"
                )
        memory = ChainMap[Any, Storage](made, regions, self._memory)
        if not self._steps:
            self._prepare(regions, memory)
        self._replay(regions, memory, numbers())
        for storage in self._changes_outside:
            storage.version += 1
        for position in self._changes_inputs:
            inputs[position].version += 1
        return made

    # Once

    def _prepare(self, regions: Mapping[Hashable, Storage], memory: Mapping[int, Storage]) -> None:
        """Make the commands for the memory of the first call, and record them."""
        steps = list[_CommandSequence | HostCall]()
        for node in self.graph.nodes:
            for command in node.commands:
                if isinstance(command, HostCall):
                    steps.append(command)
                    continue
                last = steps[-1] if steps else None
                if not isinstance(last, _CommandSequence):
                    steps.append(last := _CommandSequence(self.device))
                for dispatch, varying in self._dispatches(command, memory):
                    last.add(dispatch, varying, regions)
        for step in steps:
            if isinstance(step, _CommandSequence):
                step.record()
        self._steps = steps

    def _dispatches(
        self, command: Any, memory: Mapping[int, Storage]
    ) -> Iterator[tuple[Dispatch, tuple[VaryingWord, ...]]]:
        prepare = self.device.prepare
        if isinstance(command, BoundFill):
            number, offset, nbytes = command.binding  # which may begin where the device cannot bind
            words = nbytes // 4
            grid = strided_grid(words, FILL_WORKGROUP, self.device)
            yield prepare(Launch(FILL, grid, pack(words, offset // 4, command.word)), memory[number]), ()
        elif isinstance(command, MultiTensorLaunch):
            varying = tuple(word._replace(offset=word.offset + ROW_BYTES) for word in command.varying)

            def tensor_of(binding: Binding) -> TensorBase:
                storage, offset = memory[binding.buffer], binding.offset // 4
                return TensorBase(storage, (binding.nbytes // 4,), WORD, self.device, None, offset)

            for launch, storages in expand(command, tensor_of, self.device, self._plans):
                yield prepare(launch, *storages), varying
        else:
            assert isinstance(command, BoundLaunch)
            yield prepare(command.launch, *(_piece(memory, b) for b in command.bindings)), command.varying

    def _run_preamble(self) -> None:
        """Compute what follows from captured memory, unless that is as it was."""
        if not self.graph.preamble:
            return
        versions = tuple(storage.version for storage in self._derived_from)
        if versions == self._derived_at and not any(storage.shown for storage in self._derived_from):
            return
        once = replace(self.graph, nodes=self.graph.preamble, preamble=())
        arena = self._plan(once.nodes)
        del arena  # its storages keep it, until the next plan
        for node in once.nodes:
            for command in node.commands:
                self.device.recordings.run_commands(
                    [made for made, _ in self._dispatches(command, self._memory)]
                )
        self._derived_at = versions

    # Each call

    def _replay(
        self, regions: Mapping[Hashable, Storage], memory: Mapping[int, Storage], numbers: Numbers
    ) -> None:
        for step in self._steps:
            if isinstance(step, HostCall):
                self._call(step, memory)
            else:
                step.replay(regions, numbers)

    def _call(self, call: HostCall, memory: Mapping[int, Storage]) -> None:
        """Let the host do its work on tensors in the memory of this call."""
        work: Any = call.run  # HostWork of TensorWork
        tensors, first = list[Tensor](), work.function.seen
        for binding, view in zip(call.bindings[first:], work.views[first:], strict=True):
            size = view.dtype.itemsize
            strides = tuple(stride // size for stride in view.strides)
            offset = (binding.offset + view.offset) // size
            tensors.append(
                Tensor(memory[binding.buffer], view.shape, view.dtype, self.device, strides, offset)
            )
        work.function.function(*tensors)


def _block(graph: Graph, device: Device) -> tuple[tuple[tuple[int, int], ...], int]:
    """Offsets of the state buffers in one block, and its size; 0 where each is memory of its own."""
    numbers = sorted(n for n, buffer in graph.buffers.items() if buffer.kind == "state")
    alignment = max(device.alignment, GRAIN)
    offsets, end = list[tuple[int, int]](), 0
    for number in numbers:
        offsets.append((number, end))
        end += aligned(max(graph.buffers[number].nbytes, 4), alignment)
    limits = device.info.limits
    fits = end <= min(limits.allocation_size, limits.storage_buffer_range)
    return tuple(offsets), end if device.alignment and fits and len(numbers) > 1 else 0


def _inside(block: Storage, offset: int, nbytes: int) -> Storage:
    """A storage of a piece of a block, which lives as long as one of its pieces."""
    span = Span(block.buffer, block.span.offset + offset, aligned(max(nbytes, 4), 4))
    return Storage(span, nbytes, block.allocation, block)


def _piece(memory: Mapping[int, Storage], binding: Binding) -> Storage:
    """A storage of what a command binds."""
    storage = memory[binding.buffer]
    span = storage.span
    if not binding.offset and binding.nbytes >= span.nbytes:
        return storage
    nbytes = min(math.ceil(binding.nbytes / 4) * 4, span.nbytes - binding.offset)
    piece = Span(span.buffer, span.offset + binding.offset, nbytes)
    return Storage(piece, nbytes, storage.allocation, storage)
