"""The sizes of a convolution, and the record in which an algorithm says what it computes and at what cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from dl4all.ops.conv.window import Window, three_axes
from dl4all.ops.core.kernels.launch import ceil_div
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.spirv import Shader

Direction = Literal["forward", "input_gradient", "weight_gradient"]
"""The convolution, or the gradient of its input or of its filters; also the fields of Algorithm."""


class Problem(NamedTuple):
    """The sizes of a convolution and its gradients."""

    images: int
    channels: int
    filters: int
    groups: int
    size: tuple[int, ...]  # of an input image, three axes
    out_size: tuple[int, ...]  # of an output image, three axes
    win: Window

    @property
    def in_pixels(self) -> int:
        return math.prod(self.size)

    @property
    def out_pixels(self) -> int:
        return math.prod(self.out_size)

    @property
    def kernel_elements(self) -> int:
        return math.prod(self.win.kernel)

    @property
    def reduction_size(self) -> int:
        """The number of products that are summed up for one result."""
        return self.channels // self.groups * self.kernel_elements

    @property
    def volume(self) -> bool:
        """Whether images or filters are deep."""
        return max(self.out_size[0], self.size[0], self.win.kernel[0], self.win.before[0] + 1) > 1

    @property
    def depthwise(self) -> bool:
        return self.channels == self.groups > 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to multiply."""
        return 0 in (self.images, self.channels, self.filters, self.in_pixels, self.out_pixels)

    @property
    def flops(self) -> int:
        return 2 * self.images * self.filters * self.out_pixels * self.reduction_size

    def tiles(self, size: int) -> int:
        """The number of tiles of `size` x `size` pixels that cover the results of all images."""
        _, height, width = self.out_size
        return self.images * ceil_div(height, size) * ceil_div(width, size)

    @property
    def flipped(self) -> Problem:
        """With stride 1, the convolution with flipped filters that computes the gradient of the input.

        Its padding is negative where the padding of this convolution is larger than the filters.
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


class Algorithm(NamedTuple):
    """One way to compute convolutions on devices.

    The functions take contiguous tensors and fill the first one: ``forward(out, x, w, bias, problem)``,
    ``input_gradient(out, g, w, problem)`` and ``weight_gradient(out, g, x, problem)``, where `g` is the
    gradient of the convolution's result. The field of a direction that the algorithm lacks is None.
    """

    name: str
    supports: Callable[[DeviceInfo, Problem, Direction], bool]
    cost: Callable[[DeviceInfo, Problem, Direction], float]  # in the unit of dl4all.ops.conv.costs
    forward: Callable[..., None] | None
    input_gradient: Callable[..., None] | None
    weight_gradient: Callable[..., None] | None
    shaders: Mapping[Direction, tuple[Shader, ...]]


def problem_of(x: TensorBase, out: TensorBase, win: Window, groups: int) -> Problem:
    """The problem of convolving images `x` into `out`."""
    sizes = three_axes(x.shape[2:]), three_axes(out.shape[2:])
    return Problem(x.shape[0], x.shape[1], out.shape[1], groups, *sizes, win.three_axes)


def bias_constants(bias: TensorBase | None) -> tuple[int, int]:
    """Push constants of an optional bias: whether there is one, and its offset."""
    return (0, 0) if bias is None else (1, bias.offset)
