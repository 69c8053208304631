"""Keys of elements: unsigned integers in the elements' order, which the sorting kernels compare."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import BFLOAT16, DTYPES, kind_of
from dl4all.ops.core.kernels import launch
from dl4all.ops.core.kernels.launch import as_bits, ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.runtime.protocols import Grid

WORKGROUP = 128
WORD = np.dtype(np.int32)
"""The dtype that kernels count with: sizes and indices have 32 bits, as in every kernel."""
KEY_KINDS = {
    dtype: 3 if dtype == BFLOAT16 else {"b": 0, "u": 0, "i": 1, "f": 2}[kind_of(dtype)] for dtype in DTYPES
}
"""The kinds of keys; see sorting/elements.glsl."""
KEY_TYPES = {1: "uint", 2: "uint", 4: "uint", 8: "uvec2"}
"""GLSL's type of a key, by the bytes of an element."""

KEYS_PUSH = PushBlock("sorting/keys.comp", "uint n, x_offset, descending;")
KEYS = {
    dtype.name: shader("sorting/keys.comp", KIND=KEY_KINDS[dtype], BYTES=dtype.itemsize) for dtype in DTYPES
}
SHARED.extend(dict.fromkeys(KEYS.values()))


def words(like: TensorBase, shape: Shape, tag: str) -> TensorBase:
    """Uninitialised words of 32 bits on the device of a tensor."""
    result: TensorBase = empty(type(like).result_class, shape, WORD, like.device, tag)
    return result


def workgroups(count: int) -> tuple[Grid, int]:
    """A grid of at least `count` workgroups, and how many of them lie along x; the other ones lie along z."""
    columns = min(count, launch.STRIDED_GRID_CAP)
    return (columns, 1, ceil_div(count, columns)), columns


def keys_of(x: TensorBase, *, descending: bool = False) -> TensorBase:
    """The keys of a contiguous tensor's elements, of 32 bits or, for elements of 8 bytes, of 64.

    nan has the largest key, and -0.0 that of 0.0. With `descending` the order is the opposite one.
    """
    wide = x.dtype.itemsize == 8
    keys = words(x, (*x.shape, 2) if wide else x.shape, "keys")
    count = x.numel()
    push = KEYS_PUSH.pack(n=count, x_offset=x.offset, descending=int(descending))
    run(KEYS[x.dtype.name], strided_grid(count, WORKGROUP), push, as_bits(x), keys)
    return keys


def key_bits(dtype: np.dtype[Any]) -> int:
    """The number of low bits of a key's words that may differ.

    >>> key_bits(np.dtype("uint8")), key_bits(np.dtype("int64"))
    (8, 32)
    """
    return min(8 * dtype.itemsize, 32)
