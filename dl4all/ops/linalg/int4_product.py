"""Products with a matrix of 4-bit weights, which kernels unpack in registers: an eighth of float32's bytes.

Weights lie in blocks of 32, of 16 bytes: byte i has weight i in its lower bits, weight i + 16 in its upper
ones. Each is a number q from 0 to 15 that stands for ``(q - 8) * scale``; the scale, of float16, is that of a
group of one or several blocks. Blocks are laid out as ggml's type Q4_0 has them
(https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h), but without the scales between them.
"""

from __future__ import annotations

import math
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
from dl4all.ops.linalg.matrix_product import linear
from dl4all.ops.linalg.matvec import BLOCK, INT4, MAX_FEATURES, int4_matvec
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.copy import fresh_copy
from dl4all.ops.memory.views import contiguous, reshape

MAX_ROWS = 16  # with more, the weights are unpacked to memory
ZERO = 8  # the number that stands for 0
PRODUCT, UNPACK = WorkKernel("int4_product"), WorkKernel("int4_unpack")
UNPACK_PUSH = PushBlock("linalg/int4_unpack.comp", "uint blocks, w_offset, scale_offset, of_scale;")
UNPACK_SHADER = shader("linalg/int4_unpack.comp")
WORKGROUP = 64
SHARED.extend((*INT4.values(), UNPACK_SHADER))


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
        >>> from dl4all.ops.linalg.int4_product import int4_quantized
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


def int4_product(input: Any, weight: TensorBase, scales: TensorBase) -> Any:
    """``input @ w.T`` of floats and 4-bit weights, in float32; without a history.

    Args:
        input: floats of shape (..., k), but not float64.
        weight: uint8 of shape (n, k / 2), on the same device.
        scales: float16 of shape (n, k / group size).

    Returns:
        float32 of shape (..., n).

    Raises:
        DTypeError, ShapeError

    Example:
        >>> import numpy as np, dl4all as dl
        >>> from dl4all.ops.linalg.int4_product import int4_product, int4_quantized
        >>> w = np.full((1, 32), 3.0, np.float32)
        >>> packed, scales = map(dl.from_numpy, int4_quantized(w, 32))
        >>> int4_product(dl.ones(1, 32), packed, scales).item()
        96.0
    """
    if input.dtype not in FLOATS:
        raise DTypeError(
            f"[int4_product] expected floats of at most 32 bits, got {input.dtype}; use .float()"
        )
    _check(weight, scales)
    if not input.shape or input.shape[-1] != 2 * weight.shape[1]:
        raise ShapeError(
            f"[int4_product] expected an input of shape (..., {2 * weight.shape[1]}), got {input.shape}"
        )
    x, count = cast(input, "float32"), math.prod(input.shape[:-1])
    traced = isinstance(input, BatchedTensorBase) or input.device.simulated is not None
    features, inner = weight.shape[0], input.shape[-1]
    if traced or not 0 < count <= MAX_ROWS or features > MAX_FEATURES or 0 in weight.shape:
        return linear(x, int4_unpacked(weight, scales))
    rows = _aligned(reshape(x, count, inner), 4)
    out: TensorBase = empty(
        type(input).result_class, (count, features), FLOAT32, input.device, "int4_product"
    )
    operands = [rows, _aligned(weight, BLOCK // 2), contiguous(scales)]
    if input.device.is_host:
        host_work("int4_product", _product_on_host, operands, [out], kernel=PRODUCT)
    else:
        int4_matvec(out, *operands)
    return reshape(out, *input.shape[:-1], features)


def int4_unpacked(weight: TensorBase, scales: TensorBase) -> TensorBase:
    """The matrix that 4-bit weights stand for.

    Args:
        weight: uint8 of shape (n, k / 2).
        scales: float16 of shape (n, k / group size).

    Returns:
        float32 of shape (n, k).

    Raises:
        DTypeError, ShapeError
    """
    _check(weight, scales)
    n, half = weight.shape
    out: TensorBase = empty(type(weight).result_class, (n, 2 * half), FLOAT32, weight.device, "int4_unpacked")
    if not n or not half:
        return out
    w, s = _aligned(weight, BLOCK // 2), contiguous(scales)
    if weight.device.is_host:
        host_work("int4_unpack", _unpack_on_host, [w, s], [out], kernel=UNPACK)
        return out
    blocks = weight.numel() * 2 // BLOCK
    push = UNPACK_PUSH.pack(blocks, w.offset, s.offset, 2 * half // BLOCK // s.shape[1])
    run(UNPACK_SHADER, strided_grid(blocks, WORKGROUP, weight.device), push, w, as_bits(s), out)
    return out


def _aligned(tensor: TensorBase, size: int) -> TensorBase:
    """The tensor without gaps, from a multiple of so many elements of its storage on."""
    return fresh_copy(tensor) if tensor.offset % size else contiguous(tensor)


def _check(weight: TensorBase, scales: TensorBase) -> None:
    """
    Raises:
        DTypeError, ShapeError
    """
    if weight.dtype != UINT8 or scales.dtype != FLOAT16:
        raise DTypeError(
            f"[int4_product] expected weights of uint8 and scales of float16, got {weight.dtype} and "
            f"{scales.dtype}; make them with int4_quantized"
        )
    fits = len(weight.shape) == len(scales.shape) == 2 and weight.shape[0] == scales.shape[0]
    if not fits or (scales.shape[1] and 2 * weight.shape[1] % (BLOCK * scales.shape[1])):
        raise ShapeError(
            f"[int4_product] expected weights of shape (n, k / 2) and scales of (n, k / group size), got "
            f"{weight.shape} and {scales.shape}"
        )


def _product_on_host(rows: Any, weight: Any, scales: Any, out: Any) -> None:
    unpacked = np.empty((weight.shape[0], 2 * weight.shape[1]), np.float32)
    _unpack_on_host(weight, scales, unpacked)
    np.matmul(rows, unpacked.T, out=out)


def _unpack_on_host(weight: Any, scales: Any, out: Any) -> None:
    blocks = weight.reshape(-1, BLOCK // 2)
    numbers = np.concatenate([blocks & 15, blocks >> 4], 1).astype(np.float32) - ZERO
    groups = numbers.reshape(*scales.shape, -1) * scales.astype(np.float32)[..., None]
    out[...] = groups.reshape(out.shape)
