"""The sizes of a convolution, which say how it is best computed."""

from __future__ import annotations

import math
from typing import NamedTuple

from dl4all.ops.conv.window import Window, volume
from dl4all.ops.core.launch import ceil_div
from dl4all.ops.core.tensor_base import TensorBase


class Problem(NamedTuple):
    """The sizes of a convolution and its gradients."""

    images: int
    channels: int
    filters: int
    groups: int
    size: tuple[int, ...]  # of an image of the input, three axes
    out_size: tuple[int, ...]  # of one of the output
    win: Window

    @property
    def plane(self) -> int:
        return math.prod(self.size)

    @property
    def pixels(self) -> int:
        return math.prod(self.out_size)

    @property
    def taps(self) -> int:
        return math.prod(self.win.kernel)

    @property
    def inner(self) -> int:
        """Rows of the columns of one group."""
        return self.channels // self.groups * self.taps

    @property
    def depthwise(self) -> bool:
        return self.channels == self.groups > 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to multiply."""
        return 0 in (self.images, self.channels, self.filters, self.plane, self.pixels)

    def tiles(self, size: int) -> int:
        """How many of `size` x `size` pixels the results of all images have."""
        _, height, width = self.out_size
        return self.images * ceil_div(height, size) * ceil_div(width, size)

    @property
    def turned(self) -> Problem:
        """With stride 1, the convolution with turned filters that is the gradient of the input.

        Its padding is negative where that of the convolution is larger than the filters.
        """
        win = self.win
        reach = [d * (k - 1) for d, k in zip(win.dilation, win.kernel, strict=True)]
        before, behind = (
            tuple(r - p for r, p in zip(reach, padding, strict=True)) for padding in (win.before, win.behind)
        )
        return self._replace(
            channels=self.filters,
            filters=self.channels,
            size=self.out_size,
            out_size=self.size,
            win=Window(win.kernel, win.stride, before, behind, win.dilation),
        )


def problem(x: TensorBase, out: TensorBase, win: Window, groups: int) -> Problem:
    """Of images `x` that are, or could be, convolved into `out`."""
    sizes = volume(x.shape[2:]), volume(out.shape[2:])
    return Problem(x.shape[0], x.shape[1], out.shape[1], groups, *sizes, win.volume)
