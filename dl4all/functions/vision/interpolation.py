"""Interpolation of signals, images and volumes to another size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.functions.host import to_device_of
from dl4all.functions.reduction.weighted_sums import in_one_pass
from dl4all.functions.reduction.weighted_sums import resampled as resampled_axis
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_shape, host_memory, integer, real
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import add, mul
from dl4all.ops.indexing.indices import Indices, NDArray
from dl4all.ops.indexing.rows import select_indices
from dl4all.ops.memory.copy import unshared

# For each mode, how many axes it can resize.
MODE_AXES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}
CUBIC_COEFFICIENT = -0.75  # the parameter `a` of Keys' kernel; PyTorch's value
SMOOTH_CUBIC_COEFFICIENT = -0.5  # that of PyTorch, and of Pillow, with antialiasing
Taps = list[tuple[NDArray, NDArray]]
"""For each tap of an interpolation, the indices of the old elements and their weights, for all new ones."""
FILTER_RADII = {"bilinear": 1, "bicubic": 2}
"""The modes that can be antialiased, and how far their kernels reach, in pixels of the result."""


@export("F", autocast="float32")
def interpolate(
    input: Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    """A signal, an image or a volume resized by interpolation.

    Args:
        input: shape (N, C, ...) with one to three more axes.
        size: the new sizes of these axes.
        scale_factor: the ratios of new to old sizes, instead of `size`.
        mode: "nearest", "nearest-exact", "area" (means, as :func:`adaptive_avg_pool2d`), "linear" (one axis),
            "bilinear" or "bicubic" (two), "trilinear".
        align_corners: whether the centres of the corner elements keep their positions, instead of their
            outer corners; not for the nearest modes and "area".
        recompute_scale_factor: whether coordinates follow from the ratio of the sizes, which are rounded,
            instead of from `scale_factor`.
        antialias: whether a smaller image is filtered first, as Pillow does; for "bilinear" and "bicubic".

    Returns:
        Shape (N, C, *size).

    Raises:
        ArgumentError: the mode is unknown, not exactly one of size and scale factor is given, it is too
            large or no number, or an argument is not for this mode.
        OutOfMemoryError
        ShapeError: the input has another number of axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[1.0, 3.0]]])
        >>> dl.nn.functional.interpolate(x, scale_factor=2).tolist()
        [[[1.0, 1.0, 3.0, 3.0]]]
        >>> dl.nn.functional.interpolate(x, 3, mode="linear", align_corners=True).tolist()
        [[[1.0, 2.0, 3.0]]]
    """
    if mode not in MODE_AXES:
        raise ArgumentError(f"[interpolate] the mode must be one of {', '.join(MODE_AXES)}, got {mode!r}")
    ndim = len(input.shape) - 2
    if ndim not in MODE_AXES[mode]:
        raise ShapeError(f"[interpolate] mode {mode!r} does not fit an input of shape {input.shape}")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("[interpolate] give either size or scale_factor")
    if align_corners is not None and (mode == "area" or mode.startswith("nearest")):
        raise ArgumentError(f"[interpolate] align_corners is not for mode {mode!r}")
    if recompute_scale_factor and size is not None:
        raise ArgumentError("[interpolate] recompute_scale_factor is not for a given size")
    if antialias and mode not in FILTER_RADII:
        raise ArgumentError(
            f"[interpolate] antialias is for the modes {', '.join(FILTER_RADII)}, not for {mode!r}"
        )
    scales: list[float | None] = [None] * ndim
    if scale_factor is not None:
        factors = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * ndim
        ratios = [real("interpolate", "a scale factor", factor, finite=True) for factor in factors]
        sizes = [math.floor(old * factor) for old, factor in zip(input.shape[2:], ratios, strict=False)]
        if not recompute_scale_factor:
            scales = [*ratios]
    else:
        given = size if isinstance(size, (tuple, list)) else [size] * ndim
        sizes = [integer("interpolate", "a size", n) for n in given]
    if len(sizes) != ndim or min(sizes) < 1 or 0 in input.shape[2:]:
        raise ArgumentError(
            f"[interpolate] expected {ndim} positive sizes, got {sizes} for an input of shape {input.shape}"
        )
    check_shape("interpolate", (*input.shape[:2], *sizes))
    with host_memory("interpolate"):
        return resized(input, sizes, scales, mode, align_corners, antialias=antialias)


def resized(
    input: Array,
    sizes: Sequence[int],
    scales: Sequence[float | None],
    mode: str,
    align_corners: bool | None,
    *,
    antialias: bool = False,
) -> Array:
    """The input interpolated along one axis after the other."""
    result = input
    for axis, (new_size, scale) in enumerate(zip(sizes, scales, strict=True), 2):
        old_size = result.shape[axis]
        if mode.startswith("nearest"):
            result = select_indices(result, axis, Indices(_nearest_indices(old_size, new_size, scale, mode)))
        elif mode == "area":
            result = weighted_sum(result, axis, area_taps(old_size, new_size))
        elif antialias:
            step = _source_step(old_size, new_size, scale, bool(align_corners))
            result = weighted_sum(result, axis, _filter_taps(old_size, new_size, step, mode))
        elif old_size != new_size or not align_corners:
            coordinates = _source_coordinates(old_size, new_size, scale, bool(align_corners))
            result = weighted_sum(result, axis, _taps(coordinates, old_size, mode))
    return unshared(result, input)


def _nearest_indices(old_size: int, new_size: int, scale: float | None, mode: str) -> NDArray:
    """The index of the nearest old element for each new one."""
    # In float32, for the same rounding as in PyTorch.
    step = np.float32(1 / scale) if scale is not None else np.float32(old_size) / np.float32(new_size)
    half = np.float32(0.5 if mode == "nearest-exact" else 0)
    coordinates = np.floor((np.arange(new_size, dtype=np.float32) + half) * step)
    indices: NDArray = np.minimum(coordinates.astype(np.int64), old_size - 1)
    return indices


def _source_coordinates(old_size: int, new_size: int, scale: float | None, align_corners: bool) -> NDArray:
    """The coordinate along the old axis of each element of the new one."""
    indices = np.arange(new_size, dtype=np.float64)
    step = _source_step(old_size, new_size, scale, align_corners)
    return indices * step if align_corners else (indices + 0.5) * step - 0.5


def _source_step(old_size: int, new_size: int, scale: float | None, align_corners: bool) -> float:
    """The distance along the old axis of neighbours on the new one."""
    if align_corners:
        return (old_size - 1) / (new_size - 1) if new_size > 1 else 0.0
    return 1 / scale if scale is not None else old_size / new_size


def _taps(coordinates: NDArray, old_size: int, mode: str) -> Taps:
    """The old elements that are summed for each new one: for each tap, their indices and their weights."""
    if mode != "bicubic":
        coordinates = np.clip(coordinates, 0, old_size - 1)
        floor = np.floor(coordinates).astype(np.int64)
        fraction = coordinates - floor
        return [(floor, 1 - fraction), (np.minimum(floor + 1, old_size - 1), fraction)]
    floor = np.floor(coordinates).astype(np.int64)
    fraction = coordinates - floor
    return [
        (np.clip(floor + i, 0, old_size - 1), cubic_kernel(abs(fraction - i), CUBIC_COEFFICIENT))
        for i in (-1, 0, 1, 2)
    ]


def area_taps(old_size: int, new_size: int) -> Taps:
    """The taps of means over parts of an axis, as adaptive pooling divides it."""
    indices = np.arange(new_size)
    starts, ends = indices * old_size // new_size, -(-(indices + 1) * old_size // new_size)
    return _tap_rows(starts, ends, old_size, np.ones((new_size, int((ends - starts).max()))))


def _filter_taps(old_size: int, new_size: int, step: float, mode: str) -> Taps:
    """The taps of a kernel that is as wide as `step`, so that each old element counts."""
    width = max(step, 1.0)
    centres = step * (np.arange(new_size) + 0.5)
    reach = FILTER_RADII[mode] * width
    starts = np.maximum(np.trunc(centres - reach + 0.5), 0).astype(np.int64)
    ends = np.minimum(np.trunc(centres + reach + 0.5), old_size).astype(np.int64)
    places = starts[:, None] + np.arange(max(int((ends - starts).max()), 1))
    distances = abs(places + 0.5 - centres[:, None]) / width
    if mode == "bilinear":
        weights = np.maximum(1 - distances, 0)
    else:
        weights = cubic_kernel(distances, SMOOTH_CUBIC_COEFFICIENT)
    return _tap_rows(starts, ends, old_size, weights)


def _tap_rows(starts: NDArray, ends: NDArray, old_size: int, weights: NDArray) -> Taps:
    """Taps with the weights of each row up to its end, which then sum to 1."""
    places = starts[:, None] + np.arange(weights.shape[1])
    weights = np.where(places < ends[:, None], weights, 0.0)
    totals = weights.sum(1, keepdims=True)
    weights = weights / np.where(totals == 0, 1.0, totals)
    return list(zip(np.minimum(places, old_size - 1).T, weights.T, strict=True))


def cubic_kernel(distance: NDArray, a: float) -> NDArray:
    """Keys' convolution kernel (doi:10.1109/TASSP.1981.1163711) with the parameter `a`."""
    x = distance
    below_one = ((a + 2) * x - (a + 3)) * x * x + 1
    below_two = ((x - 5) * x + 8) * x * a - 4 * a
    weights: NDArray = np.where(x <= 1, below_one, np.where(x < 2, below_two, 0.0))
    return weights


def weighted_sum(input: Array, axis: int, taps: Taps) -> Array:
    """The sum of the taps along an axis.

    Raises:
        DTypeError: the input is not of floats.
    """
    if kind_of(input.dtype) != "f":
        raise DTypeError(f"[interpolate] expected floats, got {input.dtype}; use .float()")
    if in_one_pass(input):
        places, factors = (np.stack(part) for part in zip(*taps, strict=True))
        return resampled_axis(input, axis, places, factors.astype(np.float32), places.shape[1])
    weight_shape = (-1,) + (1,) * (len(input.shape) - axis - 1)
    total: Array = None
    for indices, weights in taps:
        weight = to_device_of(input, weights.astype(input.dtype).reshape(weight_shape))
        term = mul(select_indices(input, axis, Indices(indices)), weight)
        total = term if total is None else add(total, term)
    return total


@export("F", autocast="float32")
def upsample(
    input: Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Array:
    """An older name of :func:`interpolate`.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> F.upsample(dl.tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


@export("F")
def upsample_nearest(
    input: Array, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Array:
    """:func:`interpolate` with mode "nearest".

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.upsample_nearest(dl.ones(1, 1, 2, 2), scale_factor=2).shape
        (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, mode="nearest")


@export("F")
def upsample_bilinear(
    input: Array, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Array:
    """:func:`interpolate` with mode "bilinear" and aligned corners.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.upsample_bilinear(dl.ones(1, 1, 2, 2), scale_factor=2).shape
        (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
