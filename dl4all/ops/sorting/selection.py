"""Elements of rows by indices that the device computed: no index is looked at on the host.

They come from other kernels, so none is out of range and none comes twice in a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import DTYPES, HALVES
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import as_bits, ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty, primitives
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.memory.copy import WORD_TYPES
from dl4all.ops.memory.views import contiguous
from dl4all.ops.sorting.keys import WORKGROUP

SELECT_PUSH = PushBlock("sorting/select.comp", "uint n, x_offset, index_offset, size, count;")
PLACE_PUSH = PushBlock("sorting/place.comp", "uint n, x_offset, index_offset, size, count;")
WIDE_PUSH = PushBlock("sorting/wide.comp", "uint n, x_offset;")
SELECT = {
    nbytes: shader("sorting/select.comp", BYTES=nbytes) for nbytes in sorted({d.itemsize for d in DTYPES})
}
PLACE = {nbytes: shader("sorting/place.comp", WORD=word) for nbytes, word in WORD_TYPES.items()}
WIDE = shader("sorting/wide.comp")
SHARED.extend((WIDE, *SELECT.values(), *PLACE.values()))


@reads("input")
@kernel_function("select_in_rows")
def select_in_rows(input: Any, indices: TensorBase) -> Any:
    """The elements of each row that indices name: ``result[row, j] = input[row, indices[row, j]]``.

    Args:
        input: shape (rows, size), of any dtype.
        indices: contiguous int32 of shape (rows, count); no index comes twice in a row.

    Returns:
        Shape (rows, count). Its gradient goes to the elements that were named.
    """
    size = input.shape[1]
    x = contiguous(input)
    result = empty(type(x).result_class, indices.shape, x.dtype, x.device, "select")
    count = result.numel()
    if count:
        itemsize = x.dtype.itemsize
        groups = strided_grid(ceil_div(count, max(4 // itemsize, 1)), WORKGROUP)
        push = SELECT_PUSH.pack(
            n=count, x_offset=x.offset, index_offset=indices.offset, size=size, count=indices.shape[1]
        )
        run(SELECT[itemsize], groups, push, as_bits(x), indices, as_bits(result))
    tape.add_node(
        "select_in_rows",
        [x],
        [result],
        lambda grads, saved, needs: [place_in_rows(grads[0], saved[0], size)],
        [indices],
    )
    return result


@reads("input")
def place_in_rows(input: Any, indices: TensorBase, size: int) -> Any:
    """Rows of zeros with the input's elements where indices name them; the adjoint of :func:`select_in_rows`.

    Args:
        input: floats of shape (rows, count).
        indices: contiguous int32 of shape (rows, count); no index comes twice in a row.
        size: of a row of the result.

    Returns:
        Shape (rows, size).
    """
    if input.dtype in HALVES:
        wide = place_in_rows(primitives.cast(input, "float32"), indices, size)
        return primitives.cast(wide, input.dtype.name)
    x = contiguous(input)
    rows, count = x.shape
    result = empty(type(x).result_class, (rows, size), x.dtype, x.device, "place")
    if count < size:
        result.device.fill(result.storage, 0)
    if x.numel():
        push = PLACE_PUSH.pack(
            n=x.numel(), x_offset=x.offset, index_offset=indices.offset, size=size, count=count
        )
        run(PLACE[x.dtype.itemsize], strided_grid(x.numel(), WORKGROUP), push, x, indices, result)
    tape.add_node(
        "place_in_rows",
        [x],
        [result],
        lambda grads, saved, needs: [select_in_rows(grads[0], saved[0])],
        [indices],
    )
    return result


@kernel_function("wide_indices")
def wide_indices(indices: TensorBase) -> Any:
    """Contiguous indices of the kernels as those of users: int64."""
    count = indices.numel()
    result = empty(type(indices), indices.shape, np.dtype(np.int64), indices.device, "indices")
    if count:
        run(
            WIDE,
            strided_grid(count, WORKGROUP),
            WIDE_PUSH.pack(n=count, x_offset=indices.offset),
            indices,
            result,
        )
    return result
