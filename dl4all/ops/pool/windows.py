"""Geometry of pooling: where the windows lie, and which output size they give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv.window import Window, checked_output_size, sizes, window
from dl4all.ops.core.kernels.launch import ceil_div
from dl4all.ops.core.kernels.launch_plan import KeyArgument
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Shape, TensorBase

Sizes: TypeAlias = int | Sequence[int]
"""One number for all axes, or one for each."""

OutputSizes: TypeAlias = int | Sequence[int | None] | None
"""Sizes of a result; None keeps that of the input."""


@dataclass(frozen=True)
class Pooling(KeyArgument):
    """The windows of a pooling over images of `size`: sliding ones (`win`), or adaptive ones without it."""

    size: Shape
    out_size: Shape
    win: Window | None = None
    ceil_mode: bool = False
    include_pad: bool = True  # whether padding counts in a mean
    divisor: int | None = None  # divides the sums in place of the number of elements

    @property
    def tiles(self) -> bool:
        """Whether each pixel lies in exactly one window."""
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
        """Upper bound on a kernel's loop: the pixels of a window, or the windows that contain a pixel."""
        if self.win is not None:
            return math.prod(self.win.kernel)
        pairs = list(zip(self.size, self.out_size, strict=True))
        return max(math.prod(a // b + 2 for a, b in pairs), math.prod(b // a + 2 for a, b in pairs if a))

    def spans(self, axis: int) -> list[tuple[int, int]]:
        """Start and end of each adaptive window along one axis."""
        size, count = self.size[axis], self.out_size[axis]
        return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]

    def parts(self) -> Iterator[tuple[Any, Any]]:
        """For each adaptive window, its index in the result and its slices of the image."""
        for i, (top, bottom) in enumerate(self.spans(0)):
            for j, (left, right) in enumerate(self.spans(1)):
                yield (..., i, j), (..., slice(top, bottom), slice(left, right))

    def divisors(self) -> npt.NDArray[Any]:
        """The number by which the sum of each window is divided, of shape (OH, OW)."""
        if self.divisor is not None or self.win is None:
            return np.full(self.out_size, self.divisor or 1)
        lengths = []
        for size, count, kernel, stride, padding in zip(
            self.size, self.out_size, self.win.kernel, self.win.stride, self.win.before, strict=True
        ):
            start = np.arange(count) * stride - padding
            if self.include_pad:
                lengths.append(np.minimum(start + kernel, size + padding) - start)
            else:
                lengths.append(np.minimum(start + kernel, size) - np.maximum(start, 0))
        divisors: npt.NDArray[Any] = lengths[0][:, None] * lengths[1]
        return divisors


def sliding(
    op: str,
    shape: Shape,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
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
    if divisor is not None and integer(op, "divisor_override", divisor) == 0:
        raise ArgumentError(f"[{op}] divisor_override must not be 0")
    size = shape[-2:]
    if ceil_mode:  # the last window may end outside, but must begin inside
        behind = tuple(pad + step - 1 for pad, step in zip(win.behind, win.stride, strict=True))
        starts_inside = (
            ceil_div(extent + pad, step)
            for extent, pad, step in zip(size, win.before, win.stride, strict=True)
        )
        out_size = tuple(map(min, checked_output_size(op, shape, replace(win, behind=behind)), starts_inside))
        whole = tuple(map(min, win.kernel, win.padded_size(size)))
        win = replace(win, kernel=whole)  # where there is a single one, which would reach farther
    else:
        out_size = checked_output_size(op, shape, win)
    return Pooling(size, out_size, win, ceil_mode, include_pad, divisor)


def adaptive(op: str, shape: Shape, output_size: OutputSizes) -> Pooling:
    """Windows that divide images of `shape` (N, C, H, W) into `output_size` parts; None keeps a size.

    Raises:
        ArgumentError
    """
    requested: Sequence[int | None] = (
        output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    )
    if len(requested) == 2:
        requested = tuple(
            size if count is None else count for count, size in zip(requested, shape[-2:], strict=True)
        )
    out_size = sizes(op, "output_size", requested, 1, 2)
    if 0 in shape[2:]:
        raise ArgumentError(f"[{op}] there is nothing to take together in shape {shape}")
    return Pooling(shape[-2:], out_size)


def check_pooled(name: str, g: TensorBase, shape: Shape, pooling: Pooling) -> None:
    """Raise unless the pooling takes images of `shape` to the shape of `g`.

    Raises:
        ShapeError
    """
    if shape[-2:] != pooling.size or g.shape != (*shape[:2], *pooling.out_size):
        raise ShapeError(f"[{name}] {pooling} does not lead from {shape} to {g.shape}")
