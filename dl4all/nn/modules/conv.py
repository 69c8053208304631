"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops.conv.window import sizes
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.tensor import Tensor

PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}
"""The modes by PyTorch's names, with those of :func:`~dl4all.nn.functional.pad`."""

Size: TypeAlias = int | tuple[int, ...]
"""One int for all axes, or one for each."""


class _ConvNd(Module):
    """The parameters and arguments that all convolution layers have."""

    axes: ClassVar[int]
    transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: DeviceLike | None,
        dtype: DTypeLike,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if min(in_channels, out_channels, groups) < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"[{name}] {in_channels} input and {out_channels} output channels do not split into "
                f"{groups} groups"
            )
        modes = ("zeros",) if self.transposed else tuple(PADDING_MODES)
        if padding_mode not in modes:
            raise ArgumentError(
                f"[{name}] padding_mode must be {' or '.join(map(repr, modes))}, got {padding_mode!r}"
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f"[{name}] padding must be ints, 'same' or 'valid', got {padding!r}")
        kernel = sizes(name, "kernel_size", kernel_size, 1, self.axes)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride = sizes(name, "stride", stride, 1, self.axes)
        self.padding: str | tuple[int, ...] = (
            padding if isinstance(padding, str) else sizes(name, "padding", padding, 0, self.axes)
        )
        self.dilation = sizes(name, "dilation", dilation, 1, self.axes)
        self.groups, self.padding_mode = groups, padding_mode
        if padding == "same" and set(self.stride) != {1}:
            raise ArgumentError(f"[{name}] padding='same' takes stride 1, got {self.stride}")
        channels = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (channels[0], channels[1] // groups, *kernel)
        self.weight = Parameter(init.kaiming_uniform(shape))
        fan_in, _ = init.fan_in_and_out(shape)
        self.bias = Parameter(init.fan_in_uniform((out_channels,), fan_in)) if bias else None
        self._place(device, dtype)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding!r}, dilation={self.dilation}, "
            f"groups={self.groups}, bias={self.bias is not None}"
            + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode!r}")
        )


class _ForwardConvNd(_ConvNd):
    """Calls conv1d, conv2d or conv3d, depending on the number of axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with these parameters; subclasses that change them call it."""
        function = (functional.conv1d, functional.conv2d, functional.conv3d)[self.axes - 1]
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._amounts(), PADDING_MODES[self.padding_mode])
            padding = 0
        return function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _amounts(self) -> list[int]:
        """The numbers of elements added before and after the last axis, then the last but one, ..."""
        if isinstance(self.padding, tuple):
            return [amount for amount in reversed(self.padding) for _ in range(2)]
        extents = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if self.padding == "valid":
            extents = [0] * self.axes
        return [part for extent in reversed(extents) for part in (extent // 2, extent - extent // 2)]


class Conv1d(_ForwardConvNd):
    """Cross-correlation of sequences with learned filters.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode:
            as in :class:`Conv2d`, along one axis.

    Shape:
        (N, in_channels, L) to (N, out_channels, OL); ``weight`` is (out_channels, in_channels / groups, KL).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Conv1d(4, 6, 3, padding=1)(dl.rand(2, 4, 12)).shape
        (2, 6, 12)
    """

    axes = 1


class Conv2d(_ForwardConvNd):
    """Cross-correlation of images with learned filters.

    Args:
        in_channels, out_channels: channels of the input and the output.
        kernel_size, stride, padding, dilation: one int for both axes or a pair (vertical, horizontal);
            the padding may also be ``"same"`` or ``"valid"``.
        groups: into how many independent groups the channels are split.
        bias: whether there is a bias.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        (N, in_channels, H, W) to (N, out_channels, OH, OW), see
        :func:`~dl4all.nn.functional.conv2d`; ``weight`` is (out_channels, in_channels / groups, KH, KW).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Conv2d(4, 6, 3, padding=1)(dl.rand(2, 4, 12, 10)).shape
        (2, 6, 12, 10)
    """

    axes = 2


class Conv3d(_ForwardConvNd):
    """Cross-correlation of volumes with learned filters.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode:
            as in :class:`Conv2d`, along three axes.

    Shape:
        (N, in_channels, D, H, W) to (N, out_channels, OD, OH, OW); ``weight`` is
        (out_channels, in_channels / groups, KD, KH, KW).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Conv3d(4, 6, 3, padding=1)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 6, 6, 8, 8)
    """

    axes = 3


class _ConvTransposeNd(_ConvNd):
    """Calls conv_transpose1d, 2d or 3d, depending on the number of axes."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        name = type(self).__name__
        if isinstance(padding, str):
            raise ArgumentError(f"[{name}] padding must be ints, got {padding!r}")
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.output_padding = sizes(name, "output_padding", output_padding, 0, self.axes)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The result; of the sizes that the stride leaves open, `output_size` chooses one for each axis."""
        function = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[
            self.axes - 1
        ]
        padding: Any = self.padding  # a transposed convolution has no "same"; the function says so
        return function(
            input,
            self.weight,
            self.bias,
            self.stride,
            padding,
            self.output_padding if output_size is None else self._padding_for(input, output_size),
            self.groups,
            self.dilation,
        )

    def _padding_for(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that makes the result this large.

        Raises:
            ShapeError: none does.
        """
        name, wanted = type(self).__name__, tuple(output_size)
        if len(wanted) == input.ndim and input.ndim in (self.axes + 1, self.axes + 2):
            wanted = wanted[input.ndim - self.axes :]
        if len(wanted) != self.axes:
            raise ShapeError(f"[{name}] expected {self.axes} sizes for output_size, got {output_size}")
        extra = []
        for axis, size in enumerate(wanted):
            stride, before = self.stride[axis], self.padding[axis]
            assert isinstance(before, int)  # a transposed convolution has no padding by name
            extent = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
            least = (input.shape[axis - self.axes] - 1) * stride - 2 * before + extent
            if not least <= size < least + stride:
                raise ShapeError(
                    f"[{name}] size {size} of axis {axis} must lie from {least} to {least + stride - 1}"
                )
            extra.append(size - least)
        return tuple(extra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, output_padding={self.output_padding}"


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of sequences.

    The arguments are those of :class:`ConvTranspose2d`, along one axis.

    Shape:
        (N, in_channels, L) to (N, out_channels, OL); ``weight`` is (in_channels, out_channels / groups, KL).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ConvTranspose1d(4, 6, 2, stride=2)(dl.rand(2, 4, 12)).shape
        (2, 6, 24)
    """

    axes = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of images: each pixel adds its multiple of the filters to a larger image.

    Args:
        in_channels, out_channels: channels of the input and the output.
        kernel_size, stride, padding, dilation: one int for both axes or a pair (vertical, horizontal).
        output_padding: extra rows and columns of the result, fewer than the stride.
        groups: into how many independent groups the channels are split.
        bias: whether there is a bias.
        padding_mode: only ``"zeros"``.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        (N, in_channels, H, W) to (N, out_channels, OH, OW), see
        :func:`~dl4all.nn.functional.conv_transpose2d`; ``weight`` is
        (in_channels, out_channels / groups, KH, KW).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ConvTranspose2d(4, 6, 2, stride=2)(dl.rand(2, 4, 12, 10)).shape
        (2, 6, 24, 20)
    """

    axes = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of volumes.

    The arguments are those of :class:`ConvTranspose2d`, along three axes.

    Shape:
        (N, in_channels, D, H, W) to (N, out_channels, OD, OH, OW); ``weight`` is
        (in_channels, out_channels / groups, KD, KH, KW).

    Raises:
        ArgumentError: a size is too small or groups do not divide the channels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ConvTranspose3d(4, 6, 2, stride=2)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 6, 12, 16, 16)
    """

    axes = 3
