"""Pooling and its gradients in NumPy."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.ops.conv.window import taps
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.expressions.branchless import keep_where
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.pool.windows import Pooling

NDArray = npt.NDArray[Any]

# Greater than every index.
NO_INDEX = 2**62

# Size of the block of planes whose gradient is computed at once, so that it stays in a cache.
GRADIENT_BLOCK_BYTES = 2**18


# Maxima


def max_pool(x: NDArray, pooling: Pooling) -> NDArray:
    """The largest element of each window, -inf where there is only padding; nan is larger than everything."""
    if pooling.win is None:
        best = np.empty((*x.shape[:2], *pooling.out_size), x.dtype)
        for index, part in pooling.parts():
            best[index] = x[part].max((2, 3))
        return best
    # Columns first, then the rows that remain: fewer comparisons, over longer runs of memory.
    return _max_along(_max_along(_padded(x, pooling, _lowest(x.dtype)), 0, pooling), 1, pooling)


def _lowest(dtype: np.dtype[Any]) -> float:
    """The value of the padding."""
    return -np.inf if kind_of(dtype) == "f" else int(np.iinfo(dtype).min)


def _max_along(x: NDArray, axis: int, pooling: Pooling) -> NDArray:
    """The largest element of windows of one axis: rows (0) or columns (1)."""
    win = pooling.win
    assert win is not None
    reach = (pooling.out_size[axis] - 1) * win.stride[axis] + 1
    starts = [i * win.dilation[axis] for i in range(win.kernel[axis])]
    spans = [slice(start, start + reach, win.stride[axis]) for start in starts]
    first, *others = (x[..., span] if axis else x[..., span, :] for span in spans)
    best: NDArray = first.copy()
    for other in others:
        np.maximum(best, other, out=best)
    return best


def max_indices(x: NDArray, pooling: Pooling) -> NDArray:
    """The index in the image of each window's largest element: row * W + column, -1 for only padding.

    It is the first of equal elements and the last of several nan.
    """
    width = pooling.size[1]
    indices = np.full((*x.shape[:2], *pooling.out_size), -1, np.int64)
    if pooling.win is None:
        for index, part in pooling.parts():
            rows, columns = (span.stop - span.start for span in part[1:])
            values = x[part].reshape(*x.shape[:2], rows * columns)
            first = values.argmax(-1)
            is_nan = np.isnan(values)
            last_nan = values.shape[-1] - 1 - is_nan[..., ::-1].argmax(-1)
            chosen = np.where(is_nan.any(-1), last_nan, first)
            indices[index] = (part[1].start + chosen // columns) * width + part[2].start + chosen % columns
        return indices
    lowest = _lowest(x.dtype)
    best, padded = max_pool(x, pooling), _padded(x, pooling, lowest)
    if not (best > lowest).all():  # nan, or elements equal to the padding
        best = np.full_like(best, lowest)
        for positions, inside, part in _tap_positions(pooling):
            values = padded[part]
            wins = ((values > best) | np.isnan(values) | (indices < 0)) & inside
            indices = np.where(wins, positions, indices)
            best = np.where(wins, values, best)
        return indices
    indices[...] = NO_INDEX
    for positions, _, part in _tap_positions(pooling):
        equal = padded[part] == best
        np.minimum(indices, positions | ((equal.astype(np.int64) - 1) & NO_INDEX), out=indices)
    return indices


def take_at(x: NDArray, indices: NDArray, pooling: Pooling) -> NDArray:
    """The elements of `x` at the given indices of its images, 0 where an index is negative."""
    flat = x.reshape(*x.shape[:2], pooling.size[0] * pooling.size[1])
    values = np.take_along_axis(flat, indices.reshape(*indices.shape[:2], math.prod(indices.shape[2:])), -1)
    return np.where(indices < 0, np.zeros((), x.dtype), values.reshape(indices.shape))


def max_pool_gradient(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray:
    """The gradient of :func:`max_pool` with respect to the images `x`."""
    result = None if pooling.win is None or not x.size else _gradient_by_comparison(g, x, pooling)
    return _add_at(g, max_indices(x, pooling), pooling) if result is None else result


def _add_at(g: NDArray, indices: NDArray, pooling: Pooling) -> NDArray:
    """Zeros of the images' size, to which each element of `g` is added at its index."""
    if pooling.win is not None:
        padded = _padded(np.zeros((*g.shape[:2], *pooling.size), g.dtype), pooling, 0)
        for positions, inside, part in _tap_positions(pooling):
            padded[part] += keep_where(g, (indices == positions) & inside)
        return _cropped(padded, pooling)
    planes = g.shape[0] * g.shape[1]
    pixels = pooling.size[0] * pooling.size[1]
    result = np.zeros((planes, pixels), g.dtype)
    flat = indices + np.arange(planes).reshape(*indices.shape[:2], 1, 1) * pixels
    np.add.at(result.reshape(-1), flat.reshape(-1), g.reshape(-1))
    return result.reshape(*g.shape[:2], *pooling.size)


def _gradient_by_comparison(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray | None:
    """Adds each element of `g` to the first element of its window that equals the largest.

    Returns None where comparing does not decide: with nan, or with elements equal to the padding. Each phase
    of the stride is a grid of its own meanwhile, so that windows read neighbouring elements.
    """
    assert pooling.win is not None
    x_gradient = np.empty(x.shape, x.dtype)
    grids, taps_of_grids = _stride_grids(pooling)
    block = max(1, GRADIENT_BLOCK_BYTES // (x.itemsize * math.prod(pooling.size)))  # in planes
    planes, gradient_planes, window_planes = (a.reshape(-1, *a.shape[2:]) for a in (x, x_gradient, g))
    for start in range(0, len(planes), block):
        span = slice(start, start + block)
        values = [_on_grid(planes[span], grid) for grid in grids]
        tap_values = [(index, part, values[index][part]) for index, part in taps_of_grids]
        best = functools.reduce(np.maximum, (values for _, _, values in tap_values))
        if not (best > -np.inf).all():
            return None
        undecided = np.ones(best.shape, bool)
        sums = [None if pooling.tiles else np.zeros_like(grid_values) for grid_values in values]
        for index, part, tap in tap_values:
            wins = tap == best
            wins &= undecided
            undecided ^= wins
            share, total = keep_where(window_planes[span], wins), sums[index]
            if total is None:
                sums[index] = share
            else:
                total[part] += share
        for grid, total in zip(grids, sums, strict=True):
            assert total is not None
            gradient_planes[span][grid.of_image] = total[grid.inside]
    return x_gradient


class _Grid(NamedTuple):
    """One phase of the stride: every n-th row and column of the padded images."""

    size: Shape  # with padding
    inside: Any  # slices of the grid that are not padding
    of_image: Any  # slices of the image that these elements are


def _on_grid(planes: NDArray, grid: _Grid) -> NDArray:
    """The elements of a grid, with -inf as padding."""
    part = planes[grid.of_image]
    if part.shape[1:] == grid.size:
        return np.ascontiguousarray(part)
    padded = np.full((len(planes), *grid.size), -np.inf, planes.dtype)
    padded[grid.inside] = part
    return padded


def _stride_grids(pooling: Pooling) -> tuple[list[_Grid], list[tuple[int, Any]]]:
    """The grid of each phase of the stride; and for each window element, its grid and its slices of that."""
    win = pooling.win
    assert win is not None
    every = slice(None)
    phases_by_axis: list[list[tuple[int, slice, slice]]] = []
    taps_by_axis: list[list[tuple[int, slice]]] = []
    for size, count, kernel, step, dilation, before in zip(
        pooling.size, pooling.out_size, win.kernel, win.stride, win.dilation, win.before, strict=True
    ):
        extent = max(before + size, (count - 1) * step + dilation * (kernel - 1) + 1)
        length = -(-extent // step)
        phases = []
        for phase in range(step):
            low = max(0, -(-(before - phase) // step))
            first = low * step + phase - before
            number = max(0, -(-(size - first) // step))
            phases.append((length, slice(low, low + number), slice(first, max(first, size), step)))
        phases_by_axis.append(phases)
        offsets = (divmod(i * dilation, step) for i in range(kernel))
        taps_by_axis.append([(phase, slice(skip, skip + count)) for skip, phase in offsets])
    grids = [
        _Grid((rows, columns), (every, down, right), (every, image_rows, image_columns))
        for rows, down, image_rows in phases_by_axis[0]
        for columns, right, image_columns in phases_by_axis[1]
    ]
    taps_of_grids = [
        (row * win.stride[1] + column, (every, down, right))
        for row, down in taps_by_axis[0]
        for column, right in taps_by_axis[1]
    ]
    return grids, taps_of_grids


# Means


def avg_pool(x: NDArray, pooling: Pooling) -> NDArray:
    """The mean of each window."""
    result: NDArray = np.zeros((*x.shape[:2], *pooling.out_size), x.dtype)
    if pooling.win is None:
        for index, part in pooling.parts():
            result[index] = x[part].mean((2, 3))
        return result
    padded = _padded(x, pooling, 0)
    for _, part in taps(pooling.win, pooling.out_size):
        result += padded[part]
    divisors = pooling.divisors()
    if kind_of(x.dtype) == "f":
        result = (result / divisors).astype(x.dtype, copy=False)
        return result
    signs = np.sign(result) * np.sign(divisors)  # a divisor of the caller's may be negative
    result = (np.abs(result) // np.abs(divisors) * signs).astype(x.dtype, copy=False)
    return result


def avg_pool_gradient(g: NDArray, pooling: Pooling) -> NDArray:
    """The gradient of :func:`avg_pool` with respect to the images."""
    if pooling.win is None:
        result = np.zeros((*g.shape[:2], *pooling.size), g.dtype)
        for index, part in pooling.parts():
            count = (part[1].stop - part[1].start) * (part[2].stop - part[2].start)
            result[part] += (g[index] / g.dtype.type(count))[..., None, None]
        return result
    shares = (g / pooling.divisors()).astype(g.dtype, copy=False)
    padded = _padded(np.zeros((*g.shape[:2], *pooling.size), g.dtype), pooling, 0)
    for _, part in taps(pooling.win, pooling.out_size):
        padded[part] += shares
    return _cropped(padded, pooling)


# Padding


def _padded(x: NDArray, pooling: Pooling, value: float) -> NDArray:
    """Images padded with `value` so that all windows lie inside."""
    win = pooling.win
    assert win is not None
    ends = [
        max(0, (count - 1) * stride + dilation * (kernel - 1) + 1 - size - before)
        for count, stride, dilation, kernel, size, before in zip(
            pooling.out_size, win.stride, win.dilation, win.kernel, pooling.size, win.before, strict=True
        )
    ]
    if not any((*win.before, *ends)):
        return x
    return np.pad(x, ((0, 0), (0, 0), *zip(win.before, ends, strict=True)), constant_values=value)


def _cropped(padded: NDArray, pooling: Pooling) -> NDArray:
    """Images without the padding."""
    assert pooling.win is not None
    top, left = pooling.win.before
    return padded[:, :, top : top + pooling.size[0], left : left + pooling.size[1]]


def _tap_positions(pooling: Pooling) -> Iterator[tuple[NDArray, NDArray, Any]]:
    """For each window element: indices in the image, 0 outside; which are inside; slices of padded images."""
    win = pooling.win
    assert win is not None
    starts = tuple(
        np.arange(count) * stride - before
        for count, stride, before in zip(pooling.out_size, win.stride, win.before, strict=True)
    )
    for tap, part in taps(win, pooling.out_size):
        row, column = (start + i * d for start, i, d in zip(starts, tap, win.dilation, strict=True))
        inside = ((row >= 0) & (row < pooling.size[0]))[:, None] & (column >= 0) & (column < pooling.size[1])
        yield np.where(inside, row[:, None] * pooling.size[1] + column, 0), inside, part
