"""Gradients of normalised rows by statistics that the forward pass has kept.

:mod:`dl4all.ops.normalization.group_normalization` computes them again from the input, which takes no memory
between the passes; PyTorch's autograd keeps them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float, check_parameters
from dl4all.ops.core.dtypes import widened
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.copy import fresh_copy
from dl4all.ops.memory.views import reshape
from dl4all.ops.normalization.batch_normalization import check_channels
from dl4all.ops.normalization.group_normalization import check_groups, launch_rows, rows_shape
from dl4all.ops.normalization.host import along_channels, channel_axes, float64_sum, row_sums
from dl4all.ops.reduce.channel_sums import SUMS_SHADERS, launch_sums
from dl4all.ops.reduce.row_kernels import FORMS, row_shaders
from dl4all.ops.reduce.sums import sum

BACKWARD = row_shaders("normalization/rows_backward.comp", FORMS, WEIGHT=0, CENTER=1, GIVEN=1)


def _check(name: str, grad: TensorBase, input: TensorBase, statistics: TensorBase, groups: int) -> None:
    """
    Raises:
        ShapeError, DTypeError, ArgumentError
    """
    check_channels(name, input)
    check_float(name, grad, input)
    check_parameters(name, input, statistics)
    check_groups(name, input.shape[1], groups)
    expected = (2, input.shape[0] * groups)
    if statistics.shape != expected or grad.shape != input.shape:
        raise ShapeError(
            f"[{name}] expected a gradient of shape {input.shape} and statistics of shape {expected}, got "
            f"{grad.shape} and {statistics.shape}"
        )


def _whole(statistics: TensorBase) -> TensorBase:
    """The statistics from the start of a storage on."""
    return statistics if statistics.is_contiguous() and not statistics.offset else fresh_copy(statistics)


def _in_rows(input: Any, statistics: Any, groups: int) -> tuple[Any, Any, Any]:
    """The input as rows minus their means, its scales, and the normalised rows."""
    shape = rows_shape(input.shape, groups)
    centered = input.reshape(shape) - statistics[0].reshape(shape[0], 1)
    scale = statistics[1].reshape(shape[0], 1)
    return centered, scale, centered * scale


# Of the input


def _infer_backward(grad: TensorBase, input: TensorBase, statistics: TensorBase, *, groups: int) -> Result:
    _check("normalized_backward", grad, input, statistics, groups)
    return input.shape, input.dtype


def _run_backward(
    out: TensorBase, grad: TensorBase, input: TensorBase, statistics: TensorBase, *, groups: int
) -> None:
    launch_rows(BACKWARD, out, [grad, input], [None], groups, 0.0, of_rows=[_whole(statistics)])


def _backward_gradient(
    v: Any, grad: Any, input: Any, statistics: Any, groups: int, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """With n elements in a row and its normalised y, ``v * result`` sums up to
    ``scale * (sum(v * grad) - sum(v) * sum(grad) / n - sum(v * y) * sum(grad * y) / n)``.
    """
    grad_gradient = normalized_backward(v, input, statistics, groups=groups)
    if not (needs[1] or needs[2]):
        return grad_gradient, None, None
    shape = rows_shape(input.shape, groups)
    count = max(shape[1], 1)
    centered, scale, y = _in_rows(input, statistics, groups)
    g, u = reshape(grad, shape), reshape(v, shape)

    def total(values: Any) -> Any:
        return sum(values, 1, keepdim=True)

    by_y = (u * total(g * y) + g * total(u * y)) * (scale * (-1 / count))
    by_scale = total(by_y * centered) + total(u * g)
    by_scale = by_scale - (total(u) * total(g) + total(u * y) * total(g * y)) / count
    by_mean = -total(by_y) * scale
    by_statistics = stack([reshape(by_mean, shape[0]), reshape(by_scale, shape[0])])
    return grad_gradient, reshape(by_y * scale, input.shape), by_statistics


@export()
@op(
    infer=_infer_backward,
    kernel=Kernel(_run_backward, tuple(BACKWARD.values())),
    examples=(
        example((3, 6, 2), (3, 6, 2), (2, 6), groups=2),
        example((2, 13), (2, 13), (2, 2)),
        example((3, 132), (3, 132), (2, 3)),
        example((2, 4, 12), (2, 4, 12), (2, 4), groups=2),
        example((7, 1031), (7, 1031), (2, 7)),
        example((0, 5), (0, 5), (2, 0)),
    ),
    grad=_backward_gradient,
)
def normalized_backward(grad: Array, input: Array, statistics: Array, groups: int = 1) -> Array:
    """The gradient of :func:`grouped_norm`, without a weight, with respect to its input.

    Args:
        grad: the result's gradient, of the input's shape; times the weight, where there is one.
        input: floats of shape (N, C, ...).
        statistics: shape (2, N * groups), from :func:`grouped_norm_statistics`.
        groups: the number of groups that the channels are split into.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x, g = dl.tensor([[1.0, 5.0]]), dl.tensor([[1.0, 0.0]])
        >>> statistics = dl.ops.grouped_norm_statistics(x, eps=0.0)
        >>> dl.ops.normalized_backward(g, x, statistics).tolist()
        [[0.0, 0.0]]
    """
    _, scale, y = _in_rows(input, statistics, groups)
    g = grad.reshape(y.shape)
    length = max(y.shape[1], 1)
    result = (g - row_sums(g) / length - y * (row_sums(g * y) / length)) * scale
    return result.astype(input.dtype, copy=False).reshape(input.shape)


# Of weight and bias


def _infer_sums(grad: TensorBase, input: TensorBase, statistics: TensorBase, *, groups: int) -> Result:
    _check("normalized_sums", grad, input, statistics, groups)
    return (2, input.shape[1]), widened(input.dtype)


def _run_sums(
    out: TensorBase, grad: TensorBase, input: TensorBase, statistics: TensorBase, *, groups: int
) -> None:
    launch_sums(out, grad, input, _whole(statistics), max(rows_shape(input.shape, groups)[1], 1))


def _sums_gradient(
    v: Any, grad: Any, input: Any, statistics: Any, groups: int, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    shape, ndim = rows_shape(input.shape, groups), len(input.shape)
    centered, scale, y = _in_rows(input, statistics, groups)
    by_result = along_channels(v[1], ndim)
    by_y = reshape(grad * by_result, shape)
    by_statistics = None
    if needs[2]:
        by_mean, by_scale = (sum(by_y * scale, 1) * -1, sum(by_y * centered, 1))
        by_statistics = stack([by_mean, by_scale])
    return (
        along_channels(v[0], ndim) + by_result * reshape(y, input.shape),
        reshape(by_y * scale, input.shape),
        by_statistics,
    )


@export()
@op(
    infer=_infer_sums,
    kernel=Kernel(_run_sums, SUMS_SHADERS[True]),
    examples=(
        example((3, 6, 2), (3, 6, 2), (2, 6), groups=2),
        example((5, 7), (5, 7), (2, 5)),
        example((2, 6, 12), (2, 6, 12), (2, 6), groups=3),
        example((4099, 5), (4099, 5), (2, 4099)),
        example((2, 3, 1499), (2, 3, 1499), (2, 2)),
        example((0, 5), (0, 5), (2, 0)),
    ),
    grad=_sums_gradient,
)
def normalized_sums(grad: Array, input: Array, statistics: Array, groups: int = 1) -> Array:
    """The gradients of bias and weight of :func:`grouped_norm`: sums over each channel.

    Args:
        grad: the result's gradient, of the input's shape.
        input, statistics, groups: the arguments of :func:`normalized_backward`.

    Returns:
        Shape (2, C): sums of `grad`, and of `grad` times the normalised input.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 5.0]])
        >>> statistics = dl.ops.grouped_norm_statistics(x, eps=0.0)
        >>> dl.ops.normalized_sums(dl.ones(1, 2), x, statistics).tolist()
        [[1.0, 1.0], [-1.0, 1.0]]
    """
    axes = channel_axes(input.ndim)
    y = _in_rows(input, statistics, groups)[2].reshape(input.shape)
    return np.stack([float64_sum(grad, axes), float64_sum(grad * y, axes)]).astype(input.dtype, copy=False)
