"""Where pooling's windows lie, and pooling and its gradients on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.base import Shape, TensorBase
from dl4all.ops.conv_host import taps
from dl4all.ops.launch import ceil_div
from dl4all.ops.masking import kept
from dl4all.ops.window import Window, placed, sizes, window

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
        found = tuple(map(min, placed(op, shape, replace(win, behind=further)), begun))
    else:
        found = placed(op, shape, win)
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
            padded[part] += kept(g, (at == place) & inside)
        return _cropped(padded, pooling)
    planes = g.shape[0] * g.shape[1]
    pixels = pooling.size[0] * pooling.size[1]
    result = np.zeros((planes, pixels), g.dtype)
    flat = at + np.arange(planes).reshape(*at.shape[:2], 1, 1) * pixels
    np.add.at(result.reshape(-1), flat.reshape(-1), g.reshape(-1))
    return result.reshape(*g.shape[:2], *pooling.size)


def largest_gradient(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray:
    """The gradient of :func:`largest` with respect to the images `x`."""
    win = pooling.win
    found = None
    if win is not None and x.size:
        gradient = _tiles_gradient if pooling.tiles else _windows_gradient
        found = gradient(g, np.ascontiguousarray(x), pooling)
    return spread_back(g, places(x, pooling), pooling) if found is None else found


def _windows_gradient(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray | None:
    """Each element of `g` goes to the first of its window that equals the largest.

    None if that cannot be said by comparing: with nan, or with what padding equals.
    """
    assert pooling.win is not None
    of_x = np.empty_like(x)
    count = max(1, CACHED_BYTES // (x.itemsize * math.prod(pooling.size)))  # planes at a time
    planes, of_planes, parts = (a.reshape(-1, 1, *a.shape[2:]) for a in (x, of_x, g))
    for first in range(0, len(planes), count):
        some = slice(first, first + count)
        best, padded = largest(planes[some], pooling), _fitted(planes[some], pooling, -np.inf)
        if not (best > -np.inf).all():
            return None
        gathered, left = np.zeros_like(padded), np.ones(best.shape, bool)
        for _, part in taps(pooling.win, pooling.out_size):
            wins = padded[part] == best
            wins &= left
            left ^= wins
            gathered[part] += kept(parts[some], wins)
        of_planes[some] = _cropped(gathered, pooling)
    return of_x


def _tiles_gradient(g: NDArray, x: NDArray, pooling: Pooling) -> NDArray | None:
    """Where each pixel lies in just one window: first to the right row of each window, then to the column.

    None if what is largest cannot be said by comparing, with nan.
    """
    assert pooling.win is not None
    height, width = pooling.win.kernel
    of_x = np.empty_like(x)
    columns, of_columns = (a.reshape(-1, width) for a in (x, of_x))
    in_row = functools.reduce(np.maximum, columns.T)
    rows = in_row.reshape(-1, height, g.shape[-1])
    best = functools.reduce(np.maximum, rows.swapaxes(0, 1))
    if np.isnan(best).any():
        return None
    of_rows = np.empty_like(rows)
    _share(g.reshape(best.shape), rows.swapaxes(0, 1), best, of_rows.swapaxes(0, 1))
    _share(of_rows.reshape(-1), columns.T, in_row, of_columns.T)
    return of_x


def _share(g: NDArray, parts: NDArray, best: NDArray, shares: NDArray) -> None:
    """Give each of `g` to the first of the parts that equals the best, and zeros to the others."""
    left: Any = True
    for part, share in zip(parts[:-1], shares[:-1], strict=True):
        wins = left & (part == best)
        left = left ^ wins
        kept(g, wins, out=share)
    kept(g, left if len(parts) > 1 else best == best, out=shares[-1])


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
