"""Windows of images as columns, and back; the gradient of ``Tensor.unfold``; channels in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all import ops
from dl4all.pytorch.device.dispatch.registration import declare

Sizes = Sequence[int]


def im2col(input: Any, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Any:
    return ops.unfold(input, tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride))


def col2im(
    input: Any, output_size: Sizes, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Any:
    window = tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride)
    return ops.fold(input, tuple(output_size), *window)


WINDOWS: dict[str, Callable[..., Any]] = {
    "im2col": im2col,
    "col2im": col2im,
    "channel_shuffle": ops.channel_shuffle,
}

for _name, _function in WINDOWS.items():
    declare(_name, _function)
