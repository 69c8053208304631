"""The graph of a traced call: typed nodes in static single assignment form, in the order in which they run.

A :class:`GraphBuffer` is a piece of memory, a :class:`Value` its contents between two writes, and an
:class:`Operand` a value seen with a shape, strides and a dtype. A :class:`Node` is an op, or a command of the
library that belongs to no op, such as a copy. It reads values and writes new ones. A node that writes a part
of a buffer, or works in place, reads the value that it replaces.

Nodes of devices that run programs carry their commands, as they were captured: shader, workgroups,
constants and what is bound. A pass replaces nodes by others that compute the same. Graphs are never
changed, passes make new ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

Kind = Literal["input", "captured", "constant", "temporary", "output", "state", "derived"]
"""The source of a buffer's memory.

``input``: an argument of the call, other memory each time. ``captured``: memory that exists outside, such
as a parameter, always the same. ``constant``: contents that were uploaded while the call was traced.
``temporary``: memory of the plan. ``output``: a result of the call, new memory each time. ``state``: memory
that the compiled call owns and that stays visible after it, such as a parameter's gradient. ``derived``:
memory that the compiled call owns and nobody else sees, which its preamble fills: transformed filters.
"""

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class GraphBuffer:
    """A piece of memory of `nbytes` bytes; `name` is for readers."""

    number: int
    nbytes: int
    kind: Kind
    name: str = ""


class Value(NamedTuple):
    """The contents of a buffer between two writes. Version 0 is what it holds before the first node."""

    buffer: int
    version: int

    def __str__(self) -> str:
        return f"%{self.buffer}" if self.version == 1 else f"%{self.buffer}.{self.version}"


@dataclass(frozen=True)
class Operand:
    """A value seen as a tensor; strides and offset count elements."""

    value: Value
    shape: Shape
    dtype: str
    strides: Shape
    offset: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Binding(NamedTuple):
    """A piece of a buffer that a command reads or writes."""

    buffer: int
    offset: int  # bytes
    nbytes: int


class VaryingWord(NamedTuple):
    """A 32-bit push constant that is computed anew for each call: a random counter, a decaying rate."""

    offset: int  # bytes from the start of the push constants
    source: int  # position in Graph.sources
    number: int  # its position among the numbers that the source gives
    half: int = -1  # 0 or 1: the lower or upper half of a 64-bit int; -1: the number itself


@dataclass(frozen=True)
class BoundLaunch:
    """A launch and what it binds, in order."""

    launch: Launch
    bindings: tuple[Binding, ...]
    writes: tuple[bool, ...]  # which of them it may write to
    varying: tuple[VaryingWord, ...] = ()


@dataclass(frozen=True)
class BoundFill:
    """A 32-bit pattern over a piece of a buffer."""

    binding: Binding
    word: int


@dataclass(frozen=True)
class HostCall:
    """Work of the host: ``run(*arrays)``, with an array of bytes for each binding."""

    name: str
    run: Callable[..., None]
    bindings: tuple[Binding, ...]
    writes: tuple[bool, ...]


@dataclass(frozen=True)
class MultiTensorLaunch:
    """One dispatch, or few, for many small tensors (:mod:`dl4all.ops.core.kernels.multi_tensor`).

    Each job binds a tensor for each role. Offsets in its table follow from the memory plan, so it is made
    when that is known. The push constants are the rows of the table, which the plan gives, and then
    ``push``.
    """

    launch: Launch  # its shader and constants; groups and the rows are the plan's
    jobs: tuple[tuple[Binding, ...], ...]
    writes: tuple[bool, ...]  # by role
    widths: tuple[int, ...]  # by role: values for each element
    push: bytes = b""  # behind the three words of the table
    varying: tuple[VaryingWord, ...] = ()  # offsets from the start of ``push``
    before: tuple[Binding, ...] = ()  # bound behind the table, in front of the roles; only read
    after: tuple[Binding, ...] = ()  # bound behind the roles; written
    group_elements: int = 0  # of a workgroup, where that matters; otherwise it is the plan's
    numbered: bool = False  # the first word of ``push`` is the number of the first workgroup among all


Command: TypeAlias = BoundLaunch | BoundFill | HostCall | MultiTensorLaunch
Argument: TypeAlias = Operand | int | float | bool | None


class Foreign(NamedTuple):
    """Stands for an argument of an op that is no plain value, such as indices that were checked before."""

    type: str


@dataclass(frozen=True)
class Node:
    """An op, or a command that belongs to none.

    ``op`` is a name in ``ops.core.op.REGISTRY``, empty for a command without an op; ``operands`` are in the
    order of ``Op.arrays``, with a number or None where the call had one, and ``result`` is what the op
    returned. A node with a :class:`Foreign` argument runs by its commands alone. ``reads`` and ``writes``
    say what the commands do, which may be more than operands and result: a value that is only partly
    overwritten is read, too. ``parts`` are the nodes that this one stands for, where a pass has made one of
    several, in their order. ``recomputation`` is the number of the checkpoint for whose gradients the node
    computes again what an earlier one has: that the two do not become one saves the memory in between.
    """

    name: str
    op: str = ""
    operands: tuple[Argument, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()
    result: Operand | None = None
    reads: tuple[Value, ...] = ()
    writes: tuple[Value, ...] = ()
    commands: tuple[Command, ...] = ()
    parts: tuple[Node, ...] = ()
    line: str = ""  # of the caller: file:line
    recomputation: int = 0

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands that are tensors."""
        return tuple(operand for operand in self.operands if isinstance(operand, Operand))


@dataclass(frozen=True)
class Graph:
    """Nodes in order, and the memory that they work on.

    ``inputs`` are the numbers of the input buffers in the order of the call's tensors, ``outputs`` the
    tensors that the call returns. ``sources`` name what gives the varying numbers, in the order in which
    they are asked. ``kept`` are the values that must hold at the end: results, parameters, state.

    ``preamble`` are nodes that run before the first call, and again before a call that finds other contents
    in a captured buffer that they read (:mod:`dl4all.graph.passes.preamble`). Buffers of kind ``derived``
    keep what they have computed for the nodes; their temporaries are free when the preamble has run.

    ``contents`` are the bytes of constants that a pass has made, such as programs of op codes. Those of
    constants that were uploaded while the call was traced are with the trace.
    """

    device: str
    buffers: dict[int, GraphBuffer]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[Operand, ...] = ()
    sources: tuple[str, ...] = ()
    kept: frozenset[Value] = frozenset()
    preamble: tuple[Node, ...] = ()
    notes: dict[str, str] = field(default_factory=dict, compare=False)  # of passes, for readers
    contents: dict[int, bytes] = field(default_factory=dict, compare=False)  # by number of the buffer

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """This graph with other nodes; buffers that nothing uses any more are left out."""
        kept = tuple(nodes)
        used = {*self.inputs, *(operand.value.buffer for operand in self.outputs)}
        used.update(value.buffer for value in self.kept)
        for node in (*self.preamble, *kept):
            used.update(buffers_of(node))
        return replace(self, nodes=kept, buffers={n: b for n, b in self.buffers.items() if n in used})


def bound_bytes(nbytes: int) -> int:
    """The bytes that a command binds for so many of a tensor: whole words, at least one.

    >>> bound_bytes(0), bound_bytes(5)
    (4, 8)
    """
    return max(-(-nbytes // 4), 1) * 4


def buffers_of(node: Node) -> set[int]:
    """The numbers of all buffers that a node touches."""
    found = {value.buffer for value in (*node.reads, *node.writes)}
    for command in node.commands:
        found.update(binding.buffer for binding in bindings_of(command))
    return found


def bindings_of(command: Command) -> tuple[Binding, ...]:
    """Everything that a command binds."""
    if isinstance(command, BoundFill):
        return (command.binding,)
    if isinstance(command, MultiTensorLaunch):
        return (*command.before, *(piece for job in command.jobs for piece in job), *command.after)
    return command.bindings


def shaders_of(graph: Graph) -> set[Shader]:
    """The shaders that a call of the graph runs."""
    commands = (command for node in (*graph.preamble, *graph.nodes) for command in node.commands)
    return {c.launch.shader for c in commands if isinstance(c, (BoundLaunch, MultiTensorLaunch))}


def readers(graph: Graph) -> dict[Value, list[int]]:
    """The positions of the nodes that read each value."""
    found = defaultdict[Value, list[int]](list)
    for position, node in enumerate(graph.nodes):
        for value in dict.fromkeys(node.reads):
            found[value].append(position)
    return found


def writers(graph: Graph) -> dict[Value, int]:
    """The position of the node that writes each value; values that exist before the first have none."""
    return {value: position for position, node in enumerate(graph.nodes) for value in node.writes}


def is_private(graph: Graph, value: Value) -> bool:
    """Whether nothing outside of the graph sees a value: a pass may leave it out."""
    return graph.buffers[value.buffer].kind == "temporary" and value not in graph.kept
