"""Batch normalisation and its sums on the host, a part that the cache holds at a time.

Each step over whole arrays reads and writes main memory once, which takes longer than its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.tensor_base import Shape

NDArray = npt.NDArray[Any]
PART = 2**16  # elements at a time
LEAST_RUN = 8  # elements side by side, whose sum NumPy makes in pairs


def channel_axes(rank: int) -> Shape:
    """All axes but the channels'."""
    return (0, *range(2, rank))


def along_channels(tensor: Any, rank: int) -> Any:
    """A tensor or array of shape (C,), ready to broadcast with (N, C, ...)."""
    return tensor.reshape((1, -1) + (1,) * (rank - 2))


def summed(array: Any, axes: Any, *, keepdims: bool = False) -> Any:
    """NumPy's sum in float64: float32 would lose digits along all axes but the last."""
    return np.asarray(np.sum(array, axes, np.float64, keepdims=keepdims), array.dtype)


def row_sums(rows: NDArray) -> NDArray:
    """The sum of each row of neighbouring elements, as a column: float32 is added in pairs."""
    if rows.dtype == np.float32 and rows.strides[-1] == rows.itemsize:
        return np.asarray(np.sum(rows, -1, keepdims=True))
    return np.asarray(np.sum(rows, -1, np.float64, keepdims=True), rows.dtype)


def statistics(x: NDArray) -> NDArray:
    """Mean and variance of each channel."""
    count = x.size // max(x.shape[1], 1)
    mean = (_channel_sums(x) / count).astype(x.dtype)
    of_channels = along_channels(mean, x.ndim)

    def squares(part: Any, out: NDArray) -> None:
        np.subtract(x[part], of_channels[:, part[1]], out=out)
        np.multiply(out, out, out=out)

    return np.stack([mean, (_sums(x, squares) / count).astype(x.dtype)])


def apply(x: NDArray, mean: NDArray, scale: NDArray, bias: NDArray | None) -> NDArray:
    """``(x - mean) * scale + bias``, each of the channels'."""
    result = np.empty(x.shape, x.dtype)
    mean, scale = (along_channels(values, x.ndim) for values in (mean, scale))
    bias = None if bias is None else along_channels(bias, x.ndim)
    for part in _parts(x.shape):
        out, channels = result[part], part[1]
        np.subtract(x[part], mean[:, channels], out=out)
        np.multiply(out, scale[:, channels], out=out)
        if bias is not None:
            np.add(out, bias[:, channels], out=out)
    return result


def gradient_sums(g: NDArray, x: NDArray, mean: NDArray, deviation: NDArray) -> NDArray:
    """Of each channel, the sums of `g` and of `g` times x, normalised; `deviation` is 1 divided by it."""
    of_channels = along_channels(mean, x.ndim)

    def products(part: Any, out: NDArray) -> None:
        np.subtract(x[part], of_channels[:, part[1]], out=out)
        np.multiply(out, g[part], out=out)

    found = np.stack([_channel_sums(g), _sums(x, products) * deviation])
    return np.asarray(found, x.dtype)


def backward(
    g: NDArray, x: NDArray, mean: NDArray, scale: NDArray, of_mean: NDArray, of_x: NDArray
) -> NDArray:
    """``scale * (g - of_mean - of_x * (x - mean))``, where all but `g` and x are of the channels."""
    result = np.empty(x.shape, x.dtype)
    mean, scale, of_mean, of_x = (along_channels(values, x.ndim) for values in (mean, scale, of_mean, of_x))
    memory = _memory(x)
    for part in _parts(x.shape):
        out, channels = result[part], part[1]
        away = _shaped(memory, out.shape)
        np.subtract(x[part], mean[:, channels], out=away)
        np.multiply(away, of_x[:, channels], out=away)
        np.subtract(g[part], of_mean[:, channels], out=out)
        np.subtract(out, away, out=out)
        np.multiply(out, scale[:, channels], out=out)
    return result


def _channel_sums(x: NDArray) -> NDArray:
    """In float64."""
    if not _long(x.shape) or not x.flags.c_contiguous:
        return np.asarray(np.sum(x, channel_axes(x.ndim), np.float64))
    rows = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    return np.asarray(np.sum(row_sums(rows), (0, 2), np.float64))


def _sums(x: NDArray, fill: Any) -> NDArray:
    """Sums of each channel, in float64, of what `fill` writes for parts of x."""
    found = np.zeros(x.shape[1])
    memory = _memory(x)
    for part in _parts(x.shape):
        out = _shaped(memory, x[part].shape)
        fill(part, out)
        found[part[1]] += _channel_sums(out)
    return found


def _memory(x: NDArray) -> NDArray:
    """Enough for the largest of the parts."""
    return np.empty(min(x.size, max(PART, math.prod(x.shape[2:]))), x.dtype)


def _shaped(memory: NDArray, shape: Shape) -> NDArray:
    return memory[: math.prod(shape)].reshape(shape)


def _long(shape: Shape) -> bool:
    return math.prod(shape[2:]) >= LEAST_RUN


def _parts(shape: Shape) -> Iterator[tuple[slice, slice]]:
    """Images and channels of some :data:`PART` elements."""
    images, channels = shape[:2]
    plane = math.prod(shape[2:])
    if 0 in shape:
        return
    some = max(1, PART // (channels * plane))
    each = channels if channels * plane <= PART else max(1, PART // plane)
    for image in range(0, images, some):
        for channel in range(0, channels, each):
            yield slice(image, image + some), slice(channel, channel + each)
