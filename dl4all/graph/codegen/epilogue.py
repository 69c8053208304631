"""Epilogues: expressions that products, convolutions, normalisations and reductions compute of their results.

The kernels of :data:`COORDINATES` include ``shaders/include/epilogue.glsl``. A variant of one that defines
EPILOGUE stores an expression of each result and of elements of further operands, so that a bias, an
activation or a residual connection costs no launch of its own and no trip through memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dl4all.graph.codegen.elementwise_kernel import FLOATS, HALVES, selects
from dl4all.graph.ir.graph import (
    Argument,
    Binding,
    BoundLaunch,
    Graph,
    Node,
    Operand,
    Shape,
    Value,
    bound_bytes,
)
from dl4all.ops.core.expressions.expression import functions_of, parse, print_glsl
from dl4all.ops.core.kernels.launch import pack, stores_halves
from dl4all.ops.core.kernels.push_block import push_constants
from dl4all.ops.core.op import REGISTRY, Op
from dl4all.ops.core.primitives import primitives
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.elementwise.kernels import MATH_FUNCTIONS
from dl4all.ops.random.dropout_functions import DROPOUT, DROPOUT_PUSH, random_dropout
from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.runtime.spirv.storage_types import StorageType
from dl4all.scheduler.device.current import device as find_device
from dl4all.scheduler.device.device import Device

Coordinates = Literal["channel", "gemm", "linear", "none"]

COORDINATES: dict[str, Coordinates] = {
    "conv/depthwise.comp": "channel",
    "conv/direct.comp": "channel",
    "conv/implicit_gemm.comp": "channel",
    "conv/winograd_repair.comp": "channel",
    "conv/winograd_result.comp": "channel",
    "conv/sum.comp": "none",
    "linalg/add_slices.comp": "none",
    "linalg/gemm.comp": "gemm",
    "linalg/linear.comp": "linear",
    "loss/cross_entropy_backward.comp": "none",
    "normalization/batch_norm.comp": "none",
    "normalization/batch_norm_backward.comp": "none",
    "normalization/rows.comp": "none",
    "normalization/rows_backward.comp": "none",
    "reduce/reduce.comp": "none",
    "reduce/softmax.comp": "none",
    "reduce/softmax_backward.comp": "none",
}
"""The shaders that take an epilogue, and what ``row`` and ``column`` are in each."""

MAX_OPERANDS = 4  # of an epilogue
MAX_DROPOUTS = 2
DROPOUT_WORDS = slice(DROPOUT_PUSH.offset("key_x"), DROPOUT_PUSH.offset("inner"))
"""Push constants of dropout.comp: the state of the generator, the threshold and the factor."""

MAX_PUSH_BYTES = 128  # what every Vulkan device takes
FLOAT32 = "float32"


class Place(NamedTuple):
    """The place of an operand's element for result `at`: ``at // inner % period``."""

    inner: int
    period: int


class Epilogue(NamedTuple):
    """The statements of an epilogue, the operands that they read, and where each has its elements."""

    statements: str
    operands: tuple[Operand, ...]
    places: tuple[Place, ...]
    dropouts: tuple[BoundLaunch, ...]  # whose random numbers it draws
    includes: frozenset[str]


def is_anchor(node: Node) -> bool:
    """Whether the kernels that write a node's result take an epilogue."""
    result = node.result
    return result is not None and is_dense(result) and _writers(node, result.value.buffer) is not None


def is_dense(operand: Operand) -> bool:
    """Whether an operand is one of floats and contiguous from the start of its buffer on."""
    return (
        operand.dtype in FLOATS
        and operand.offset == 0
        and place_of(operand, operand.shape) == Place(1, operand.elements)
    )


def place_of(operand: Operand, shape: Shape) -> Place | None:
    """The place of an operand's elements, if it broadcasts to `shape`.

    Returns:
        None where that is not one run of the operand's elements, each repeated and all of them repeated.

    >>> bias = Operand(Value(1, 1), (3, 1, 1), "float32", (1, 1, 1))
    >>> place_of(bias, (2, 3, 5, 7))
    Place(inner=35, period=3)
    """
    missing = len(shape) - len(operand.shape)
    if missing < 0:
        return None
    if any(own not in (1, size) for own, size in zip(operand.shape, shape[missing:], strict=True)):
        return None
    strides = (0,) * missing + tuple(
        0 if own == 1 else stride for own, stride in zip(operand.shape, operand.strides, strict=True)
    )
    axes = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size > 1]
    inner = period = 1
    while axes and axes[-1][1] == 0:
        inner *= axes.pop()[0]
    while axes and axes[-1][1] == period:
        period *= axes.pop()[0]
    return None if any(stride for _, stride in axes) else Place(inner, period)


def epilogue_of(first: Operand, nodes: Sequence[Node]) -> Epilogue | None:
    """The epilogue that computes what elementwise nodes make of a result.

    Args:
        first: the result.
        nodes: in order; the last one's result is stored, nobody else needs those of the others.

    Returns:
        None where an op, an operand or a dtype has no place in an epilogue.
    """
    writer = Statements(first.elements, {first.value: "v"}, MAX_DROPOUTS)
    if first.dtype in HALVES:  # in memory it is rounded
        writer.assign(first, writer.rounded("v", first.dtype))
    if not nodes or not all(writer.add(node) for node in nodes) or len(writer.operands) > MAX_OPERANDS:
        return None
    if nodes[-1].result is None or nodes[-1].result.elements != first.elements:
        return None
    statements = writer.text()
    parts = (tuple(writer.operands), tuple(writer.places), tuple(writer.dropouts))
    return Epilogue(statements, *parts, frozenset(writer.includes))


class Statements:
    """Writes the statements that compute elementwise nodes, node by node.

    Args:
        elements: of each node's result; results that the others broadcast may have one.
        names: what the values are called that are not operands.
        max_dropouts: how many nodes may be dropout.
    """

    def __init__(self, elements: int, names: Mapping[Value, str], max_dropouts: int = 0) -> None:
        self.names = dict(names)
        self.elements = elements
        self.single: set[Value] = set()  # results of one element, which may be read for all
        self.lines: list[str] = []
        self.operands: list[Operand] = []
        self.places: list[Place] = []
        self.max_dropouts = max_dropouts
        self.dropouts: list[BoundLaunch] = []
        self.includes: set[str] = set()

    def add(self, node: Node) -> bool:
        """Add the statement of a node; returns whether that was possible."""
        op, result = REGISTRY.get(node.op), node.result
        if op is None or result is None or not is_dense(result) or node.writes != (result.value,):
            return False
        if result.elements not in (1, self.elements):
            return False
        text = self._dropped(node) if op is random_dropout else self._expression(op, node, result)
        if text is None:
            return False
        self.assign(result, text)
        if result.elements == 1:
            self.single.add(result.value)
        return True

    def assign(self, result: Operand, text: str) -> None:
        """Add the statement that computes a value."""
        name = self.names[result.value] = f"t{len(self.lines)}"
        self.lines.append(f"const float {name} = {text};")

    def rounded(self, text: str, dtype: str) -> str:
        """An expression as one of HALVES holds its value."""
        self.includes.add("ROUNDED")
        return f"as_{dtype}({text})"

    def text(self) -> str:
        """All statements, of which the last returns the last value."""
        return " ".join((*self.lines, f"return t{len(self.lines) - 1};"))

    def _expression(self, op: Op[...], node: Node, result: Operand) -> str | None:
        """The expression of an elementwise op; None if an epilogue cannot have it."""
        expression = op.expression(FLOAT32) if isinstance(op, Elementwise) else None
        expression = parse("x") if op is primitives.cast else expression
        if expression is None or _has_varying_words(node):
            return None
        arguments, shape = dict(node.arguments), result.shape
        names = ("x",) if len(op.arrays) == 1 else ("a", "b", "c")[: len(op.arrays)]
        operands = zip(names, node.operands, strict=True)
        texts = {name: self._text(operand, shape) for name, operand in operands}
        if op is not primitives.cast:
            texts |= {f"p.{name}": number(arguments.get(name)) for name in op.arguments}
        found = {name: text for name, text in texts.items() if text is not None}
        if found.keys() != texts.keys():
            return None
        called = functions_of(expression)
        self.includes |= {file for file, functions in MATH_FUNCTIONS.items() if called & set(functions)}
        text = print_glsl(expression, found)
        if result.dtype not in HALVES:
            return text
        same = [n for n, o in zip(names, node.operands, strict=True) if _dtype(o) == result.dtype]
        return text if selects(expression, same) else self.rounded(text, result.dtype)

    def _dropped(self, node: Node) -> str | None:
        """The dropout of a node; None if it drops groups of elements, or something else than the result."""
        [operand] = node.operands
        if not isinstance(operand, Operand) or operand.value not in self.names:
            return None
        text = self._text(operand, operand.shape)
        if text is None or operand.elements != self.elements or len(self.dropouts) == self.max_dropouts:
            return None
        command = node.commands[0] if len(node.commands) == 1 else None
        if not isinstance(command, BoundLaunch) or command.launch.shader != DROPOUT:
            return None
        self.dropouts.append(command)
        factor = f"r{len(self.dropouts) - 1}"
        return f"{factor} == 0.0 ? 0.0 : {text} * {factor}"

    def _text(self, operand: Argument, shape: Shape) -> str | None:
        """The name of a node's operand in the statements; None if they cannot have it."""
        if not isinstance(operand, Operand):
            return number(operand)
        if operand.value in self.names:
            whole = is_dense(operand) and operand.elements == self.elements
            whole = whole or (operand.value in self.single and not operand.offset)
            return self.names[operand.value] if whole else None
        place = place_of(operand, shape)
        if place is None or operand.dtype not in FLOATS or operand.offset:
            return None
        key = (operand.value, place)
        known = [(other.value, where) for other, where in zip(self.operands, self.places, strict=True)]
        if key in known:
            return f"x{known.index(key)}"
        self.operands.append(operand)
        self.places.append(place)
        return f"x{len(known)}"


def with_epilogue(
    graph: Graph, anchor: Node, nodes: Sequence[Node], max_bindings: int = MAX_BINDINGS
) -> Node | None:
    """One node that computes what an anchor and the elementwise nodes behind it compute.

    Args:
        graph: the graph of the nodes.
        anchor: a node for which :func:`is_anchor` holds.
        nodes: elementwise nodes, in order. The last one's result is that of the new node; nobody else needs
            those of the anchor and the others.
        max_bindings: how many buffers a dispatch may bind.

    Returns:
        None where the kernels cannot do it.
    """
    before, after = anchor.result, nodes[-1].result
    if before is None or after is None:
        return None
    writers = _writers(anchor, before.value.buffer)
    epilogue = epilogue_of(before, nodes)
    if writers is None or epilogue is None:
        return None
    if not holds(find_device(graph.device), (after, *epilogue.operands)):
        return None
    target = after.value.buffer
    if any(operand.value.buffer == target for operand in epilogue.operands):
        return None  # the operand would be overwritten while it is read
    if target != before.value.buffer and any(value.buffer == target for value in anchor.reads):
        return None
    whole = whole_of(graph, target)
    commands = []
    for position, command in enumerate(anchor.commands):
        if position in writers:
            assert isinstance(command, BoundLaunch)
            finished = _finished(graph, command, whole, epilogue, before.shape, after.dtype)
            if finished is None or len(finished.bindings) > max_bindings:
                return None
            command = finished
        commands.append(command)
    written = tuple(after.value if value == before.value else value for value in anchor.writes)
    operands = (*anchor.operands, *epilogue.operands)
    reads = dict.fromkeys((*anchor.reads, *(operand.value for operand in epilogue.operands)))
    return Node(
        name="_".join((anchor.name, *(node.name for node in nodes))),
        operands=tuple(operand for operand in operands if not _is_unread(operand, reads)),
        result=after,
        reads=tuple(reads),
        writes=written,
        commands=tuple(commands),
        parts=(*(anchor.parts or (anchor,)), *nodes),
        line=anchor.line,
    )


def _is_unread(operand: Argument, reads: Container[Value]) -> bool:
    """Whether an op has asked for an operand's shape only; where the new node runs, it may be gone."""
    return isinstance(operand, Operand) and operand.value not in reads


def _writers(node: Node, buffer: int) -> frozenset[int] | None:
    """The positions of the commands that write a node's result; None unless all of them take an epilogue.

    No command may read the result, other than the one that repairs it: what is added up in several launches
    is complete after the last only.
    """
    found = []
    for position, command in enumerate(node.commands):
        if not isinstance(command, BoundLaunch):
            return None
        bound = [piece.buffer for piece in command.bindings]
        if buffer not in bound:
            continue
        shader = command.launch.shader
        is_last = buffer not in bound[:-1] and command.bindings[-1].offset == 0
        if not is_last or shader.path not in COORDINATES or "EPILOGUE" in shader.macros:
            return None
        if command.writes != (False,) * (len(bound) - 1) + (True,):
            return None
        found.append(position)
    return frozenset(found) or None


def _finished(
    graph: Graph, command: BoundLaunch, result: Binding, epilogue: Epilogue, shape: Shape, dtype: str
) -> BoundLaunch | None:
    """A launch with an epilogue, which writes to `result` in a dtype."""
    launch = command.launch
    defines: dict[str, Any] = {"EPILOGUE": epilogue.statements, "OPERANDS": len(epilogue.operands)}
    push, varying = launch.push, command.varying
    declared = []
    for number, place in enumerate(epilogue.places):
        kind = _kind(command, place, shape)
        defines[f"PLACE{number}"] = kind
        if kind == "DIVIDED":
            push += pack(*place)
            declared.append(f"uint inner{number}, period{number};")
    for number, dropout in enumerate(epilogue.dropouts):
        moved = len(push) - DROPOUT_WORDS.start
        varying += tuple(word._replace(offset=word.offset + moved) for word in dropout.varying)
        push += dropout.launch.push[DROPOUT_WORDS]
        names = ", ".join(f"{name}{number}" for name in ("key_low", "key_high", "start_low", "start_high"))
        declared.append(f"uint {names}, threshold{number}; float scale{number};")
    if len(push) > MAX_PUSH_BYTES or (epilogue.dropouts and not _stores_vectors(command)):
        return None
    defines["EPILOGUE_PUSH"] = " ".join(declared)
    if epilogue.dropouts:
        defines["DROPOUTS"] = len(epilogue.dropouts)
    defines |= dict.fromkeys(epilogue.includes, 1)
    count = len(command.bindings)
    types = {count - 1: storage_type(graph, dtype)}
    types |= {
        place: storage_type(graph, operand.dtype, read=True)
        for place, operand in enumerate(epilogue.operands, count)
    }
    shader = launch.shader.with_macros(defines).storing_at(types)
    extra = tuple(whole_of(graph, operand.value.buffer) for operand in epilogue.operands)
    return replace(
        command,
        launch=replace(launch, shader=shader, push=push),
        bindings=(*command.bindings[:-1], result, *extra),
        writes=(*command.writes, *(False for _ in extra)),
        varying=varying,
    )


def storage_type(graph: Graph, dtype: str, *, read: bool = False) -> StorageType | None:
    """The floats of 16 bits at a binding, if any; a processor fetches two that are only read as a texel."""
    if dtype not in HALVES:
        return None
    return StorageType(dtype, read and find_device(graph.device).info.type == "software")


def holds(device: Device, operands: Iterable[Operand]) -> bool:
    """Whether kernels of a device read and write these operands."""
    return stores_halves(device) or not any(operand.dtype in HALVES for operand in operands)


def _dtype(argument: Argument) -> str:
    return argument.dtype if isinstance(argument, Operand) else ""


def _stores_vectors(command: BoundLaunch) -> bool:
    """Whether a kernel stores four results at a time, as many as have their random words from one draw."""
    if COORDINATES[command.launch.shader.path] != "gemm":
        return False
    p = push_constants(command.launch)
    return not (p.N | p.ldc | p.c_step | p.c_offset) % 4


def whole_of(graph: Graph, buffer: int) -> Binding:
    """All of a buffer, as commands bind it."""
    return Binding(buffer, 0, bound_bytes(graph.buffers[buffer].nbytes))


def _kind(command: BoundLaunch, place: Place, shape: Shape) -> str:
    """The PLACE of epilogue.glsl by which a kernel finds an operand's element."""
    inner, period = place
    if period == 1:
        return "ONE"
    if place == Place(1, math.prod(shape)):
        return "ELEMENT"
    coordinates = COORDINATES[command.launch.shader.path]
    if coordinates == "channel" and len(shape) > 2 and place == Place(math.prod(shape[2:]), shape[1]):
        return "ROW"
    if coordinates == "linear":
        p = push_constants(command.launch)
        if place == Place(1, p.features):
            return "COLUMN"
        if inner == p.features and period >= p.rows:
            return "ROW"
    if coordinates == "gemm":
        p = push_constants(command.launch)
        step = 0 if command.launch.groups[2] == 1 else p.c_step
        size = inner * period
        if inner == p.ldc and period >= p.M and step % size == 0 and p.c_offset % size + p.N <= inner:
            return "ROW"
        distances = (p.ldc, step, p.c_offset)
        if inner == 1 and period >= p.N and not any(distance % period for distance in distances):
            return "COLUMN"
    return "DIVIDED"


def number(argument: Argument | Any) -> str | None:
    """A number as a GLSL float that binds as tightly as a name; None for anything else.

    >>> number(-0.1), number(2)
    ('(-0.1)', '2.0')
    """
    if isinstance(argument, Operand) or not isinstance(argument, (int, float, np.number)):
        return None
    with np.errstate(over="ignore"):
        value = np.float32(argument)
    if not np.isfinite(value):
        return f"uintBitsToFloat({value.view(np.uint32):#x}u)"
    text = str(value)
    text = text if re.search("[.e]", text) else f"{text}.0"
    return f"({text})" if text.startswith("-") else text


def _has_varying_words(node: Node) -> bool:
    """Whether a number of the node is computed anew for each call."""
    return any(not isinstance(command, BoundLaunch) or command.varying for command in node.commands)
