"""Pooling of volumes, by images first and then along the axis that is left; and pooling by powers."""

from __future__ import annotations

import math
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv.window import sizes
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.views import reshape
from dl4all.ops.pool.avg_pool import adaptive_avg_pool2d, avg_pool2d
from dl4all.ops.pool.max_pool import (
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
)
from dl4all.ops.pool.pool1d import avg_pool1d


def _three(name: str, value: Any) -> tuple[Any, Any, Any]:
    """The sizes of a result, of which some may be None.

    Raises:
        ArgumentError: it is neither a number nor three.
    """
    if not isinstance(value, (tuple, list)):
        return value, value, value
    if len(value) != 3:
        raise ArgumentError(f"[{name}] expected a number or three, got {value!r}")
    return value[0], value[1], value[2]


def _volumes(name: str, input: Any) -> tuple[Any, bool]:
    """With an axis for the batch, and whether there was none.

    Raises:
        ShapeError: these are no volumes.
    """
    if len(input.shape) not in (4, 5):
        raise ShapeError(f"[{name}] expected shape (N, C, D, H, W) or (C, D, H, W), got {input.shape}")
    return (reshape(input, 1, *input.shape), True) if len(input.shape) == 4 else (input, False)


def _images(x: Any) -> Any:
    """Every layer of a volume as an image."""
    n, c, d, h, w = x.shape
    return reshape(x, n, c * d, h, w)


def _columns(layers: Any, channels: int) -> Any:
    """Images again as layers, with the layers' elements in lines: (N, C, D, H W)."""
    n, many, h, w = layers.shape
    return reshape(layers, n, channels, many // channels, h * w)


def _back(columns: Any, layers: Any, single: bool) -> Any:
    n, c, d, _ = columns.shape
    shape = (n, c, d, *layers.shape[2:])
    return reshape(columns, *(shape[1:] if single else shape))


@export("F")
def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of a volume; arguments as for :func:`avg_pool2d`.

    Args:
        input: floats of shape (N, C, D, H, W) or (C, D, H, W).
        kernel_size, stride, padding: a number, or three, of depth, height and width.
        ceil_mode: whether a window may begin inside and end beyond.
        count_include_pad: whether padding counts among what the sum is divided by.
        divisor_override: what it is divided by instead.

    Raises:
        ShapeError, ArgumentError: as for :func:`avg_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.avg_pool3d(dl.ones(1, 1, 4, 4, 4), 2).shape
        (1, 1, 2, 2, 2)
    """
    x, single = _volumes("avg_pool3d", input)
    name = "avg_pool3d"
    if divisor_override == 0:
        raise ArgumentError(f"[{name}] divisor_override must not be 0")
    kernel, pad = sizes(name, "kernel_size", kernel_size, 1, 3), sizes(name, "padding", padding, 0, 3)
    step = kernel if stride in (None, ()) else sizes(name, "stride", stride, 1, 3)
    override = None if divisor_override is None else 1
    more = ceil_mode, count_include_pad, override
    layers = avg_pool2d(_images(x), kernel[1:], step[1:], pad[1:], *more)
    columns = _columns(layers, x.shape[1])
    found = avg_pool2d(columns, (kernel[0], 1), (step[0], 1), (pad[0], 0), *more)
    made = _back(found, layers, single)
    return made if divisor_override is None else true_divide(made, divisor_override)


@export("F")
def max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of a volume; arguments as for :func:`max_pool2d`.

    Args:
        input: floats of shape (N, C, D, H, W) or (C, D, H, W).
        kernel_size, stride, padding, dilation: a number, or three, of depth, height and width.
        ceil_mode: whether a window may begin inside and end beyond.
        return_indices: also, where in its volume each of them is, counted in row-major order.

    Raises:
        ShapeError, ArgumentError: as for :func:`max_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.max_pool3d(dl.ones(1, 1, 4, 4, 4), 2).shape
        (1, 1, 2, 2, 2)
    """
    name = "max_pool3d"
    x, single = _volumes(name, input)
    kernel, pad = sizes(name, "kernel_size", kernel_size, 1, 3), sizes(name, "padding", padding, 0, 3)
    step = kernel if stride in (None, ()) else sizes(name, "stride", stride, 1, 3)
    spacing = sizes(name, "dilation", dilation, 1, 3)
    flat = kernel[1:], step[1:], pad[1:], spacing[1:], ceil_mode
    deep = (kernel[0], 1), (step[0], 1), (pad[0], 0), (spacing[0], 1), ceil_mode
    if not return_indices:
        layers = max_pool2d(_images(x), *flat)
        return _back(max_pool2d(_columns(layers, x.shape[1]), *deep), layers, single)
    layers, within = max_pool2d_with_indices(_images(x), *flat)
    found, depths = max_pool2d_with_indices(_columns(layers, x.shape[1]), *deep)
    return _back(found, layers, single), _back(_places(x, within, depths), layers, single)


@export("F")
def max_pool3d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Any, Any]:
    """:func:`max_pool3d`, and where in its volume each of the largest is."""
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def _places(x: Any, within: Any, depths: Any) -> Any:
    """Places in volumes, from those in layers and, for each column of chosen ones, those along the depth."""
    columns = _columns(within, x.shape[1])
    depth = depths // columns.shape[3]
    return gather(columns, 2, depth) + depth * (x.shape[3] * x.shape[4])


@export("F")
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """:func:`avg_pool3d` with windows that give a size: a number or three, None keeping an axis.

    Raises:
        ShapeError, ArgumentError: as for :func:`adaptive_avg_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_avg_pool3d(dl.ones(1, 1, 5, 4, 3), (2, None, 1)).shape
        (1, 1, 2, 4, 1)
    """
    x, single = _volumes("adaptive_avg_pool3d", input)
    size = _three("adaptive_avg_pool3d", output_size)
    layers = adaptive_avg_pool2d(_images(x), size[1:])
    return _back(adaptive_avg_pool2d(_columns(layers, x.shape[1]), (size[0], None)), layers, single)


@export("F")
def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """:func:`max_pool3d` with windows that give a size: a number or three, None keeping an axis.

    Raises:
        ShapeError, ArgumentError: as for :func:`adaptive_max_pool2d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_max_pool3d(dl.ones(1, 1, 5, 4, 3), (2, None, 1)).shape
        (1, 1, 2, 4, 1)
    """
    x, single = _volumes("adaptive_max_pool3d", input)
    size = _three("adaptive_max_pool3d", output_size)
    if not return_indices:
        layers = adaptive_max_pool2d(_images(x), size[1:])
        return _back(adaptive_max_pool2d(_columns(layers, x.shape[1]), (size[0], None)), layers, single)
    layers, within = adaptive_max_pool2d_with_indices(_images(x), size[1:])
    found, depths = adaptive_max_pool2d_with_indices(_columns(layers, x.shape[1]), (size[0], None))
    return _back(found, layers, single), _back(_places(x, within, depths), layers, single)


@export("F")
def adaptive_max_pool3d_with_indices(input: Any, output_size: Any) -> tuple[Any, Any]:
    """:func:`adaptive_max_pool3d`, and where in its volume each of the largest is."""
    return adaptive_max_pool3d(input, output_size, True)  # type: ignore[no-any-return]


# Along one axis, with places


@export("F")
def max_pool1d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Any, Any]:
    """:func:`max_pool1d` of (N, C, L) or (C, L), and where each of the largest is."""
    kernel, pad, spacing = (_one("max_pool1d", v) for v in (kernel_size, padding, dilation))
    step = kernel if stride in (None, ()) else _one("max_pool1d", stride)
    rows = reshape(input, *input.shape[:-1], 1, input.shape[-1])
    found, places = max_pool2d_with_indices(rows, (1, kernel), (1, step), (0, pad), (1, spacing), ceil_mode)
    shape = (*input.shape[:-1], found.shape[-1])
    return reshape(found, *shape), reshape(places, *shape)


@export("F")
def adaptive_max_pool1d_with_indices(input: Any, output_size: Any) -> tuple[Any, Any]:
    """:func:`adaptive_max_pool1d` of (N, C, L), and where each of the largest is."""
    rows = reshape(input, *input.shape[:-1], 1, input.shape[-1])
    found, places = adaptive_max_pool2d_with_indices(rows, (1, _one("adaptive_max_pool1d", output_size)))
    shape = (*input.shape[:-1], found.shape[-1])
    return reshape(found, *shape), reshape(places, *shape)


def _one(name: str, value: Any) -> Any:
    if not isinstance(value, (tuple, list)):
        return value
    if len(value) != 1:
        raise ArgumentError(f"[{name}] expected one number for the only axis, got {value!r}")
    return value[0]


# By powers


@export("F")
def lp_pool1d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """The root of the sum of powers of each window of (N, C, L): ``sum(x ** p) ** (1 / p)``.

    Args:
        input: floats.
        norm_type: the power p, above 0; odd and fractional ones are for elements from 0 on.
        kernel_size, stride, ceil_mode: as for :func:`avg_pool1d`.

    Raises:
        ShapeError, ArgumentError: as for :func:`avg_pool1d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.lp_pool1d(dl.tensor([[[3.0, 4.0]]]), 2, 2).tolist()
        [[[5.0]]]
    """
    kernel = _one("lp_pool1d", kernel_size)
    means = avg_pool1d(pow(input, norm_type), kernel, stride, 0, ceil_mode)
    return _root(means, kernel, norm_type)


@export("F")
def lp_pool2d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """:func:`lp_pool1d` of images, with windows of height and width.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.lp_pool2d(dl.tensor([[[[3.0, 4.0]]]]), 2, (1, 2)).tolist()
        [[[[5.0]]]]
    """
    height, width = sizes("lp_pool2d", "kernel_size", kernel_size, 1, 2)
    means = avg_pool2d(pow(input, norm_type), (height, width), stride, 0, ceil_mode)
    return _root(means, height * width, norm_type)


@export("F")
def lp_pool3d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """:func:`lp_pool1d` of volumes, with windows of depth, height and width.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.lp_pool3d(dl.ones(1, 1, 2, 2, 2), 1, 2).item()
        8.0
    """
    depth, height, width = sizes("lp_pool3d", "kernel_size", kernel_size, 1, 3)
    means = avg_pool3d(pow(input, norm_type), (depth, height, width), stride, 0, ceil_mode)
    return _root(means, depth * height * width, norm_type)


def _root(means: Any, count: int, power: float) -> Any:
    if not 0 < power < math.inf:
        raise ArgumentError(
            f"[lp_pool] expected a power above 0, got {power}; for the largest there is max_pool"
        )
    return pow(mul(means, count), 1 / power)
