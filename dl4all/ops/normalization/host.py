"""Normalisation in NumPy, a block of elements at a time that stays in the cache.

Each step over whole arrays would read and write main buffer once, which takes longer than its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.tensor_base import Shape

NDArray = npt.NDArray[Any]

# Size of a block.
BLOCK_ELEMENTS = 2**16

# Shortest row of adjacent elements that NumPy sums in pairs.
MIN_PAIRWISE_ROW = 8


def channel_axes(rank: int) -> Shape:
    """All axes but that of the channels."""
    return (0, *range(2, rank))


def along_channels(tensor: Any, rank: int) -> Any:
    """A tensor or array of shape (C,), reshaped to broadcast with (N, C, ...)."""
    return tensor.reshape((1, -1) + (1,) * (rank - 2))


def float64_sum(array: Any, axes: Any, *, keepdims: bool = False) -> Any:
    """NumPy's sum, accumulated in float64: float32 would lose digits along all axes but the last."""
    return np.asarray(array.sum(axes, np.float64, keepdims=keepdims), array.dtype)


def row_sums(rows: NDArray) -> NDArray:
    """The sum of each row, as a column; float32 only where NumPy adds adjacent elements in pairs."""
    if rows.dtype == np.float32 and rows.strides[-1] == rows.itemsize:
        return np.asarray(np.sum(rows, -1, keepdims=True))
    return np.asarray(np.sum(rows, -1, np.float64, keepdims=True), rows.dtype)


def statistics(x: NDArray) -> NDArray:
    """Mean and variance of each channel."""
    count = x.size // max(x.shape[1], 1)
    mean = (_channel_sums(x) / count).astype(x.dtype)
    channel_mean = along_channels(mean, x.ndim)

    def squares(block: Any, out: NDArray) -> None:
        np.subtract(x[block], channel_mean[:, block[1]], out=out)
        np.multiply(out, out, out=out)

    return np.stack([mean, (_block_sums(x, squares) / count).astype(x.dtype)])


def apply(x: NDArray, mean: NDArray, scale: NDArray, bias: NDArray | None) -> NDArray:
    """``(x - mean) * scale + bias``, with one mean, scale and bias for each channel."""
    result = np.empty(x.shape, x.dtype)
    mean, scale = (along_channels(values, x.ndim) for values in (mean, scale))
    bias = None if bias is None else along_channels(bias, x.ndim)
    for block in _blocks(x.shape):
        out, channels = result[block], block[1]
        np.subtract(x[block], mean[:, channels], out=out)
        np.multiply(out, scale[:, channels], out=out)
        if bias is not None:
            np.add(out, bias[:, channels], out=out)
    return result


def gradient_sums(g: NDArray, x: NDArray, mean: NDArray, scale: NDArray) -> NDArray:
    """The sums over each channel of `g`, and of `g` times the normalised `x`; `scale` is 1 / deviation."""
    channel_mean = along_channels(mean, x.ndim)

    def products(block: Any, out: NDArray) -> None:
        np.subtract(x[block], channel_mean[:, block[1]], out=out)
        np.multiply(out, g[block], out=out)

    sums = np.stack([_channel_sums(g), _block_sums(x, products) * scale])
    return np.asarray(sums, x.dtype)


def backward(
    g: NDArray, x: NDArray, mean: NDArray, scale: NDArray, mean_term: NDArray, x_factor: NDArray
) -> NDArray:
    """``scale * (g - mean_term - x_factor * (x - mean))``, where all but `g` and `x` have shape (C,)."""
    result = np.empty(x.shape, x.dtype)
    mean, scale, mean_term, x_factor = (
        along_channels(values, x.ndim) for values in (mean, scale, mean_term, x_factor)
    )
    buffer = _block_buffer(x)
    for block in _blocks(x.shape):
        out, channels = result[block], block[1]
        centered = _view(buffer, out.shape)
        np.subtract(x[block], mean[:, channels], out=centered)
        np.multiply(centered, x_factor[:, channels], out=centered)
        np.subtract(g[block], mean_term[:, channels], out=out)
        np.subtract(out, centered, out=out)
        np.multiply(out, scale[:, channels], out=out)
    return result


def _channel_sums(x: NDArray) -> NDArray:
    """The sum of each channel, in float64."""
    if not _has_pairwise_rows(x.shape) or not x.flags.c_contiguous:
        return np.asarray(np.sum(x, channel_axes(x.ndim), np.float64))
    rows = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    return np.asarray(np.sum(row_sums(rows), (0, 2), np.float64))


def _block_sums(x: NDArray, fill: Any) -> NDArray:
    """The sum of each channel, in float64, of what `fill` writes for each block of `x`."""
    sums = np.zeros(x.shape[1])
    buffer = _block_buffer(x)
    for block in _blocks(x.shape):
        out = _view(buffer, x[block].shape)
        fill(block, out)
        sums[block[1]] += _channel_sums(out)
    return sums


def _block_buffer(x: NDArray) -> NDArray:
    """Memory for the largest block."""
    return np.empty(min(x.size, max(BLOCK_ELEMENTS, math.prod(x.shape[2:]))), x.dtype)


def _view(buffer: NDArray, shape: Shape) -> NDArray:
    """The start of the buffer, with the given shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def _has_pairwise_rows(shape: Shape) -> bool:
    """Whether rows of one channel of one sample are long enough for pairwise sums."""
    return math.prod(shape[2:]) >= MIN_PAIRWISE_ROW


def _blocks(shape: Shape) -> Iterator[tuple[slice, slice]]:
    """Slices of samples and channels, of about :data:`BLOCK_ELEMENTS` elements each."""
    samples, channels = shape[:2]
    plane = math.prod(shape[2:])
    if 0 in shape:
        return
    sample_step = max(1, BLOCK_ELEMENTS // (channels * plane))
    channel_step = channels if channels * plane <= BLOCK_ELEMENTS else max(1, BLOCK_ELEMENTS // plane)
    for sample in range(0, samples, sample_step):
        for channel in range(0, channels, channel_step):
            yield slice(sample, sample + sample_step), slice(channel, channel + channel_step)
