"""Images made larger and smaller, and cut into windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides as indexing
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.elementwise.arithmetic import add, mul
from dl4all.ops.indexing.indices import Indices, NDArray
from dl4all.ops.indexing.padding import pad
from dl4all.ops.indexing.rows import select_indices, take_rows_backward
from dl4all.ops.memory.views import permute, reshape

T = TypeVar("T", bound=TensorBase)
AXES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}
CUBIC = -0.75  # PyTorch's


@export("F")
def interpolate(
    input: T,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> T:
    """An image, or a signal or a volume, of another size.

    Args:
        input: shape (N, C, ...) with one to three axes behind.
        size: of these axes.
        scale_factor: how often as large they get, instead of a size.
        mode: "nearest", "nearest-exact", "linear" (one axis), "bilinear" or "bicubic" (two), "trilinear".
        align_corners: whether the centres of the corner elements stay, instead of the corners themselves;
            not for the nearest ones.

    Returns:
        Shape (N, C, *size).

    Raises:
        ArgumentError: the mode is unknown, or not exactly one of size and scale factor is given.
        ShapeError: the input has another number of axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[1.0, 3.0]]])
        >>> dl.nn.functional.interpolate(x, scale_factor=2).tolist()
        [[[1.0, 1.0, 3.0, 3.0]]]
        >>> dl.nn.functional.interpolate(x, 3, mode="linear", align_corners=True).tolist()
        [[[1.0, 2.0, 3.0]]]
    """
    if mode not in AXES:
        raise ArgumentError(f"[interpolate] the mode must be one of {', '.join(AXES)}, got {mode!r}")
    count = len(input.shape) - 2
    if count not in AXES[mode]:
        raise ShapeError(f"[interpolate] mode {mode!r} does not fit an input of shape {input.shape}")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("[interpolate] give either size or scale_factor")
    if align_corners is not None and mode.startswith("nearest"):
        raise ArgumentError(f"[interpolate] align_corners is not for mode {mode!r}")
    scales: list[float | None] = [None] * count
    if scale_factor is not None:
        given = [scale_factor] * count if isinstance(scale_factor, (int, float)) else list(scale_factor)
        scales = [float(factor) for factor in given]
        sizes = [math.floor(old * factor) for old, factor in zip(input.shape[2:], given, strict=True)]
    else:
        sizes = [size] * count if isinstance(size, int) else list(size or ())
    if len(sizes) != count or min(sizes) < 1 or 0 in input.shape[2:]:
        raise ArgumentError(
            f"[interpolate] expected {count} positive sizes, got {sizes} for an input of shape {input.shape}"
        )
    for axis, (new, factor) in enumerate(zip(sizes, scales, strict=True), 2):
        old = input.shape[axis]
        if mode.startswith("nearest"):
            input = select_indices(input, axis, Indices(_nearest(old, new, factor, mode)))
        elif old != new or not align_corners:
            taps = _taps(_positions(old, new, factor, bool(align_corners)), old, mode)
            input = _weighted(input, axis, taps)
    return input


def _nearest(old: int, new: int, factor: float | None, mode: str) -> NDArray:
    # In float32, where PyTorch rounds too.
    step = np.float32(1 / factor) if factor is not None else np.float32(old) / np.float32(new)
    half = np.float32(0.5 if mode == "nearest-exact" else 0)
    places = np.floor((np.arange(new, dtype=np.float32) + half) * step)
    found: NDArray = np.minimum(places.astype(np.int64), old - 1)
    return found


def _positions(old: int, new: int, factor: float | None, align_corners: bool) -> NDArray:
    """Where in the old axis each place of the new one lies."""
    places = np.arange(new, dtype=np.float64)
    if align_corners:
        return places * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (places + 0.5) * (1 / factor if factor is not None else old / new) - 0.5


def _taps(positions: NDArray, old: int, mode: str) -> list[tuple[NDArray, NDArray]]:
    """For each place of the new axis the places of the old one that it is made of, and their weights."""
    if mode != "bicubic":
        positions = np.clip(positions, 0, old - 1)
        low = np.floor(positions).astype(np.int64)
        far = positions - low
        return [(low, 1 - far), (np.minimum(low + 1, old - 1), far)]
    low = np.floor(positions).astype(np.int64)
    far = positions - low
    return [(np.clip(low + i, 0, old - 1), _cubic(abs(far - i))) for i in (-1, 0, 1, 2)]


def _cubic(x: NDArray) -> NDArray:
    """Keys' convolution kernel (doi:10.1109/TASSP.1981.1163711)."""
    a = CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    weights: NDArray = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return weights


def _weighted(input: T, axis: int, taps: list[tuple[NDArray, NDArray]]) -> T:
    if input.dtype.kind != "f":
        raise DTypeError(f"[interpolate] expected floats, got {input.dtype}; use .float()")
    shape = (-1,) + (1,) * (len(input.shape) - axis - 1)
    total: Any = None
    for places, weights in taps:
        column = weights.astype(input.dtype).reshape(shape)
        weight = from_host(type(input).result_class, column, input.device, copy=False)
        term = mul(select_indices(input, axis, Indices(places)), weight)
        total = term if total is None else add(total, term)
    made: T = total
    return made


@export("F")
def upsample(
    input: T,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> T:
    """An older name of :func:`interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@export("dl", "F")
def pixel_shuffle(input: T, upscale_factor: int) -> T:
    """Channels spread over squares of pixels: (..., C * r * r, H, W) becomes (..., C, H * r, W * r).

    Raises:
        ShapeError: the channels are no multiple of r * r.
    """
    r = upscale_factor
    if len(input.shape) < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(f"[pixel_shuffle] expected shape (..., C * {r} * {r}, H, W), got {input.shape}")
    *batch, channels, height, width = input.shape
    n = len(batch)
    apart = reshape(input, (*batch, channels // (r * r), r, r, height, width))
    turned = permute(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(turned, (*batch, channels // (r * r), height * r, width * r))


@export("dl", "F")
def pixel_unshuffle(input: T, downscale_factor: int) -> T:
    """What undoes :func:`pixel_shuffle`.

    Raises:
        ShapeError: height or width is no multiple of the factor.
    """
    r = downscale_factor
    if len(input.shape) < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(f"[pixel_unshuffle] expected shape (..., C, H * {r}, W * {r}), got {input.shape}")
    *batch, channels, height, width = input.shape
    n = len(batch)
    apart = reshape(input, (*batch, channels, height // r, r, width // r, r))
    turned = permute(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(turned, (*batch, channels * r * r, height // r, width // r))


# Windows


@export("Tensor.unfold")
def window(input: T, dimension: int, size: int, step: int) -> T:
    """A view of all windows of `size` places along an axis, each `step` further; they form a new last axis.

    It is ``Tensor.unfold``.

    Raises:
        ArgumentError: the size or the step is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, 2.0, 3.0, 4.0]).unfold(0, 2, 1).tolist()
        [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    """
    place = indexing.axis("unfold", dimension, len(input.shape))
    shape, strides = input.shape, input.strides
    if not 0 <= size <= shape[place] or step < 1:
        raise ArgumentError(f"[unfold] size {size} and step {step} do not fit axis {place} of shape {shape}")
    count = (shape[place] - size) // step + 1
    made: T = input.as_strided(
        (*shape[:place], count, *shape[place + 1 :], size),
        (*strides[:place], strides[place] * step, *strides[place + 1 :], strides[place]),
        input.offset,
    )
    places = Indices(np.arange(count)[:, None] * step + np.arange(size))
    last = len(shape)
    back = (*range(place + 1), last, *range(place + 1, last))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        side_by_side = permute(grads[0], back)
        outer, inner = math.prod(shape[:place]), math.prod(shape[place + 1 :])
        rows = reshape(side_by_side, outer, len(places), inner)
        return [reshape(take_rows_backward(rows, places, shape[place]), shape)]

    tape.attach("unfold", [input], [made], backward)
    return made


def _pair(name: str, value: Any) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(v, int) for v in pair):
        raise ArgumentError(f"[{name}] expected an int or two, got {value}")
    return pair


def _corners(name: str, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[NDArray]:
    """For height and width: where each place of each window lies in the padded image, (kernel, windows).

    Raises:
        ArgumentError: there is no window.
    """
    found = []
    for n, k, d, p, s in zip(
        size, *(_pair(name, v) for v in (kernel, dilation, padding, stride)), strict=True
    ):
        count = (n + 2 * p - d * (k - 1) - 1) // s + 1 if min(k, d, s) > 0 <= p else 0
        if count < 1:
            raise ArgumentError(
                f"[{name}] no window of size {k}, dilation {d}, padding {p} and stride {s} fits "
                f"an axis of size {n}"
            )
        found.append(np.arange(k)[:, None] * d + np.arange(count) * s)
    return found


@export("F")
def unfold(input: T, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> T:
    """Each window of an image as a column.

    Args:
        input: shape (N, C, H, W) or (C, H, W).
        kernel_size, dilation, padding, stride: of the windows, an int or one for each axis.

    Returns:
        Shape (N, C * kernel height * kernel width, number of windows).

    Raises:
        ShapeError: the input has another number of axes.
        ArgumentError: no window fits.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.unfold(dl.ones(1, 2, 3, 3), 2).shape
        (1, 8, 4)
    """
    if len(input.shape) == 3:
        columns = unfold(reshape(input, (1, *input.shape)), kernel_size, dilation, padding, stride)
        return reshape(columns, columns.shape[1:])
    if len(input.shape) != 4:
        raise ShapeError(f"[unfold] expected shape (N, C, H, W) or (C, H, W), got {input.shape}")
    n, c, height, width = input.shape
    rows, columns_ = _corners("unfold", (height, width), kernel_size, dilation, padding, stride)
    p, q = _pair("unfold", padding)
    padded = pad(input, (q, q, p, p)) if p or q else input
    taken = select_indices(select_indices(padded, 2, Indices(rows)), 3, Indices(columns_))
    apart = reshape(taken, (n, c, *rows.shape, *columns_.shape))
    together = permute(apart, 0, 1, 2, 4, 3, 5)
    return reshape(together, n, c * len(rows) * len(columns_), rows.shape[1] * columns_.shape[1])


@export("F")
def fold(
    input: T, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> T:
    """Columns added up to the image whose windows they are: the transpose of :func:`unfold`.

    Args:
        input: shape (N, C * kernel height * kernel width, number of windows), N may be missing.
        output_size: height and width of the image.
        kernel_size, dilation, padding, stride: of the windows, an int or one for each axis.

    Returns:
        Shape (N, C, height, width).

    Raises:
        ShapeError: the numbers of columns or of windows do not fit.
        ArgumentError: no window fits.
    """
    if len(input.shape) == 2:
        image = fold(reshape(input, (1, *input.shape)), output_size, kernel_size, dilation, padding, stride)
        return reshape(image, image.shape[1:])
    height, width = _pair("fold", output_size)
    rows, columns = _corners("fold", (height, width), kernel_size, dilation, padding, stride)
    area, windows = len(rows) * len(columns), rows.shape[1] * columns.shape[1]
    if len(input.shape) != 3 or input.shape[1] % area or input.shape[2] != windows:
        raise ShapeError(
            f"[fold] expected shape (N, C * {area}, {windows}) for an image of {height} x {width}, "
            f"got {input.shape}"
        )
    n, c = input.shape[0], input.shape[1] // area
    p, q = _pair("fold", padding)
    apart = reshape(input, (n, c, len(rows), len(columns), rows.shape[1], columns.shape[1]))
    turned = reshape(permute(apart, 0, 1, 2, 4, 3, 5), n * c * rows.size, columns.size, 1)
    lines = take_rows_backward(turned, Indices(columns), width + 2 * q)
    lines = reshape(lines, n * c, rows.size, width + 2 * q)
    image = reshape(
        take_rows_backward(lines, Indices(rows), height + 2 * p), (n, c, height + 2 * p, width + 2 * q)
    )
    return pad(image, (-q, -q, -p, -p)) if p or q else image
