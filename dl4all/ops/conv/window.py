"""Sliding windows over the last axes: what convolution and pooling have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.tensor_base import Shape

MANY = {1: "an int or a tuple of one", 2: "an int or a pair of ints", 3: "an int or three ints"}


@dataclass(frozen=True)
class Window:
    """Along each axis: extent, step, padding before and behind the input, and spacing of a window."""

    kernel: Shape
    stride: Shape
    before: Shape
    behind: Shape
    dilation: Shape

    def output_size(self, size: Shape) -> Shape:
        """How many places the window takes; less than 1 where it does not fit."""
        return tuple(
            (extent + low + high - d * (k - 1) - 1) // s + 1
            for extent, k, s, low, high, d in zip(
                size, self.kernel, self.stride, self.before, self.behind, self.dilation, strict=True
            )
        )

    @property
    def moves_nothing(self) -> bool:
        """Whether each window is one element, and every element one window."""
        ones, none = (1,) * len(self.kernel), (0,) * len(self.kernel)
        return self.kernel == self.stride == ones and self.before == self.behind == none

    @property
    def volume(self) -> Window:
        """The same with three axes, as kernels take it."""
        return Window(
            volume(self.kernel), volume(self.stride),
            volume(self.before, 0), volume(self.behind, 0), volume(self.dilation),
        )  # fmt: skip

    @property
    def words(self) -> Shape:
        """What kernels are told: extents, steps, padding before and spacings."""
        return (*self.kernel, *self.stride, *self.before, *self.dilation)


def volume(sizes: Shape, fill: int = 1) -> Shape:
    """Three sizes, with `fill` for the axes in front that there are not.

    >>> volume((5, 7))
    (1, 5, 7)
    """
    return (fill,) * (3 - len(sizes)) + sizes


def window(op: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any, axes: int = 2) -> Window:
    """Check a window's numbers; each may be one number for all axes or one for each.

    Raises:
        ArgumentError: one of them is of another kind, or is too small.
    """
    kernel = sizes(op, "kernel_size", kernel_size, 1, axes)
    step = sizes(op, "stride", stride, 1, axes)
    spacing = sizes(op, "dilation", dilation, 1, axes)
    if isinstance(padding, str):
        before, behind = _named_padding(op, padding, kernel, step, spacing)
    else:
        before = behind = sizes(op, "padding", padding, 0, axes)
    return Window(kernel, step, before, behind, spacing)


def _named_padding(op: str, name: str, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[Shape, Shape]:
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
        ArgumentError
    """
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(found) == 1:
        found *= axes
    if len(found) != axes or not all(isinstance(v, int) and not isinstance(v, bool) for v in found):
        raise ArgumentError(f"[{op}] {name} must be {MANY[axes]}, got {value!r}")
    if min(found) < least:
        raise ArgumentError(f"[{op}] {name} must be at least {least}, got {value!r}")
    return found


def pair(op: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """An int, or a pair of ints, as a pair.

    Raises:
        ArgumentError
    """
    first, second = sizes(op, name, value, least, 2)
    return first, second


def placed(op: str, shape: Shape, win: Window) -> Shape:
    """The output's sizes for an input of `shape`, whose last axes the window slides along.

    Raises:
        ShapeError: the window is larger than the padded input.
    """
    size = shape[-len(win.kernel) :]
    found = win.output_size(size)
    if min(found) < 1:
        kernel, extent = ("x".join(map(str, part)) for part in (win.kernel, size))
        spacing, padding = (", ".join(map(str, part)) for part in (win.dilation, win.before))
        raise ShapeError(
            f"[{op}] a window of {kernel} (dilation {spacing}) "
            f"does not fit into the input's {extent} with padding {padding}"
        )
    return found
