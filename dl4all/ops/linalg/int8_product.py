"""Products with a matrix of int8, which kernels read as it is: a quarter of float32's bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import DTypeError, ShapeError
from dl4all.ops.core.dtypes import FLOAT32, FLOATS, INT8
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.linalg.matrix_product import linear, run_linear
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import contiguous, reshape

KERNEL = WorkKernel("int8_product")
MAX_HOST_ROWS = 15  # with more, the CPU widens the weight once


def int8_product(input: Any, weight: TensorBase) -> Any:
    """``input @ weight.T`` of floats and integers, in float32; without a history.

    Args:
        input: floats of shape (..., k), but not float64.
        weight: int8 of shape (n, k), on the same device.

    Returns:
        float32 of shape (..., n).

    Raises:
        DTypeError, ShapeError

    Example:
        >>> import dl4all as dl
        >>> from dl4all.ops.linalg.int8_product import int8_product
        >>> weight = dl.tensor([[1, -2], [3, 0]], dtype="int8", device="cpu")
        >>> int8_product(dl.tensor([[0.5, 1.0]], device="cpu"), weight).tolist()
        [[-1.5, 1.5]]
    """
    if input.dtype not in FLOATS or weight.dtype != INT8:
        raise DTypeError(
            f"[int8_product] expected floats of at most 32 bits and a weight of int8, got {input.dtype} and "
            f"{weight.dtype}; convert with .float()"
        )
    if len(weight.shape) != 2 or not input.shape or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"[int8_product] expected an input of shape (..., k) and a weight of shape (n, k), got "
            f"{input.shape} and {weight.shape}"
        )
    traced = isinstance(input, BatchedTensorBase) or input.device.simulated is not None
    count = math.prod(input.shape[:-1])
    widened = input.device.is_host and count > MAX_HOST_ROWS
    if traced or widened or 0 in (*input.shape, *weight.shape):
        return linear(cast(input, "float32"), cast(weight, "float32"))
    rows = contiguous(reshape(cast(input, "float32"), count, weight.shape[1]))
    shape = (count, weight.shape[0])
    out: TensorBase = empty(type(input).result_class, shape, FLOAT32, input.device, "int8_product")
    weight = contiguous(weight)
    if input.device.is_host:
        host_work("int8_product", _product_on_host, [rows, weight], [out], kernel=KERNEL)
    else:
        run_linear(out, rows, weight, None)
    return reshape(out, *input.shape[:-1], weight.shape[0])


def _product_on_host(rows: Any, weight: Any, out: Any) -> None:
    np.matmul(rows, weight.T.astype(np.float32), out=out)
