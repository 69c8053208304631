"""Sliding windows over the last axes, which convolution and pooling share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.limits import INTEGERS, check_shape
from dl4all.ops.core.tensor_base import Shape, host_int

NDArray = npt.NDArray[Any]

MOST_PADDED = 2**31
"""An axis with its padding is shorter: kernels have signed coordinates of 32 bits."""
SIZES_WORDS = {1: "an int or a tuple of one", 2: "an int or a pair of ints", 3: "an int or three ints"}


@dataclass(frozen=True)
class Window:
    """A window's extent, stride, padding before and behind the input, and dilation, along each axis."""

    kernel: Shape
    stride: Shape
    before: Shape
    behind: Shape
    dilation: Shape

    def output_size(self, size: Shape) -> Shape:
        """The number of positions of the window; less than 1 where it does not fit."""
        return tuple(
            (extent + low + high - d * (k - 1) - 1) // s + 1
            for extent, k, s, low, high, d in zip(
                size, self.kernel, self.stride, self.before, self.behind, self.dilation, strict=True
            )
        )

    def padded_size(self, size: Shape) -> Shape:
        """The sizes of a padded input."""
        return tuple(low + n + high for low, n, high in zip(self.before, size, self.behind, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """Whether each element is a window, so that a 1x1 convolution needs no unrolling."""
        ones, none = (1,) * len(self.kernel), (0,) * len(self.kernel)
        return self.kernel == self.stride == ones and self.before == self.behind == none

    @property
    def three_axes(self) -> Window:
        """The same window with three axes, as kernels take it."""
        return Window(
            three_axes(self.kernel), three_axes(self.stride),
            three_axes(self.before, 0), three_axes(self.behind, 0), three_axes(self.dilation),
        )  # fmt: skip

    @property
    def words(self) -> Shape:
        """Push constants of kernels: extents, strides, padding before and dilations."""
        return (*self.kernel, *self.stride, *self.before, *self.dilation)


def three_axes(sizes: Shape, fill: int = 1) -> Shape:
    """Three sizes, with `fill` for missing axes in front.

    >>> three_axes((5, 7))
    (1, 5, 7)
    """
    return (fill,) * (3 - len(sizes)) + sizes


def window(op: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any, axes: int = 2) -> Window:
    """A window of checked numbers; each argument may be one number for all axes or one for each.

    Raises:
        ArgumentError: an argument is of another type, or is too small.
    """
    kernel = sizes(op, "kernel_size", kernel_size, 1, axes)
    strides = sizes(op, "stride", stride, 1, axes)
    dilations = sizes(op, "dilation", dilation, 1, axes)
    if isinstance(padding, str):
        before, behind = _named_padding(op, padding, kernel, strides, dilations)
    else:
        before = behind = sizes(op, "padding", padding, 0, axes)
    return Window(kernel, strides, before, behind, dilations)


def _named_padding(op: str, name: str, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[Shape, Shape]:
    """The padding before and behind for ``"same"`` or ``"valid"``."""
    if name == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if name != "same":
        raise ArgumentError(f"[{op}] padding must be ints, 'same' or 'valid', got {name!r}")
    if set(stride) != {1}:
        raise ArgumentError(f"[{op}] padding='same' takes stride 1, got {stride}")
    total = tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def sizes(op: str, name: str, value: Any, least: int, axes: int) -> Shape:
    """An int for all axes, or one for each, as a tuple.

    Raises:
        ArgumentError: `value` is of another type, has another length, or is too small or too large.
    """
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if not all(type(number) is int for number in numbers):
        numbers = tuple(host_int(number) for number in numbers)
    if len(numbers) == 1:
        numbers *= axes
    if len(numbers) != axes or not all(isinstance(v, int) and not isinstance(v, bool) for v in numbers):
        raise ArgumentError(f"[{op}] {name} must be {SIZES_WORDS[axes]}, got {value!r}")
    if min(numbers) < least:
        raise ArgumentError(f"[{op}] {name} must be at least {least}, got {value!r}")
    if max(numbers) >= INTEGERS:
        raise ArgumentError(f"[{op}] {name} must be below 2^63, got {value!r}")
    return numbers


def checked_output_size(op: str, shape: Shape, win: Window) -> Shape:
    """The output's sizes for an input of `shape`, whose last axes the window slides along.

    Raises:
        ShapeError: the window is larger than the padded input.
        ArgumentError: the padded input has too many places.
    """
    size = shape[-len(win.kernel) :]
    out_size = win.output_size(size)
    if min(out_size) < 1:
        kernel, extent = ("x".join(map(str, part)) for part in (win.kernel, size))
        dilation, padding = (", ".join(map(str, part)) for part in (win.dilation, win.before))
        raise ShapeError(
            f"[{op}] a window of {kernel} (dilation {dilation}) "
            f"does not fit into the input's {extent} with padding {padding}"
        )
    padded = win.padded_size(size)
    if max(padded) >= MOST_PADDED:  # kernels and np.pad count places of windows up to there
        raise ArgumentError(f"[{op}] an input padded to {padded} is too large; use less padding")
    check_shape(op, (*shape[: -len(padded)], *padded))
    return out_size


def padded(x: NDArray, win: Window) -> NDArray:
    """Images with a window's padding, which is zeros."""
    if not any((*win.before, *win.behind)):
        return x
    return np.pad(x, ((0, 0), (0, 0), *zip(win.before, win.behind, strict=True)))


def unpadded(x: NDArray, size: Shape, win: Window) -> NDArray:
    """Images of `size` without the padding of `x`."""
    middle = (slice(low, low + extent) for low, extent in zip(win.before, size, strict=True))
    return x[(slice(None), slice(None), *middle)]


def taps(win: Window, out_size: Shape) -> Iterator[tuple[Shape, Any]]:
    """Each element of a window, and the index of the elements of the padded input that it meets."""
    for tap in np.ndindex(*win.kernel):
        starts = (i * d for i, d in zip(tap, win.dilation, strict=True))
        parts = (
            slice(start, start + (count - 1) * stride + 1, stride)
            for start, count, stride in zip(starts, out_size, win.stride, strict=True)
        )
        yield tap, (slice(None), slice(None), *parts)
