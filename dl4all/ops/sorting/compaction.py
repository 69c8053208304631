"""The positions of elements that are not 0, and runs of equal elements.

Their number depends on the elements. It is all that the host reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.dtypes import DTYPES, kind_of
from dl4all.ops.core.kernels.launch import NoKernel, as_bits, ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.sorting.keys import KEY_KINDS, KEY_TYPES, WORKGROUP, key_bits, words, workgroups
from dl4all.ops.sorting.row_sort import STARTS, TYPES

TILE = 2048  # elements of a workgroup; see sorting/compact.comp
RANK = 8  # axes that sorting/coordinates.comp takes
INT64 = np.dtype(np.int64)

COORDINATES_PUSH = PushBlock("sorting/coordinates.comp", f"uint n, axes, by_axis, sizes[{RANK}];")
COMPACT_PUSH = PushBlock("sorting/compact.comp", "uint n, x_offset, tiles, columns;")
STARTS_PUSH = PushBlock("sorting/starts.comp", "uint rows, size, columns;")
RUN_STARTS_PUSH = PushBlock("sorting/run_starts.comp", "uint n, floats, largest;")
RUN_OF_PUSH = PushBlock("sorting/run_of.comp", "uint n, runs;")
COMPACT = {
    (dtype.name, count): shader(
        "sorting/compact.comp", KIND=KEY_KINDS[dtype], BYTES=dtype.itemsize, COUNT=int(count)
    )
    for dtype in DTYPES
    for count in (False, True)
}
COORDINATES = shader("sorting/coordinates.comp")
RUN_STARTS = {
    (key, ordered): shader("sorting/run_starts.comp", KEY=key, ORDERED=int(ordered))
    for key in TYPES
    for ordered in (False, True)
}
RUN_OF = {
    ordered: shader("sorting/run_of.comp", ORDERED=int(ordered), LENGTHS=0) for ordered in (False, True)
}
RUN_LENGTHS = shader("sorting/run_of.comp", ORDERED=0, LENGTHS=1)
SHARED.extend(
    dict.fromkeys((*COMPACT.values(), COORDINATES, *RUN_STARTS.values(), *RUN_OF.values(), RUN_LENGTHS))
)


def positions(x: TensorBase) -> TensorBase:
    """The positions of a contiguous tensor's nonzero elements, in row-major order; waits for their number.

    Returns:
        int32 of shape (1, count).
    """
    size = x.numel()
    if not size:
        return words(x, (1, 0), "positions")
    tiles = ceil_div(size, TILE)
    groups, columns = workgroups(tiles)
    push = COMPACT_PUSH.pack(n=size, x_offset=x.offset, tiles=tiles, columns=columns)
    counts, starts = words(x, (tiles,), "positions"), words(x, (tiles + 1,), "positions")
    run(COMPACT[x.dtype.name, True], groups, push, as_bits(x), counts)
    run(STARTS, (1, 1, 1), STARTS_PUSH.pack(rows=1, size=tiles, columns=1), counts, starts)
    total = starts.strided_view((1,), (1,), tiles)
    found = words(x, (1, int(total.on_host()[0])), "positions")
    if found.numel():
        run(COMPACT[x.dtype.name, False], groups, push, as_bits(x), starts, found)
    return found


def coordinates(places: TensorBase, shape: Shape, *, by_axis: bool) -> Any:
    """Coordinates of positions in a tensor: int64 of shape (count, axes), or with `by_axis` (axes, count).

    Raises:
        NoKernel: the tensor has too many axes.
    """
    axes, count = len(shape), places.numel()
    if axes > RANK:
        raise NoKernel(f"its kernel takes at most {RANK} axes, got shape {shape}")
    result_shape = (axes, count) if by_axis else (count, axes)
    result = empty(type(places), result_shape, INT64, places.device, "coordinates")
    if result.numel():
        push = COORDINATES_PUSH.pack(count, axes, int(by_axis), *shape, *(1,) * (RANK - axes))
        run(COORDINATES, strided_grid(count, WORKGROUP), push, places, result)
    return result


class Runs(NamedTuple):
    """Runs of equal elements: of a sequence, or of the sequence that an order makes of it."""

    starts: TensorBase  # int32 of shape (1, runs), ascending
    order: TensorBase | None  # int32 of shape (1, size)
    size: int

    def inverse(self, shape: Shape) -> Any:
        """The run of each element of the sequence, as an int64 tensor of that shape."""
        result = empty(type(self.starts), shape, INT64, self.starts.device, "inverse")
        if self.size:
            order = () if self.order is None else (self.order,)
            push = RUN_OF_PUSH.pack(n=self.size, runs=self.starts.numel())
            groups = strided_grid(self.size, WORKGROUP)
            run(RUN_OF[self.order is not None], groups, push, self.starts, *order, result)
        return result

    def lengths(self) -> Any:
        """The number of elements of each run, as an int64 vector."""
        count = self.starts.numel()
        result = empty(type(self.starts), (count,), INT64, self.starts.device, "counts")
        if count:
            groups = strided_grid(count, WORKGROUP)
            run(RUN_LENGTHS, groups, RUN_OF_PUSH.pack(n=self.size, runs=count), self.starts, result)
        return result


def runs_of(keys: TensorBase, dtype: np.dtype[Any], size: int, order: TensorBase | None) -> Runs:
    """The runs of equal keys of elements of a dtype; waits for their number. nan equals nothing."""
    flags = words(keys, (size,), "runs")
    if size:
        key, floats = KEY_TYPES[dtype.itemsize], kind_of(dtype) == "f"
        push = RUN_STARTS_PUSH.pack(n=size, floats=int(floats), largest=largest_word(dtype))
        operands = (keys,) if order is None else (keys, order)
        groups = strided_grid(size, WORKGROUP)
        run(RUN_STARTS[key, order is not None], groups, push, *operands, flags)
    return Runs(positions(flags), order, size)


def largest_word(dtype: np.dtype[Any]) -> int:
    """The words of the largest key of a dtype, that of nan.

    >>> hex(largest_word(np.dtype("float16")))
    '0xffff'
    """
    return (1 << key_bits(dtype)) - 1
