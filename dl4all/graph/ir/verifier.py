"""The verifier: what every graph must satisfy, before and after each pass.

A value is written once and read while it is what its buffer holds: after its write, before the next one.
Tensors lie within their buffers, results are what their ops infer, and commands touch only what their node
says that it reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, get_args

import numpy as np

from dl4all.errors import Dl4allError, GraphError
from dl4all.graph.ir.graph import (
    Binding,
    BoundFill,
    BoundLaunch,
    Command,
    Graph,
    GraphBuffer,
    HostCall,
    Kind,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    bound_bytes,
)
from dl4all.graph.ir.stand_ins import inferred, is_known
from dl4all.graph.ir.text import described
from dl4all.ops.core.dtypes import KINDS
from dl4all.ops.core.op import REGISTRY

WORD = 4  # bytes: memory is bound, filled and pushed in words
UNDEFINED: tuple[Kind, ...] = ("temporary", "output", "state", "derived")
"""Kinds of buffers that hold nothing before the first write."""

DTYPE_NAMES = tuple(dtype.name for dtype in KINDS)


def verify(graph: Graph) -> None:
    """Check a graph.

    Raises:
        GraphError: it contradicts itself; the message names the node, its line and what is wrong.

    >>> from dl4all.graph.ir.parser import parse_graph
    >>> verify(parse_graph("graph cpu\\nbuffer @0: temporary, 4 bytes\\nreturn %0: float32[1]\\n"))
    Traceback (most recent call last):
        ...
    dl4all.errors.GraphError: [verify] outputs: %0 is never written
    """
    _Verifier(graph).run()


class _Verifier:
    """Walks the nodes in order and knows which version each buffer holds."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._where = "graph"
        self._held: dict[int, int] = {}  # version by buffer, of those that hold something

    def run(self) -> None:
        self._check_buffers()
        for position, node in enumerate(self._graph.preamble):
            self._where = f"preamble {position}, {described(node)}"
            self._check_preamble(node)
            self._check_node(node)
        for number, buffer in self._graph.buffers.items():
            if buffer.kind == "temporary":
                self._held.pop(number, None)  # it is free when the preamble has run
        for position, node in enumerate(self._graph.nodes):
            self._where = f"node {position}, {described(node)}"
            for value in node.writes:
                if self._buffer(value.buffer).kind == "derived":
                    self._fail(f"{value} is written, and only the preamble writes what is derived")
            self._check_node(node)
        self._check_end()

    def _fail(self, problem: str) -> NoReturn:
        raise GraphError(f"[verify] {self._where}: {problem}")

    # Before and after

    def _check_buffers(self) -> None:
        graph = self._graph
        for number, buffer in graph.buffers.items():
            if buffer.number != number:
                self._fail(f"buffer @{number} calls itself @{buffer.number}")
            if buffer.nbytes < 0:
                self._fail(f"buffer @{number} has {buffer.nbytes} bytes")
            if buffer.kind not in get_args(Kind):
                self._fail(f"buffer @{number} is of the unknown kind {buffer.kind!r}")
            if buffer.kind not in UNDEFINED:
                self._held[number] = 0
        for number in graph.inputs:
            if self._buffer(number).kind != "input":
                self._fail(f"@{number} is among the inputs, and of the kind {graph.buffers[number].kind!r}")
        if len(set(graph.inputs)) != len(graph.inputs):
            self._fail(f"an input is there twice: {graph.inputs}")
        for number, buffer in graph.buffers.items():
            if buffer.kind == "input" and number not in graph.inputs:
                self._fail(f"@{number} is of the kind 'input', and not among the inputs")

    def _check_end(self) -> None:
        self._where = "outputs"
        for output in self._graph.outputs:
            self._check_tensor(output)
            self._check_held(output.value)
        self._where = "kept values"
        for value in sorted(self._graph.kept):
            self._check_held(value)
        kept = {*self._graph.kept, *(output.value for output in self._graph.outputs)}
        for number, version in self._held.items():
            kind = self._graph.buffers[number].kind
            if version and kind in ("input", "captured", "state") and Value(number, version) not in kept:
                self._fail(f"%{number} changes memory of the kind {kind!r}, and its last value is not kept")

    # Nodes

    def _check_preamble(self, node: Node) -> None:
        """Raise unless a node depends on nothing that another call could have changed."""
        if any(getattr(command, "varying", ()) for command in node.commands):
            self._fail("its push constants vary, and the preamble does not run in each call")
        for value in node.reads:
            if self._buffer(value.buffer).kind in ("input", "output", "state"):
                self._fail(f"it reads {value}, which is another one in each call")
        for value in node.writes:
            if self._buffer(value.buffer).kind not in ("temporary", "derived"):
                self._fail(f"it writes {value}, which is not its own")

    def _check_node(self, node: Node) -> None:
        for operand in node.tensors:
            self._check_tensor(operand)
            if operand.value not in node.reads:  # an op that asks for its shape only
                self._check_held(operand.value)
        for value in node.reads:
            self._check_read(node, value)
        for value in node.writes:
            self._check_write(value)
        if node.result is not None:
            self._check_tensor(node.result)
            self._check_held(node.result.value)
            if node.op:
                self._check_inferred(node, node.result)
        self._check_commands(node)

    def _check_read(self, node: Node, value: Value) -> None:
        if value.version == 0 and value.buffer not in self._held:
            self._buffer(value.buffer)
            if any(one.buffer == value.buffer for one in node.writes):
                return  # it writes a part of memory that holds nothing
            if any(not operand.elements for operand in node.tensors):
                return  # it computes sums of nothing
        self._check_held(value)

    def _check_held(self, value: Value) -> None:
        """Raise unless a value is what its buffer holds now."""
        buffer = self._buffer(value.buffer)
        held, kind = self._held.get(value.buffer, -1), buffer.kind
        if held == value.version or not (buffer.nbytes or value.version):  # nothing writes an empty tensor
            return
        if held > value.version:
            if value.version == 0 and kind in UNDEFINED:
                self._fail(f"{value} is what a buffer of the kind {kind!r} holds before it is written")
            self._fail(f"{value} is overwritten by {Value(value.buffer, held)} before this use")
        if any(value in node.writes for node in self._graph.preamble):
            self._fail(f"{value} is free when the preamble has run")
        later = any(value in node.writes for node in self._graph.nodes)
        self._fail(f"{value} is {'used before it is written' if later else 'never written'}")

    def _check_write(self, value: Value) -> None:
        kind = self._buffer(value.buffer).kind
        if kind == "constant":
            self._fail(f"{value} is written, and constants are not")
        held = max(self._held.get(value.buffer, 0), 0)
        if value.version == held and held:
            self._fail(f"{value} is written twice")
        if value.version <= held:
            self._fail(f"{value} is written after {Value(value.buffer, held)}: versions increase")
        self._held[value.buffer] = value.version

    # Tensors

    def _buffer(self, number: int) -> GraphBuffer:
        if number not in self._graph.buffers:
            self._fail(f"there is no buffer @{number}")
        return self._graph.buffers[number]

    def _check_tensor(self, tensor: Operand) -> None:
        buffer = self._buffer(tensor.value.buffer)
        if tensor.dtype not in DTYPE_NAMES:
            self._fail(f"{tensor.value} has the unknown dtype {tensor.dtype!r}")
        if len(tensor.strides) != len(tensor.shape) or min(tensor.shape, default=0) < 0:
            self._fail(f"{tensor.value} has the shape {tensor.shape} and the strides {tensor.strides}")
        if 0 in tensor.shape:
            return
        extents = [(size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True)]
        first = tensor.offset + sum(min(extent, 0) for extent in extents)
        last = tensor.offset + sum(max(extent, 0) for extent in extents)
        itemsize = np.dtype(tensor.dtype).itemsize
        if first < 0 or (last + 1) * itemsize > buffer.nbytes:
            self._fail(
                f"{tensor.value} has elements from byte {first * itemsize} to {(last + 1) * itemsize}, and "
                f"@{buffer.number} has {buffer.nbytes} bytes"
            )

    def _check_inferred(self, node: Node, result: Operand) -> None:
        """Raise unless the result is what the op infers."""
        if node.op not in REGISTRY:
            self._fail(f"there is no op {node.op!r}")
        if not is_known(node):
            return
        try:
            shape, dtype = inferred(node)
        except (Dl4allError, KeyError, TypeError, ValueError) as error:
            self._fail(f"its operands and arguments do not fit: {error}")
        in_place = any(tensor.value.buffer == result.value.buffer for tensor in node.tensors)
        if result.shape != shape or (result.dtype != dtype and not in_place):
            self._fail(
                f"its result is {result.dtype}{list(result.shape)}, and the op infers {dtype}{list(shape)}"
            )

    # Commands

    def _check_commands(self, node: Node) -> None:
        reads, writes = ({value.buffer for value in values} for values in (node.reads, node.writes))
        written = set[int]()
        for command in node.commands:
            self._check_form(command)
            for binding, is_written in _uses(command):
                self._check_binding(binding, least=0 if isinstance(command, HostCall) else 1)
                if is_written and binding.buffer not in writes:
                    self._fail(f"a command writes @{binding.buffer}, and the node does not")
                if not is_written and binding.buffer not in reads and binding.buffer not in written:
                    self._fail(f"a command reads @{binding.buffer}, which the node neither reads nor made")
            written.update(binding.buffer for binding, is_written in _uses(command) if is_written)
        if node.commands and (missing := writes - written):
            self._fail(f"it writes @{min(missing)}, and none of its commands does")

    def _check_binding(self, binding: Binding, least: int) -> None:
        size = self._buffer(binding.buffer).nbytes
        if binding.offset < 0 or binding.nbytes < least or sum(binding[1:]) > bound_bytes(size):
            self._fail(
                f"a command binds bytes {binding.offset} to {binding.offset + binding.nbytes} of "
                f"@{binding.buffer}, which has {size}"
            )

    def _check_form(self, command: Command) -> None:
        """Raise unless a command is one that a device can take."""
        if isinstance(command, BoundFill):
            if not 0 <= command.word < 2**32:
                self._fail(f"a fill has the word {command.word:#x}, which has more than 32 bits")
            return
        if isinstance(command, MultiTensorLaunch):
            roles = len(command.writes)
            if any(len(job) != roles for job in command.jobs) or len(command.widths) != roles:
                self._fail(f"a multi-tensor launch has {roles} roles, and another number of tensors")
        elif len(command.bindings) != len(command.writes):
            self._fail(f"a command binds {len(command.bindings)} pieces and has {len(command.writes)} flags")
        if isinstance(command, (BoundLaunch, MultiTensorLaunch)):
            self._check_push(command)

    def _check_push(self, command: BoundLaunch | MultiTensorLaunch) -> None:
        launch = command.launch
        if min(launch.groups) <= 0:
            self._fail(f"a launch of {launch.shader.path} has {launch.groups} workgroups")
        if not all(0 <= constant < 2**32 for constant in launch.constants):
            self._fail(f"a launch of {launch.shader.path} has the constants {launch.constants}")
        push = launch.push if isinstance(command, BoundLaunch) else command.push
        if len(push) % WORD:
            self._fail(f"a launch of {launch.shader.path} pushes {len(push)} bytes, which are no words")
        for word in command.varying:
            if word.offset % WORD or not 0 <= word.offset <= len(push) - WORD:
                self._fail(f"the varying word at byte {word.offset} is not in {len(push)} bytes")
            if not 0 <= word.source < len(self._graph.sources) or word.number < 0:
                self._fail(
                    f"a varying word is number {word.number} of source {word.source}, and there are "
                    f"{len(self._graph.sources)} sources"
                )
            if word.half not in (-1, 0, 1):
                self._fail(f"a varying word is half {word.half} of a number")


def _uses(command: Command) -> Iterator[tuple[Binding, bool]]:
    """The pieces that a command binds, and whether it writes there."""
    if isinstance(command, BoundFill):
        yield command.binding, True
    elif isinstance(command, MultiTensorLaunch):
        yield from ((binding, False) for binding in command.before)
        for job in command.jobs:
            yield from zip(job, command.writes, strict=True)
        yield from ((binding, True) for binding in command.after)
    else:
        yield from zip(command.bindings, command.writes, strict=True)
