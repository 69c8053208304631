"""The windows of convolutions and pools: their starts, their number, and the padding around the input."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ShapeError
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.graph import NDArray


class Windows(NamedTuple):
    """Windows over the axes after the first two."""

    sizes: tuple[int, ...]  # of the input
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]  # padding before the first element
    high: tuple[int, ...]
    counts: tuple[int, ...]  # of windows

    @property
    def extents(self) -> tuple[int, ...]:
        """The elements from the first to the last of a window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def reach(self) -> tuple[tuple[int, int], ...]:
        """The padding that windows cover on both sides; negative where they leave some of the input out."""
        return tuple(
            (low, (count - 1) * stride + extent - size - low)
            for size, stride, low, count, extent in zip(
                self.sizes, self.stride, self.low, self.counts, self.extents, strict=True
            )
        )

    @property
    def is_even(self) -> bool:
        """Whether both sides are padded alike, and no window goes beyond the padding."""
        return self.low == self.high and all(
            high <= low for (_, high), low in zip(self.reach, self.low, strict=True)
        )

    def padded(self, x: Any, value: float) -> Any:
        """The input with just what the windows cover."""
        flat = [width for pair in reversed(self.reach) for width in pair]
        return F.pad(x, flat, value=value) if any(flat) else x

    def covered(self, *, padding: bool) -> NDArray:
        """The number of elements of each window within the input, or within its padding, too."""
        result = np.ones(())
        for axis, size in enumerate(self.sizes):
            starts = np.arange(self.counts[axis]) * self.stride[axis] - self.low[axis]
            indices = starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]
            first = -self.low[axis] if padding else 0
            end = size + self.high[axis] if padding else size
            inside = ((indices >= first) & (indices < end)).sum(1)
            result = result[..., None] * inside
        return result


def padding_rule(call: Call) -> str:
    """Who says how much padding there is: ``NOTSET`` if the attribute ``pads``."""
    return call.choice("auto_pad", "NOTSET", ("SAME_UPPER", "SAME_LOWER", "VALID"))


def windows_of(call: Call, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """The windows that the attributes of a convolution or a pool describe."""
    axes = len(sizes)
    stride = tuple(call.get("strides") or [1] * axes)
    dilation = tuple(call.get("dilations") or [1] * axes)
    pads, auto = tuple(call.get("pads") or [0] * 2 * axes), padding_rule(call)
    if min(stride + dilation, default=1) < 1:
        raise ShapeError(f"steps {stride} and dilations {dilation} must be positive")
    if not len(kernel) == len(stride) == len(dilation) == len(pads) // 2 == axes:
        raise ShapeError(f"windows {kernel} by steps {stride} with padding {pads} do not fit {axes} axes")
    low, high = pads[:axes], pads[axes:]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        counts = [-(-size // s) for size, s in zip(sizes, stride, strict=True)]
        total = [
            max((n - 1) * s + extent - size, 0)
            for n, s, extent, size in zip(counts, stride, extents, sizes, strict=True)
        ]
        less, more = tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)
        low, high = (less, more) if auto == "SAME_UPPER" else (more, less)
    elif auto == "VALID":
        low = high = (0,) * axes
    counts, cut = [], list(kernel)
    for axis, (size, s, extent, before, after) in enumerate(
        zip(sizes, stride, extents, low, high, strict=True)
    ):
        room = size + before + after - extent
        if -s < room < 0 and call.flag("ceil_mode") and dilation[axis] == 1:
            room, cut[axis] = 0, kernel[axis] + room  # one window, that ends behind everything
        if room < 0:
            raise ShapeError(f"windows {kernel} do not fit the sizes {sizes} with padding {low} and {high}")
        count = room // s + 1
        if call.flag("ceil_mode") and room % s and count * s < size + before:
            count += 1  # a window that begins within the input or its padding, and ends behind them
        counts.append(count)
    return Windows(sizes, tuple(cut), stride, dilation, low, high, tuple(counts))
