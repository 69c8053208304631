"""Binary search by kernels: insertion points, and medians of sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.sorting.compaction import largest_word
from dl4all.ops.sorting.keys import KEY_TYPES, WORKGROUP, keys_of, words
from dl4all.ops.sorting.row_sort import TYPES, order_of_keys

SEARCH_PUSH = PushBlock("sorting/search.comp", "uint n, size, per_row, right;")
MEDIAN_PUSH = PushBlock("sorting/median.comp", "uint rows, size, floats, largest, ignore_nan;")
SEARCH = {key: shader("sorting/search.comp", KEY=key) for key in TYPES}
MEDIAN = {key: shader("sorting/median.comp", KEY=key) for key in TYPES}
SHARED.extend((*SEARCH.values(), *MEDIAN.values()))


@kernel_function("insertion_points")
def insertion_points(sequence: TensorBase, values: TensorBase, *, right: bool) -> Any:
    """The positions at which values can be inserted into ascending rows; nan counts as the largest.

    Args:
        sequence: contiguous, of at most one axis or of the values' shape but for the last axis.
        values: contiguous, of the sequence's dtype.
        right: behind equal elements instead of before them.

    Returns:
        int64 of the values' shape.
    """
    result = empty(type(values).result_class, values.shape, np.dtype(np.int64), values.device, "search")
    count = values.numel()
    if not count:
        return result
    size = sequence.shape[-1] if sequence.shape else 1
    if not size:
        result.device.fill(result.storage, 0)
        return result
    per_row = count if len(sequence.shape) <= 1 else values.shape[-1]
    push = SEARCH_PUSH.pack(n=count, size=size, per_row=per_row, right=int(right))
    code = SEARCH[KEY_TYPES[values.dtype.itemsize]]
    run(code, strided_grid(count, WORKGROUP), push, keys_of(sequence), keys_of(values), result)
    return result


def median_indices(x: TensorBase, *, ignore_nan: bool) -> TensorBase:
    """The index of each row's median, the lower one of two middle elements.

    Args:
        x: contiguous, of shape (rows, size) with at least one element.
        ignore_nan: whether nan is left out; otherwise the first one is the median.

    Returns:
        int32 of shape (rows, 1).
    """
    rows, size = x.shape
    keys = keys_of(x)
    order = order_of_keys(keys, x.dtype, (rows, size), size)
    result = words(x, (rows, 1), "median")
    push = MEDIAN_PUSH.pack(
        rows=rows,
        size=size,
        floats=int(kind_of(x.dtype) == "f"),
        largest=largest_word(x.dtype),
        ignore_nan=int(ignore_nan),
    )
    run(MEDIAN[KEY_TYPES[x.dtype.itemsize]], strided_grid(rows, WORKGROUP), push, keys, order, result)
    return result
