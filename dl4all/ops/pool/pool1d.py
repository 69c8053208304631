"""Pooling along one axis: of images with one row."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.checks import check_images
from dl4all.ops.core.exports import export
from dl4all.ops.memory.views import reshape
from dl4all.ops.pool.avg_pool import adaptive_avg_pool2d, avg_pool2d
from dl4all.ops.pool.max_pool import adaptive_max_pool2d, max_pool2d


@export("F")
def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """:func:`max_pool2d` along the last axis of (N, C, L)."""
    kernel, pad = _along("max_pool1d", kernel_size, 1), _along("max_pool1d", padding, 0)
    step = kernel if stride in (None, ()) else _along("max_pool1d", stride, 1)
    spacing = _along("max_pool1d", dilation, 1)
    return _from_rows(max_pool2d(_rows("max_pool1d", input), kernel, step, pad, spacing, ceil_mode))


@export("F")
def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """:func:`avg_pool2d` along the last axis of (N, C, L)."""
    kernel, pad = _along("avg_pool1d", kernel_size, 1), _along("avg_pool1d", padding, 0)
    step = kernel if stride in (None, ()) else _along("avg_pool1d", stride, 1)
    return _from_rows(avg_pool2d(_rows("avg_pool1d", input), kernel, step, pad, ceil_mode, count_include_pad))


@export("F")
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """:func:`adaptive_avg_pool2d` along the last axis of (N, C, L)."""
    rows = _rows("adaptive_avg_pool1d", input)
    return _from_rows(adaptive_avg_pool2d(rows, _along("adaptive_avg_pool1d", output_size, 1)))


@export("F")
def adaptive_max_pool1d(input: Any, output_size: Any) -> Any:
    """:func:`adaptive_max_pool2d` along the last axis of (N, C, L)."""
    rows = _rows("adaptive_max_pool1d", input)
    return _from_rows(adaptive_max_pool2d(rows, _along("adaptive_max_pool1d", output_size, 1)))


def _along(op: str, value: Any, across: int) -> tuple[int, Any]:
    """A number for one axis as a pair that leaves the other alone."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise ArgumentError(f"[{op}] expected one number for the only axis, got {value!r}")
        value = value[0]
    return across, value


def _rows(op: str, input: Any) -> Any:
    check_images(op, input, 1)
    return reshape(input, *input.shape[:2], 1, input.shape[2])


def _from_rows(result: Any) -> Any:
    return reshape(result, *result.shape[:2], result.shape[3])
