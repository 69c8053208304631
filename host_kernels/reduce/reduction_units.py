"""The compiled kernel of reductions: how a unit of work is computed.

A unit is one result, or the columns of a tile, or a part of either. Where the reduced axis is the one of
adjacent elements a unit goes along it in vectors (a row); where a kept axis is, each lane has a column of its
own. Other layouts are read element by element.

Sums of float32 keep their digits: vectors add up BLOCK terms, and these sums are added in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from dl4all.host_kernels.lib.elements import loaded, stored
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import FLOATS, SIZES, element_of, lanes_of, vector

BLOCK = 16  # terms that are added up in the type of the elements
WIDE = 4  # vectors that are added up side by side
KEPT_AXES, REDUCED_AXES = 3, 2  # that kernels count through, but for the innermost one

(
    UNIT_COUNT, GRAIN, RESULTS, RESULT_GRAIN, PARTS, STEP, COLUMNS_OF_TILE, TILES, COLUMNS,
) = range(9)  # fmt: skip
KEPT = 9
REDUCED = KEPT + 2 * KEPT_AXES
ROWS = REDUCED + 2 * REDUCED_AXES
NUMBER = ROWS + 2


Merge = Callable[[Code, IrValue, IrValue], IrValue]


class Kind(NamedTuple):
    """A reduction: ``step(total, x)`` for each element, ``merge`` for totals, ``finish`` for results."""

    identity: Callable[[str], float]  # by type
    step: Merge
    merge: Merge
    finish: str = ""  # "divide" by the number, "root"


def _lowest(type: str) -> float:
    return -math.inf if type in FLOATS else -(2 ** (8 * SIZES[type] - 1))


def _highest(type: str) -> float:
    return math.inf if type in FLOATS else 2 ** (8 * SIZES[type] - 1) - 1


def _sum(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return total + x


def _product(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return total * x


def _squares(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return code.intrinsic("fmuladd", x, x, total)


def _magnitudes(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return total + code.intrinsic("fabs", x)


def _nonzeros(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return total + code.convert(x.differs(0), element_of(total.type))


def _largest(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return larger(code, x, total) if x.is_float else code.intrinsic("smax", total, x)


def _smallest(code: Code, total: IrValue, x: IrValue) -> IrValue:
    return smaller(code, x, total) if x.is_float else code.intrinsic("smin", total, x)


def larger(code: Code, x: IrValue, y: IrValue) -> IrValue:
    """The larger float, nan if there is one; in fewer instructions than LLVM's, which tells -0 from 0."""
    return code.select(x.differs(x), x, code.select(x > y, x, y))


def smaller(code: Code, x: IrValue, y: IrValue) -> IrValue:
    """The smaller float, nan if there is one."""
    return code.select(x.differs(x), x, code.select(x < y, x, y))


def _zero(type: str) -> float:
    return -0.0 if type in FLOATS else 0


KINDS = {
    "sum": Kind(_zero, _sum, _sum),
    "mean": Kind(_zero, _sum, _sum, "divide"),
    "prod": Kind(lambda type: 1, _product, _product),
    "count": Kind(lambda type: 0, _nonzeros, _sum),
    "magnitudes": Kind(_zero, _magnitudes, _sum),
    "euclidean": Kind(lambda type: 0, _squares, _sum, "root"),
    "amax": Kind(_lowest, _largest, _largest),
    "amin": Kind(_highest, _smallest, _smallest),
}
EXTREMES = ("amax", "amin")
"""Kinds that compute in the type of the elements."""


class Types(NamedTuple):
    """The types that a reduction reads, computes with, and writes."""

    source: str  # in memory
    element: str  # of terms
    total: str  # of the sum of a block
    wide: str  # of the sum of all blocks
    target: str  # in memory


def reduction(kind: str, types: Types, vertical: bool, lanes: int, counts: bool, split: bool) -> IrModule:
    """Slots: x, result, scratch memory where parts are split, then the constants of a launch.

    Args:
        kind: of KINDS.
        types: of elements, terms and results.
        vertical: whether lanes are columns.
        lanes: 1 where elements do not lie side by side.
        counts: whether there is more than one kept axis.
        split: whether results are computed in parts, which are added in a second pass.
    """
    module = IrModule()
    with module.part("units") as code:
        writer = Units(code, KINDS[kind], types, lanes, split)
        writer.write(vertical, counts)
        units = code
    first = 2 + split
    with module.part("results") as code:
        if split:
            _merge_parts(code, KINDS[kind], types, first)
        results = code
    with module.kernel("reduction") as code:
        slots = code.parameters[0]
        code.parallel(units, slots, code.slot(first + UNIT_COUNT), code.slot(first + GRAIN))
        if split:
            code.parallel(results, slots, code.slot(first + RESULTS), code.slot(first + RESULT_GRAIN))
    return module


class Units:
    """Writes the part that computes units."""

    def __init__(self, code: Code, kind: Kind, types: Types, lanes: int, split: bool) -> None:
        self.code = code
        self.kind = kind
        self.types = types
        self.lanes = lanes
        self.split = split
        self.first = 2 + split
        self.start, self.wide_start = (
            code.constant(vector(type, lanes), kind.identity(type)) for type in (types.total, types.wide)
        )
        self.sums = [code.variable(self.start.type, self.start) for _ in range(WIDE)]
        self.totals = [code.variable(self.wide_start.type, self.wide_start) for _ in range(WIDE)]
        self.x, self.out = code.slot(0, "ptr"), code.slot(1, "ptr")

    def constant(self, place: int, type: str = "i64") -> IrValue:
        return self.code.slot(self.first + place, type)

    def write(self, vertical: bool, counts: bool) -> None:
        code = self.code
        _, begin, end = code.parameters
        with code.loop(begin, end) as unit:
            part, rest = code.as_value("i64", 0), unit
            if self.split:
                parts = self.constant(PARTS)
                part, rest = unit % parts, unit // parts
            tile, kept = code.as_value("i64", 0), rest
            if vertical:
                tiles = self.constant(TILES)
                tile, kept = rest % tiles, rest // tiles
            base = self._place(kept, counts)
            rows, stride = self.constant(ROWS), self.constant(ROWS + 1)
            first, last = code.as_value("i64", 0), rows
            if self.split:
                step = self.constant(STEP)
                first = part * step
                last = code.intrinsic("smin", first + step, rows)
            place = kept
            if self.split and vertical:
                place = part * (self.constant(RESULTS) // self.constant(COLUMNS)) + kept
            elif self.split:
                place = part * self.constant(RESULTS) + kept
            if vertical:
                self.write_columns(base, tile, place, (first, last, stride))
            else:
                self.write_row(base, place, (first, last, stride))

    def _place(self, kept: IrValue, counts: bool) -> IrValue:
        """The number of the first element of a kept index."""
        if not counts:
            return kept * self.constant(KEPT + 2 * KEPT_AXES - 1)
        place = self.code.as_value("i64", 0)
        for axis in reversed(range(KEPT_AXES)):
            size, stride = self.constant(KEPT + axis), self.constant(KEPT + KEPT_AXES + axis)
            index = kept if axis == 0 else kept % size
            place = place + index * stride
            if axis:
                kept = kept // size
        return place

    def _each_slice(self, base: IrValue, body: Callable[[IrValue], None]) -> None:
        """Call ``body(place)`` for all indices of the outer reduced axes."""
        code = self.code
        sizes = [self.constant(REDUCED + axis) for axis in range(REDUCED_AXES)]
        strides = [self.constant(REDUCED + REDUCED_AXES + axis) for axis in range(REDUCED_AXES)]
        with code.loop(0, sizes[0]) as i, code.loop(0, sizes[1]) as j:
            body(base + i * strides[0] + j * strides[1])

    def load(self, index: IrValue, mask: IrValue | None = None) -> IrValue:
        return loaded(
            self.code, self.x, index, self.types.source, vector(self.types.element, self.lanes), mask
        )

    def _merge(self, left: IrValue, right: IrValue) -> IrValue:
        return self.kind.merge(self.code, left, right)

    def _add_total(self, place: int, total: IrValue) -> None:
        wide = self.code.convert(total, self.types.wide)
        self.totals[place].value = self._merge(self.totals[place].value, wide)

    def write_row(self, base: IrValue, place: IrValue, row: tuple[IrValue, IrValue, IrValue]) -> None:
        code, lanes = self.code, self.lanes
        first, last, stride = row
        self.totals[0].value = self.wide_start

        def along(start: IrValue) -> None:
            count = last - first
            origin = start + first * stride
            whole = count - count % (WIDE * lanes)

            def at(i: IrValue) -> IrValue:
                return origin + (i if lanes > 1 else i * stride)

            with code.loop(0, whole, BLOCK * WIDE * lanes) as block:
                for total in self.sums:
                    total.value = self.start
                stop = code.intrinsic("smin", block + BLOCK * WIDE * lanes, whole)
                with code.loop(block, stop, WIDE * lanes) as i:
                    for j, total in enumerate(self.sums):
                        total.value = self.kind.step(code, total.value, self.load(at(i + j * lanes)))
                a, b, c, d = (total.value for total in self.sums)
                self._add_total(0, self._merge(self._merge(a, b), self._merge(c, d)))
            with code.if_(whole < count):
                total = self.sums[0]
                total.value = self.start
                vectors = count - count % lanes
                with code.loop(whole, vectors, lanes) as i:
                    total.value = self.kind.step(code, total.value, self.load(at(i)))
                if lanes > 1:
                    with code.if_(vectors < count):
                        mask = code.first_lanes(count - vectors, lanes)
                        added = self.kind.step(code, total.value, self.load(at(vectors), mask))
                        total.value = code.select(mask, added, total.value)
                self._add_total(0, total.value)

        self._each_slice(base, along)
        self._store(folded(code, self.totals[0].value, self.kind.merge), place, None)

    def write_columns(
        self, base: IrValue, tile: IrValue, place: IrValue, rows: tuple[IrValue, IrValue, IrValue]
    ) -> None:
        code, lanes = self.code, self.lanes
        columns, width = self.constant(COLUMNS), self.constant(COLUMNS_OF_TILE)
        begin = tile * width
        end = code.intrinsic("smin", begin + width, columns)
        count = end - begin
        results = place * columns
        whole, vectors = begin + (count - count % (WIDE * lanes)), begin + (count - count % lanes)
        with code.loop(begin, whole, WIDE * lanes) as c:
            self.add_columns(base + c, results + c, WIDE, rows, None)
        with code.loop(whole, vectors, lanes) as c:
            self.add_columns(base + c, results + c, 1, rows, None)
        if lanes > 1:
            with code.if_(vectors < end):
                mask = code.first_lanes(end - vectors, lanes)
                self.add_columns(base + vectors, results + vectors, 1, rows, mask)

    def add_columns(
        self,
        base: IrValue,
        result: IrValue,
        wide: int,
        rows: tuple[IrValue, IrValue, IrValue],
        mask: IrValue | None,
    ) -> None:
        code, lanes = self.code, self.lanes
        first, last, stride = rows
        for j in range(wide):
            self.totals[j].value = self.wide_start

        def down(start: IrValue) -> None:
            with code.loop(first, last, BLOCK) as block:
                for j in range(wide):
                    self.sums[j].value = self.start
                stop = code.intrinsic("smin", block + BLOCK, last)
                with code.loop(block, stop) as row:
                    origin = start + row * stride
                    for j in range(wide):
                        x = self.load(origin + j * lanes, mask)
                        self.sums[j].value = self.kind.step(code, self.sums[j].value, x)
                for j in range(wide):
                    self._add_total(j, self.sums[j].value)

        self._each_slice(base, down)
        for j in range(wide):
            self._store(self.totals[j].value, result + j * lanes, mask)

    def _store(self, total: IrValue, place: IrValue, mask: IrValue | None) -> None:
        if self.split:
            self.code.store(total, self.code.slot(2, "ptr"), place, mask)
        else:
            number = self.constant(NUMBER, "double")
            result = finished(self.code, self.kind, total, number)
            stored(self.code, result, self.out, place, self.types.target, mask)


def finished(code: Code, kind: Kind, total: IrValue, number: IrValue) -> IrValue:
    """The result of a total."""
    if kind.finish == "divide":
        return total / number
    if kind.finish == "root":
        return code.intrinsic("sqrt", total)
    return total


def folded(code: Code, value: IrValue, merge: Merge) -> IrValue:
    """All lanes of a vector merged by halves: a fixed order."""
    lanes = lanes_of(value.type)
    while lanes > 2:
        lanes //= 2
        low, high = (code.shuffle(value, value, part) for part in (range(lanes), range(lanes, 2 * lanes)))
        value = merge(code, low, high)
    return value if lanes == 1 else merge(code, code.extract(value, 0), code.extract(value, 1))


def _merge_parts(code: Code, kind: Kind, types: Types, first: int) -> None:
    """Results from the totals of all parts, which are merged in their order."""
    _, begin, end = code.parameters
    out, scratch = code.slot(1, "ptr"), code.slot(2, "ptr")
    results, parts = code.slot(first + RESULTS), code.slot(first + PARTS)
    wide = types.wide
    merged = code.variable(wide, 0)
    with code.loop(begin, end) as i:
        merged.value = kind.identity(wide)
        with code.loop(0, parts) as part:
            merged.value = kind.merge(code, merged.value, code.load(scratch, part * results + i, wide))
        number = code.slot(first + NUMBER, "double")
        stored(code, finished(code, kind, merged.value, number), out, i, types.target)
