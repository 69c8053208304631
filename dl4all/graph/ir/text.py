"""Graphs as text, one node per line, that :mod:`dl4all.graph.ir.parser` reads back.

A node shows what its op returned, its operands and arguments, and where it was called. A tensor's type is
shown where its value is first seen, and again where it is seen by another shape; strides and the offset only
where it is not contiguous. What a node reads and writes is shown where it is more than operands and result.
Commands follow, indented, and then the nodes that it stands for. Nodes of the preamble say so. ``@3`` is the
memory of buffer 3, ``%3`` what it holds after its first write, ``%3.0`` before it, ``%3.2`` after the second.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np

from dl4all.graph.ir.graph import (
    Binding,
    BoundFill,
    BoundLaunch,
    Command,
    Graph,
    GraphBuffer,
    HostCall,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    VaryingWord,
    bound_bytes,
)
from dl4all.ops.core.tensor_base import Size, contiguous_strides
from dl4all.scheduler.device.programs import Launch

BARE = re.compile(r"(?!(?:None|True|False|inf|nan)\b)[A-Za-z_][\w/.+*-]*")
"""Names that are written without quotes."""

INDENT = "    "
HALVES = {0: "low", 1: "high"}


def print_graph(graph: Graph) -> str:
    """A graph as text.

    >>> from dl4all.graph.ir.graph import Graph, Node, Operand, Value
    >>> x, y = (Operand(Value(n, n), (2, 3), "float32", (3, 1)) for n in (0, 1))
    >>> buffers = {0: GraphBuffer(0, 24, "input", "x"), 1: GraphBuffer(1, 24, "temporary")}
    >>> node = Node("relu", "relu", (x,), (), y, (x.value,), (y.value,), line="model.py:12")
    >>> print(print_graph(Graph("vulkan:0", buffers, (node,), (0,), (y,))), end="")
    graph "vulkan:0"
    buffer @0: input, 24 bytes, x
    buffer @1: temporary, 24 bytes
    inputs @0
    %1: float32[2, 3] = relu(%0.0: float32[2, 3])  # model.py:12
    return %1
    """
    return _Printer(graph).text()


def node_lines(graph: Graph) -> list[list[str]]:
    """The lines of each node in the text of a graph, those of its preamble first."""
    printer = _Printer(graph)
    return [printer.node(node) for node in (*graph.preamble, *graph.nodes)]


def described(node: Node) -> str:
    """A node's name and line for messages.

    >>> described(Node("relu", line="model.py:12"))
    'relu (model.py:12)'
    """
    return f"{node.name} ({node.line})" if node.line else node.name


def implied_reads(node: Node) -> tuple[Value, ...]:
    """The values of a node's operands, which it reads unless it says otherwise."""
    return tuple(dict.fromkeys(operand.value for operand in node.tensors))


def implied_writes(node: Node) -> tuple[Value, ...]:
    """The value of a node's result, which it writes unless it says otherwise."""
    return () if node.result is None else (node.result.value,)


class _Printer:
    """Remembers by which shape each value was first seen."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._seen: dict[Value, Operand] = {}

    def text(self) -> str:
        graph = self._graph
        lines = [f"graph {_quoted(graph.device)}"]
        lines += [f"note {_quoted(name)}: {_quoted(note)}" for name, note in graph.notes.items()]
        lines += [f"source {_quoted(source)}" for source in graph.sources]
        lines += [_buffer(key, buffer) for key, buffer in graph.buffers.items()]
        if graph.inputs:
            lines.append("inputs " + ", ".join(f"@{number}" for number in graph.inputs))
        for node in graph.preamble:
            first, *more = self.node(node)
            lines += [f"preamble {first}", *more]
        for node in graph.nodes:
            lines += self.node(node)
        if graph.outputs:
            lines.append("return " + ", ".join(map(self._operand, graph.outputs)))
        if graph.kept:
            lines.append("keep " + ", ".join(map(str, sorted(graph.kept))))
        return "\n".join(lines) + "\n"

    def _operand(self, operand: Operand) -> str:
        """A value, and its type unless that was seen first."""
        if self._seen.get(operand.value) == operand:
            return str(operand.value)
        self._seen.setdefault(operand.value, operand)
        text = f"{operand.value}: {operand.dtype}{list(operand.shape)}"
        if operand.strides != contiguous_strides(operand.shape):
            text += f" strides {list(operand.strides)}"
        return text + (f" offset {operand.offset}" if operand.offset else "")

    def node(self, node: Node) -> list[str]:
        head = "" if node.result is None else f"{self._operand(node.result)} = "
        head += _quoted(node.name) + (
            "" if node.op == node.name else f"<{_quoted(node.op) if node.op else ''}>"
        )
        parts = [self._argument(operand) for operand in node.operands]
        parts += [f"{_quoted(name)}={self._argument(value)}" for name, value in node.arguments]
        head += f"({', '.join(parts)})"
        if node.reads != implied_reads(node):
            head += f" reads {_values(node.reads)}"
        if node.writes != implied_writes(node):
            head += f" writes {_values(node.writes)}"
        if node.recomputation:
            head += f" recomputation {node.recomputation}"
        if node.line:
            plain = node.line.isascii() and node.line.isprintable() and node.line.strip(' "') == node.line
            head += f"  # {node.line if plain else json.dumps(node.line)}"
        lines = [head]
        for command in node.commands:
            lines += [INDENT + line for line in self._command(command)]
        for part in node.parts:
            first, *more = self.node(part)
            lines += [f"{INDENT}part {first}", *(INDENT + line for line in more)]
        return lines

    def _argument(self, value: Any) -> str:
        """An argument; what no text can stand for is shown between ``<`` and ``>``."""
        if isinstance(value, Operand):
            return self._operand(value)
        if value is None or value is Ellipsis or type(value) is bool:
            return "..." if value is Ellipsis else repr(value)
        if isinstance(value, np.generic):
            return f"{value.dtype.name}({value.item()!r})"
        if isinstance(value, (int, float)):  # or one that varies, whose text is that of a number
            return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
        if isinstance(value, (str, np.dtype)):  # which is equal to its name
            return json.dumps(str(value))
        if type(value) is slice:
            return f"slice({', '.join(map(self._argument, (value.start, value.stop, value.step)))})"
        if type(value) in (tuple, list, Size):
            items = ", ".join(map(self._argument, value))
            if type(value) is list:
                return f"[{items}]"
            return f"({items},)" if len(value) == 1 else f"({items})"
        if (fields := _fields(value)) is not None:
            items = ", ".join(f"{name}={self._argument(getattr(value, name))}" for name in fields)
            return f"{type(value).__name__}({items})"
        return f"<{type(value).__name__}>"

    # Commands

    def _command(self, command: Command) -> list[str]:
        if isinstance(command, BoundFill):
            return [f"fill {self._binding(command.binding)} word 0x{command.word:08x}"]
        if isinstance(command, HostCall):
            return [f"host {_quoted(command.name)} {self._bindings(command.bindings, command.writes)}"]
        lines = _launch(command.launch)
        if isinstance(command, BoundLaunch):
            lines[0] += f" {self._bindings(command.bindings, command.writes)}"
        else:
            lines[0] = f"multi_tensor {lines[0]} {self._multi_tensor(command)}"
        lines[0] += "".join(f" {_varying(word)}" for word in command.varying)
        return lines

    def _multi_tensor(self, command: MultiTensorLaunch) -> str:
        roles = zip(command.writes, command.widths, strict=True)
        text = "roles " + ", ".join(f"{'write' if writes else 'read'} {width}" for writes, width in roles)
        for job in command.jobs:
            text += f" job ({', '.join(map(self._binding, job))})"
        text += f" tail 0x{command.push.hex()}" if command.push else ""
        for name in ("before", "after"):
            if pieces := getattr(command, name):
                text += f" {name} ({', '.join(map(self._binding, pieces))})"
        text += f" group_elements {command.group_elements}" if command.group_elements else ""
        text += " numbered" if command.numbered else ""
        return text

    def _bindings(self, bindings: tuple[Binding, ...], writes: tuple[bool, ...]) -> str:
        pairs = zip(bindings, writes, strict=True)
        return f"({', '.join(('write ' if w else '') + self._binding(b) for b, w in pairs)})"

    def _binding(self, binding: Binding) -> str:
        """A buffer, and which bytes of it unless it is all."""
        buffer = self._graph.buffers.get(binding.buffer)
        if buffer is not None and (binding.offset, binding.nbytes) == (0, bound_bytes(buffer.nbytes)):
            return f"@{binding.buffer}"
        return f"@{binding.buffer}[{binding.offset}, {binding.nbytes}]"


def _quoted(text: str) -> str:
    """A name, in quotes where it is no word."""
    return text if BARE.fullmatch(text) else json.dumps(text)


def _fields(value: Any) -> tuple[str, ...] | None:
    """The names of the fields of a named tuple or dataclass."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def _buffer(key: int, buffer: GraphBuffer) -> str:
    name = f", {_quoted(buffer.name)}" if buffer.name else ""
    number = "" if buffer.number == key else f" for @{buffer.number}"
    return f"buffer @{key}{number}: {buffer.kind}, {buffer.nbytes} bytes{name}"


def _values(values: tuple[Value, ...]) -> str:
    return ", ".join(map(str, values)) or "nothing"


def _varying(word: VaryingWord) -> str:
    half = f" {HALVES[word.half]}" if word.half in HALVES else ""
    return f"varying {word.offset} = {word.source}[{word.number}]{half}"


def _launch(launch: Launch) -> list[str]:
    """The launch, and below it the source of a shader that is no file."""
    text = f"launch {_quoted(launch.shader.path)}"
    text += "".join(f" {_quoted(name)}={_quoted(value)}" for name, value in launch.shader.defines)
    text += f" groups {list(launch.groups)}"
    text += f" constants {list(launch.constants)}" if launch.constants else ""
    text += f" push 0x{launch.push.hex()}" if launch.push else ""
    text += f" flops {launch.flops}" if launch.flops else ""
    source = getattr(launch.shader, "source", "")
    return [text, *(f"{INDENT}| {line}" for line in source.split("\n"))] if source else [text]
