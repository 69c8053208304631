"""A graph made ready for a device: memory planned, commands prepared, recorded, and replayed.

Temporaries lie in one arena, planned by their lifetimes. Inputs, results and state are other memory in each
call: the commands that bind them are replaced where it is not the memory of the call before, and so are
those with varying push constants. Where the backend replays, all of it is one submission; elsewhere the
same commands run one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dl4all.allocator.allocation import aligned
from dl4all.allocator.planner import Arena, Lifetime
from dl4all.allocator.storage import Storage
from dl4all.graph.graph import Binding, BoundFill, BoundLaunch, Graph, Node, VaryingWord, buffers_of
from dl4all.runtime.protocols import Dispatch, Fill, Recording, Span
from dl4all.scheduler import capture
from dl4all.scheduler.device import Device

FRESH = ("input", "output", "state")
"""Kinds of buffers that are other memory in each call."""


class _Template(NamedTuple):
    """A command that is made anew for each call: which of its spans and words change."""

    bindings: tuple[Binding, ...]
    fresh: tuple[tuple[int, int], ...]  # position of a span, and its buffer
    varying: tuple[VaryingWord, ...]


def lifetimes(graph: Graph) -> dict[int, Lifetime]:
    """When each temporary buffer is needed, in numbers of nodes."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, node in enumerate(graph.nodes):
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
        again: for each source of varying numbers, what gives those of the next call.

    Raises:
        OutOfMemoryError: the arena does not fit.
        ShaderError, PipelineError, TooLargeError: a command cannot run.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        memory: Mapping[int, Storage],
        again: Sequence[capture.Again],
    ) -> None:
        self.graph = graph
        self.device = device
        self._again = tuple(again)
        self._memory = dict(memory)
        needed = lifetimes(graph)
        self.arena: Arena | None = None
        if needed:
            self.arena = device.arena(needed.values())
            for index, number in enumerate(needed):
                self._memory[number] = self.arena.storage(index)
        self.changed_outside = tuple(
            number
            for number in sorted({value.buffer for node in graph.nodes for value in node.writes})
            if graph.buffers[number].kind == "captured"
        )
        self.results = tuple(
            sorted(
                (number for number, buffer in graph.buffers.items() if buffer.kind in ("output", "state")),
            )
        )
        self._commands: list[Dispatch | Fill] = []
        self._templates: dict[int, _Template] = {}
        self._users: dict[int, list[int]] = defaultdict(list)  # positions of commands by fresh buffer
        self._numbers: dict[int, Sequence[int | float]] = {}
        self._last: dict[int, Span] = {}
        self._recording: Recording | None = None
        self._prepared = False

    @property
    def dispatches(self) -> int:
        """How many dispatches and fills a call makes."""
        return sum(len(node.commands) for node in self.graph.nodes)

    def __call__(self, inputs: Sequence[Storage]) -> dict[int, Storage]:
        """Run it.

        Args:
            inputs: the memory of the input buffers, in their order.

        Returns:
            The memory of results and state, by number of their buffer.
        """
        for storage in inputs:
            if storage.pending is not None:
                storage.settle()
        made = self._allocate_results()
        fresh = dict(zip(self.graph.inputs, inputs, strict=True)) | made
        if not self._prepared:
            self._prepare(fresh)
        changes = self._changes(fresh)
        if self._recording is not None:
            self.device.replay(self._recording, changes)
        else:
            for position, command in changes.items():
                self._commands[position] = command
            self.device.run_commands(self._commands)
        for number in self.changed_outside:
            self._memory[number].version += 1
        return made

    def _allocate_results(self) -> dict[int, Storage]:
        buffers = self.graph.buffers
        return {number: self.device.allocate(buffers[number].nbytes, "compiled") for number in self.results}

    def _prepare(self, fresh: Mapping[int, Storage]) -> None:
        """Make the commands for the memory of the first call, and record them."""
        memory = {**self._memory, **fresh}
        for node in self.graph.nodes:
            for command in node.commands:
                self._add(node, command, memory)
        self._last = {number: storage.span for number, storage in fresh.items()}
        fills = any(isinstance(self._commands[position], Fill) for position in self._templates)
        if not fills and self.device.replays:
            self._recording = self.device.record(self._commands, self._templates)
        self._prepared = True

    def _add(self, node: Node, command: Any, memory: Mapping[int, Storage]) -> None:
        position = len(self._commands)
        if isinstance(command, BoundFill):
            span = _piece(memory[command.binding.buffer].span, command.binding)
            self._commands.append(Fill(span, command.word))
            bindings: tuple[Binding, ...] = (command.binding,)
            varying: tuple[VaryingWord, ...] = ()
        else:
            assert isinstance(command, BoundLaunch)
            bindings, varying = command.bindings, command.varying
            storages = [_sub_storage(memory[binding.buffer], binding) for binding in bindings]
            self._commands.append(self.device.prepare(command.launch, *storages))
        fresh = tuple(
            (place, binding.buffer)
            for place, binding in enumerate(bindings)
            if self.graph.buffers[binding.buffer].kind in FRESH
        )
        if fresh or varying:
            self._templates[position] = _Template(bindings, fresh, varying)
            for _, number in fresh:
                self._users[number].append(position)

    def _changes(self, fresh: Mapping[int, Storage]) -> dict[int, Any]:
        """The commands that are not what they were in the last call."""
        changed: set[int] = set()
        for number, storage in fresh.items():
            if self._last[number] != storage.span:
                self._last[number] = storage.span
                changed.update(self._users[number])
        for source, again in enumerate(self._again):
            numbers = again()
            if self._numbers.get(source) != numbers:
                self._numbers[source] = numbers
        for position, template in self._templates.items():
            if template.varying:
                changed.add(position)
        return {position: self._command(position, fresh) for position in sorted(changed)}

    def _command(self, position: int, fresh: Mapping[int, Storage]) -> Dispatch | Fill:
        template, command = self._templates[position], self._commands[position]
        if isinstance(command, Fill):
            [(_, number)] = template.fresh
            return command._replace(target=_piece(fresh[number].span, template.bindings[0]))
        spans = list(command.spans)
        for place, number in template.fresh:
            spans[place] = _piece(fresh[number].span, template.bindings[place])
        push = command.push
        if template.varying:
            words = bytearray(push)
            for offset, source, number, half in template.varying:
                words[offset : offset + 4] = capture.word_of(self._numbers[source][number], half)
            push = bytes(words)
        made = command._replace(spans=spans, push=push)
        self._commands[position] = made
        return made


def _piece(span: Span, binding: Binding) -> Span:
    """The piece of a buffer's memory that a command binds."""
    if not binding.offset and binding.nbytes >= span.nbytes:
        return span
    return Span(span.buffer, span.offset + binding.offset, min(binding.nbytes, span.nbytes - binding.offset))


def _sub_storage(storage: Storage, binding: Binding) -> Storage:
    """A storage of what a command binds."""
    span = _piece(storage.span, binding)
    return storage if span is storage.span else Storage(span, min(storage.nbytes, span.nbytes), whole=storage)


def arena_bytes(graph: Graph) -> int:
    """The bytes of all temporaries, each in memory of its own: what the plan is compared with."""
    return sum(aligned(lifetime.nbytes, 256) for lifetime in lifetimes(graph).values())
