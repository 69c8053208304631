"""Where pooling's windows lie, and pooling and its gradients on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv.window import Window, checked_output_size, sizes, taps, window
from dl4all.ops.core.branchless import keep_where
from dl4all.ops.core.launch import ceil_div
from dl4all.ops.core.tensor_base import Shape, TensorBase

NDArray = npt.NDArray[Any]
NOWHERE = 2**62  # a place behind all others
CACHED_BYTES = 2**18  # of images whose gradient is computed at a time


@dataclass(frozen=True)
class Pooling:
    """The windows of images of `size`: those of `win`, or without it, parts that cut the image up."""

    size: Shape
    out_size: Shape
    win: Window | None = None
    ceil_mode: bool = False
    include_pad: bool = True  # counts where the mean is taken
    divisor: int | None = None  # of the sum instead of what the window counts

    @property
    def tiles(self) -> bool:
        """Whether each pixel lies in just one window."""
        win = self.win
        return (
            win is not None
            and win.stride == win.kernel
            and set(win.dilation) == {1}
            and set(win.before) == {0}
            and all(n * k == size for n, k, size in zip(self.out_size, win.kernel, self.size, strict=True))
        )

    @property
    def rounds(self) -> int:
        """Of a kernel's loops, at most: over the pixels of a window, or the windows that meet a pixel."""
        if self.win is not None:
            return math.prod(self.win.kernel)
        pairs = list(zip(self.size, self.out_size, strict=True))
        return max(math.prod(a // b + 2 for a, b in pairs), math.prod(b // a + 2 for a, b in pairs if a))

    def spans(self, axis: int) -> list[tuple[int, int]]:
        """Along one axis: where each part begins and ends."""
        size, count = self.size[axis], self.out_size[axis]
        return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]

    def parts(self) -> Any:
        """Each part that an image is cut into: its place in the result, and its rows and columns."""
        for i, (top, bottom) in enumerate(self.spans(0)):
            for j, (left, right) in enumerate(self.spans(1)):
                yield (..., i, j), (..., slice(top, bottom), slice(left, right))

    def counts(self) -> NDArray:
        """What the sum of each window is divided by, of shape (OH, OW)."""
        if self.divisor is not None or self.win is None:
            return np.full(self.out_size, self.divisor or 1)
        along = []
        for size, count, kernel, stride, padding in zip(
            self.size, self.out_size, self.win.kernel, self.win.stride, self.win.before, strict=True
        ):
            start = np.arange(count) * stride - padding
            if self.include_pad:
                along.append(np.minimum(start + kernel, size + padding) - start)
            else:
                along.append(np.minimum(start + kernel, size) - np.maximum(start, 0))
        counts: NDArray = along[0][:, None] * along[1]
        return counts


def sliding(
    op: str,
    shape: Shape,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    include_pad: bool = True,
    divisor: int | None = None,
) -> Pooling:
    """Windows that slide along images of `shape` (N, C, H, W).

    Raises:
        ArgumentError, ShapeError
    """
    win = window(op, kernel_size, kernel_size if stride in (None, ()) else stride, padding, dilation)
    if isinstance(padding, str) or any(pad > k // 2 for pad, k in zip(win.before, win.kernel, strict=True)):
        raise ArgumentError(f"[{op}] padding {padding!r} is more than half of kernel_size {kernel_size!r}")
    if divisor == 0:
        raise ArgumentError(f"[{op}] divisor_override must not be 0")
    size = shape[-2:]
    if ceil_mode:  # windows may reach further, but begin inside
        further = tuple(pad + step - 1 for pad, step in zip(win.behind, win.stride, strict=True))
        begun = (
            ceil_div(extent + pad, step)
            for extent, pad, step in zip(size, win.before, win.stride, strict=True)
        )
        found = tuple(map(min, checked_output_size(op, shape, replace(win, behind=further)), begun))
    else:
        found = checked_output_size(op, shape, win)
    return Pooling(size, found, win, ceil_mode, include_pad, divisor)


def adaptive(op: str, shape: Shape, output_size: Any) -> Pooling:
    """Windows that cut images of `shape` (N, C, H, W) into parts; None keeps a size.

    Raises:
        ArgumentError
    """
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    if len(given) == 2:
        given = tuple(
            size if wanted is None else wanted for wanted, size in zip(given, shape[-2:], strict=True)
        )
    found = sizes(op, "output_size", given, 1, 2)
    if 0 in shape[2:]:
        raise ArgumentError(f"[{op}] there is nothing to take together in shape {shape}")
    return Pooling(shape[-2:], found)


def check_pooled(name: str, g: TensorBase, shape: Shape, pooling: Pooling) -> None:
    """Raise unless images of `shape` are pooled to the shape of `g`.

    Raises:
        ShapeError
    """
    if shape[-2:] != pooling.size or g.shape != (*shape[:2], *pooling.out_size):
        raise ShapeError(f"[{name}] {pooling} does not lead from {shape} to {g.shape}")


def _fitted(x: NDArray, pooling: Pooling, value: float) -> NDArray:
    """Padded with `value` so that all windows lie inside."""
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
    assert pooling.win is not None
    top, left = pooling.win.before
    return padded[:, :, top : top + pooling.size[0], left : left + pooling.size[1]]


def largest(x: NDArray, pooling: Pooling) -> NDArray:
    """The largest of each window, -inf where there is only padding; nan is larger than everything."""
    if pooling.win is None:
        best = np.empty((*x.shape[:2], *pooling.out_size), x.dtype)
        for place, part in pooling.parts():
            best[place] = x[part].max((2, 3))
        return best
    # First down the columns, then along what is left of the rows: fewer comparisons, and longer runs of them.
    return _largest_along(_largest_along(_fitted(x, pooling, -np.inf), 0, pooling), 1, pooling)


def _largest_along(x: NDArray, axis: int, pooling: Pooling) -> NDArray:
    """The largest in windows along rows (0) or columns (1)."""
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


def places(x: NDArray, pooling: Pooling) -> NDArray:
    """Where in the image the largest of each window is: row * W + column, -1 if there is only padding.

    Of equals it is the first, of several nan the last.
    """
    width = pooling.size[1]
    at = np.full((*x.shape[:2], *pooling.out_size), -1, np.int64)
    if pooling.win is None:
        for place, part in pooling.parts():
            rows, columns = (end.stop - end.start for end in part[1:])
            values = x[part].reshape(*x.shape[:2], rows * columns)
            first = values.argmax(-1)
            missing = np.isnan(values)
            last = values.shape[-1] - 1 - missing[..., ::-1].argmax(-1)
            chosen = np.where(missing.any(-1), last, first)
            at[place] = (part[1].start + chosen // columns) * width + part[2].start + chosen % columns
        return at
    best, padded = largest(x, pooling), _fitted(x, pooling, -np.inf)
    if not (best > -np.inf).all():  # nan, or what padding equals
        best = np.full_like(best, -np.inf)
        for place, inside, part in _taps(pooling):
            values = padded[part]
            wins = ((values > best) | np.isnan(values) | (at < 0)) & inside
            at = np.where(wins, place, at)
            best = np.where(wins, values, best)
        return at
    at[...] = NOWHERE
    for place, _, part in _taps(pooling):
        equal = padded[part] == best
        np.minimum(at, place | ((equal.astype(np.int64) - 1) & NOWHERE), out=at)
    return at


def _taps(pooling: Pooling) -> Iterator[tuple[NDArray, NDArray, Any]]:
    """For each element of windows: its places, or 0, which are in the image, and its slice of padded x."""
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


def spread_back(g: NDArray, at: NDArray, pooling: Pooling) -> NDArray:
    """Zeros of the image's size, to which each element of `g` is added at its place."""
    if pooling.win is not None:
        padded = _fitted(np.zeros((*g.shape[:2], *pooling.size), g.dtype), pooling, 0)
        for place, inside, part in _taps(pooling):
            padded[part] += keep_where(g, (at == place) & inside)
        return _cropped(padded, pooling)
    planes = g.shape[0] * g.shape[1]
    pixels = pooling.size[0] * pooling.size[1]
    result = np.zeros((planes, pixels), g.dtype)
    flat = at + np.arange(planes).reshape(*at.shape[:2], 1, 1) * pixels
    np.add.at(result.reshape(-1), flat.reshape(-1), g.reshape(-1))
    return result.reshape(*g.shape[:2], *pooling.size)


def largest_gradient(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray:
    """The gradient of :func:`largest` with respect to the images `x`."""
    found = None if pooling.win is None or not x.size else _windows_gradient(g, x, pooling)
    return spread_back(g, places(x, pooling), pooling) if found is None else found


def _windows_gradient(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray | None:
    """Each element of `g` goes to the first of its window that equals the largest.

    None if that cannot be said by comparing: with nan, or with what padding equals. Rows and columns that a
    stride leads past are apart from each other meanwhile, so that windows meet neighbouring elements.
    """
    assert pooling.win is not None
    of_x = np.empty(x.shape, x.dtype)
    grids, taps_of = _grids(pooling)
    count = max(1, CACHED_BYTES // (x.itemsize * math.prod(pooling.size)))  # planes at a time
    planes, of_planes, parts = (a.reshape(-1, *a.shape[2:]) for a in (x, of_x, g))
    for first in range(0, len(planes), count):
        some = slice(first, first + count)
        values = [_on_grid(planes[some], grid) for grid in grids]
        met = [(index, part, values[index][part]) for index, part in taps_of]
        best = functools.reduce(np.maximum, (values for _, _, values in met))
        if not (best > -np.inf).all():
            return None
        left = np.ones(best.shape, bool)
        gathered = [None if pooling.tiles else np.zeros_like(part) for part in values]
        for index, part, tap in met:
            wins = tap == best
            wins &= left
            left ^= wins
            share, into = keep_where(parts[some], wins), gathered[index]
            if into is None:
                gathered[index] = share
            else:
                into[part] += share
        for grid, found in zip(grids, gathered, strict=True):
            assert found is not None
            of_planes[some][grid.of_image] = found[grid.inside]
    return of_x


class _Grid(NamedTuple):
    """Every so manieth row and column of images."""

    size: Shape  # with padding
    inside: Any  # what of it is not padding
    of_image: Any  # where that is in the image


def _on_grid(planes: NDArray, grid: _Grid) -> NDArray:
    part = planes[grid.of_image]
    if part.shape[1:] == grid.size:
        return np.ascontiguousarray(part)
    found = np.full((len(planes), *grid.size), -np.inf, planes.dtype)
    found[grid.inside] = part
    return found


def _grids(pooling: Pooling) -> tuple[list[_Grid], list[tuple[int, Any]]]:
    """One for each element of a stride; and for those of windows, in which grid they are, and where."""
    win = pooling.win
    assert win is not None
    every = slice(None)
    along: list[list[tuple[int, slice, slice]]] = []
    taps_along: list[list[tuple[int, slice]]] = []
    for size, count, kernel, step, dilation, before in zip(
        pooling.size, pooling.out_size, win.kernel, win.stride, win.dilation, win.before, strict=True
    ):
        extent = max(before + size, (count - 1) * step + dilation * (kernel - 1) + 1)
        length = -(-extent // step)
        found = []
        for start in range(step):
            low = max(0, -(-(before - start) // step))
            first = low * step + start - before
            number = max(0, -(-(size - first) // step))
            found.append((length, slice(low, low + number), slice(first, max(first, size), step)))
        along.append(found)
        reached = (divmod(i * dilation, step) for i in range(kernel))
        taps_along.append([(start, slice(skip, skip + count)) for skip, start in reached])
    grids = [
        _Grid((rows, columns), (every, down, right), (every, of_rows, of_columns))
        for rows, down, of_rows in along[0]
        for columns, right, of_columns in along[1]
    ]
    taps_of = [
        (row * win.stride[1] + column, (every, down, right))
        for row, down in taps_along[0]
        for column, right in taps_along[1]
    ]
    return grids, taps_of


def means(x: NDArray, pooling: Pooling) -> NDArray:
    """The mean of each window."""
    result = np.zeros((*x.shape[:2], *pooling.out_size), x.dtype)
    if pooling.win is None:
        for place, part in pooling.parts():
            result[place] = x[part].mean((2, 3))
        return result
    padded = _fitted(x, pooling, 0)
    for _, part in taps(pooling.win, pooling.out_size):
        result += padded[part]
    return (result / pooling.counts()).astype(x.dtype, copy=False)


def means_gradient(g: NDArray, pooling: Pooling) -> NDArray:
    """The gradient of :func:`means` with respect to the images."""
    if pooling.win is None:
        result = np.zeros((*g.shape[:2], *pooling.size), g.dtype)
        for place, part in pooling.parts():
            count = (part[1].stop - part[1].start) * (part[2].stop - part[2].start)
            result[part] += (g[place] / g.dtype.type(count))[..., None, None]
        return result
    shares = (g / pooling.counts()).astype(g.dtype, copy=False)
    padded = _fitted(np.zeros((*g.shape[:2], *pooling.size), g.dtype), pooling, 0)
    for _, part in taps(pooling.win, pooling.out_size):
        padded[part] += shares
    return _cropped(padded, pooling)
