"""Max pooling over windows at pseudo-random places (Graham, arXiv:1412.6071)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn.module import Module
from dl4all.nn.modules.conv import Size
from dl4all.ops.conv.window import sizes
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.random import rand
from dl4all.tensor.tensor import Tensor


class _FractionalMaxPool(Module):
    """Fractional max pooling, whatever the number of axes."""

    axes: ClassVar[int]

    def __init__(
        self,
        kernel_size: Size,
        output_size: Size | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"[{name}] expected either output_size or output_ratio")
        self.kernel_size = sizes(name, "kernel_size", kernel_size, 1, self.axes)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = (
            None if output_size is None else sizes(name, "output_size", output_size, 1, self.axes)
        )
        self.output_ratio: tuple[float, ...] | None = None
        if output_ratio is not None:
            ratios = (output_ratio,) * self.axes if isinstance(output_ratio, (int, float)) else output_ratio
            self.output_ratio = tuple(map(float, ratios))
            if len(self.output_ratio) != self.axes or not all(0 < ratio < 1 for ratio in self.output_ratio):
                raise ArgumentError(f"[{name}] output_ratio must lie between 0 and 1, got {output_ratio}")

    def forward(self, input: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions in their channel.

        Raises:
            ShapeError: the input has another number of axes, or is too small.
        """
        if input.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"[{type(self).__name__}] expected an input of {self.axes + 1} or {self.axes + 2} axes, got "
                f"{input.shape}"
            )
        x = input if input.ndim == self.axes + 2 else input.unsqueeze(0)
        batch, channels, *space = x.shape
        out = self.output_size or tuple(
            int(size * ratio) for size, ratio in zip(space, self.output_ratio or (), strict=True)
        )
        for size, kernel, count in zip(space, self.kernel_size, out, strict=True):
            if count < 1 or count + kernel - 1 > size:
                raise ShapeError(
                    f"[{type(self).__name__}] an axis of {size} has no {count} windows of {kernel} elements"
                )
        places = self._places(batch, channels, space, out, x)
        windows = ops.gather(x.flatten(2), 2, places.reshape(batch, channels, -1))
        windows = windows.reshape(*places.shape)
        result = windows.amax(-1)
        if input.ndim != x.ndim:
            result = result.squeeze(0)
        if not self.return_indices:
            return result
        chosen = ops.gather(places, -1, windows.detach().argmax(-1, keepdim=True)).squeeze(-1)
        return result, chosen.squeeze(0) if input.ndim != x.ndim else chosen

    def _places(self, batch: int, channels: int, space: Any, out: Any, x: Tensor) -> Tensor:
        """The positions (N, C, *out, elements of a window) in a flat channel."""
        drawn = self._buffers["_random_samples"]
        if drawn is None:
            drawn = rand(batch, channels, self.axes, dtype=x.dtype, device="cpu")
        samples = np.broadcast_to(drawn.detach().numpy().astype(x.dtype), (batch, channels, self.axes))
        flat = np.zeros((batch, channels, *(1,) * (2 * self.axes)), np.int64)
        for axis, (size, kernel, count) in enumerate(zip(space, self.kernel_size, out, strict=True)):
            # PyTorch draws the last axis of images first, and the first axis of volumes.
            sample = samples[..., self.axes - 1 - axis if self.axes == 2 else axis]
            starts = _starts(sample, size, count, kernel)
            positions = starts[..., None] + np.arange(kernel)  # (N, C, count, kernel)
            shape = [1] * (2 * self.axes)
            shape[axis], shape[self.axes + axis] = count, kernel
            flat = flat * size + positions.reshape(batch, channels, *shape)
        return from_numpy(flat.reshape(batch, channels, *out, -1), x.device)


def _starts(sample: Any, size: int, count: int, kernel: int) -> Any:
    """The first positions of windows, for each sample; PyTorch's sequence."""
    starts = np.full((*sample.shape, count), size - kernel, np.int64)
    if count > 1:
        alpha = sample.dtype.type((size - kernel) / (count - 1))
        numbers = np.arange(count - 1).astype(sample.dtype)
        first = (sample * alpha).astype(np.int64)[..., None]
        starts[..., :-1] = ((numbers + sample[..., None]) * alpha).astype(np.int64) - first
    return starts


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling of images over windows at pseudo-random places, which overlap.

    Args:
        kernel_size: of the windows: an int, or a pair.
        output_size: of the result: an int, or a pair.
        output_ratio: the result's sizes as fractions of the input's, in place of `output_size`.
        return_indices: whether the maxima's positions in their channel are returned, too.

    Shape:
        (N, C, H, W), or without N, to (N, C, *output_size).

    Raises:
        ArgumentError: both or neither of size and ratio are given, or the ratio is not between 0 and 1.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.FractionalMaxPool2d(2, output_ratio=0.5)(dl.rand(1, 3, 8, 6, device="cpu")).shape
        (1, 3, 4, 3)
    """

    axes = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max pooling of volumes over windows at pseudo-random places; see :class:`FractionalMaxPool2d`.

    Shape:
        (N, C, D, H, W), or without N, to (N, C, *output_size).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.FractionalMaxPool3d(2, output_size=(3, 4, 4))(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 3, 4, 4)
    """

    axes = 3
