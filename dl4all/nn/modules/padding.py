"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dl4all.errors import ArgumentError
from dl4all.nn import functional
from dl4all.nn.function_layer import FunctionLayer
from dl4all.ops.core.strides import sizes
from dl4all.tensor.tensor import Tensor


class _Padding(FunctionLayer):
    """`padding` is an int, or the amounts before and after the last axis, then the last but one, ..."""

    mode: ClassVar[str] = "constant"
    axes: ClassVar[int]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding=padding)
        pad = sizes(type(self).__name__, (padding,))
        self.pad = list(pad) if isinstance(padding, (tuple, list)) else [*pad] * (2 * self.axes)
        if len(self.pad) != 2 * self.axes:
            raise ArgumentError(
                f"[{type(self).__name__}] expected an int or {2 * self.axes} of them, got {padding}"
            )

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.pad, self.mode)


class _ConstantPadding(_Padding):
    """`value` is the value of the new elements."""

    value: float

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.pad, "constant", self.value)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, value={self.value}"


class ConstantPad1d(_ConstantPadding):
    """Pads signals with one number; `padding` is an int, or (left, right).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ConstantPad1d(1, 9.0)(dl.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[9.0, 1.0, 2.0, 3.0, 9.0]]]
    """

    axes = 1


class ConstantPad2d(_ConstantPadding):
    """Pads images with one number; `padding` is an int, or (left, right, top, bottom).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ConstantPad2d(1, 9.0)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 14, 12)
    """

    axes = 2


class ConstantPad3d(_ConstantPadding):
    """Pads volumes with one number; `padding` is an int, or six.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ConstantPad3d(1, 9.0)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 8, 10, 10)
    """

    axes = 3


class ZeroPad1d(_Padding):
    """Pads signals with zeros; `padding` is an int, or (left, right).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ZeroPad1d(1)(dl.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[0.0, 1.0, 2.0, 3.0, 0.0]]]
    """

    axes = 1


class ZeroPad2d(_Padding):
    """Pads images with zeros; `padding` is an int, or (left, right, top, bottom).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ZeroPad2d(1)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 14, 12)
    """

    axes = 2


class ZeroPad3d(_Padding):
    """Pads volumes with zeros; `padding` is an int, or six.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ZeroPad3d(1)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 8, 10, 10)
    """

    axes = 3


class ReflectionPad1d(_Padding):
    """Pads signals by reflection at the borders; `padding` is an int, or (left, right).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ReflectionPad1d(1)(dl.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[2.0, 1.0, 2.0, 3.0, 2.0]]]
    """

    mode = "reflect"
    axes = 1


class ReflectionPad2d(_Padding):
    """Pads images by reflection at the borders; `padding` is an int, or (left, right, top, bottom).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ReflectionPad2d(1)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 14, 12)
    """

    mode = "reflect"
    axes = 2


class ReflectionPad3d(_Padding):
    """Pads volumes by reflection at the borders; `padding` is an int, or six.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ReflectionPad3d(1)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 8, 10, 10)
    """

    mode = "reflect"
    axes = 3


class ReplicationPad1d(_Padding):
    """Pads signals by replication of the border; `padding` is an int, or (left, right).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ReplicationPad1d(1)(dl.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[1.0, 1.0, 2.0, 3.0, 3.0]]]
    """

    mode = "replicate"
    axes = 1


class ReplicationPad2d(_Padding):
    """Pads images by replication of the border; `padding` is an int, or (left, right, top, bottom).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ReplicationPad2d(1)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 14, 12)
    """

    mode = "replicate"
    axes = 2


class ReplicationPad3d(_Padding):
    """Pads volumes by replication of the border; `padding` is an int, or six.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.ReplicationPad3d(1)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 8, 10, 10)
    """

    mode = "replicate"
    axes = 3


class CircularPad1d(_Padding):
    """Pads signals with elements of the opposite end; `padding` is an int, or (left, right).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.CircularPad1d(1)(dl.tensor([[[1.0, 2.0, 3.0]]])).tolist()
        [[[3.0, 1.0, 2.0, 3.0, 1.0]]]
    """

    mode = "circular"
    axes = 1


class CircularPad2d(_Padding):
    """Pads images with elements of the opposite end; `padding` is an int, or (left, right, top, bottom).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.CircularPad2d(1)(dl.rand(2, 4, 12, 10)).shape
        (2, 4, 14, 12)
    """

    mode = "circular"
    axes = 2


class CircularPad3d(_Padding):
    """Pads volumes with elements of the opposite end; `padding` is an int, or six.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.CircularPad3d(1)(dl.rand(1, 4, 6, 8, 8)).shape
        (1, 4, 8, 10, 10)
    """

    mode = "circular"
    axes = 3
