"""Ops of networks as instructions of the accelerator, in addition to those of compiled calls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Binding, HostCall, Node, Value
from dl4all.graph.ir.graph import Operand as TensorView
from dl4all.graph.op_codes.elementwise_rules import MASK_RULES
from dl4all.graph.op_codes.emitter import Emitter, Unsupported
from dl4all.graph.op_codes.instruction import AXES, Register, SlidingWindow, register
from dl4all.graph.op_codes.op_rules import (
    OPS,
    Rule,
    broadcast_strides,
    column_of,
    emit_elementwise,
    reduced_axes,
    rows_of,
)
from dl4all.ops.core.kernels.host_work import ArrayView, HostWork
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.pool.avg_pool import avg_pooling
from dl4all.ops.pool.max_pool import max_pooling
from dl4all.ops.pool.windows import Pooling, adaptive


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


# Convolutions and pools


def _emit_conv(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    x, weight, *bias = node.tensors
    padding, dilation = arguments["padding"], _pair(arguments["dilation"])
    stride = _pair(arguments["stride"])
    size = (weight.shape[2], weight.shape[3])
    if isinstance(padding, str):
        total = [(k - 1) * d if padding == "same" else 0 for k, d in zip(size, dilation, strict=True)]
        padding = (total[0] // 2, total[1] // 2)
    window = SlidingWindow(size, stride, _pair(padding), dilation)
    start = [emitter.view(bias[0], (bias[0].shape[0], 1, 1), (bias[0].strides[0], 0, 0))] if bias else []
    _check_padding(window)
    emitter.emit(
        "conv",
        emitter.view(result),
        emitter.view(x),
        emitter.view(weight),
        *start,
        window=window,
    )


def _check_padding(window: SlidingWindow) -> None:
    for size, padding, dilation in zip(window.size, window.padding, window.dilation, strict=True):
        if padding > (size - 1) * dilation:
            raise Unsupported("has windows that lie in the padding only")


def _pool(emitter: Emitter, node: Node, result: TensorView, pooling: Pooling, name: str) -> None:
    [x] = node.tensors
    if pooling.win is None:
        raise Unsupported("pools to sizes that do not divide the image")
    win = pooling.win
    window = SlidingWindow(_pair(win.kernel), _pair(win.stride), _pair(win.before), _pair(win.dilation))
    _check_padding(window)
    emitter.emit(name, emitter.view(result), emitter.view(x), window=window)


def _emit_max_pool(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    _pool(emitter, node, result, max_pooling(node.tensors[0].shape, **arguments), "max_pool")


def _emit_avg_pool(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    pooling = avg_pooling(node.tensors[0].shape, **arguments)
    _pool(emitter, node, result, pooling, "sum_pool")
    divisors = np.unique(pooling.divisors())
    if len(divisors) != 1:
        raise Unsupported("divides windows at the border by other numbers")
    sums = emitter.view(result)
    emitter.emit("div", sums, sums, float(divisors[0]))


def _emit_adaptive(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [x] = node.tensors
    pooling = adaptive("adaptive_avg_pool2d", x.shape, arguments["output_size"])
    height, width = x.shape[-2:]
    if pooling.out_size == (1, 1):
        if x.strides != contiguous_strides(x.shape):
            raise Unsupported("takes the mean of strided images")
        rows = math.prod(x.shape[:-2])
        emitter.emit(
            "row_mean",
            emitter.view(result, (rows, 1), (1, 0)),
            emitter.view(x, (rows, height * width), (height * width, 1)),
        )
        return
    count = pooling.out_size
    if height % count[0] or width % count[1]:
        raise Unsupported("pools to sizes that do not divide the image")
    size = (height // count[0], width // count[1])
    sums = emitter.emit("sum_pool", emitter.view(result), emitter.view(x), window=SlidingWindow(size, size))
    emitter.emit("div", sums, sums, float(math.prod(size)))


# Normalisation


def _emit_batch_norm(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    """A scale and a shift for each channel, from the statistics."""
    x, mean, var, weight, bias = node.operands
    assert isinstance(x, TensorView)
    assert isinstance(mean, TensorView)
    assert isinstance(var, TensorView)
    channels = x.shape[1]
    column = (channels, 1)
    rows = emitter.temporary(column)
    emitter.emit("add", rows, _column(emitter, var), arguments["eps"])
    scale = emitter.emit("rsqrt", emitter.temporary(column), rows)
    if isinstance(weight, TensorView):
        scale = emitter.emit("mul", emitter.temporary(column), scale, _column(emitter, weight))
    start = _column(emitter, bias) if isinstance(bias, TensorView) else 0.0
    shift = emitter.emit("nmad", emitter.temporary(column), _column(emitter, mean), scale, start)
    own = (x.shape[0], channels, math.prod(x.shape[2:]))
    if x.strides != contiguous_strides(x.shape) or result.strides != contiguous_strides(result.shape):
        raise Unsupported("normalises strided images")
    emitter.emit(
        "mad", emitter.view(result, own, contiguous_strides(own)),
        emitter.view(x, own, contiguous_strides(own)), scale, shift,
    )  # fmt: skip


def _column(emitter: Emitter, tensor: TensorView) -> Register:
    return emitter.view(tensor, (tensor.shape[0], 1), (tensor.strides[0], 0))


def _emit_grouped_norm(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    x, weight, bias = node.operands
    assert isinstance(x, TensorView)
    if x.strides != contiguous_strides(x.shape) or result.strides != contiguous_strides(result.shape):
        raise Unsupported("normalises strided rows")
    groups, channels = arguments["groups"], x.shape[1]
    count = x.shape[0] * groups
    inner = math.prod(x.shape[2:])
    length = math.prod(x.shape) // count
    shape = (count, length)
    column = (count, 1)
    rows = emitter.view(x, shape, contiguous_strides(shape))
    if arguments["center"]:
        mean = emitter.emit("row_mean", emitter.temporary(column), rows)
        rows = emitter.emit("sub", emitter.temporary(shape), rows, mean)
    squares = emitter.emit("mul", emitter.temporary(shape), rows, rows)
    variance = emitter.emit("row_mean", emitter.temporary(column), squares)
    shifted = emitter.emit("add", emitter.temporary(column), variance, arguments["eps"])
    scale = emitter.emit("rsqrt", emitter.temporary(column), shifted)
    parts = [one for one in (weight, bias) if isinstance(one, TensorView)]
    whole = emitter.view(result, shape, contiguous_strides(shape))
    normal = emitter.emit("mul", emitter.temporary(shape) if parts else whole, rows, scale)
    if not parts:
        return
    own = (x.shape[0], groups, channels // groups, inner)
    view = (groups, channels // groups, 1)
    if groups == 1 and inner == 1:
        own, view = (1, 1, *shape), (1, 1, channels)
    source = register(normal.offset, own)
    target = emitter.view(result, own, contiguous_strides(own))
    factors = [
        emitter.view(one, view, contiguous_strides(view)) if isinstance(one, TensorView) else None
        for one in (weight, bias)
    ]
    if factors[0] is None:
        assert factors[1] is not None
        emitter.emit("add", target, source, factors[1])
    elif factors[1] is None:
        emitter.emit("mul", target, source, factors[0])
    else:
        emitter.emit("mad", target, source, factors[0], factors[1])


# Attention


def _emit_attention(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    """Means of the values by softmax of scores, the logsumexp of each row, and zeros for what it has lost."""
    query, key, value, mask = node.operands
    assert isinstance(query, TensorView)
    assert isinstance(key, TensorView)
    assert isinstance(value, TensorView)
    if arguments["repeats"] != 1:
        raise Unsupported("shares keys between heads")
    batch, queries, _ = query.shape
    keys, columns = value.shape[1:]
    shape = (batch, queries, keys)
    k = key.strides
    transposed = emitter.view(key, (batch, key.shape[2], keys), (k[0], k[2], k[1]))
    scores = emitter.emit("matmul", emitter.temporary(shape), emitter.view(query), transposed)
    scores = emitter.emit("mul", emitter.temporary(shape), scores, float(arguments["scale"]))
    if isinstance(mask, TensorView):
        if mask.shape[0] != 1:
            raise Unsupported("has masks of its own for some heads")
        scores = emitter.emit("add", emitter.temporary(shape), scores, emitter.view(mask))
    if arguments["causal"]:
        places = emitter.emit("iota", emitter.temporary((keys,)), 0.0)
        own = emitter.emit("iota", emitter.temporary((queries,)), 0.0)
        column = register(own.offset, (queries, 1), (1, 0))
        allowed = emitter.emit("le", emitter.temporary(shape[1:]), places, column)
        scores = emitter.emit("select", emitter.temporary(shape), allowed, scores, -math.inf)
    row = (batch, queries, 1)
    largest = emitter.emit("row_max", emitter.temporary(row), scores)
    shifted = emitter.emit("sub", emitter.temporary(shape), scores, largest)
    powers = emitter.emit("exp", emitter.temporary(shape), shifted)
    total = emitter.emit("row_sum", emitter.temporary(row), powers)
    weights = emitter.emit("div", emitter.temporary(shape), powers, total)
    whole = emitter.view(result)
    out = (batch, queries, columns)
    emitter.emit("matmul", register(whole.offset, out), weights, emitter.view(value))
    logarithm = emitter.emit("log", emitter.temporary(row), total)
    behind = whole.offset + math.prod(out)
    emitter.emit("add", register(behind, row), logarithm, largest)
    emitter.emit("copy", register(behind + math.prod(row), row), 0.0)


# Rows by their numbers


def _emit_take_rows(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [table] = node.tensors
    outer, count, inner = table.shape
    bound = {b.buffer for command in node.commands if isinstance(command, HostCall) for b in command.bindings}
    indices = bound - {table.value.buffer, result.value.buffer}
    if len(indices) != 1:
        raise Unsupported("takes rows by numbers that only the host has")
    [index] = indices
    emitter.read(index)
    rows = result.shape[1]
    words = emitter.place(index)[0].register
    checked = emitter.emit("check", emitter.temporary((rows,)), register(words.offset, (rows,)), float(count))
    for number in range(outer):  # of the tables
        target = replace(result, offset=result.offset + number * rows * inner)
        source = replace(table, offset=table.offset + number * table.strides[0])
        emitter.emit(
            "take_rows",
            emitter.view(target, (rows, inner), (inner, 1)),
            emitter.view(source, (count, inner), table.strides[1:]),
            checked,
        )


# Copies


def emit_command(emitter: Emitter, node: Node) -> None:
    """Append the instructions of work of the host that is a copy or fill.

    Raises:
        Unsupported: it is none.
    """
    [command, *more] = node.commands
    work = command.run if isinstance(command, HostCall) else None
    if more or not isinstance(command, HostCall) or not isinstance(work, HostWork):
        raise Unsupported(f"is the command {node.name}")
    pieces = [_words_of(binding, view) for binding, view in zip(command.bindings, work.views, strict=True)]
    if node.name == "copy_" and len(pieces) == 2:
        _emit_copy(emitter, pieces[0], pieces[1])
    elif node.name == "fill_" and len(work.numbers) == len(pieces) == 1:
        _emit_copy(emitter, float(np.uint32(work.numbers[0]).view(np.float32)), pieces[0])
    elif node.name == "cat" and work.kernel is not None:
        axis = int(str(work.kernel.constants[0]))
        *sources, target = pieces
        start = 0
        for source in sources:
            offset = target.offset + start * target.strides[axis]
            _emit_copy(emitter, source, replace(target, shape=source.shape, offset=offset))
            start += source.shape[axis]
    else:
        raise Unsupported(f"is the command {node.name}")


def _words_of(binding: Binding, view: ArrayView) -> TensorView:
    """An array in a piece of a buffer as a tensor."""
    if view.dtype != np.float32:
        raise Unsupported(f"copies elements of {view.dtype}")
    strides = tuple(stride // view.dtype.itemsize for stride in view.strides)
    offset = (binding.offset + view.offset) // view.dtype.itemsize
    return TensorView(Value(binding.buffer, 0), view.shape, "float32", strides, offset)


def _emit_clone(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [x] = node.tensors
    _emit_copy(emitter, replace(x, strides=broadcast_strides(x, result.shape), shape=result.shape), result)


def _emit_copy(emitter: Emitter, source: TensorView | float, target: TensorView) -> None:
    """Copy elements, or one number; an instruction for each index of the axes that are too many."""
    if target.elements == 0:
        return
    tensors: list[TensorView] = [target] if isinstance(source, float) else [target, source]
    shape, strides = merge_axes(target.shape, [one.strides for one in tensors])
    if not isinstance(source, float):
        emitter.read(source.value.buffer)
    emitter.write(target.value.buffer, target.elements)
    rest = shape[max(len(shape) - AXES, 0) :]
    for index in np.ndindex(*shape[: len(shape) - len(rest)]):
        places = []
        for one, steps in zip(tensors, strides, strict=True):
            shift = sum(i * step for i, step in zip(index, steps, strict=False))
            places.append(emitter.view(replace(one, offset=one.offset + shift), rest, steps[len(index) :]))
        emitter.emit("copy", places[0], source if isinstance(source, float) else places[1])


# Other reductions


def _emit_largest(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [x] = node.tensors
    [rows] = rows_of(emitter, [x], reduced_axes(x, arguments["dim"]))
    column = column_of(emitter, result, rows)
    if node.op == "amax":
        emitter.emit("row_max", column, rows)
    else:  # the largest of the negative ones
        emitter.emit("row_max", column, emitter.emit("neg", emitter.temporary(rows.sizes), rows))
        emitter.emit("neg", column, column)


def _emit_variance(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    [x] = node.tensors
    [rows] = rows_of(emitter, [x], reduced_axes(x, arguments["dim"]))
    count = rows.sizes[3] - arguments["correction"]
    if count <= 0:
        raise Unsupported("divides by no elements")
    column = column_of(emitter, result, rows)
    mean = emitter.emit("row_mean", emitter.temporary(column.sizes), rows)
    away = emitter.emit("sub", emitter.temporary(rows.sizes), rows, mean)
    squares = emitter.emit("mul", emitter.temporary(rows.sizes), away, away)
    emitter.emit("row_sum", column, squares)
    emitter.emit("div", column, column, float(count))


def _emit_cast(emitter: Emitter, node: Node, result: TensorView, arguments: dict[str, Any]) -> None:
    """A bool is a float of 1 or 0 already; of a float it is whether that is not 0."""
    [x] = node.tensors
    target, source = emitter.view(result), emitter.view(x)
    if result.dtype == x.dtype or x.dtype == "bool":
        emitter.emit("copy", target, source)
    else:
        emitter.emit("eq", target, emitter.emit("eq", emitter.temporary(x.shape), source, 0.0), 0.0)


MASKS = frozenset((*MASK_RULES, "cast", "sum", "mean", "clone"))
"""Ops that may have bools among their operands and results."""
RULES: dict[str, Rule] = (
    OPS
    | dict.fromkeys(MASK_RULES, emit_elementwise)
    | {
        "cast": _emit_cast,
        "clone": _emit_clone,
        "amax": _emit_largest,
        "amin": _emit_largest,
        "var": _emit_variance,
        "conv2d": _emit_conv,
        "max_pool2d": _emit_max_pool,
        "avg_pool2d": _emit_avg_pool,
        "adaptive_avg_pool2d": _emit_adaptive,
        "batch_norm_apply": _emit_batch_norm,
        "grouped_norm": _emit_grouped_norm,
        "flash_attention": _emit_attention,
        "take_rows": _emit_take_rows,
    }
)
