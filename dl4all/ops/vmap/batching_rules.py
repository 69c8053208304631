"""How ops take the samples of ``vmap`` all at once: rules by the names of ops.

A rule calls the op on tensors that have an axis in front for each level, or is made of ops that have rules.
An op without one is called for each sample.
"""

from __future__ import annotations

import builtins
import itertools
import math
from typing import Any

from dl4all.ops.attention.flash import split_flat
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import add, mul, sub
from dl4all.ops.elementwise.transcendental import rsqrt
from dl4all.ops.indexing.concatenation import cat, stack
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.views import flatten, index, movedim, narrow, reshape, transpose, unsqueeze
from dl4all.ops.normalization.batch_normalization import elements_per_channel
from dl4all.ops.normalization.group_normalization import grouped_norm
from dl4all.ops.normalization.host import along_channels
from dl4all.ops.reduce.reduction_kernel import axes_of
from dl4all.ops.reduce.sums import mean, sum
from dl4all.ops.reduce.variance import var
from dl4all.ops.vmap.batched_tensor import Levels, Rule, is_shared, level_shape, levels_of, unwrap


def _aligned(operands: list[Any], levels: Levels) -> list[Any]:
    """All tensors with the axes of levels in front, and as many of their own."""
    ndim = max(len(o.shape) for o in operands if isinstance(o, TensorBase))
    return [unwrap(o, levels, ndim) if isinstance(o, TensorBase) else o for o in operands]


def _elementwise(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    ndim = max(len(o.shape) for o in operands if isinstance(o, TensorBase))
    given = list(operands)
    for i, operand in enumerate(operands):
        if isinstance(operand, TensorBase):
            given[i] = unwrap(operand, levels, ndim) if levels_of([operand]) else unwrap(operand, ())
    return op(*given, **arguments)


def _same(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """Axes in front do not matter to the op."""
    return op(*_aligned(operands, levels), **arguments)


def _reduction(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    (input,), k = operands, len(levels)
    given = {name: value for name, value in arguments.items() if name != "keepdim"}
    x, dim = unwrap(input, levels, 1), arguments["dim"]
    if op.name in ("argmax", "argmin"):
        if dim is None:
            return op(reshape(x, *level_shape(levels), -1), dim=k)
        return op(x, dim=dim % max(len(input.shape), 1) + k)
    axes = axes_of(op.name, dim, max(len(input.shape), 1))
    return op(x, **{**given, "dim": tuple(axis + k for axis in axes)})


def _along(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """Of an op along one axis, of operands that have as many."""
    ndim = max(len(operands[0].shape), 1)
    given = [unwrap(o, levels, 1) for o in operands]
    return op(*given, **{**arguments, "dim": arguments["dim"] % ndim + len(levels)})


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


# Samples in the axis that a batch has


def _folded(operand: Any, levels: Levels) -> Any:
    x = unwrap(operand, levels)
    k = len(levels)
    return reshape(x, math.prod(x.shape[: k + 1]), *x.shape[k + 1 :])


def _images(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """Each image, or row, by itself."""
    return op(*(_folded(o, levels) for o in operands), **arguments)


def _put_rows(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """Rows, which are as long as those of all samples together."""
    k = len(levels)
    rows = [movedim(unwrap(o, levels), k, 0) for o in operands]
    found = op(*(reshape(x, x.shape[0], math.prod(x.shape[1:])) for x in rows), **arguments)
    return movedim(reshape(found, rows[0].shape), 0, k)


def _second(operand: Any, levels: Levels) -> Any:
    """:func:`_folded`, into the second axis."""
    x, k = unwrap(operand, levels), len(levels)
    x = movedim(x, k, 0)
    return reshape(x, x.shape[0], math.prod(x.shape[1 : k + 2]), *x.shape[k + 2 :])


def _joined(operand: Any, levels: Levels, numels: tuple[int, ...]) -> Any:
    """Of tensors that lie one behind the other, with so many elements, each for all samples."""
    x, k = unwrap(operand, levels), len(levels)
    ends = [0, *itertools.accumulate(numels)]
    parts = (narrow(x, k, start, n) for start, n in zip(ends, numels, strict=False))
    return cat([flatten(part) for part in parts])


def _split(found: Any, levels: Levels, numels: tuple[int, ...]) -> Any:
    """What :func:`_joined` undoes."""
    count = math.prod(level_shape(levels))
    parts = split_flat(found, *((count, n) for n in numels))
    return reshape(cat(parts, 1), *level_shape(levels), builtins.sum(numels))


def _lstm_step(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    rows, size = operands[2].shape
    found = op(*(_folded(o, levels) for o in operands))
    return movedim(reshape(found, 2, *level_shape(levels), rows, size), 0, len(levels))


def _lstm_step_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, gates, cell = operands
    found = op(_second(grad, levels), _folded(gates, levels), _folded(cell, levels))
    return _split(found, levels, (gates.numel(), cell.numel()))


def _gru_step_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    found = op(*(_folded(o, levels) for o in operands))
    return _split(found, levels, tuple(o.numel() for o in operands[1:]))


def _mask(mask: Any, batch: int, repeats: int, levels: Levels) -> Any:
    """Of attention, whose batch goes through the masks of all samples one after the other."""
    if mask is None or is_shared(mask):
        return None if mask is None else unwrap(mask, ())
    again = batch // (mask.shape[0] * repeats)
    return _folded(cat([mask] * again), levels)


def _attention(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    query, key, value, mask = operands
    batch, queries, _ = query.shape
    folded = (_folded(o, levels) for o in (query, key, value))
    found = op(*folded, _mask(mask, batch, arguments["repeats"], levels), **arguments)
    return _split(found, levels, (batch * queries * value.shape[2], batch * queries))


def _attention_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, query, key, value, mask = operands
    batch, queries, _ = query.shape
    numels, saved = (batch * queries * value.shape[2], batch * queries), arguments["saved"]
    given = {**arguments, "saved": None if saved is None else _joined(saved, levels, numels)}
    folded = (_folded(o, levels) for o in (query, key, value))
    few = _mask(mask, batch, arguments["repeats"], levels)
    found = op(_joined(grad, levels, numels), *folded, few, **given)
    return _split(found, levels, (query.numel(), key.numel(), value.numel()))


# Convolutions


def _apart(found: Any, levels: Levels) -> Any:
    """What :func:`_second` has undone, of channels."""
    count = math.prod(level_shape(levels))
    each = (*level_shape(levels), found.shape[1] // count)
    return movedim(reshape(found, found.shape[0], *each, *found.shape[2:]), 0, len(levels))


def _convolution(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    """Of images or their gradients with filters: those that differ are groups of channels."""
    images, weight, *bias = operands
    if all(o is None or is_shared(o) for o in (weight, *bias)):
        return op(
            _folded(images, levels),
            *(None if o is None else unwrap(o, ()) for o in (weight, *bias)),
            **arguments,
        )
    given = {**arguments, "groups": arguments["groups"] * math.prod(level_shape(levels))}
    offsets = (None if o is None else reshape(unwrap(o, levels), -1) for o in bias)
    return _apart(op(_second(images, levels), _folded(weight, levels), *offsets, **given), levels)


def _conv_weight(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    given = {**arguments, "groups": arguments["groups"] * math.prod(level_shape(levels))}
    return op(*(_second(o, levels) for o in operands), **given)


# Norms


def _grouped_norm(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, *of_channels = operands
    if all(o is None or is_shared(o) for o in of_channels):
        given = (None if o is None else unwrap(o, ()) for o in of_channels)
        return op(_folded(input, levels), *given, **arguments)
    weight, bias = of_channels
    return _scale_channels(op(input, None, None, **arguments), weight, bias)


def _grouped_norm_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input, weight = operands
    if weight is None or is_shared(weight):
        kept = None if weight is None else unwrap(weight, ())
        return op(_folded(grad, levels), _folded(input, levels), kept, **arguments)
    return op(_scale_channels(grad, weight), input, None, **arguments)


def _grouped_norm_sums(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input = operands
    return _channel_sums(grad, grouped_norm(input, None, None, **arguments))


def _channel_sums(grad: Any, normal: Any) -> Any:
    """The gradients of a norm's bias and weight."""
    others = tuple(axis for axis in range(len(grad.shape)) if axis != 1)
    return stack([sum(grad, others), sum(mul(grad, normal), others)])


def _batch_norm_apply(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    input, *of_channels = operands
    if all(o is None or is_shared(o) for o in of_channels):
        return op(
            _folded(input, levels), *(None if o is None else unwrap(o, ()) for o in of_channels), **arguments
        )
    _, mean, var, weight, bias = operands
    return _scale_channels(_normalize(input, mean, var, **arguments), weight, bias)


def _normalize(input: Any, mean: Any, var: Any, eps: float) -> Any:
    ndim = len(input.shape)
    return mul(sub(input, along_channels(mean, ndim)), along_channels(rsqrt(add(var, eps)), ndim))


def _scale_channels(normal: Any, weight: Any, bias: Any = None) -> Any:
    found = normal if weight is None else mul(normal, along_channels(weight, len(normal.shape)))
    return found if bias is None else add(found, along_channels(bias, len(normal.shape)))


def _batch_norm_stats(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    others = tuple(axis for axis in range(len(operands[0].shape)) if axis != 1)
    return stack([mean(operands[0], others), var(operands[0], others, correction=0)])


def _batch_norm_sums(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, *rest = operands
    return _channel_sums(grad, _normalize(*rest, **arguments))


def _batch_norm_backward(op: Any, operands: list[Any], arguments: dict[str, Any], levels: Levels) -> Any:
    grad, input, mean, var, sums, weight = operands
    ndim, share = len(input.shape), 1 / max(elements_per_channel(input), 1)
    of_mean, of_scale = (along_channels(mul(index(sums, i), share), ndim) for i in range(2))
    rest = sub(sub(grad, of_mean), mul(_normalize(input, mean, var, **arguments), of_scale))
    return _scale_channels(mul(rest, along_channels(rsqrt(add(var, arguments["eps"])), ndim)), weight)


def _named(rule: Rule, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


RULES: dict[str, Rule] = (
    _named(_elementwise, "elementwise")
    | _named(_same, "cast", "tril", "triu")
    | _named(
        _reduction,
        "sum", "mean", "prod", "amax", "amin", "var", "std", "norm", "logsumexp", "count_nonzero", "argmax",
        "argmin",
    )
    | _named(
        _along,
        "softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "cumsum", "cumsum_backward",
        "cumprod", "extreme_backward",
    )
    | _named(_sum_to, "sum_to")
    | _named(_index_backward, "index_backward")
    | _named(_matmul, "matmul")
    | _named(_linear, "linear")
    | _named(_dot, "dot")
    | _named(
        _images,
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
    | _named(_batch_norm_apply, "batch_norm_apply")
    | _named(_batch_norm_stats, "batch_norm_stats")
    | _named(_batch_norm_sums, "batch_norm_sums")
    | _named(_batch_norm_backward, "batch_norm_backward")
)  # fmt: skip

BATCH_OPS = {"linear": False, "matmul": False, "conv1d": True, "conv2d": True, "conv3d": True}
