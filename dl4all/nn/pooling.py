"""Pooling layers."""

from __future__ import annotations

from dl4all.nn import functional
from dl4all.nn.convolution import Size
from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class MaxPool2d(Module):
    """:func:`~dl4all.nn.functional.max_pool2d` as a layer."""

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(  # type: ignore[no-any-return]
            x, self.kernel_size, self.stride, self.padding, self.dilation
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}"
        )


class AdaptiveAvgPool2d(Module):
    """:func:`~dl4all.nn.functional.adaptive_avg_pool2d` as a layer; size 1 is the global mean."""

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(x, self.output_size)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
