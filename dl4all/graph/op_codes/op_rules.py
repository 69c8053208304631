"""Ops that are not elementwise, and commands of none, as instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dl4all.graph.ir.graph import BoundFill, BoundLaunch, MultiTensorLaunch, Node
from dl4all.graph.ir.graph import Operand as TensorView
from dl4all.graph.op_codes.elementwise_rules import MASK_RULES, RULES
from dl4all.graph.op_codes.emitter import Emitter, Source, Unsupported
from dl4all.graph.op_codes.instruction import AXES, Register, contiguous, register
from dl4all.graph.op_codes.optimizer_rules import emit_updates, is_update
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, contiguous_strides

Rule: TypeAlias = Callable[[Emitter, Node, TensorView, dict[str, Any]], None]
INDICES = "loss/cross_entropy.comp", "loss/cross_entropy_backward.comp"


def emit_node(
    emitter: Emitter,
    node: Node,
    rules: Mapping[str, Rule] | None = None,
    dtypes: Sequence[str] = ("float32",),
) -> None:
    """Append the instructions of a node, by the rules of ops; those of compiled calls unless given.

    Raises:
        Unsupported: there are none.
    """
    if is_update(node):
        emit_updates(emitter, [node])
        return
    if not node.op:
        _emit_command(emitter, node)
        return
    rule = (OPS if rules is None else rules).get(node.op, emit_elementwise if node.op in RULES else None)
    if rule is None:
        raise Unsupported(f"is the op {node.op}")
    result = node.result
    if result is None or result.value not in node.writes:
        raise Unsupported("writes no result")
    if any(value != result.value and not emitter.is_scratch(value) for value in node.writes):
        raise Unsupported("writes more than its result")
    if any(operand.dtype not in dtypes for operand in (result, *node.tensors)):
        raise Unsupported("computes with other elements than float32")
    if any(isinstance(c, BoundLaunch | MultiTensorLaunch) and c.varying for c in node.commands):
        raise Unsupported("takes numbers that change from call to call")
    if rule is not emit_elementwise and any(o.value.buffer == result.value.buffer for o in node.tensors):
        raise Unsupported("writes over its operand")
    for operand in node.tensors:
        emitter.read(operand.value.buffer)
    emitter.write(result.value.buffer, math.prod(result.shape))
    rule(emitter, node, result, dict(node.arguments))


# Elementwise


def emit_elementwise(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    tensors = [broadcast_strides(operand, result.shape) for operand in node.tensors]
    shape, strides = merge_axes(result.shape, [*tensors, result.strides])
    if len(shape) > AXES:
        raise Unsupported(f"has {len(shape)} axes")
    own = strides[-1], result.offset
    for tensor, steps in zip(node.tensors, strides, strict=False):
        if tensor.value.buffer == result.value.buffer and (steps, tensor.offset) != own:
            raise Unsupported("writes over elements that it has yet to read")
    views = iter(
        [emitter.view(o, shape, steps) for o, steps in zip((*node.tensors, result), strides, strict=True)]
    )
    operands: dict[str, Source] = {}
    for name, operand in zip("abc", node.operands, strict=False):
        if operand is None:
            raise Unsupported("leaves an operand out")
        operands[name] = next(views) if isinstance(operand, TensorView) else float(operand)
    operands["y"] = next(views)
    numbers = {name: f"#{float(v)!r}" for name, v in arguments.items() if isinstance(v, int | float)}
    for line in (RULES.get(node.op) or MASK_RULES[node.op]).format(**numbers).split(";"):
        name, _, rest = line.strip().partition(" ")
        target, *words = rest.split(", ")
        if target not in operands:
            operands[target] = emitter.temporary(shape)
        to = operands[target]
        assert isinstance(to, Register)
        sources = [float(w[1:]) if w.startswith("#") else operands[w] for w in words]
        if name in ("mad", "nmad") and sources[1] == 1.0:
            emitter.emit("add" if name == "mad" else "sub", to, *_in_order(name, sources))
        else:
            emitter.emit(name, to, *sources)


def _in_order(name: str, sources: list[Source]) -> tuple[Source, Source]:
    """The operands of a sum a + c, or a difference c - a."""
    return (sources[0], sources[2]) if name == "mad" else (sources[2], sources[0])


def broadcast_strides(operand: TensorView, shape: Shape) -> Shape:
    """The strides of an operand as a tensor of this shape."""
    missing = len(shape) - len(operand.shape)
    steps = zip(operand.shape, operand.strides, strict=True)
    return (0,) * missing + tuple(0 if size == 1 else stride for size, stride in steps)


# Reductions


def rows_of(emitter: Emitter, tensors: Sequence[TensorView], dims: tuple[int, ...]) -> list[Register]:
    """Tensors of one shape, with the axes of a reduction as one, the last.

    Raises:
        Unsupported: no single stride walks along them.
    """
    kept = tuple(axis for axis in range(len(tensors[0].shape)) if axis not in dims)
    inner, inner_steps = _merged(tensors, dims)
    outer, outer_steps = _merged(tensors, kept)
    if len(inner) > 1 or len(outer) > AXES - 1:
        raise Unsupported("reduces axes that are apart")
    sizes = (*outer, *(inner or (1,)))
    return [
        emitter.view(tensor, sizes, (*across, *(along or (0,))))
        for tensor, across, along in zip(tensors, outer_steps, inner_steps, strict=True)
    ]


def _merged(tensors: Sequence[TensorView], axes: Sequence[int]) -> tuple[Shape, list[Shape]]:
    """Some axes of tensors of one shape, as few as all their strides allow; none of one element."""
    shape = tuple(tensors[0].shape[axis] for axis in axes)
    if math.prod(shape) == 1:
        return (), [()] * len(tensors)
    merged, strides = merge_axes(shape, [tuple(t.strides[axis] for axis in axes) for t in tensors])
    return merged, strides


def _emit_reduction(emitter: Emitter, tensor: TensorView, result: TensorView, dims: Any, name: str) -> None:
    [rows] = rows_of(emitter, [tensor], dims)
    emitter.emit(name, column_of(emitter, result, rows), rows)


def column_of(emitter: Emitter, result: TensorView, rows: Register) -> Register:
    """The result of a reduction: one element for each row.

    Raises:
        Unsupported: it has gaps.
    """
    if result.strides != contiguous_strides(result.shape):
        raise Unsupported("has a result with gaps")
    sizes = (*rows.sizes[:3], 1)
    return emitter.view(result, sizes, contiguous(sizes))


def reduced_axes(tensor: TensorView, dim: Any) -> tuple[int, ...]:
    count = len(tensor.shape)
    if dim is None:
        return tuple(range(count))
    return tuple(axis % count for axis in ((dim,) if isinstance(dim, int) else dim)) if count else ()


def _emit_sum(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [tensor] = node.tensors
    name = "row_sum" if node.op == "sum" else "row_mean"
    _emit_reduction(emitter, tensor, result, reduced_axes(tensor, arguments["dim"]), name)


def _emit_sum_to(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [tensor] = node.tensors
    missing = len(tensor.shape) - len(result.shape)
    padded = (1,) * missing + result.shape
    dims = tuple(a for a, (one, own) in enumerate(zip(padded, tensor.shape, strict=True)) if one != own)
    _emit_reduction(emitter, tensor, result, dims, "row_sum")


def _scores(emitter: Emitter, scores: Register) -> tuple[Register, Register, Register]:
    """Of rows of scores: those minus the largest of the row, the exponentials of that, and their sums."""
    column = (*scores.sizes[:3], 1)
    largest = emitter.emit("row_max", emitter.temporary(column), scores)
    shifted = emitter.emit("sub", emitter.temporary(scores.sizes), scores, largest)
    powers = emitter.emit("exp", emitter.temporary(scores.sizes), shifted)
    return shifted, powers, emitter.emit("row_sum", emitter.temporary(column), powers)


def _emit_softmax(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [tensor] = node.tensors
    rows, target = rows_of(emitter, (tensor, result), reduced_axes(tensor, arguments["dim"]))
    shifted, powers, total = _scores(emitter, rows)
    if node.op == "softmax":
        emitter.emit("div", target, powers, total)
    else:
        emitter.emit("sub", target, shifted, emitter.emit("log", emitter.temporary(total.sizes), total))


def _emit_softmax_backward(
    emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]
) -> None:
    tensors = (*node.tensors, result)
    grad, forward, target = rows_of(emitter, tensors, reduced_axes(result, arguments["dim"]))
    if node.op == "softmax_backward":  # forward * (grad - sum(grad * forward))
        product = emitter.emit("mul", emitter.temporary(grad.sizes), grad, forward)
        total = emitter.emit("row_sum", emitter.temporary((*grad.sizes[:3], 1)), product)
        change = emitter.emit("sub", emitter.temporary(grad.sizes), grad, total)
        emitter.emit("mul", target, forward, change)
    else:  # grad - exp(forward) * sum(grad)
        total = emitter.emit("row_sum", emitter.temporary((*grad.sizes[:3], 1)), grad)
        power = emitter.emit("exp", emitter.temporary(grad.sizes), forward)
        emitter.emit("nmad", target, power, total, grad)


# Products


def _matrix(emitter: Emitter, tensor: TensorView) -> Register:
    """A tensor as one matrix of its last axis.

    Raises:
        Unsupported: its other axes have no common stride.
    """
    shape, [strides] = _merged([tensor], range(len(tensor.shape) - 1))
    if len(shape) > 1:
        raise Unsupported("has rows that are apart")
    return emitter.view(
        tensor, (*(shape or (1,)), tensor.shape[-1]), (*(strides or (0,)), tensor.strides[-1])
    )


def _emit_linear(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    x, weight, *bias = node.tensors
    transposed = emitter.view(weight, weight.shape[::-1], weight.strides[::-1])
    start = [emitter.view(bias[0])] if bias else []
    emitter.emit("matmul", _matrix(emitter, result), _matrix(emitter, x), transposed, *start)


def _emit_matmul(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    a, b = node.tensors
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Unsupported("multiplies vectors")
    if len(b.shape) == 2:
        emitter.emit("matmul", _matrix(emitter, result), _matrix(emitter, a), emitter.view(b))
    else:
        emitter.emit("matmul", emitter.view(result), emitter.view(a), emitter.view(b))


# Classes


def _classes(
    emitter: Emitter, node: Node, scores: TensorView, arguments: dict[str, Any]
) -> tuple[Register, Register]:
    """Rows of scores, and the one-hot rows of their targets."""
    if len(scores.shape) != 3 or scores.shape[2] != 1 or node.operands[-1] is not None:
        raise Unsupported("weights classes, or has them on an axis in the middle")
    if arguments["label_smoothing"]:
        raise Unsupported("smooths labels")
    command = node.commands[-1]
    if len(node.commands) != 1 or not isinstance(command, BoundLaunch):
        raise Unsupported("takes several kernels")
    if command.launch.shader.path not in INDICES:
        raise Unsupported("is computed by an unknown shader")
    binding = command.bindings[-2]
    if binding.offset:
        raise Unsupported("has targets in the middle of a buffer")
    rows, classes, _ = scores.shape
    emitter.read(binding.buffer)
    targets = register(emitter.place(binding.buffer)[0].register.offset, (rows,))
    hot = emitter.emit("one_hot", emitter.temporary((rows, classes)), targets)
    return emitter.view(scores, (rows, classes), scores.strides[:2]), hot


def _emit_cross_entropy(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    rows, hot = _classes(emitter, node, node.tensors[0], arguments)
    shifted, _, total = _scores(emitter, rows)
    logarithm = emitter.emit("log", emitter.temporary(total.sizes), total)
    losses = emitter.emit("sub", emitter.temporary(hot.sizes), logarithm, shifted)
    chosen = emitter.emit("select", emitter.temporary(hot.sizes), hot, losses, 0.0)  # 0 * inf is nan
    emitter.emit("row_sum", emitter.view(result, (rows.sizes[2], 1), (1, 0)), chosen)


def _emit_cross_entropy_backward(
    emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]
) -> None:
    grad, scores = node.tensors[:2]
    rows, hot = _classes(emitter, node, scores, arguments)
    _, powers, total = _scores(emitter, rows)
    share = emitter.emit("div", emitter.temporary(hot.sizes), powers, total)
    change = emitter.emit("sub", emitter.temporary(hot.sizes), share, hot)
    counts = emitter.emit("row_sum", emitter.temporary(total.sizes), hot)  # 0 for targets that do not count
    weight = emitter.view(grad, (rows.sizes[2], 1), (grad.strides[0], 0))
    scaled = emitter.emit("mul", emitter.temporary(hot.sizes), change, weight)
    emitter.emit("select", emitter.view(result, result.shape[:2], result.strides[:2]), counts, scaled, 0.0)


OPS: dict[str, Rule] = {
    "sum": _emit_sum,
    "mean": _emit_sum,
    "sum_to": _emit_sum_to,
    "softmax": _emit_softmax,
    "log_softmax": _emit_softmax,
    "softmax_backward": _emit_softmax_backward,
    "log_softmax_backward": _emit_softmax_backward,
    "linear": _emit_linear,
    "matmul": _emit_matmul,
    "cross_entropy_each": _emit_cross_entropy,
    "cross_entropy_backward": _emit_cross_entropy_backward,
}


# Commands without an op


def _emit_command(emitter: Emitter, node: Node) -> None:
    if len(node.commands) != 1:
        raise Unsupported("is more than one command")
    [command] = node.commands
    if isinstance(command, BoundFill):
        _emit_fill(emitter, command)
    elif isinstance(command, BoundLaunch) and command.launch.shader.path == "indexing/count_selected.comp":
        _emit_count(emitter, command)
    else:
        raise Unsupported(f"is the command {node.name}")


def _emit_fill(emitter: Emitter, command: BoundFill) -> None:
    number, offset, nbytes = command.binding
    [whole] = emitter.place(number)
    first = offset // 4
    count = min(nbytes // 4, whole.register.elements - first)  # fills go on to the end of the memory
    emitter.write(number, count)
    emitter.emit(
        "copy", register(whole.register.offset + first, (count,)), emitter.number(command.word, None)
    )


def _emit_count(emitter: Emitter, command: BoundLaunch) -> None:
    indices, result = command.bindings
    if indices.offset or result.offset:
        raise Unsupported("counts in the middle of a buffer")
    count = int.from_bytes(command.launch.push, "little")
    emitter.read(indices.buffer)
    emitter.write(result.buffer, 1)
    source = register(emitter.place(indices.buffer)[0].register.offset, (count,))
    floats = emitter.emit("float", emitter.temporary((count,)), source)
    selected = emitter.emit("le", emitter.temporary((count,)), 0.0, floats)
    emitter.emit("row_sum", register(emitter.place(result.buffer)[0].register.offset, (1,)), selected)
