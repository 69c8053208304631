"""Layers that put places around the last axes of images and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dl4all.errors import ArgumentError
from dl4all.nn import functional
from dl4all.nn.function_layer import FunctionLayer


class _Pad(FunctionLayer):
    """`padding` is an int, or how many before and after the last axis, then the last but one, ..."""

    mode: ClassVar[str] = "constant"
    axes: ClassVar[int]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding=padding)
        self.pad = [padding] * (2 * self.axes) if isinstance(padding, int) else list(padding)
        if len(self.pad) != 2 * self.axes:
            raise ArgumentError(
                f"[{type(self).__name__}] expected an int or {2 * self.axes} of them, got {padding}"
            )

    def forward(self, x: Any) -> Any:
        return functional.pad(x, self.pad, self.mode)


class _ConstantPad(_Pad):
    """`value` is what stands in the new places."""

    value: float

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Any) -> Any:
        return functional.pad(x, self.pad, "constant", self.value)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """One number around signals; `padding` is an int, or (left, right)."""

    axes = 1


class ConstantPad2d(_ConstantPad):
    """One number around images; `padding` is an int, or (left, right, top, bottom)."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """One number around volumes; `padding` is an int, or six."""

    axes = 3


class ZeroPad1d(_Pad):
    """Zeros around signals; `padding` is an int, or (left, right)."""

    axes = 1


class ZeroPad2d(_Pad):
    """Zeros around images; `padding` is an int, or (left, right, top, bottom)."""

    axes = 2


class ZeroPad3d(_Pad):
    """Zeros around volumes; `padding` is an int, or six."""

    axes = 3


class ReflectionPad1d(_Pad):
    """What mirrors at the borders show around signals; `padding` is an int, or (left, right)."""

    mode = "reflect"
    axes = 1


class ReflectionPad2d(_Pad):
    """What mirrors at the borders show around images; `padding` is an int, or (left, right, top, bottom)."""

    mode = "reflect"
    axes = 2


class ReflectionPad3d(_Pad):
    """What mirrors at the borders show around volumes; `padding` is an int, or six."""

    mode = "reflect"
    axes = 3


class ReplicationPad1d(_Pad):
    """The border around signals; `padding` is an int, or (left, right)."""

    mode = "replicate"
    axes = 1


class ReplicationPad2d(_Pad):
    """The border around images; `padding` is an int, or (left, right, top, bottom)."""

    mode = "replicate"
    axes = 2


class ReplicationPad3d(_Pad):
    """The border around volumes; `padding` is an int, or six."""

    mode = "replicate"
    axes = 3


class CircularPad1d(_Pad):
    """What lies at the other end around signals; `padding` is an int, or (left, right)."""

    mode = "circular"
    axes = 1


class CircularPad2d(_Pad):
    """What lies at the other end around images; `padding` is an int, or (left, right, top, bottom)."""

    mode = "circular"
    axes = 2


class CircularPad3d(_Pad):
    """What lies at the other end around volumes; `padding` is an int, or six."""

    mode = "circular"
    axes = 3
