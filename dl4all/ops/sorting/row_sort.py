"""The order of the elements of each row, by kernels.

Short rows are sorted by counting what comes before each element, rows of up to a tile in shared memory,
longer ones by a radix sort. The first few elements of a long row are those of its tiles' first ones. Every
way gives the same order: equal elements keep theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.sorting.keys import KEY_TYPES, WORKGROUP, key_bits, keys_of, words, workgroups

RANK_SIZE = 32
"""Elements of a row up to which each is compared with all others."""
SPAN = 1024
"""Elements that a workgroup sorts in shared memory; see sorting/tile.comp."""
MOST_KEPT = SPAN // 2
"""First elements of a tile that are worth keeping: with more a round would leave too many."""
RADIX_TILE = 2048
DIGIT_BITS = 4
BINS = 1 << DIGIT_BITS

TYPES = ("uint", "uvec2")
RADIX_PUSH = PushBlock(
    ("sorting/radix_count.comp", "sorting/radix_move.comp"), "uint tiles, size, per_row, columns, shift;"
)
RANK_PUSH = PushBlock("sorting/rank.comp", "uint n, size, keep;")
INDICES_PUSH = PushBlock("sorting/indices.comp", "uint n, size, keep;")
TILE_PUSH = PushBlock("sorting/tile.comp", "uint tiles, size, tile, per_row, keep, columns;")
PAIRS_PUSH = PushBlock("sorting/pairs.comp", "uint n, size;")
STARTS_PUSH = PushBlock("sorting/starts.comp", "uint rows, size, columns;")
RANK = {key: shader("sorting/rank.comp", KEY=key) for key in TYPES}
TILE = {
    (key, first, last): shader("sorting/tile.comp", KEY=key, FIRST=int(first), LAST=int(last))
    for key in TYPES
    for first in (False, True)
    for last in (False, True)
}
PAIRS = {key: shader("sorting/pairs.comp", KEY=key, FIRST=1) for key in TYPES}
HIGH_PAIRS = shader("sorting/pairs.comp", KEY="uvec2", FIRST=0)
COUNT = shader("sorting/radix_count.comp")
STARTS = shader("sorting/starts.comp")
MOVE = shader("sorting/radix_move.comp")
INDICES = shader("sorting/indices.comp")
SHARED.extend((*RANK.values(), *TILE.values(), *PAIRS.values(), HIGH_PAIRS, COUNT, STARTS, MOVE, INDICES))


@kernel_function("row_order")
def row_order(x: TensorBase, keep: int, *, descending: bool = False) -> TensorBase:
    """The indices in their rows of the `keep` first elements of each sorted row.

    Args:
        x: contiguous, of shape (rows, size) with at least one element, of any dtype.
        keep: from 1 to `size`.
        descending: sort from the largest to the smallest; equal elements keep their order in either case.

    Returns:
        int32 of shape (rows, keep), without a history.
    """
    return order_of_keys(keys_of(x, descending=descending), x.dtype, (x.shape[0], x.shape[1]), keep)


def order_of_keys(keys: TensorBase, dtype: np.dtype[Any], shape: tuple[int, int], keep: int) -> TensorBase:
    """:func:`row_order` by the keys of rows of a dtype; `shape` is that of the rows."""
    key, size = KEY_TYPES[dtype.itemsize], shape[1]
    if size <= RANK_SIZE:
        return _by_rank(keys, key, shape, keep)
    if size <= SPAN or keep <= MOST_KEPT:
        return _by_tiles(keys, key, shape, keep)
    return _by_radix(keys, key, shape, keep, key_bits(dtype))


def _by_rank(keys: TensorBase, key: str, shape: tuple[int, int], keep: int) -> TensorBase:
    rows, size = shape
    order = words(keys, (rows, keep), "sort")
    push = RANK_PUSH.pack(n=rows * size, size=size, keep=keep)
    run(RANK[key], strided_grid(rows * size, WORKGROUP), push, keys, order)
    return order


def _by_tiles(keys: TensorBase, key: str, shape: tuple[int, int], keep: int) -> TensorBase:
    """Sort tiles and keep the first elements of each, until there is one tile for each row."""
    rows, size = shape
    key_words = 2 if key == "uvec2" else 1
    indices: tuple[TensorBase, ...] = ()
    while True:
        tile = min(1 << (size - 1).bit_length(), SPAN)
        per_row = ceil_div(size, tile)
        last, kept = per_row == 1, min(keep, tile)
        groups, columns = workgroups(ceil_div(rows * per_row, SPAN // tile))
        push = TILE_PUSH.pack(
            tiles=rows * per_row, size=size, tile=tile, per_row=per_row, keep=kept, columns=columns
        )
        order = words(keys, (rows, per_row * kept), "sort")
        code = TILE[key, not indices, last]
        if last:
            run(code, groups, push, keys, *indices, order)
            return order
        first_keys = words(keys, (rows, per_row * kept, key_words), "keys")
        run(code, groups, push, keys, *indices, order, first_keys)
        keys, indices, size = first_keys, (order,), per_row * kept


def _by_radix(keys: TensorBase, key: str, shape: tuple[int, int], keep: int, bits: int) -> TensorBase:
    """Sort by each digit of the keys in turn, the lowest one first."""
    rows, size = shape
    count = rows * size
    pairs, other = (words(keys, (rows, size, 2), "sort") for _ in range(2))
    grid = strided_grid(count, WORKGROUP)
    run(PAIRS[key], grid, PAIRS_PUSH.pack(n=count, size=size), keys, pairs)
    pairs, other = _sort_words(pairs, other, bits)
    if key == "uvec2":
        run(HIGH_PAIRS, grid, PAIRS_PUSH.pack(n=count, size=size), keys, pairs, other)
        pairs, other = _sort_words(other, pairs, bits)
    order = words(keys, (rows, keep), "sort")
    push = INDICES_PUSH.pack(n=rows * keep, size=size, keep=keep)
    run(INDICES, strided_grid(rows * keep, WORKGROUP), push, pairs, order)
    return order


def _sort_words(pairs: TensorBase, other: TensorBase, bits: int) -> tuple[TensorBase, TensorBase]:
    """Sort pairs by their word; returns them, and memory of their size that is free again."""
    rows, size, _ = pairs.shape
    per_row = ceil_div(size, RADIX_TILE)
    counts = words(pairs, (rows, BINS * per_row), "sort")
    starts = words(pairs, (rows, BINS * per_row + 1), "sort")
    groups, columns = workgroups(rows * per_row)
    row_groups, row_columns = workgroups(rows)
    for shift in range(0, bits, DIGIT_BITS):
        push = RADIX_PUSH.pack(rows * per_row, size, per_row, columns, shift)
        run(COUNT, groups, push, pairs, counts)
        run(
            STARTS,
            row_groups,
            STARTS_PUSH.pack(rows=rows, size=BINS * per_row, columns=row_columns),
            counts,
            starts,
        )
        run(MOVE, groups, push, pairs, starts, other)
        pairs, other = other, pairs
    return pairs, other
