"""Common parts of the passes through a recurrent layer's sequence: tiles of products, packed weights, steps.

A panel has the weights of some vectors of units, in the order in which a tile reads them: for each number
along the sum, one vector after the other. A tile is some rows times all vectors of a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dl4all.host_kernels.lib.transposition import transposed
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

BLOCK_ROWS = 48
"""Rows whose sums are kept until the rest of the step takes them."""

BLOCK_DEPTH = 128
"""Numbers along a sum, whose weights stay in the nearest cache."""

MAX_VECTORS = 4
"""Vectors of a panel."""

CHUNK_PRODUCTS = 1 << 18
"""Products of two numbers from which another thread takes a part."""

PACKED_ELEMENTS = 1 << 15
"""Elements that a thread packs at a time."""

SEGMENT_WORDS = 8
"""Slots of a segment: rows that one step computes alike."""


def panel_vectors(gates: int, size: int) -> int:
    """The number of vectors of units of a panel, with a vector for each gate: few lanes may be left over.

    >>> panel_vectors(4, 1000)
    1
    """
    lanes = provider.processor().lanes()
    vectors = -(-size // lanes)
    choices = range(1, MAX_VECTORS // gates + 1) if gates < MAX_VECTORS else (1,)
    return min(choices, key=lambda count: (-(-vectors // count) * (count + 1), -count))


def tile_rows(vectors: int) -> list[int]:
    """The rows of tiles, most first, whose sums fit into registers."""
    budget = 24 if provider.processor().registers >= 32 else 12
    most = min(budget // vectors, 8)
    return [most, *(rows for rows in (4, 2, 1) if rows < most)]


def products(
    code: Code,
    a: IrValue,
    stride: IrValue,
    rows: IrValue,
    panel: IrValue,
    depth: IrValue,
    sums: IrValue,
    vectors: int,
) -> None:
    """``sums[row][vector] = a[row] @ panel[:, vector]`` for some rows of `a`, `stride` elements apart.

    All rows meet one part of the panel, which stays in the nearest cache, before the next one.
    """
    with code.loop(0, depth, BLOCK_DEPTH) as begin:
        end = code.intrinsic("smin", depth, begin + BLOCK_DEPTH)
        done: IrValue = code.constant("i64", 0)
        for count in tile_rows(vectors):
            stop = done + (rows - done) // count * count
            with code.loop(done, stop, count) as row:
                starts = [code.at(a, (row + r) * stride, "float") for r in range(count)]
                target = code.at(sums, row * (vectors * provider.processor().lanes()), "float")
                _tile(code, starts, panel, (begin, end), target, vectors)
            done = stop


def _tile(
    code: Code,
    rows: list[IrValue],
    panel: IrValue,
    depths: tuple[IrValue, IrValue],
    sums: IrValue,
    vectors: int,
) -> None:
    """Add the products of a range of depths to the sums, which begin at 0 with the first range."""
    lanes = provider.processor().lanes()
    type, begin = vector("float", lanes), depths[0]
    places = [[(r * vectors + v) * lanes for v in range(vectors)] for r in range(len(rows))]
    totals = [[code.variable(type, 0.0) for _ in row] for row in places]
    with code.if_(begin > 0):
        for row, row_totals in zip(places, totals, strict=True):
            for place, total in zip(row, row_totals, strict=True):
                total.value = code.load(sums, place, type)
    with code.loop(*depths) as k:
        weights = [code.load(panel, k * (vectors * lanes) + v * lanes, type) for v in range(vectors)]
        for start, row_totals in zip(rows, totals, strict=True):
            factor = code.splat(code.load(start, k, "float"), lanes)
            for weight, total in zip(weights, row_totals, strict=True):
                total.value = code.intrinsic("fmuladd", factor, weight, total.value)
    for row, row_totals in zip(places, totals, strict=True):
        for place, total in zip(row, row_totals, strict=True):
            code.store(total.value, sums, place)


def packing_rows(module: IrModule, gates: int, units: int) -> Code:
    """The part that packs a weight of shape (gates * size, depth), to multiply rows by its transpose.

    It takes vectors of panels. Slots of both: weight, packed, size, depth, elements of a panel.
    """
    lanes = provider.processor().lanes()
    type, vectors = vector("float", lanes), gates * units
    with module.part("pack") as part:
        slots, begin, end = part.parameters
        weight, packed = (part.load(slots, i, "ptr") for i in (0, 1))
        size, depth, stride = (part.load(slots, i, "i64") for i in (2, 3, 4))
        with part.loop(begin, end) as number:
            panel, v = number // vectors, number % vectors
            gate, first = v // units, (panel * units + v % units) * lanes
            target = part.at(packed, panel * stride + v * lanes, "float")
            last = size - 1
            rows = [part.intrinsic("smin", first + lane, last) + gate * size for lane in range(lanes)]
            starts = [part.at(weight, row * depth, "float") for row in rows]
            with part.loop(0, depth, lanes) as k:
                mask = part.first_lanes(depth - k, lanes)
                columns = transposed(part, [part.load(start, k, type, mask) for start in starts])
                for j, column in enumerate(columns):
                    part.store(column, target, (k + j) * (vectors * lanes))
    return part


def packing_columns(module: IrModule, units: int) -> Code:
    """The part that packs a weight of shape (depth, size), to multiply rows by it: some of its rows."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    with module.part("pack") as part:
        slots, begin, end = part.parameters
        weight, packed = (part.load(slots, i, "ptr") for i in (0, 1))
        size, stride = part.load(slots, 2, "i64"), part.load(slots, 4, "i64")
        with part.loop(begin, end) as k:
            source = part.at(weight, k * size, "float")
            target = part.at(packed, k * (units * lanes), "float")
            with part.loop(0, (size + (units * lanes - 1)) // (units * lanes)) as panel:
                for v in range(units):
                    first = (panel * units + v) * lanes
                    value = part.load(source, first, type, part.first_lanes(size - first, lanes))
                    part.store(value, target, panel * stride + v * lanes)
    return part


class SegmentScope:
    """The values that the part that computes segments finds: the kernel's slots, and those of the segment."""

    def __init__(self, code: Code) -> None:
        self.code = code
        context, self.begin, self.end = code.parameters
        self._slots, self._segment = (code.load(context, i, "ptr") for i in (0, 1))

    def address(self, slot: int) -> IrValue:
        return self.code.load(self._slots, slot, "ptr")

    def number(self, slot: int) -> IrValue:
        return self.code.load(self._slots, slot, "i64")

    def of_segment(self, word: int) -> IrValue:
        return self.code.load(self._segment, word, "i64")


@contextmanager
def segments_part(module: IrModule) -> Iterator[SegmentScope]:
    """A part that computes one segment for each context that it is given."""
    with module.part("segment") as part:
        yield SegmentScope(part)


def run_segments(code: Code, part: Code, first: int, count: IrValue) -> None:
    """Compute one segment after the other, each by all threads.

    A segment's last words are its number of tiles, and how many a thread takes.
    """
    slots = code.parameters[0]
    context = code.local("i64", 2)
    code.store(slots, context, 0)
    with code.loop(0, count) as number:
        segment = code.at(slots, number * SEGMENT_WORDS + first, "i64")
        code.store(segment, context, 1)
        tiles, grain = (code.load(segment, SEGMENT_WORDS - 2 + i, "i64") for i in (0, 1))
        code.parallel(part, context, tiles, grain)


def segment(words: list[int], rows: int, panels: int, products_of_row: int) -> list[int]:
    """The slots of a segment.

    Args:
        words: what the kernel reads.
        rows: how many it computes.
        panels: of the weights.
        products_of_row: for one row and panel.
    """
    blocks = -(-rows // BLOCK_ROWS)
    grain = max(1, CHUNK_PRODUCTS // (products_of_row * min(rows, BLOCK_ROWS)))
    return [*words, *[0] * (SEGMENT_WORDS - 2 - len(words)), blocks * panels, grain]


def for_tiles(scope: SegmentScope, rows: IrValue, step: Callable[[IrValue, IrValue, IrValue], Any]) -> None:
    """Call ``step(panel, first, count)`` for the tiles of a range: a panel and a block of rows."""
    code = scope.code
    blocks = (rows + (BLOCK_ROWS - 1)) // BLOCK_ROWS
    with code.loop(scope.begin, scope.end) as number:
        panel, first = number // blocks, number % blocks * BLOCK_ROWS
        step(panel, first, code.intrinsic("smin", rows - first, code.constant("i64", BLOCK_ROWS)))
