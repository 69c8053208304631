"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.nn.modules.conv import Size
from dl4all.tensor.tensor import Tensor

OutputSize: TypeAlias = int | Sequence[int | None] | None
"""One size for all axes, or one for each; None keeps the input's."""

MaybeIndices: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""The result, or with ``return_indices`` the result and the indices of the maxima."""


class _MaxPool(Module):
    """The arguments of all max-pooling layers."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    @property
    def arguments(self) -> tuple[Size, Size, Size, Size, bool]:
        """The positional arguments of the function."""
        return self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}{', ceil_mode=True' if self.ceil_mode else ''}"
        )


class MaxPool1d(_MaxPool):
    """:func:`~dl4all.nn.functional.max_pool1d` as a layer; ``return_indices`` adds the maxima\'s indices.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.MaxPool1d(2)(dl.rand(2, 4, 12)).shape
        (2, 4, 6)
    """

    def forward(self, input: Tensor) -> MaybeIndices:
        if self.return_indices:
            return functional.max_pool1d_with_indices(input, *self.arguments)
        return functional.max_pool1d(input, *self.arguments)


class MaxPool2d(_MaxPool):
    """:func:`~dl4all.nn.functional.max_pool2d` as a layer; ``return_indices`` adds the maxima\'s indices.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.MaxPool2d(2)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 6, 5)
    """

    def forward(self, input: Tensor) -> MaybeIndices:
        if self.return_indices:
            return functional.max_pool2d_with_indices(input, *self.arguments)
        return functional.max_pool2d(input, *self.arguments)


class MaxPool3d(_MaxPool):
    """:func:`~dl4all.nn.functional.max_pool3d` as a layer; ``return_indices`` adds the maxima\'s indices.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.MaxPool3d(2)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 3, 4, 4)
    """

    def forward(self, input: Tensor) -> MaybeIndices:
        if self.return_indices:
            return functional.max_pool3d_with_indices(input, *self.arguments)
        return functional.max_pool3d(input, *self.arguments)


class AvgPool1d(Module):
    """:func:`~dl4all.nn.functional.avg_pool1d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AvgPool1d(2)(dl.rand(2, 4, 12)).shape
        (2, 4, 6)
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    @property
    def arguments(self) -> tuple[Size, Size, Size, bool, bool]:
        """The positional arguments of the function."""
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return functional.avg_pool1d(input, *self.arguments)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(AvgPool1d):
    """:func:`~dl4all.nn.functional.avg_pool2d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AvgPool2d(2)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 6, 5)
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return functional.avg_pool2d(input, *self.arguments, self.divisor_override)


class AvgPool3d(AvgPool2d):
    """:func:`~dl4all.nn.functional.avg_pool3d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AvgPool3d(2)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 3, 4, 4)
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.avg_pool3d(input, *self.arguments, self.divisor_override)


class _AdaptivePool(Module):
    """The argument of all adaptive layers."""

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """:func:`~dl4all.nn.functional.adaptive_avg_pool1d` as a layer; size 1 is the mean.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AdaptiveAvgPool1d(2)(dl.rand(2, 4, 12)).shape
        (2, 4, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        size: Any = self.output_size  # the function refuses what is no size of one axis
        return functional.adaptive_avg_pool1d(input, size)


class AdaptiveAvgPool2d(_AdaptivePool):
    """:func:`~dl4all.nn.functional.adaptive_avg_pool2d` as a layer; size 1 is the global mean.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AdaptiveAvgPool2d(2)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptivePool):
    """:func:`~dl4all.nn.functional.adaptive_avg_pool3d` as a layer; size 1 is the global mean.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AdaptiveAvgPool3d(2)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool2d(_AdaptivePool):
    """:func:`~dl4all.nn.functional.adaptive_max_pool2d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AdaptiveMaxPool2d(2)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 2, 2)
    """

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> MaybeIndices:
        if self.return_indices:
            return functional.adaptive_max_pool2d_with_indices(input, self.output_size)
        return functional.adaptive_max_pool2d(input, self.output_size)


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
    """:func:`~dl4all.nn.functional.adaptive_max_pool1d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AdaptiveMaxPool1d(2)(dl.rand(2, 4, 12)).shape
        (2, 4, 2)
    """

    def forward(self, input: Tensor) -> MaybeIndices:
        size: Any = self.output_size  # the function refuses what is no size of one axis
        if self.return_indices:
            return functional.adaptive_max_pool1d_with_indices(input, size)
        return functional.adaptive_max_pool1d(input, size)


class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
    """:func:`~dl4all.nn.functional.adaptive_max_pool3d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.AdaptiveMaxPool3d(2)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> MaybeIndices:
        return functional.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _LPPool(Module):
    """Power-average pooling, whatever the number of axes."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"


class LPPool1d(_LPPool):
    """:func:`~dl4all.nn.functional.lp_pool1d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.LPPool1d(2, 2)(dl.rand(2, 4, 12)).shape
        (2, 4, 6)
    """

    function = staticmethod(functional.lp_pool1d)


class LPPool2d(_LPPool):
    """:func:`~dl4all.nn.functional.lp_pool2d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.LPPool2d(2, 2)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 6, 5)
    """

    function = staticmethod(functional.lp_pool2d)


class LPPool3d(_LPPool):
    """:func:`~dl4all.nn.functional.lp_pool3d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.LPPool3d(2, 2)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 3, 4, 4)
    """

    function = staticmethod(functional.lp_pool3d)


class _MaxUnpool(Module):
    """The partial inverse of max pooling, whatever the number of axes."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return type(self).function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """:func:`~dl4all.nn.functional.max_unpool1d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> x, indices = dl.nn.MaxPool1d(2, return_indices=True)(dl.rand(2, 4, 12))
        >>> dl.nn.MaxUnpool1d(2)(x, indices).shape
        (2, 4, 12)
    """

    function = staticmethod(functional.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """:func:`~dl4all.nn.functional.max_unpool2d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> x, indices = dl.nn.MaxPool2d(2, return_indices=True)(dl.rand(2, 4, 12, 10))
        >>> dl.nn.MaxUnpool2d(2)(x, indices).shape
        (2, 4, 12, 10)
    """

    function = staticmethod(functional.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """:func:`~dl4all.nn.functional.max_unpool3d` as a layer.

    Example:
        >>> import dl4all as dl
        >>> x, indices = dl.nn.MaxPool3d(2, return_indices=True)(dl.rand(1, 4, 6, 8, 8))
        >>> dl.nn.MaxUnpool3d(2)(x, indices).shape
        (1, 4, 6, 8, 8)
    """

    function = staticmethod(functional.max_unpool3d)
