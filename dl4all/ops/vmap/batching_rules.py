"""Batching rules: how each op takes all samples of ``vmap`` at once.

A rule calls the op on tensors that have an axis in front for each level, or calls other ops that have rules.
An op without a rule is called for each sample.
"""

from __future__ import annotations

import builtins
import itertools
import math
from typing import Any

from dl4all.ops.attention.flash import ROW_TERMS, split_flat
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import add, mul, sub
from dl4all.ops.elementwise.transcendental import rsqrt
from dl4all.ops.indexing.concatenation import cat, stack
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.parts import index, narrow
from dl4all.ops.memory.views import flatten, movedim, reshape, transpose, unsqueeze
from dl4all.ops.normalization.batch_normalization import elements_per_channel
from dl4all.ops.normalization.group_normalization import grouped_norm, rows_shape
from dl4all.ops.normalization.host import along_channels
from dl4all.ops.reduce.reduction_kernel import axes_of
from dl4all.ops.reduce.sums import mean, sum
from dl4all.ops.reduce.variance import var
from dl4all.ops.vmap.batched_tensor import Levels, Rule, is_shared, level_shape, levels_of, unwrap


def _aligned(operands: list[Any], levels: Levels) -> list[Any]:
    """All samples of each tensor: the axes of levels in front, then equally many other axes."""
    ndim = max(len(o.shape) for o in operands if isinstance(o, TensorBase))
    return [unwrap(o, levels, ndim) if isinstance(o, TensorBase) else o for o in operands]


def _elementwise(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    ndim = max(len(o.shape) for o in operands if isinstance(o, TensorBase))
    unwrapped = list(operands)
    for i, operand in enumerate(operands):
        if isinstance(operand, TensorBase):
            unwrapped[i] = unwrap(operand, levels, ndim) if levels_of([operand]) else unwrap(operand, ())
    return op(*unwrapped, **arguments)


def _leading_axes(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """For ops that accept any number of leading axes."""
    return op(*_aligned(operands, levels), **arguments)


def _reduction(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    (input,), k = operands, len(levels)
    others = {name: value for name, value in arguments.items() if name != "keepdim"}
    x, dim = unwrap(input, levels, 1), arguments["dim"]
    if op.name in ("argmax", "argmin"):
        if dim is None:
            return op(reshape(x, *level_shape(levels), -1), dim=k)
        return op(x, dim=dim % max(len(input.shape), 1) + k)
    axes = axes_of(op.name, dim, max(len(input.shape), 1))
    return op(x, **{**others, "dim": tuple(axis + k for axis in axes)})


def _along_axis(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """For ops along one axis of operands with equally many axes."""
    ndim = max(len(operands[0].shape), 1)
    unwrapped = [unwrap(o, levels, 1) for o in operands]
    return op(*unwrapped, **{**arguments, "dim": arguments["dim"] % ndim + len(levels)})


def _sum_to(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, shape = operands[0], tuple(arguments["shape"])
    missing = len(input.shape) - len(shape)
    return op(unwrap(input, levels), (*level_shape(levels), *(1,) * missing, *shape))


def _index_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    key, shape = arguments["key"], arguments["shape"]
    rest = key if isinstance(key, tuple) else (key,)
    front = (slice(None),) * len(levels)
    return op(unwrap(operands[0], levels), (*front, *rest), (*level_shape(levels), *shape))


# Products


def _matmul(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, other = operands
    if is_shared(other) and len(other.shape) < 3:  # one matrix for all rows of all samples
        return op(unwrap(input, levels), unwrap(other, ()))
    left = unsqueeze(input, 0) if len(input.shape) == 1 else input
    right = unsqueeze(other, 1) if len(other.shape) == 1 else other
    return op(*_aligned([left, right], levels))


def _linear(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, weight, bias = operands
    if is_shared(weight) and (bias is None or is_shared(bias)):
        return op(unwrap(input, levels), unwrap(weight, ()), None if bias is None else unwrap(bias, ()))
    product = matmul(input, transpose(weight, 0, 1))
    return product if bias is None else add(product, bias)


def _dot(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    return sum(mul(*operands), 0, dtype=operands[0].dtype)


# Samples folded into the batch axis


def _fold(operand: Any, levels: Levels) -> Any:
    """All samples, with the axes of levels merged into the first axis."""
    x = unwrap(operand, levels)
    k = len(levels)
    return reshape(x, math.prod(x.shape[: k + 1]), *x.shape[k + 1 :])


def _batch(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """For ops that treat each image, or row, of the first axis by itself."""
    return op(*(_fold(o, levels) for o in operands), **arguments)


def _put_rows(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """Puts rows that consist of the rows of all samples."""
    k = len(levels)
    rows = [movedim(unwrap(o, levels), k, 0) for o in operands]
    result = op(*(reshape(x, x.shape[0], math.prod(x.shape[1:])) for x in rows), **arguments)
    return movedim(reshape(result, rows[0].shape), 0, k)


def _fold_second(operand: Any, levels: Levels) -> Any:
    """:func:`_folded`, into the second axis."""
    x, k = unwrap(operand, levels), len(levels)
    x = movedim(x, k, 0)
    return reshape(x, x.shape[0], math.prod(x.shape[1 : k + 2]), *x.shape[k + 2 :])


def _fold_flat(operand: Any, levels: Levels, numels: tuple[int, ...]) -> Any:
    """Concatenates the flattened parts of the given sizes, each part for all samples."""
    x, k = unwrap(operand, levels), len(levels)
    ends = [0, *itertools.accumulate(numels)]
    parts = (narrow(x, k, start, n) for start, n in zip(ends, numels, strict=False))
    return cat([flatten(part) for part in parts])


def _unfold_flat(result: Any, levels: Levels, numels: tuple[int, ...]) -> Any:
    """The samples of concatenated tensors, undoing :func:`_fold_flat`."""
    count = math.prod(level_shape(levels))
    parts = split_flat(result, *((count, n) for n in numels))
    return reshape(cat(parts, 1), *level_shape(levels), builtins.sum(numels))


def _lstm_step(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    rows, size = operands[2].shape
    result = op(*(_fold(o, levels) for o in operands))
    return movedim(reshape(result, 2, *level_shape(levels), rows, size), 0, len(levels))


def _lstm_step_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, gates, cell = operands
    result = op(_fold_second(grad, levels), _fold(gates, levels), _fold(cell, levels))
    return _unfold_flat(result, levels, (gates.numel(), cell.numel()))


def _gru_step_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    result = op(*(_fold(o, levels) for o in operands))
    return _unfold_flat(result, levels, tuple(o.numel() for o in operands[1:]))


def _mask(mask: Any, batch: int, repeats: int, levels: Levels) -> Any:
    """The mask of attention for the folded batch, which repeats the mask of each sample."""
    if mask is None or is_shared(mask):
        return None if mask is None else unwrap(mask, ())
    copies = batch // (mask.shape[0] * repeats)
    return _fold(cat([mask] * copies), levels)


def _attention(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    query, key, value, mask = operands
    folded = (_fold(o, levels) for o in (query, key, value))
    result = op(*folded, _mask(mask, query.shape[0], arguments["repeats"], levels), **arguments)
    return _unfold_flat(result, levels, _attention_numels(query, value))


def _attention_numels(query: Any, value: Any) -> tuple[int, ...]:
    """The elements of each part of a result of flash attention."""
    rows = math.prod(query.shape[:2])
    return (rows * value.shape[2], *(rows,) * ROW_TERMS)


def _attention_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, query, key, value, mask = operands
    batch, numels, saved = query.shape[0], _attention_numels(query, value), arguments["saved"]
    folded_arguments = {**arguments, "saved": None if saved is None else _fold_flat(saved, levels, numels)}
    folded = (_fold(o, levels) for o in (query, key, value))
    folded_mask = _mask(mask, batch, arguments["repeats"], levels)
    grad_numels = numels if grad.numel() > numels[0] else numels[:1]
    result = op(_fold_flat(grad, levels, grad_numels), *folded, folded_mask, **folded_arguments)
    return _unfold_flat(result, levels, (query.numel(), key.numel(), value.numel()))


# Convolutions


def _unfold_second(result: Any, levels: Levels) -> Any:
    """The samples along the first axes, undoing :func:`_fold_second`."""
    count = math.prod(level_shape(levels))
    unfolded = (*level_shape(levels), result.shape[1] // count)
    return movedim(reshape(result, result.shape[0], *unfolded, *result.shape[2:]), 0, len(levels))


def _convolution(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """For convolutions of images or their gradients; filters that differ become groups of channels."""
    images, weight, *bias = operands
    if all(o is None or is_shared(o) for o in (weight, *bias)):
        return op(
            _fold(images, levels),
            *(None if o is None else unwrap(o, ()) for o in (weight, *bias)),
            **arguments,
        )
    grouped = {**arguments, "groups": arguments["groups"] * math.prod(level_shape(levels))}
    offsets = (None if o is None else reshape(unwrap(o, levels), -1) for o in bias)
    result = op(_fold_second(images, levels), _fold(weight, levels), *offsets, **grouped)
    return _unfold_second(result, levels)


def _conv_weight(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grouped = {**arguments, "groups": arguments["groups"] * math.prod(level_shape(levels))}
    return op(*(_fold_second(o, levels) for o in operands), **grouped)


# Norms


def _grouped_norm(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, *per_channel = operands
    if all(o is None or is_shared(o) for o in per_channel):
        shared = (None if o is None else unwrap(o, ()) for o in per_channel)
        return op(_fold(input, levels), *shared, **arguments)
    weight, bias = per_channel
    return _scale_channels(op(input, None, None, **arguments), weight, bias)


def _grouped_norm_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input, weight = operands
    if weight is None or is_shared(weight):
        shared = None if weight is None else unwrap(weight, ())
        return op(_fold(grad, levels), _fold(input, levels), shared, **arguments)
    return op(_scale_channels(grad, weight), input, None, **arguments)


def _grouped_norm_sums(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input = operands
    return _channel_sums(grad, grouped_norm(input, None, None, **arguments))


def _grouped_norm_statistics(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    return _unfold_second(op(_fold(operands[0], levels), **arguments), levels)


def _normalized_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input, statistics = operands
    return op(_fold(grad, levels), _fold(input, levels), _fold_second(statistics, levels), **arguments)


def _normalized_sums(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input, statistics = operands
    shape = rows_shape(input.shape, arguments["groups"])
    mean_of_row, scale = (reshape(index(statistics, i), shape[0], 1) for i in range(2))
    normalized = mul(sub(reshape(input, shape), mean_of_row), scale)
    return _channel_sums(grad, reshape(normalized, input.shape))


def _channel_sums(grad: Any, normalized: Any) -> Any:
    """The gradients of a norm's bias and weight."""
    others = tuple(axis for axis in range(len(grad.shape)) if axis != 1)
    return stack([sum(grad, others), sum(mul(grad, normalized), others)])


def _batch_norm_apply(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, *per_channel = operands
    if all(o is None or is_shared(o) for o in per_channel):
        return op(
            _fold(input, levels), *(None if o is None else unwrap(o, ()) for o in per_channel), **arguments
        )
    _, mean, var, weight, bias = operands
    return _scale_channels(_normalize(input, mean, var, **arguments), weight, bias)


def _normalize(input: Any, mean: Any, var: Any, eps: float) -> Any:
    ndim = len(input.shape)
    return mul(sub(input, along_channels(mean, ndim)), along_channels(rsqrt(add(var, eps)), ndim))


def _scale_channels(x: Any, weight: Any, bias: Any = None) -> Any:
    """``weight * x + bias``, by channels; either may be None."""
    result = x if weight is None else mul(x, along_channels(weight, len(x.shape)))
    return result if bias is None else add(result, along_channels(bias, len(x.shape)))


def _batch_norm_stats(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    others = tuple(axis for axis in range(len(operands[0].shape)) if axis != 1)
    return stack([mean(operands[0], others), var(operands[0], others, correction=0)])


def _batch_norm_sums(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, *rest = operands
    return _channel_sums(grad, _normalize(*rest, **arguments))


def _batch_norm_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input, mean, var, sums, weight = operands
    ndim, share = len(input.shape), 1 / max(elements_per_channel(input), 1)
    mean_share, scale_share = (along_channels(mul(index(sums, i), share), ndim) for i in range(2))
    rest = sub(sub(grad, mean_share), mul(_normalize(input, mean, var, **arguments), scale_share))
    return _scale_channels(mul(rest, along_channels(rsqrt(add(var, arguments["eps"])), ndim)), weight)


def _named(rule: Rule, *names: str) -> dict[str, Rule]:
    """One rule for several ops."""
    return dict.fromkeys(names, rule)


RULES: dict[str, Rule] = (
    _named(_elementwise, "elementwise")
    | _named(_leading_axes, "cast", "tril", "triu")
    | _named(
        _reduction,
        "sum", "mean", "prod", "amax", "amin", "var", "std", "norm", "logsumexp", "count_nonzero", "argmax",
        "argmin",
    )
    | _named(
        _along_axis,
        "softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "cumsum", "cumsum_backward",
        "cumprod", "extreme_backward",
    )
    | _named(_sum_to, "sum_to")
    | _named(_index_backward, "index_backward")
    | _named(_matmul, "matmul")
    | _named(_linear, "linear")
    | _named(_dot, "dot")
    | _named(
        _batch,
        "avg_pool2d", "avg_pool_backward", "adaptive_avg_pool2d", "max_pool2d", "max_pool_backward",
        "max_pool_at", "adaptive_max_pool2d", "take_rows", "take_rows_backward", "gru_step",
    )
    | _named(_put_rows, "put_rows")
    | _named(_lstm_step, "lstm_step")
    | _named(_lstm_step_backward, "lstm_step_backward")
    | _named(_gru_step_backward, "gru_step_backward")
    | _named(_attention, "flash_attention")
    | _named(_attention_backward, "flash_attention_backward")
    | _named(_convolution, "conv1d", "conv2d", "conv3d", "conv_input")
    | _named(_conv_weight, "conv_weight")
    | _named(_grouped_norm, "grouped_norm")
    | _named(_grouped_norm_backward, "grouped_norm_backward")
    | _named(_grouped_norm_sums, "grouped_norm_sums")
    | _named(_grouped_norm_statistics, "grouped_norm_statistics")
    | _named(_normalized_backward, "normalized_backward")
    | _named(_normalized_sums, "normalized_sums")
    | _named(_batch_norm_apply, "batch_norm_apply")
    | _named(_batch_norm_stats, "batch_norm_stats")
    | _named(_batch_norm_sums, "batch_norm_sums")
    | _named(_batch_norm_backward, "batch_norm_backward")
)  # fmt: skip

BATCH_OPS = {"linear": False, "matmul": False, "conv1d": True, "conv2d": True, "conv3d": True}
