"""Weights of linear layers in 8 and in 4 bits, which take a weight's place in ``linear``.

int8 has a scale for each output, so that the largest of its weights is 127 steps of it (Jacob et al.,
arXiv:1712.05877, section 2.1, without zero points); 4 bits have one for each group of an output's weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.nn.module import Module
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.tensor_like import TensorLike
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.tensor_base import Size
from dl4all.ops.linalg.int8_product import int8_product
from dl4all.ops.linalg.integer_product import integer_product
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.conversion import cast
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Backward: TypeAlias = Callable[[Any, Any, Any], list[Any]]
STEPS = 127  # from 0 to the largest weight of an output
SMALLEST = float(np.finfo(np.float32).tiny)  # scale


class QuantizedWeight(Module, TensorLike):
    """The weight of a linear layer in fewer bits, for :func:`dl4all.nn.functional.linear`.

    Gradients flow through a product to its input, but not to the weight. Rows, which belong to outputs, can
    be taken with a slice; every other op refuses it.

    Args:
        qdata: the integers, of shape (out_features, ...).
        scale: floats of shape (out_features, ...); they keep their dtype when the network is converted.

    Raises:
        DTypeError: on use in another op than ``linear``.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(64, 8)
        >>> dl.quantization.quantize_(layer, dl.quantization.Int8WeightOnlyConfig())
        >>> isinstance(layer.weight, dl.quantization.QuantizedWeight), layer.weight.shape
        (True, (8, 64))
    """

    qdata: Tensor
    scale: Tensor
    keeps_dtype = True
    ops: ClassVar[tuple[str, ...]] = ("linear",)
    """The names of the ops that take such a weight."""

    def __init__(self, qdata: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("qdata", qdata)
        self.register_buffer("scale", scale)

    @property
    def shape(self) -> Size:
        """(out_features, in_features)."""
        return self.qdata.shape

    @property
    def device(self) -> Device:
        return self.qdata.device

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32, which :meth:`dequantized` gives."""
        return FLOAT32

    def dequantized(self) -> Tensor:
        """The numbers that products are computed with, in float32."""
        raise NotImplementedError

    def product(self, input: Tensor, **arguments: Any) -> Tensor:
        """The result of an op for an input, in float32, without a bias and a history."""
        raise NotImplementedError

    def __getitem__(self, rows: slice) -> QuantizedWeight:
        return type(self)(self.qdata[rows], self.scale[rows])

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        if op.name not in self.ops or operands[1] is not self:
            raise DTypeError(
                f"[{op.name}] a {type(self).__name__} holds a weight in few bits, for "
                f"{' and '.join(self.ops)}; take its numbers with weight.dequantized()"
            )
        input, _, bias = operands
        with tape.gradients(False):
            result: Any = cast(self.product(input, **arguments), input.dtype.name)
        tape.add_node(f"quantized_{op.name}", [input], [result], self._backward(input, arguments), [])
        if bias is None:
            return result
        axes = len(self.shape) - 2
        return result + cast(bias.reshape(-1, *(1,) * axes), result.dtype.name)

    def _backward(self, input: Tensor, arguments: dict[str, Any]) -> Backward:
        def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
            return [self.input_gradient(grads[0])]

        return backward

    def input_gradient(self, grad: Any) -> Any:
        """The gradient of a product's input, by that of its result."""
        return matmul(grad, cast(self.dequantized(), grad.dtype.name))


class Int8Weight(QuantizedWeight):
    """A weight of int8 with a float32 scale for each output: 0.25 of float32's bytes.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.quantization.Int8Weight.of(dl.tensor([[1.0, -0.5], [0.25, 0.1]], device="cpu"))
        >>> weight.qdata.tolist()
        [[127, -64], [127, 51]]
    """

    @classmethod
    def of(cls, weight: Tensor) -> Int8Weight:
        """The nearest such weight of floats (out_features, in_features).

        Raises:
            ArgumentError: one is infinite or nan.
        """
        return cls(*cls.steps(finite_numbers(weight), weight.device))

    @staticmethod
    def steps(numbers: npt.NDArray[np.float32], device: Device) -> tuple[Tensor, Tensor]:
        """The integers and the scales of outputs, which lie along the first axis."""
        rows = numbers.reshape(len(numbers), -1)
        largest = np.abs(rows).max(axis=1, initial=0.0)
        scale = (largest / STEPS).astype(np.float32)
        scale[scale == 0] = 1.0  # zeros, and what is too small to have one, become zeros
        steps = np.clip(np.rint(rows / scale[:, None]), -STEPS, STEPS).astype(np.int8)
        return from_numpy(steps.reshape(numbers.shape), device), from_numpy(scale, device)

    def dequantized(self) -> Tensor:
        axes = len(self.qdata.shape) - 1
        weight: Tensor = self.qdata.float() * self.scale.reshape(-1, *(1,) * axes)
        return weight

    @kernel_function("int8_product")
    def product(self, input: Tensor, **arguments: Any) -> Tensor:
        return int8_product(input, self.qdata) * self.scale  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.shape))


class Int8DynamicWeight(Int8Weight):
    """A weight of int8 whose products are of integers: inputs become int8 when they come.

    Each row of an input has a scale of its own, so that its largest number is 127 steps of it. Sums are
    exact, in 32 bits.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.quantization.Int8DynamicWeight.of(dl.tensor([[1.0, -0.5]], device="cpu"))
        >>> round(dl.nn.functional.linear(dl.tensor([[127.0, 1.0]], device="cpu"), weight).item(), 3)
        126.496
    """

    def product(self, input: Tensor, **arguments: Any) -> Tensor:
        if input.shape[-1:] != self.shape[1:]:
            raise ShapeError(
                f"[linear] the input's last axis must have the weight's {self.shape[1]} features, got "
                f"{input.shape} for a weight of shape {self.shape}"
            )
        rows = input.reshape(math.prod(input.shape[:-1]), self.shape[1]).float()
        scale = (rows.abs().amax(-1, keepdim=True) / STEPS).clamp(min=SMALLEST)
        steps = (rows / scale).round().to("int8")
        product: Tensor = integer_product(steps, self.qdata).float() * scale * self.scale
        return product.reshape(*input.shape[:-1], self.shape[0])


def finite_numbers(weight: Tensor) -> npt.NDArray[np.float32]:
    """The numbers of a weight.

    Raises:
        ArgumentError
    """
    numbers = weight.detach().float().numpy()
    if not np.isfinite(numbers).all():
        raise ArgumentError(
            "[quantize_] a weight is infinite or nan, so that its output has no scale; look for it with "
            "isfinite()"
        )
    return numbers
