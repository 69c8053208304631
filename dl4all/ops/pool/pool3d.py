"""Pooling of volumes: of their layers as images, then along the depth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.elementwise.division import div
from dl4all.functions.host import to_device_of
from dl4all.ops.conv.window import sizes
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.pool.avg_pool import adaptive_avg_pool2d, avg_pool2d, avg_pooling
from dl4all.ops.pool.max_pool import adaptive_max_pool2d, kernel_indices, max_pool2d, max_pooling
from dl4all.ops.pool.windows import OutputSizes, Pooling, Sizes, adaptive
from dl4all.ops.sorting.selection import wide_indices

Arguments: TypeAlias = tuple[Any, ...]


@export("F")
def avg_pool3d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window of a volume; arguments as for :func:`avg_pool2d`.

    Args:
        input: floats or integers of shape (N, C, D, H, W) or (C, D, H, W); means of integers are rounded
            towards 0.
        kernel_size, stride, padding: a number, or three, of depth, height and width.
        ceil_mode: take a last window that begins inside but does not fit.
        count_include_pad: whether the zeros of the padding count.
        divisor_override: divides the sums in place of the number of elements.

    Raises:
        ShapeError, ArgumentError: as for :func:`avg_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.avg_pool3d(dl.ones(1, 1, 4, 4, 4), 2).shape
        (1, 1, 2, 2, 2)
    """
    name = "avg_pool3d"
    x, is_single = _with_batch(name, input)
    if divisor_override == 0:
        raise ArgumentError(f"[{name}] divisor_override must not be 0")
    kernel, pad = sizes(name, "kernel_size", kernel_size, 1, 3), sizes(name, "padding", padding, 0, 3)
    step = kernel if stride in (None, ()) else sizes(name, "stride", stride, 1, 3)
    of_layers = kernel[1:], step[1:], pad[1:], ceil_mode, count_include_pad
    of_columns = (kernel[0], 1), (step[0], 1), (pad[0], 0), ceil_mode, count_include_pad
    if divisor_override is None and kind_of(x.dtype) == "f":
        return _pool(avg_pool2d, x, is_single, of_layers, of_columns)
    sums = _pool(avg_pool2d, x, is_single, (*of_layers, 1), (*of_columns, 1))
    if kind_of(x.dtype) == "f":
        return true_divide(sums, divisor_override)
    divisor: Any = divisor_override
    if divisor is None:
        in_layers = avg_pooling((1, 1, *x.shape[3:]), *of_layers, None).divisors()
        in_columns = avg_pooling((1, 1, x.shape[2], 1), *of_columns, None).divisors()
        divisor = to_device_of(x, np.ascontiguousarray(in_columns[..., None] * in_layers, x.dtype))
    return div(sums, divisor, rounding_mode="trunc")


@export("F")
def max_pool3d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array:
    """The largest element of each window of a volume; arguments as for :func:`max_pool2d`.

    Args:
        input: floats of shape (N, C, D, H, W) or (C, D, H, W).
        kernel_size, stride, padding, dilation: a number, or three, of depth, height and width.
        ceil_mode: take a last window that begins inside but does not fit.
        return_indices: also return the row-major index of each maximum in its volume, as int64.

    Raises:
        ShapeError, ArgumentError: as for :func:`max_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.max_pool3d(dl.ones(1, 1, 4, 4, 4), 2).shape
        (1, 1, 2, 2, 2)
    """
    if return_indices:
        return max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    x, is_single = _with_batch("max_pool3d", input)
    return _pool(
        max_pool2d, x, is_single, *_max_pool_arguments(kernel_size, stride, padding, dilation, ceil_mode)
    )


@export("F")
@reads("input")
def max_pool3d_with_indices(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Array, Array]:
    """:func:`max_pool3d` with ``return_indices=True``.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> x, indices = F.max_pool3d_with_indices(dl.rand(1, 4, 6, 8, 8), 2)
        >>> x.shape, indices.shape
        ((1, 4, 3, 4, 4), (1, 4, 3, 4, 4))
    """
    of_layers, of_columns = _max_pool_arguments(kernel_size, stride, padding, dilation, ceil_mode)
    x, is_single = _with_batch("max_pool3d", input)
    return _pool_with_indices(max_pool2d, max_pooling, x, is_single, of_layers, of_columns)


def _max_pool_arguments(
    kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Arguments, Arguments]:
    """The arguments of :func:`max_pool2d` for layers, and for columns."""
    name = "max_pool3d"
    kernel, pad = sizes(name, "kernel_size", kernel_size, 1, 3), sizes(name, "padding", padding, 0, 3)
    step = kernel if stride in (None, ()) else sizes(name, "stride", stride, 1, 3)
    spacing = sizes(name, "dilation", dilation, 1, 3)
    return (
        (kernel[1:], step[1:], pad[1:], spacing[1:], ceil_mode),
        ((kernel[0], 1), (step[0], 1), (pad[0], 0), (spacing[0], 1), ceil_mode),
    )


@export("F")
def adaptive_avg_pool3d(input: Array, output_size: OutputSizes) -> Array:
    """:func:`avg_pool3d` with windows that divide volumes into `output_size` parts.

    Args:
        input: floats of shape (N, C, D, H, W) or (C, D, H, W).
        output_size: a number, or three, of depth, height and width; None keeps a size.

    Raises:
        ShapeError, ArgumentError: as for :func:`adaptive_avg_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_avg_pool3d(dl.ones(1, 1, 5, 4, 3), (2, None, 1)).shape
        (1, 1, 2, 4, 1)
    """
    x, is_single = _with_batch("adaptive_avg_pool3d", input)
    size = _three_sizes("adaptive_avg_pool3d", output_size)
    return _pool(adaptive_avg_pool2d, x, is_single, (size[1:],), ((size[0], None),))


@export("F")
def adaptive_max_pool3d(input: Array, output_size: OutputSizes, return_indices: bool = False) -> Array:
    """:func:`max_pool3d` with windows that divide volumes into `output_size` parts.

    Args:
        input: floats of shape (N, C, D, H, W) or (C, D, H, W).
        output_size: a number, or three, of depth, height and width; None keeps a size.
        return_indices: also return the row-major index of each maximum in its volume, as int64.

    Raises:
        ShapeError, ArgumentError: as for :func:`adaptive_max_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_max_pool3d(dl.ones(1, 1, 5, 4, 3), (2, None, 1)).shape
        (1, 1, 2, 4, 1)
    """
    if return_indices:
        return adaptive_max_pool3d_with_indices(input, output_size)
    x, is_single = _with_batch("adaptive_max_pool3d", input)
    size = _three_sizes("adaptive_max_pool3d", output_size)
    return _pool(adaptive_max_pool2d, x, is_single, (size[1:],), ((size[0], None),))


@export("F")
@reads("input")
def adaptive_max_pool3d_with_indices(
    input: Array, output_size: OutputSizes, return_indices: bool = False
) -> tuple[Array, Array]:
    """:func:`adaptive_max_pool3d` with ``return_indices=True``.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> x, indices = F.adaptive_max_pool3d_with_indices(dl.rand(1, 4, 6, 8, 8), 2)
        >>> x.shape, indices.shape
        ((1, 4, 2, 2, 2), (1, 4, 2, 2, 2))
    """
    x, is_single = _with_batch("adaptive_max_pool3d", input)
    size = _three_sizes("adaptive_max_pool3d", output_size)
    windows = partial(adaptive, "adaptive_max_pool3d")
    return _pool_with_indices(adaptive_max_pool2d, windows, x, is_single, (size[1:],), ((size[0], None),))


# Volumes as images


def _with_batch(name: str, input: Any) -> tuple[Any, bool]:
    """Volumes (N, C, D, H, W), and whether the input had no axis N.

    Raises:
        ShapeError: the input is neither 4-d nor 5-d.
    """
    if len(input.shape) not in (4, 5):
        raise ShapeError(f"[{name}] expected shape (N, C, D, H, W) or (C, D, H, W), got {input.shape}")
    return (reshape(input, 1, *input.shape), True) if len(input.shape) == 4 else (input, False)


def _pool(
    pool2d: Callable[..., Any], x: Any, is_single: bool, of_layers: Arguments, of_columns: Arguments
) -> Any:
    """Pools the layers of volumes, then the columns of the result."""
    layers = pool2d(_layers(x), *of_layers)
    return _volumes(pool2d(_columns(layers, x.shape[1]), *of_columns), layers, is_single)


def _pool_with_indices(
    pool2d: Callable[..., Any],
    windows: Callable[..., Pooling],
    x: Any,
    is_single: bool,
    of_layers: Arguments,
    of_columns: Arguments,
) -> tuple[Any, Any]:
    """As :func:`_pool`, and the row-major indices of the maxima in their volumes, as int64.

    Args:
        windows: the windows of `pool2d`, for images of a shape.
    """
    images = _layers(x)
    layers = pool2d(images, *of_layers)
    pillars = _columns(layers, x.shape[1])
    columns = pool2d(pillars, *of_columns)
    layer_indices = kernel_indices(images, windows(images.shape, *of_layers))
    column_indices = kernel_indices(pillars, windows(pillars.shape, *of_columns))
    indices = _volume_indices(x, layer_indices, column_indices)
    if indices.dtype != np.int64:
        indices = wide_indices(contiguous(indices))
    return _volumes(columns, layers, is_single), _volumes(indices, layers, is_single)


def _layers(x: Any) -> Any:
    """Volumes as images (N, C D, H, W)."""
    n, c, d, h, w = x.shape
    return reshape(x, n, c * d, h, w)


def _columns(layers: Any, channels: int) -> Any:
    """Pooled layers as images (N, C, D, H W), whose columns run along the depth."""
    n, channel_layers, h, w = layers.shape
    return reshape(layers, n, channels, channel_layers // max(channels, 1), h * w)


def _volumes(columns: Any, layers: Any, is_single: bool) -> Any:
    """Pooled columns as volumes (N, C, D, H, W), without N for a single sample."""
    n, c, d, _ = columns.shape
    shape = (n, c, d, *layers.shape[2:])
    return reshape(columns, *(shape[1:] if is_single else shape))


def _volume_indices(x: Any, layer_indices: Any, column_indices: Any) -> Any:
    """Indices in volumes, from those in the layers and those in the columns of pooled layers."""
    columns = _columns(layer_indices, x.shape[1])
    depth = column_indices // columns.shape[3]
    return gather(columns, 2, depth) + depth * (x.shape[3] * x.shape[4])


def _three_sizes(name: str, value: Any) -> tuple[Any, Any, Any]:
    """The three sizes of a result, each of which may be None.

    Raises:
        ArgumentError: the value is neither one number nor three.
    """
    if not isinstance(value, (tuple, list)):
        return value, value, value
    if len(value) != 3:
        raise ArgumentError(f"[{name}] expected a number or three, got {value!r}")
    return value[0], value[1], value[2]
