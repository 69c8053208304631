"""Pooling over the last axis, as pooling of images with one row."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.checks import check_images
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.memory.views import reshape
from dl4all.ops.pool import max_pool
from dl4all.ops.pool.avg_pool import adaptive_avg_pool2d, avg_pool2d
from dl4all.ops.pool.pool2d import adaptive_max_pool2d_with_indices, max_pool2d_with_indices
from dl4all.ops.pool.windows import Sizes


@export("F")
def max_pool1d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array:
    """:func:`max_pool2d` along the last axis of (N, C, L) or (C, L).

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> F.max_pool1d(dl.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2).tolist()
        [[[3.0, 7.0]]]
    """
    if return_indices:
        return max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    arguments = _max_pool_arguments(kernel_size, stride, padding, dilation, ceil_mode)
    return _without_rows(max_pool.max_pool2d(_with_rows("max_pool1d", input), *arguments))


@export("F")
def max_pool1d_with_indices(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Array, Array]:
    """:func:`max_pool1d` with ``return_indices=True``: also the index of each maximum, as int64.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> x, indices = F.max_pool1d_with_indices(dl.rand(2, 4, 12), 2)
        >>> x.shape, indices.shape
        ((2, 4, 6), (2, 4, 6))
    """
    arguments = _max_pool_arguments(kernel_size, stride, padding, dilation, ceil_mode)
    values, indices = max_pool2d_with_indices(_with_rows("max_pool1d", input), *arguments)
    return _without_rows(values), _without_rows(indices)


@export("F")
def avg_pool1d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """:func:`avg_pool2d` along the last axis of (N, C, L) or (C, L).

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> F.avg_pool1d(dl.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2).tolist()
        [[[2.0, 6.0]]]
    """
    kernel, pad = _pair("avg_pool1d", kernel_size, 1), _pair("avg_pool1d", padding, 0)
    step = kernel if stride in (None, ()) else _pair("avg_pool1d", stride, 1)
    rows = _with_rows("avg_pool1d", input)
    return _without_rows(avg_pool2d(rows, kernel, step, pad, ceil_mode, count_include_pad))


@export("F")
def adaptive_avg_pool1d(input: Array, output_size: Sizes) -> Array:
    """:func:`adaptive_avg_pool2d` along the last axis of (N, C, L) or (C, L).

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> F.adaptive_avg_pool1d(dl.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2).tolist()
        [[[2.0, 6.0]]]
    """
    rows = _with_rows("adaptive_avg_pool1d", input)
    return _without_rows(adaptive_avg_pool2d(rows, _pair("adaptive_avg_pool1d", output_size, 1)))


@export("F")
def adaptive_max_pool1d(input: Array, output_size: Sizes, return_indices: bool = False) -> Array:
    """:func:`adaptive_max_pool2d` along the last axis of (N, C, L) or (C, L).

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> F.adaptive_max_pool1d(dl.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2).tolist()
        [[[3.0, 7.0]]]
    """
    if return_indices:
        return adaptive_max_pool1d_with_indices(input, output_size)
    rows = _with_rows("adaptive_max_pool1d", input)
    return _without_rows(max_pool.adaptive_max_pool2d(rows, _pair("adaptive_max_pool1d", output_size, 1)))


@export("F")
def adaptive_max_pool1d_with_indices(
    input: Array, output_size: Sizes, return_indices: bool = False
) -> tuple[Array, Array]:
    """:func:`adaptive_max_pool1d` with ``return_indices=True``: also the index of each maximum, as int64.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> x, indices = F.adaptive_max_pool1d_with_indices(dl.rand(2, 4, 12), 2)
        >>> x.shape, indices.shape
        ((2, 4, 2), (2, 4, 2))
    """
    rows = _with_rows("adaptive_max_pool1d", input)
    size = _pair("adaptive_max_pool1d", output_size, 1)
    values, indices = adaptive_max_pool2d_with_indices(rows, size)
    return _without_rows(values), _without_rows(indices)


def _max_pool_arguments(
    kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[Any, Any, Any, Any, bool]:
    """The arguments of :func:`max_pool1d` for :func:`max_pool2d`."""
    kernel, pad = _pair("max_pool1d", kernel_size, 1), _pair("max_pool1d", padding, 0)
    step = kernel if stride in (None, ()) else _pair("max_pool1d", stride, 1)
    return kernel, step, pad, _pair("max_pool1d", dilation, 1), ceil_mode


def _pair(op: str, value: Any, of_rows: int) -> tuple[int, Any]:
    """A number for the only axis, as a pair with the number for the axis of rows."""
    return of_rows, one_number(op, value)


def one_number(op: str, value: Any) -> Any:
    """A number, or that of a sequence of one.

    Raises:
        ArgumentError: the sequence has another length.
    """
    if not isinstance(value, (tuple, list)):
        return value
    if len(value) != 1:
        raise ArgumentError(f"[{op}] expected one number for the only axis, got {value!r}")
    return value[0]


def _with_rows(op: str, input: Any) -> Any:
    """Shape (N, C, L) as (N, C, 1, L), (C, L) as (C, 1, L)."""
    if len(input.shape) != 2:
        check_images(op, input, 1, integers=True)
    return reshape(input, *input.shape[:-1], 1, input.shape[-1])


def _without_rows(result: Any) -> Any:
    """Shape (N, C, 1, L) as (N, C, L)."""
    return reshape(result, *result.shape[:-2], result.shape[-1])
