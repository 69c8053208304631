"""Products of matrices of 8-bit integers, exact, with sums of 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import DTypeError, ShapeError, TooLargeError
from dl4all.ops.core.dtypes import INT8, INT32, UINT8
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.memory.copy import copy_into, fill_with
from dl4all.ops.memory.views import contiguous
from dl4all.runtime.spirv import Shader

KERNEL = WorkKernel("integer_product")
FOUR_WORDS = 16  # bytes, which invocations read at once
FEW_ROWS = 8  # of the left matrix, for which GPUs do not fill tiles
TILE = 32  # rows, and columns, that a workgroup of a GPU computes from shared memory
PUSH = PushBlock(
    ("linalg/integer_rows.comp", "linalg/integer_tiles.comp"), "uint m, n, words, a_offset, b_offset;"
)
ROWS: dict[tuple[Any, ...], Shader] = {
    (size, rows, dtype, dot): shader(
        "linalg/integer_rows.comp", SIZE=size, ROWS=rows, FEATURES=8, SIGNED=int(dtype == INT8), DOT=int(dot)
    )
    for size in (8, 64)  # the lanes of a processor's vectors, and those of GPUs' waves
    for rows in (1, 4)
    for dtype in (INT8, UINT8)
    for dot in (False, True)
}
TILES: dict[tuple[Any, ...], Shader] = {
    (dtype, dot): shader("linalg/integer_tiles.comp", SIGNED=int(dtype == INT8), DOT=int(dot))
    for dtype in (INT8, UINT8)
    for dot in (False, True)
}
SHARED.extend((*ROWS.values(), *TILES.values()))


@kernel_function("integer_product")
def integer_product(input: TensorBase, weight: TensorBase) -> Any:
    """``input @ weight.T`` of integers, in int32, which wraps around beyond 2**31.

    Args:
        input: int8 or uint8 of shape (m, k).
        weight: int8 of shape (n, k), on the same device.

    Returns:
        int32 of shape (m, n).

    Raises:
        DTypeError, ShapeError
        TooLargeError: more than 262,140 rows, or 524,280 columns, on a device.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.ops.linalg.integer_product import integer_product
        >>> x = dl.tensor([[200, 1]], dtype="uint8", device="cpu")
        >>> integer_product(x, dl.tensor([[100, -3], [-128, 2]], dtype="int8", device="cpu")).tolist()
        [[19997, -25598]]
    """
    if isinstance(input, BatchedTensorBase):
        return input.call_per_sample(integer_product, (input, weight), {})
    if input.dtype not in (INT8, UINT8) or weight.dtype != INT8:
        raise DTypeError(
            f"[integer_product] expected int8 or uint8 by int8, got {input.dtype} and {weight.dtype}; "
            "convert with .to()"
        )
    if len(input.shape) != 2 or len(weight.shape) != 2 or input.shape[1] != weight.shape[1]:
        raise ShapeError(
            f"[integer_product] expected shapes (m, k) and (n, k), got {input.shape} and {weight.shape}"
        )
    (m, k), n = input.shape, weight.shape[0]
    cls = type(input).result_class
    out: TensorBase = empty(cls, (m, n), INT32, input.device, "integer_product")
    if not m or not n:
        return out
    if not k:
        fill_with(out, 0)
        return out
    if input.device.is_host:
        work = (_product_on_host, [contiguous(input), contiguous(weight)], [out])
        host_work("integer_product", *work, kernel=KERNEL)
        return out
    if max(ceil_div(m, 4), ceil_div(n, 8)) > MAX_GRID_SIZE:
        raise TooLargeError(
            f"[integer_product] {m} rows by {n} are more than a kernel counts; multiply parts of them"
        )
    a, b = _in_words(input), _in_words(weight)
    push = PUSH.pack(m, n, a.shape[1] // 4, a.offset // 4, b.offset // 4)
    software, dot = input.device.info.type == "software", "integer_dot_product" in input.device.features
    if software or m <= FEW_ROWS:
        rows = 1 if m == 1 else 4
        code, tile = ROWS[8 if software else 64, rows, input.dtype, dot], (rows, 8)
    else:
        code, tile = TILES[input.dtype, dot], (TILE, TILE)
    run(code, (ceil_div(n, tile[1]), ceil_div(m, tile[0]), 1), push, a, b, out, flops=2 * m * n * k)
    return out


def _in_words(matrix: TensorBase) -> TensorBase:
    """The matrix without gaps, with rows of whole quadruples of words, which end in zeros."""
    rows, columns = matrix.shape
    if not (columns | matrix.offset) % FOUR_WORDS:
        return contiguous(matrix)
    width = ceil_div(columns, FOUR_WORDS) * FOUR_WORDS
    cls = type(matrix).result_class
    padded: TensorBase = empty(cls, (rows, width), matrix.dtype, matrix.device, "integer_product")
    matrix.device.fill(padded.storage, 0)
    copy_into(padded.strided_view((rows, columns), padded.strides, padded.offset), matrix)
    return padded


def _product_on_host(a: Any, b: Any, out: Any) -> None:
    np.matmul(a.astype(np.int32), b.T.astype(np.int32), out=out)
