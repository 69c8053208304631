"""Layers that resize images, rearrange their pixels and channels, or extract windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dl4all.nn import functional
from dl4all.nn.function_layer import FunctionLayer

Size: TypeAlias = int | Sequence[int]
Scale: TypeAlias = float | Sequence[float]
"""One for all axes, or one for each."""


class Upsample(FunctionLayer):
    """:func:`~dl4all.nn.functional.interpolate` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Upsample(scale_factor=2)(dl.tensor([[[[1.0, 2.0]]]])).tolist()
        [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]]
    """

    function = staticmethod(functional.interpolate)

    def __init__(
        self,
        size: Size | None = None,
        scale_factor: Scale | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__(
            size=size,
            scale_factor=scale_factor,
            mode=mode,
            align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
        )


class UpsamplingNearest2d(FunctionLayer):
    """:func:`~dl4all.nn.functional.upsample_nearest` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.UpsamplingNearest2d(scale_factor=2)(dl.rand(1, 3, 4, 5)).shape
        (1, 3, 8, 10)
    """

    function = staticmethod(functional.upsample_nearest)

    def __init__(self, size: Size | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size=size, scale_factor=scale_factor)


class UpsamplingBilinear2d(FunctionLayer):
    """:func:`~dl4all.nn.functional.upsample_bilinear` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.UpsamplingBilinear2d(scale_factor=2)(dl.rand(1, 3, 4, 5)).shape
        (1, 3, 8, 10)
    """

    function = staticmethod(functional.upsample_bilinear)

    def __init__(self, size: Size | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size=size, scale_factor=scale_factor)


class ChannelShuffle(FunctionLayer):
    """:func:`~dl4all.nn.functional.channel_shuffle` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ChannelShuffle(2)(dl.arange(4.0).reshape(1, 4, 1)).flatten().tolist()
        [0.0, 2.0, 1.0, 3.0]
    """

    function = staticmethod(functional.channel_shuffle)

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


class PixelShuffle(FunctionLayer):
    """:func:`~dl4all.nn.functional.pixel_shuffle` as a layer: (N, C r r, H, W) to (N, C, H r, W r).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.PixelShuffle(2)(dl.rand(1, 8, 2, 3)).shape
        (1, 2, 4, 6)
    """

    function = staticmethod(functional.pixel_shuffle)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(FunctionLayer):
    """:func:`~dl4all.nn.functional.pixel_unshuffle` as a layer: (N, C, H r, W r) to (N, C r r, H, W).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.PixelUnshuffle(2)(dl.rand(1, 2, 4, 6)).shape
        (1, 8, 2, 3)
    """

    function = staticmethod(functional.pixel_unshuffle)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class Unfold(FunctionLayer):
    """:func:`~dl4all.nn.functional.unfold` as a layer: the windows of an image as columns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Unfold(2, stride=2)(dl.rand(1, 3, 4, 4)).shape
        (1, 12, 4)
    """

    function = staticmethod(functional.unfold)

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(FunctionLayer):
    """:func:`~dl4all.nn.functional.fold` as a layer: the sum of windows, given as columns, as an image.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Fold((4, 4), 2, stride=2)(dl.rand(1, 12, 4)).shape
        (1, 3, 4, 4)
    """

    function = staticmethod(functional.fold)

    def __init__(
        self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__(
            output_size=output_size,
            kernel_size=kernel_size,
            dilation=dilation,
            padding=padding,
            stride=stride,
        )
