"""The sizes of tiles: those that take the fewest cycles by an estimate."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from dl4all.graph.accelerator.boxes import (
    Box,
    axes_of_operand,
    depth_of,
    elements_of,
    groups_of,
    most_elements,
    operand_box,
    part_of,
    scratch,
)
from dl4all.graph.accelerator.model import Hardware, array_cycles, array_work, dma_bytes, vector_cycles
from dl4all.graph.accelerator.tile_group import Stream, TileGroup
from dl4all.graph.op_codes.emitter import Line
from dl4all.graph.op_codes.instruction import Register
from dl4all.ops.core.kernels.launch import ceil_div

ALIGNMENT = 16
"""Words at which places in the scratchpad begin: a burst of DRAM."""
ORDERS = ((0, 1, 2, 3), (1, 0, 2, 3), (3, 0, 1, 2), (0, 1, 3, 2))
"""Orders in which the tiles of the four axes follow each other, the outermost first."""
CYCLES_OF_A_TILE = 20
"""The cost of a tile beside its work, by which larger ones are preferred."""


class Tiling(NamedTuple):
    """The sizes of tiles on the axes of a group's first result, their order, and the depth of products."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    depth: int


def tiled(group: TileGroup, hardware: Hardware) -> tuple[float, Tiling] | None:
    """The tiles that take the fewest cycles by an estimate, with that; None if even the smallest do not fit.

    Products are cut along what they sum over only where tiles would otherwise be smaller than the array, as
    each part fills and drains the array anew.
    """
    return _tiled(_placeless(group), hardware)


def _placeless(group: TileGroup) -> TileGroup:
    """The group with numbers in place of offsets: layers of the same sizes have the same tiles."""
    numbers: dict[Register, Register] = {}

    def number(one: Register) -> Register:
        return numbers.setdefault(one, one._replace(offset=len(numbers)))

    lines = tuple(
        Line(
            line.name,
            number(line.result),
            tuple(number(one) if isinstance(one, Register) else one for one in line.operands),
            line.window,
        )
        for line in group.lines
    )
    return TileGroup(lines, group.stored)


@functools.lru_cache(maxsize=1024)
def _tiled(group: TileGroup, hardware: Hardware) -> tuple[float, Tiling] | None:
    best: tuple[float, Tiling] | None = None
    head, streams, candidates = group.lines[0], group.streams(), _candidates(group, hardware)
    depth = depth_of(head)
    while True:
        for sizes in itertools.product(*candidates):
            found = _estimate(group, streams, sizes, depth, hardware)
            if found is not None and (best is None or found[0] < best[0]):
                best = found[0], Tiling(sizes, found[1], depth)
        if best is not None and not _starves(group, best[1], hardware):
            return best
        if depth == 1 or (head.name == "conv" and groups_of(head) > 1):
            return best
        depth = ceil_div(depth, 2)


def estimated_cycles(group: TileGroup, hardware: Hardware) -> float:
    found = tiled(group, hardware)
    return math.inf if found is None else found[0]


def _starves(group: TileGroup, tiling: Tiling, hardware: Hardware) -> bool:
    """Whether tiles of a product are smaller than the array where the whole result is not."""
    head = group.lines[0]
    if array_work(head.name, group.sizes, head.reads, head.window) is None:
        return False
    axis = 1 if head.name == "conv" else 3
    return tiling.sizes[axis] < min(group.sizes[axis], hardware.array[1])


def _candidates(group: TileGroup, hardware: Hardware) -> list[list[int]]:
    """Sizes of tiles that are tried on each axis."""
    head, found = group.lines[0], []
    for axis, size in enumerate(group.sizes):
        if axis == 3 and not group.columns_are_cut:
            found.append([size])
            continue
        tried = {size, 1} if axis < 3 else {size}
        tried |= {ceil_div(size, parts) for parts in (2, 3, 4, 6, 8, 12, 16, 32)}
        if head.name in ("matmul", "conv"):
            tried |= {n << k for n in set(hardware.array) for k in range(4)}
        else:
            tried |= {1 << k for k in range(5, 16, 2)}
        if head.name == "conv" and axis == 1 and groups_of(head) > 1:
            own = size // groups_of(head)
            tried = {n for n in tried if n % own == 0} | {own}
        found.append(sorted(n for n in tried if 0 < n <= size))
    return found


def _estimate(
    group: TileGroup, streams: Sequence[Stream], sizes: tuple[int, ...], depth: int, hardware: Hardware
) -> tuple[float, tuple[int, ...]] | None:
    """Cycles of a group in the better order of its tiles, and that order; None if the tiles do not fit.

    A group takes as long as computing or copying, whichever is longer.
    """
    tile: Box = tuple((0, size) for size in sizes)
    counts = [ceil_div(size, own) for size, own in zip(group.sizes, sizes, strict=True)]
    tiles, chunks = math.prod(counts), ceil_div(depth_of(group.lines[0]), depth)
    words, stored, compute = 0, 0, 0
    moved: list[
        tuple[frozenset[int], int]
    ] = []  # of each stream: axes along which its tiles differ, bytes of one
    for stream in streams:
        line, own = group.lines[stream.line], group.box_of(stream.line, tile)
        split = chunks > 1 and stream.line == 0 and stream.position < 2
        box = operand_box(line, stream.position, own, (0, depth) if split else None)
        axes = frozenset(a for a in axes_of_operand(line, stream.position) if counts[a] > 1)
        words += aligned(most_elements(line, stream.position, box, own)) * (2 if axes or split else 1)
        if words > hardware.words:
            return None
        source = line.operands[stream.position]
        assert isinstance(source, Register)
        nbytes = dma_bytes(part_of(source, box))
        if split:  # each tile loads all of its chunks
            stored += tiles * chunks * nbytes
        else:
            moved.append((axes, nbytes))
    for number, line in enumerate(group.lines):
        box = group.box_of(number, tile)
        words += aligned(elements_of(box)) * (1 if tiles == 1 else 2)
        if words > hardware.words:
            return None
        if number in group.stored:
            stored += tiles * dma_bytes(part_of(line.result, box))
        registers = [
            scratch(0, operand_box(line, position, box))
            for position, one in enumerate(line.operands)
            if isinstance(one, Register)
        ]
        y = scratch(0, box).sizes
        work = array_work(line.name, y, registers, line.window)
        if work is None:
            compute += vector_cycles(line.name, y, registers, line.window, hardware.lanes)
        elif number or chunks == 1:
            compute += array_cycles(work, hardware.array, hardware.dataflow)
        else:
            part = work._replace(depth=ceil_div(work.depth, chunks))
            compute += chunks * array_cycles(part, hardware.array, hardware.dataflow)
    orders = ORDERS if group.columns_are_cut else ORDERS[:2]
    nbytes, order = min(
        (stored + sum(_loads(axes, counts, order) * one for axes, one in moved), order) for order in orders
    )
    copying = nbytes / hardware.dram_bytes_per_cycle
    first = copying / tiles  # the first tile is copied before anything is computed
    return max(float(compute * tiles), copying) + first + CYCLES_OF_A_TILE * tiles, order


def _loads(axes: frozenset[int], counts: Sequence[int], order: tuple[int, ...]) -> int:
    """The copies of a stream's tiles, when those of the group follow each other in an order."""
    last = max((place for place, axis in enumerate(order) if axis in axes), default=-1)
    return math.prod(counts[axis] for axis in order[: last + 1])


def aligned(words: int) -> int:
    return ceil_div(words, ALIGNMENT) * ALIGNMENT
