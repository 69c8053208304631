"""Convolution layers."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.module import Module, Parameter
from dl4all.ops.window import pair
from dl4all.tensor.tensor import Tensor

Size = int | tuple[int, int]


class Conv2d(Module):
    """Cross-correlation of images with learned filters.

    Args:
        in_channels, out_channels: channels of the input and the output.
        kernel_size, stride, padding, dilation: one int for both axes or a pair (vertical, horizontal).
        groups: the channels are split into so many groups that do not see each other.
        bias: whether there is a bias.

    Shape:
        (N, in_channels, H, W) to (N, out_channels, OH, OW), see
        :func:`~dl4all.nn.functional.conv2d`; ``weight`` is (out_channels, in_channels / groups, KH, KW).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if min(in_channels, out_channels, groups) < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"[Conv2d] {in_channels} input and {out_channels} output channels do not split into "
                f"{groups} groups"
            )
        self.stride = pair("Conv2d", "stride", stride, 1)
        self.padding = pair("Conv2d", "padding", padding, 0)
        self.dilation = pair("Conv2d", "dilation", dilation, 1)
        self.groups = groups
        shape = (out_channels, in_channels // groups, *pair("Conv2d", "kernel_size", kernel_size, 1))
        self.weight = Parameter(init.kaiming_uniform(shape))
        fan_in, _ = init.fan_in_and_out(shape)
        self.bias = Parameter(init.fan_in_uniform((out_channels,), fan_in)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(  # type: ignore[no-any-return]
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        out_channels, in_group, *kernel = self.weight.shape
        return (
            f"{in_group * self.groups}, {out_channels}, kernel_size={tuple(kernel)}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, groups={self.groups}, "
            f"bias={self.bias is not None}"
        )
