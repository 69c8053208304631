"""Weights in blocks of few bits, as ggml has them and GGUF files hold them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import DTypeError
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.tensor_base import Size
from dl4all.ops.linalg.packed_formats import FORMATS, Q4_0, Q8_0, Bytes, Floats
from dl4all.ops.linalg.packed_product import (
    int4_quantized,
    int8_quantized,
    matrix_shape,
    packed_input_gradient,
    packed_product,
    unpacked_matrix,
)
from dl4all.quantization.weights import QuantizedWeight, finite_numbers
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

MADE: dict[str, Callable[[Floats], tuple[Bytes, npt.NDArray[np.float16]]]] = {
    Q4_0.name: partial(int4_quantized, group_size=Q4_0.weights),
    Q8_0.name: int8_quantized,
}
"""Formats that floats can be brought to, and how."""


class PackedWeight(QuantizedWeight):
    """A weight in blocks of few bits, for a linear layer or an embedding.

    Args:
        qdata: uint8 of shape (out_features, bytes), as :mod:`dl4all.ops.linalg.packed_formats` describes.
        scale: float16 of shape (out_features, numbers).
        format: ``"Q4_0"``, ``"Q8_0"``, ``"Q4_K"`` or ``"Q6_K"``, of 0.14, 0.27, 0.14 and 0.21 of float32's
            bytes.

    Raises:
        ArgumentError, DTypeError, ShapeError: the tensors do not fit the format.

    Example:
        >>> import dl4all as dl
        >>> bytes, scale = dl.ones(4, 64, dtype="uint8"), dl.ones(4, 2, dtype="float16")
        >>> weight = dl.quantization.PackedWeight(bytes, scale, "Q8_0")
        >>> weight.shape, dl.nn.functional.linear(dl.ones(1, 64), weight).tolist()
        ((4, 64), [[64.0, 64.0, 64.0, 64.0]])
    """

    def __init__(self, qdata: Tensor, scale: Tensor, format: str) -> None:
        super().__init__(qdata, scale)
        if format not in FORMATS:
            raise DTypeError(f"[PackedWeight] expected a format of {', '.join(FORMATS)}, got {format!r}")
        self.format = format
        matrix_shape(qdata, scale, FORMATS[format])

    @staticmethod
    def nearest(weight: Tensor, format: str) -> PackedWeight:
        """The nearest such weight of floats (out_features, in_features): of ``"Q4_0"`` or ``"Q8_0"``.

        Raises:
            ArgumentError: one is infinite or nan, or too large, or groups of 32 do not fit.
            DTypeError: weights of the format are read, but not made.

        Example:
            >>> import dl4all as dl
            >>> dl.quantization.PackedWeight.nearest(dl.randn(4, 64), "Q8_0")
            PackedWeight(4, 64, format=Q8_0)
        """
        if format not in MADE:
            raise DTypeError(f"[PackedWeight] expected a format of {', '.join(MADE)}, got {format!r}")
        qdata, scale = MADE[format](finite_numbers(weight))
        return PackedWeight(from_numpy(qdata, weight.device), from_numpy(scale, weight.device), format)

    @property
    def shape(self) -> Size:
        format = FORMATS[self.format]
        return Size((self.qdata.shape[0], self.qdata.shape[1] // format.size * format.weights))

    def dequantized(self) -> Tensor:
        return unpacked_matrix(self.qdata, self.scale, FORMATS[self.format])  # type: ignore[return-value]

    @kernel_function("packed_product")
    def product(self, input: Tensor, **arguments: Any) -> Tensor:
        return packed_product(input, self.qdata, self.scale, FORMATS[self.format])  # type: ignore[no-any-return]

    def input_gradient(self, grad: Any) -> Any:
        return packed_input_gradient(grad, self.qdata, self.scale, FORMATS[self.format])

    def rows_at(self, index: Any) -> Tensor:
        """The numbers of some rows, in float32: the index's shape, and an axis of columns."""
        rows: Any = index.reshape(-1)
        made: Any = unpacked_matrix(self.qdata[rows], self.scale[rows], FORMATS[self.format])
        return made.reshape(*index.shape, self.shape[1])  # type: ignore[no-any-return]

    def __getitem__(self, rows: slice) -> PackedWeight:
        return PackedWeight(self.qdata[rows], self.scale[rows], self.format)

    def extra_repr(self) -> str:
        rows, columns = self.shape
        return f"{rows}, {columns}, format={self.format}"


class Int4Weight(PackedWeight):
    """A weight of 4 bits with a float16 scale for each group of an output's weights: Q4_0 of longer groups.

    With groups of 32 it takes 0.14 of float32's bytes.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.quantization.Int4Weight.of(dl.randn(4, 64), group_size=32)
        >>> weight.qdata.shape, weight.scale.shape
        ((4, 32), (4, 2))
    """

    def __init__(self, qdata: Tensor, scale: Tensor) -> None:
        super().__init__(qdata, scale, Q4_0.name)

    @classmethod
    def of(cls, weight: Tensor, group_size: int = 32) -> Int4Weight:
        """The nearest such weight of floats (out_features, in_features).

        Raises:
            ArgumentError: one is infinite or nan, or too large, or groups do not fit.
        """
        qdata, scale = int4_quantized(finite_numbers(weight), group_size)
        return cls(from_numpy(qdata, weight.device), from_numpy(scale, weight.device))

    def __getitem__(self, rows: slice) -> Int4Weight:
        return Int4Weight(self.qdata[rows], self.scale[rows])

    def extra_repr(self) -> str:
        rows, columns = self.shape
        return f"{rows}, {columns}, group_size={columns // self.scale.shape[1]}"
