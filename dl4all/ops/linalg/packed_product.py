"""Products with a matrix of weights in few bits, which kernels unpack in registers.

Weights lie in blocks (:mod:`dl4all.ops.linalg.packed_formats`). The scale of a format that has one for each
block may serve several blocks of a row.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.dtypes import FLOAT16, FLOAT32, FLOATS, UINT8
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.launch import as_bits, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.linalg.matrix_product import linear, matmul
from dl4all.ops.linalg.matvec import MAX_FEATURES, PACKED, packed_matvec
from dl4all.ops.linalg.packed_formats import FORMATS, Q4_0, Q8_0, UNIT, PackedFormat, unpacked_rows
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.copy import fresh_copy
from dl4all.ops.memory.views import contiguous, reshape

MAX_ROWS = 16  # with more, the weights are unpacked to memory
MOST_UNPACKED = 1 << 24  # weights at once
ZERO = 8  # the number of Q4_0 that stands for 0
BLOCK = Q4_0.weights
PRODUCT = {name: WorkKernel("packed_product", (name,)) for name in FORMATS}
UNPACK = {name: WorkKernel("packed_unpack", (name,)) for name in FORMATS}
UNPACK_PUSH = {
    name: PushBlock(
        "linalg/packed_unpack.comp", "uint units, w_offset, scale_offset, of_scale;", FORMAT=format.number
    )
    for name, format in FORMATS.items()
}
UNPACK_SHADERS = {
    name: shader("linalg/packed_unpack.comp", FORMAT=format.number) for name, format in FORMATS.items()
}
WORKGROUP = 64
ALIGNED = 16  # bytes: weights begin at a multiple of these
SHARED.extend((*PACKED.values(), *UNPACK_SHADERS.values()))


def int4_quantized(
    weight: npt.NDArray[np.float32], group_size: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
    """The bytes and scales of the nearest weights of 4 bits.

    The largest weight of a group becomes -8 steps, so that all 16 numbers are used.

    Args:
        weight: finite floats of shape (n, k).
        group_size: weights of one scale, a multiple of 32 that divides k.

    Returns:
        (n, k / 2) of uint8 and (n, k / group_size) of float16.

    Raises:
        ArgumentError: the groups do not fit, or a scale is beyond float16.

    Example:
        >>> import numpy as np
        >>> from dl4all.ops.linalg.packed_product import int4_quantized
        >>> packed, scales = int4_quantized(np.linspace(-8, 7, 32, dtype=np.float32)[None], 32)
        >>> packed.shape, scales.item()
        ((1, 16), 1.0)
    """
    n, k = weight.shape
    if group_size < BLOCK or group_size % BLOCK or k % group_size:
        raise ArgumentError(
            f"[int4] groups of {group_size} do not fit {k} input features; take a multiple of {BLOCK} that "
            "divides them, or Int8WeightOnlyConfig()"
        )
    groups = weight.reshape(n, k // group_size, group_size)
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)
    with np.errstate(over="ignore"):
        scales = (extreme / -ZERO).astype(np.float16)
    if not np.isfinite(scales).all():
        raise ArgumentError(
            f"[int4] a weight of {np.abs(weight).max():.3g} has a scale beyond float16; use "
            "Int8WeightOnlyConfig()"
        )
    steps = scales.astype(np.float32)
    numbers = np.rint(np.divide(groups, steps, out=np.zeros_like(groups), where=steps != 0)) + ZERO
    halves = np.clip(numbers, 0, 15).astype(np.uint8).reshape(n, k // BLOCK, 2, BLOCK // 2)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(n, k // 2), scales[..., 0]


def int8_quantized(
    weight: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
    """The bytes (n, k) and scales (n, k / 32) of the nearest weights of Q8_0, as ggml chooses them.

    Args:
        weight: finite floats of shape (n, k).

    Raises:
        ArgumentError: k is no multiple of 32, or a scale is beyond float16.
    """
    n, k = weight.shape
    if k % Q8_0.weights:
        raise ArgumentError(f"[packed] groups of {Q8_0.weights} do not fit {k} input features")
    groups = weight.reshape(n, -1, Q8_0.weights)
    steps = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(over="ignore"):
        scales = steps.astype(np.float16)
    if not np.isfinite(scales).all():
        raise ArgumentError(f"[packed] a weight of {np.abs(weight).max():.3g} has a scale beyond float16")
    scaled = np.divide(groups, steps, out=np.zeros_like(groups), where=steps != 0)
    numbers = (np.trunc(scaled + np.copysign(np.float32(0.5), scaled))).astype(np.int8)  # halves away from 0
    return numbers.view(np.uint8).reshape(n, k), scales[..., 0]


def packed_product(input: Any, weight: Any, scales: Any, format: PackedFormat = Q4_0) -> Any:
    """``input @ w.T`` of floats and weights in few bits, in float32; without a history.

    Args:
        input: floats of shape (..., k), but not float64.
        weight: uint8 of shape (n, bytes), on the same device.
        scales: float16 of shape (n, numbers).

    Returns:
        float32 of shape (..., n).

    Raises:
        DTypeError, ShapeError

    Example:
        >>> import numpy as np, dl4all as dl
        >>> from dl4all.ops.linalg.packed_product import int4_quantized, packed_product
        >>> w = np.full((1, 32), 3.0, np.float32)
        >>> packed, scales = map(dl.from_numpy, int4_quantized(w, 32))
        >>> packed_product(dl.ones(1, 32), packed, scales).item()
        96.0
    """
    if input.dtype not in FLOATS:
        raise DTypeError(
            f"[packed_product] expected floats of at most 32 bits, got {input.dtype}; use .float()"
        )
    features, inner = matrix_shape(weight, scales, format)
    if not input.shape or input.shape[-1] != inner:
        raise ShapeError(f"[packed_product] expected an input of shape (..., {inner}), got {input.shape}")
    x, count = cast(input, "float32"), math.prod(input.shape[:-1])
    traced = isinstance(input, BatchedTensorBase) or input.device.simulated is not None
    if traced or not 0 < count <= MAX_ROWS or features > MAX_FEATURES or 0 in weight.shape:
        made = [
            linear(x, unpacked_matrix(weight[part], scales[part], format)) for part in _parts(features, inner)
        ]
        return made[0] if len(made) == 1 else cat(made, -1)
    rows = _aligned(reshape(x, count, inner), 4)
    out: TensorBase = empty(
        type(input).result_class, (count, features), FLOAT32, input.device, "packed_product"
    )
    operands = (rows, _aligned(weight, ALIGNED), contiguous(scales))
    if input.device.is_host:
        body = partial(_product_on_host, format)
        host_work("packed_product", body, operands, [out], kernel=PRODUCT[format.name])
    else:
        packed_matvec(out, *operands, format)
    return reshape(out, *input.shape[:-1], features)


def packed_input_gradient(grad: Any, weight: Any, scales: Any, format: PackedFormat = Q4_0) -> Any:
    """The gradient of a product's input: ``grad @ w`` of floats (..., n), in their dtype."""
    features, inner = matrix_shape(weight, scales, format)
    dtype = grad.dtype.name

    def product(part: slice) -> Any:  # after which the part's floats are gone
        return matmul(grad[..., part], cast(unpacked_matrix(weight[part], scales[part], format), dtype))

    first, *others = _parts(features, inner)
    total = product(first)
    for part in others:
        total = total + product(part)
    return total


def _parts(features: int, inner: int) -> list[slice]:
    """Rows of a matrix that are unpacked together, so that it is never in memory whole where it is large."""
    step = max(ALIGNED, MOST_UNPACKED // max(1, inner) // ALIGNED * ALIGNED)
    return [slice(start, start + step) for start in range(0, features, step)] or [slice(0, 0)]


def unpacked_matrix(weight: TensorBase, scales: TensorBase, format: PackedFormat = Q4_0) -> TensorBase:
    """The matrix that weights in few bits stand for.

    Args:
        weight: uint8 of shape (n, bytes).
        scales: float16 of shape (n, numbers).

    Returns:
        float32 of shape (n, k).

    Raises:
        DTypeError, ShapeError
    """
    shape = matrix_shape(weight, scales, format)
    out: TensorBase = empty(type(weight).result_class, shape, FLOAT32, weight.device, "packed_unpack")
    if 0 in shape:
        return out
    w, s = _aligned(weight, ALIGNED), contiguous(scales)
    if weight.device.is_host:
        body = partial(_unpack_on_host, format)
        host_work("packed_unpack", body, [w, s], [out], kernel=UNPACK[format.name])
        return out
    units, blocks = out.numel() // UNIT, shape[1] // format.weights
    push = UNPACK_PUSH[format.name].pack(units, w.offset, s.offset, blocks * format.scales // s.shape[1])
    run(UNPACK_SHADERS[format.name], strided_grid(units, WORKGROUP, weight.device), push, w, as_bits(s), out)
    return out


def matrix_shape(weight: TensorBase, scales: TensorBase, format: PackedFormat) -> tuple[int, int]:
    """The rows and columns that bytes and scales stand for.

    Raises:
        DTypeError, ShapeError: they do not fit the format.
    """
    if weight.dtype != UINT8 or scales.dtype != FLOAT16:
        raise DTypeError(
            f"[packed_product] expected weights of uint8 and scales of float16, got {weight.dtype} and "
            f"{scales.dtype}"
        )
    if len(weight.shape) == len(scales.shape) == 2 and weight.shape[0] == scales.shape[0]:
        blocks, rest = divmod(weight.shape[1], format.size)
        numbers = blocks * format.scales
        shared = format.scales == 1 and scales.shape[1] and numbers % scales.shape[1] == 0
        if not rest and (shared or numbers == scales.shape[1]):
            return weight.shape[0], blocks * format.weights
    raise ShapeError(
        f"[packed_product] expected weights of shape (n, {format.size} for each {format.weights} of k) and "
        f"scales of (n, {format.scales} for each of these blocks), got {weight.shape} and {scales.shape}"
    )


def _aligned(tensor: TensorBase, size: int) -> TensorBase:
    """The tensor without gaps, from a multiple of so many elements of its storage on."""
    return fresh_copy(tensor) if tensor.offset % size else contiguous(tensor)


def _product_on_host(format: PackedFormat, rows: Any, weight: Any, scales: Any, out: Any) -> None:
    matrix = np.empty((weight.shape[0], rows.shape[1]), np.float32)
    unpacked_rows(weight, scales, format, matrix)
    np.matmul(rows, matrix.T, out=out)


def _unpack_on_host(format: PackedFormat, weight: Any, scales: Any, out: Any) -> None:
    unpacked_rows(weight, scales, format, out)
