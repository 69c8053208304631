"""Sliding windows over the last two axes: what convolution and pooling have in common."""

from __future__ import annotations

from typing import Any, NamedTuple

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.base import TensorBase


class Window(NamedTuple):
    """Vertical and horizontal extent, step, zero padding and spacing of a window."""

    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int
    dilation_h: int
    dilation_w: int

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """How many places the window takes; less than 1 where it does not fit."""
        return (
            (height + 2 * self.padding_h - self.dilation_h * (self.kernel_h - 1) - 1) // self.stride_h + 1,
            (width + 2 * self.padding_w - self.dilation_w * (self.kernel_w - 1) - 1) // self.stride_w + 1,
        )


def window(op: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    """Check a window's numbers; each may be one number for both axes or a pair.

    Raises:
        ArgumentError: one of them is not an int or a pair, or is too small.
    """
    return Window(
        *pair(op, "kernel_size", kernel_size, 1),
        *pair(op, "stride", stride, 1),
        *pair(op, "padding", padding, 0),
        *pair(op, "dilation", dilation, 1),
    )


def pair(op: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """An int, or a pair of ints, as a pair.

    Raises:
        ArgumentError
    """
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) for v in both):
        raise ArgumentError(f"[{op}] {name} must be an int or a pair of ints, got {value!r}")
    if min(both) < least:
        raise ArgumentError(f"[{op}] {name} must be at least {least}, got {value!r}")
    return both[0], both[1]


def placed(op: str, shape: tuple[int, ...], win: Window) -> tuple[int, int]:
    """The output's height and width for an input of `shape` (..., H, W).

    Raises:
        ShapeError: the window is larger than the padded input.
    """
    height, width = win.output_size(shape[-2], shape[-1])
    if height < 1 or width < 1:
        raise ShapeError(
            f"[{op}] a window of {win.kernel_h}x{win.kernel_w} (dilation {win.dilation_h}, {win.dilation_w}) "
            f"does not fit into the input's {shape[-2]}x{shape[-1]} with padding "
            f"{win.padding_h}, {win.padding_w}"
        )
    return height, width


def check_images(op: str, x: TensorBase) -> None:
    """Raise unless `x` is a batch of float images.

    Raises:
        ShapeError, DTypeError
    """
    if len(x.shape) != 4:
        raise ShapeError(f"[{op}] expected an input of shape (N, C, H, W), got {x.shape}")
    check_float(op, x)


def check_float(op: str, *tensors: TensorBase | None) -> None:
    """Raise unless the tensors are floats of one dtype.

    Raises:
        DTypeError
    """
    dtypes = {t.dtype for t in tensors if t is not None}
    if len(dtypes) != 1 or next(iter(dtypes)).kind != "f":
        names = ", ".join(sorted(map(str, dtypes)))
        raise DTypeError(f"[{op}] expected floats of one dtype, got {names}; convert with .to(dtype)")
