"""Loops over lines of elements, for kernels that reduce each line: channels, rows, columns.

A line is a number of runs of adjacent elements, or the elements that lie a stride apart. Kernels go along
lines of the first kind in vectors, one line after the other. Of the second kind they take as many adjacent
lines at once as a vector has lanes, each in a lane of its own. What a kernel does with the elements of a line
is the same in both forms, which :class:`Lines` hides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dl4all.host_kernels.lib.rows import CHUNK, unrolled_passes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrValue, IrVariable
from dl4all.runtime.cpu.llvm.ir_types import lanes_of, vector

COPIES = 4
"""Vectors whose sums are kept apart, so that one addition need not wait for the other."""

BLOCK = 2048
"""Elements that are summed in float32 at most, before the sums go on in float64."""

Step = Callable[[IrValue, IrValue | None, int], None]
"""``step(place, mask, copy)`` for a vector of elements from a place on."""


class LineGeometry(NamedTuple):
    """The layout of lines. Integers of a kernel, in this order."""

    lines: int  # how many; across, vectors of them
    segments: int  # of a line: runs; across, elements
    stride: int  # from one to the next
    width: int  # of a run; across, adjacent lines
    line_stride: int  # from one line to the next; across, to the next row of adjacent lines
    grain: int  # lines of a chunk

    @classmethod
    def of_axis(cls, outer: int, length: int, inner: int) -> tuple[LineGeometry, bool]:
        """Lines along the middle one of three axes, and whether kernels go across them."""
        lanes = provider.processor().lanes()
        if inner == 1:
            return cls(outer, 1, 0, length, length, max(1, CHUNK // length)), False
        blocks = -(-inner // lanes)
        grain = max(1, CHUNK // (lanes * length))
        return cls(outer * blocks, length, inner, inner, length * inner, grain), True

    @classmethod
    def of_channels(cls, samples: int, channels: int, inner: int) -> tuple[LineGeometry, bool]:
        """Lines with all elements of a channel, and whether kernels go across them."""
        if inner == 1:
            return cls.of_axis(1, samples, channels)
        count = samples * inner
        return cls(channels, samples, channels * inner, inner, inner, max(1, CHUNK // count)), False


FIELDS = LineGeometry._fields


class LineSlots:
    """The slots of a kernel by name: addresses, then integers, then floats."""

    def __init__(
        self,
        code: Code,
        arrays: Sequence[str],
        integers: Sequence[str] = (),
        floats: Sequence[str] = (),
        storages: Sequence[str] = (),
    ):
        """``storages`` are those of the first arrays."""
        self._code = code
        self._storages = dict(zip(arrays, storages, strict=False))
        self._places = {name: place for place, name in enumerate((*arrays, *integers, *floats))}
        self._types = {
            **dict.fromkeys(arrays, "ptr"),
            **dict.fromkeys(integers, "i64"),
            **dict.fromkeys(floats, "double"),
        }

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> IrValue:
        return self._code.slot(self._places[name], self._types[name], self._storages.get(name, ""))


class Lines:
    """The line, or the lines in lanes, that a part is at."""

    def __init__(
        self, code: Code, slots: LineSlots, across: bool, number: IrValue, base: IrValue, mask: IrValue | None
    ) -> None:
        self.code = code
        self.lanes = provider.processor().lanes()
        self.type = vector("float", self.lanes)
        self.number = number  # of the line, or of the first one
        self.across = across
        self._slots = slots
        self.base = base  # the place of the first element
        self.mask = mask  # of lanes that have a line

    def each(self, step: Step, copies: int = 1, sums: Sequence[LineSum] = ()) -> None:
        """Call ``step`` for all elements; its copies are numbers below `copies`.

        Along lines sums of float32 are moved on to float64 after each block.
        """
        code, lanes, slots = self.code, self.lanes, self._slots
        segments, stride, width = slots["segments"], slots["stride"], slots["width"]
        if self.across:
            whole = segments - segments % copies
            with code.loop(0, whole, copies) as i:
                for copy in range(copies):
                    step(self.base + (i + copy) * stride, self.mask, copy)
            if copies > 1:
                with code.loop(whole, segments) as i:
                    step(self.base + i * stride, self.mask, 0)
            return
        with code.loop(0, segments) as segment:
            if sums:
                blocked_passes(code, width, lanes, step, copies, self.base + segment * stride, sums)
            else:
                unrolled_passes(code, width, lanes, step, copies, self.base + segment * stride)

    def value(self, array: IrValue) -> IrValue:
        """The element of an array for this line, in all lanes, or one for the line in each lane."""
        if self.across:
            return self.code.load(array, self.number, self.type, self.mask)
        return self.code.splat(self.code.load(array, self.number, "float"), self.lanes)

    def put(self, value: IrValue, array: IrValue) -> None:
        """Write the element of an array for this line."""
        if self.across:
            self.code.store(value, array, self.number, self.mask)
        else:
            self.code.store(self.code.extract(value, 0), array, self.number)

    def first(self, array: IrValue) -> IrValue:
        """The first element of the line."""
        if self.across:
            return self.code.load(array, self.base, self.type, self.mask)
        return self.code.splat(self.code.load(array, self.base, "float"), self.lanes)

    def sum(self, element: str = "double", copies: int = COPIES) -> LineSum:
        """A sum over the line that begins with 0."""
        return LineSum(self, element, copies)

    def largest(self, values: IrVariable) -> IrValue:
        """The largest element that :func:`larger` has found in all lanes."""
        if self.across:
            return values.value
        return self.code.splat(largest_lane(self.code, values.value), self.lanes)

    def number_like(self, value: float | IrValue, element: str = "float") -> IrValue:
        """A number in all lanes."""
        return self.code.as_value(vector(element, self.lanes), value)


def larger(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """The larger one of two; nan if one is, in fewer instructions than LLVM's function takes."""
    return code.select(b.differs(b), b, code.select(b > a, b, a))


def largest_lane(code: Code, value: IrValue) -> IrValue:
    """The largest of a vector's lanes; nan if one is."""
    some_nan, lanes = code.any_of(value.differs(value)), lanes_of(value.type)
    while lanes > 2:
        lanes //= 2
        low = code.shuffle(value, value, range(lanes))
        high = code.shuffle(value, value, range(lanes, 2 * lanes))
        value = code.select(high > low, high, low)
    first, second = code.extract(value, 0), code.extract(value, 1)
    return code.select(some_nan, math.nan, code.select(second > first, second, first))


def blocked_passes(
    code: Code, columns: IrValue, lanes: int, step: Step, copies: int, begin: IrValue, sums: Sequence[LineSum]
) -> None:
    """As :func:`unrolled_passes`, in blocks after which the sums are moved on."""
    with code.loop(0, columns, BLOCK) as block:
        length = code.intrinsic("smin", columns - block, code.constant("i64", BLOCK))
        unrolled_passes(code, length, lanes, step, copies, begin + block)
        for total in sums:
            total.move_on()


class LineSum:
    """A sum over a line, in vectors of their own for each copy."""

    def __init__(self, lines: Lines, element: str, copies: int) -> None:
        self._lines = lines
        self._element = element
        type = vector(element, lines.lanes)
        self._parts: list[IrVariable] = [lines.code.variable(type, 0.0) for _ in range(copies)]
        self._moved: IrVariable | None = None
        if element == "float" and not lines.across:
            self._moved = lines.code.variable("double", 0.0)

    def add(self, value: IrValue, mask: IrValue | None, copy: int) -> None:
        """Add a vector."""
        code, part = self._lines.code, self._parts[copy]
        if mask is not None and not self._lines.across:
            value = code.select(mask, value, 0.0)
        part.value = part.value + code.convert(value, self._element)

    def add_product(self, a: IrValue, b: IrValue, mask: IrValue | None, copy: int) -> None:
        """Add the product of two vectors, which is rounded with the sum."""
        code, part = self._lines.code, self._parts[copy]
        if mask is not None and not self._lines.across:
            a, b = code.select(mask, a, 0.0), code.select(mask, b, 0.0)
        a, b = code.convert(a, self._element), code.convert(b, self._element)
        part.value = code.intrinsic("fmuladd", a, b, part.value)

    def _value(self) -> IrValue:
        values = [part.value for part in self._parts]
        while len(values) > 1:
            values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def move_on(self) -> None:
        """Add what was summed in float32 to a sum in float64, and begin with 0 again."""
        assert self._moved is not None
        code = self._lines.code
        self._moved.value = self._moved.value + code.convert(code.sum_of(self._value()), "double")
        for part in self._parts:
            part.value = 0.0

    def total(self) -> IrValue:
        """The sum, in all lanes if they belong to one line; float64 if it was moved on."""
        if self._moved is not None:
            return self._lines.code.splat(self._moved.value, self._lines.lanes)
        value = self._value()
        if self._lines.across:
            return value
        code = self._lines.code
        return code.splat(code.sum_of(value), self._lines.lanes)


def each_line(part: Code, slots: LineSlots, across: bool, body: Callable[[Lines], None]) -> None:
    """Write what a part does with each of its lines."""
    _, begin, end = part.parameters
    with part.loop(begin, end) as number:
        line_stride = slots["line_stride"]
        if not across:
            body(Lines(part, slots, across, number, number * line_stride, None))
            return
        lanes, width = provider.processor().lanes(), slots["width"]
        blocks = (width + (lanes - 1)) // lanes
        row, column = number // blocks, number % blocks * lanes
        first, base, rest = row * width + column, row * line_stride + column, width - column
        with part.if_(rest >= lanes):
            body(Lines(part, slots, across, first, base, None))
        with part.if_(rest < lanes):
            body(Lines(part, slots, across, first, base, part.first_lanes(rest, lanes)))
