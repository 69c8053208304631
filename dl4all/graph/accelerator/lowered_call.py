"""From a call to instructions on whole tensors in DRAM: straight lines of them, choices and iterations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.op_rules import MASKS, RULES, emit_command
from dl4all.graph.ir.graph import Binding, Graph, HostCall, Node, Operand, Value
from dl4all.graph.op_codes.choice import SINGLE_OPS
from dl4all.graph.op_codes.emitter import Emitter, Line, Transfer, Unsupported
from dl4all.graph.op_codes.instruction import AXES, Register, register
from dl4all.graph.op_codes.op_rules import emit_node
from dl4all.graph.passes import pipeline
from dl4all.graph.run.control_flow_nodes import ControlFlow, control_flow_of
from dl4all.graph.tracing.trace import Tracer, traced
from dl4all.ops.core import tape
from dl4all.ops.core.kernels.host_work import ArrayView
from dl4all.ops.core.tensor_base import TensorBase, from_host

WORDS = ("float32", "int32", "uint32", "bool")
"""Elements that are words in DRAM."""
CHECK = "check_indices"
"""The work of the host that makes places of a table's rows from indices of any integer type."""


@dataclass(frozen=True)
class BranchPart:
    """One of two parts, by whether a word is 0."""

    pred: Register
    if_true: tuple[Part, ...]
    if_false: tuple[Part, ...]


@dataclass(frozen=True)
class LoopPart:
    """A part that is repeated for as long as the word is not 0 that another one computes before."""

    condition: tuple[Part, ...]
    pred: Register
    body: tuple[Part, ...]


Part: TypeAlias = "tuple[Line, ...] | BranchPart | LoopPart"


class Placed(NamedTuple):
    """Words of DRAM that hold a buffer; each element of a mask has a word of its own."""

    number: int
    start: int
    words: int
    is_mask: bool


@dataclass
class LoweredCall:
    """A call, or a function in it: its parts, and what lies where in DRAM.

    ``preparations`` are the work of the host before the program runs: indices become places of rows.
    """

    graph: Graph
    tracer: Tracer
    arguments: tuple[Operand, ...]
    emitter: MaskEmitter
    is_single: bool
    parts: list[Part] = field(default_factory=list)
    results: list[tuple[Register, Operand]] = field(default_factory=list)
    preparations: list[HostCall] = field(default_factory=list)
    functions: list[LoweredCall] = field(default_factory=list)

    @property
    def placed(self) -> list[Placed]:
        """The places of all buffers."""
        return [
            Placed(number, piece.register.offset, piece.register.elements, number in self.emitter.masks)
            for number, [piece] in self.emitter.pieces.items()
        ]


class MaskEmitter(Emitter):
    """An emitter for graphs with bools, each of which is a word: 1.0 or 0.0.

    Args:
        graph: whose nodes are taken apart.
        words: of the memory that others have.
    """

    def __init__(self, graph: Graph, words: int = 0) -> None:
        super().__init__(graph)
        self.words = words
        operands = [o for node in graph.nodes for o in (*node.tensors, node.result) if isinstance(o, Operand)]
        self.masks = {o.value.buffer for o in (*operands, *graph.outputs) if o.dtype == "bool"}

    def words_of(self, buffer: int) -> int:
        nbytes = self._graph.buffers[buffer].nbytes
        return max(nbytes, 1) if buffer in self.masks else super().words_of(buffer)

    def view(
        self, tensor: Operand, shape: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None
    ) -> Register:
        words = replace(tensor, dtype="float32") if tensor.dtype == "bool" else tensor
        return super().view(words, shape, strides)


def lower_call(function: Callable[..., Any], args: Sequence[Any]) -> LoweredCall:
    """A call with tensors like these on the CPU.

    Raises:
        ArgumentError: tensors lie on another device, or an op has no instructions; it names the op.
    """
    if any(isinstance(one, TensorBase) and not one.device.is_host for one in args):
        raise ArgumentError(
            "[accelerator_model] compiles calls with tensors on the CPU, the host of the accelerator; "
            'move model and inputs by .to("cpu")'
        )
    return _lower(function, args, 0, ())


def _lower(
    function: Callable[..., Any], args: Sequence[Any], words: int, places: Sequence[Register]
) -> LoweredCall:
    """A function whose first tensors lie at places that others have."""
    whole, tracer, result = traced(function, *args)
    tensors = [one for one in args if isinstance(one, TensorBase)]
    arguments = tuple(replace(tracer.operand(one), value=Value(tracer.number_of(one), 0)) for one in tensors)
    graph = pipeline.run(whole, set(pipeline.NAMES).difference(SINGLE_OPS))
    emitter = MaskEmitter(graph, words)
    emitter.masks.update(one.value.buffer for one in arguments if one.dtype == "bool")
    call = LoweredCall(graph, tracer, arguments, emitter, isinstance(result, TensorBase))
    for argument, place in zip(arguments, places, strict=False):
        flat = register(place.offset, (place.elements,))
        emitter.pieces[argument.value.buffer] = (Transfer(argument.value.buffer, 0, flat),)
    _check_effects(graph)
    for node in graph.nodes:
        try:
            _lower_node(call, node)
        except Unsupported as problem:
            raise ArgumentError(
                f"[accelerator_model] the op {node.op or node.name} has no instructions: it {problem}"
                + (f" ({node.line})" if node.line else "")
            ) from None
    for one in graph.outputs:
        if one.dtype not in WORDS:
            raise ArgumentError(
                f"[accelerator_model] a result has elements of {one.dtype}; return float32 or bool"
            )
        emitter.read(one.value.buffer)
        call.results.append((emitter.place(one.value.buffer)[0].register, one))
    _end_line(call)
    return call


def _check_effects(graph: Graph) -> None:
    """
    Raises:
        ArgumentError: a call changes memory that is there before it and after it, which no program does.
    """
    outside = ("input", "captured", "state")
    if any(value.version and graph.buffers[value.buffer].kind in outside for value in graph.kept):
        raise ArgumentError(
            "[accelerator_model] the call changes tensors in place that it was given or sees, such as "
            "statistics in training mode, or makes gradients; use .eval() and return new tensors"
        )


def _end_line(call: LoweredCall) -> None:
    if call.emitter.lines:
        call.parts.append(tuple(call.emitter.lines))
        call.emitter.lines = []


def _lower_node(call: LoweredCall, node: Node) -> None:
    """
    Raises:
        Unsupported: there are no instructions.
    """
    if _is_preparation(call.graph, node):
        call.preparations += [command for command in node.commands if isinstance(command, HostCall)]
        return
    first = len(call.emitter.lines)
    found = control_flow_of(node.commands[0]) if node.commands else None
    if found is None:
        if node.op not in MASKS and any(o.dtype == "bool" for o in (*node.tensors, node.result) if o):
            raise Unsupported("computes with bools")
        if node.op:
            emit_node(call.emitter, node, RULES, ("float32", "bool"))
        else:
            emit_command(call.emitter, node)
    elif found.name == "cond":
        _lower_choice(call, found)
    elif found.name == "while_loop":
        _lower_iteration(call, found)
    else:
        raise Unsupported("is a scan of more slices than a graph takes as they are")
    name = node.op or node.name
    call.emitter.lines[first:] = [line._replace(op=name) for line in call.emitter.lines[first:]]


def _is_preparation(graph: Graph, node: Node) -> bool:
    """Whether the host makes indices ready, as the accelerator has no ints of 64 bits."""
    given = all(graph.buffers[value.buffer].kind in ("input", "constant", "captured") for value in node.reads)
    return not node.op and node.name == CHECK and given and isinstance(node.commands[0], HostCall)


# Conditions and loops


def _lower_choice(call: LoweredCall, found: ControlFlow) -> None:
    pred, *operands = _inputs(call, found)
    results = _results(call, found)
    _end_line(call)
    branches = [
        _function_parts(call, found, number, operands, lambda made: _copies(made, results))
        for number in (0, 1)
    ]
    call.parts.append(BranchPart(pred, branches[0], branches[1]))


def _lower_iteration(call: LoweredCall, found: ControlFlow) -> None:
    inputs = _inputs(call, found)
    carried = _results(call, found)
    call.emitter.lines += _copies(inputs[: len(carried)], carried)
    _end_line(call)
    preds: list[Register] = []

    def keep_pred(made: Sequence[Register]) -> list[Line]:
        preds.extend(made)
        return []

    def carry(made: Sequence[Register]) -> list[Line]:
        # The results may be what is carried in another order: none is written before all are read.
        later = [call.emitter.temporary(one.sizes) for one in made]
        return [*_copies(made, later), *_copies(later, carried)]

    places = [*carried, *inputs[len(carried) :]]
    condition = _function_parts(call, found, 0, places, keep_pred)
    body = _function_parts(call, found, 1, places, carry)
    call.parts.append(LoopPart(condition, preds[0], body))


def _inputs(call: LoweredCall, found: ControlFlow) -> list[Register]:
    for binding in found.inputs:
        call.emitter.read(binding.buffer)
    return [_register(call, *pair) for pair in zip(found.inputs, found.input_views, strict=True)]


def _results(call: LoweredCall, found: ControlFlow) -> list[Register]:
    views = list(zip(found.outputs, found.output_views, strict=True))
    for binding, view in views:
        if view.dtype == np.bool_:
            call.emitter.masks.add(binding.buffer)
        call.emitter.write(binding.buffer, math.prod(view.shape))
    return [_register(call, *pair) for pair in views]


def _register(call: LoweredCall, binding: Binding, view: ArrayView) -> Register:
    """A contiguous tensor of an operator.

    Raises:
        Unsupported: its elements are no words, or it has too many axes.
    """
    if view.dtype.name not in WORDS:
        raise Unsupported(f"takes or gives tensors of {view.dtype}")
    if len(view.shape) > AXES:
        raise Unsupported(f"has {len(view.shape)} axes")
    first = (binding.offset + view.offset) // view.dtype.itemsize
    return register(call.emitter.place(binding.buffer)[0].register.offset + first, view.shape)


def _function_parts(
    call: LoweredCall,
    found: ControlFlow,
    number: int,
    operands: Sequence[Register],
    store: Callable[[Sequence[Register]], list[Line]],
) -> tuple[Part, ...]:
    """The parts of a function of an operator, and behind them the lines that store its results."""
    chosen = found.operands_of(number)
    places = [operands[position - found.shift] for position in chosen]
    views = [found.input_views[position] for position in chosen]
    stand_ins = [
        from_host(found.cls, np.ones(v.shape, v.dtype) if v.dtype.kind == "f" else np.zeros(v.shape, v.dtype),
                  call.tracer.device, copy=True)
        for v in views
    ]  # fmt: skip
    with tape.gradients(False):
        made = _lower(found.functions[number], stand_ins, call.emitter.words, places)
    if made.preparations:
        raise Unsupported("takes rows by indices in a function of its own; take them before")
    call.emitter.words = made.emitter.words
    call.functions.append(made)
    lines = store([made.emitter.view(one) for _, one in made.results])
    named = tuple(line._replace(op=found.name) for line in lines)
    return (*made.parts, named) if named else tuple(made.parts)


def _copies(sources: Sequence[Register], targets: Sequence[Register]) -> list[Line]:
    return [Line("copy", target, (source,)) for source, target in zip(sources, targets, strict=True)]
