"""Columns of images: what the elements of filters meet at some places of results, side by side.

The result of a convolution has three axes (some of size 1). At place o along an axis, element k of a filter
meets place ``o * step + offset + k * delta`` of the image, or a zero outside of it. For a convolution these
numbers are its stride, minus its padding and its dilation. For the gradient of an input they are 1, the
padding and minus the dilation.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.host_kernels.lib.library import NAME
from dl4all.ops.core.tensor_base import Shape
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import lanes_of, vector

MOST_STEPS = 2
"""Steps along the last axis for which neighbours are found by shuffles; beyond, each is read by itself."""

SHIFTED = -1
MOST_SHIFTED = 2**20
"""Places whose rows are found by a product of floats."""


class Columns(NamedTuple):
    """Which columns images have; three axes each. Slots of a kernel hold these numbers in this order."""

    strides: tuple[int, int, int, int, int]  # of the images in memory: image, channel, and the axes
    size: Shape  # of an image
    out_size: Shape  # of a result
    taps: Shape  # elements of filters
    step: Shape
    offset: Shape
    delta: Shape

    @property
    def numbers(self) -> list[int]:
        return [number for part in self for number in part]

    @property
    def places(self) -> int:
        """Of a result."""
        return math.prod(self.out_size)

    @property
    def rows(self) -> int:
        """Rows of columns for a channel."""
        return math.prod(self.taps)

    @property
    def reading(self) -> int:
        """The reading of elements: all places of an image in one row, where a tap meets them shifted by
        as many elements each (:data:`SHIFTED`); or, row by row, 1 or 2 apart, or each by itself (0).
        """
        width, step = self.size[2], self.step[2]
        one_row_each = self.size[0] == self.out_size[0] == self.taps[0] == 1 and self.size == self.out_size
        if self.strides[3:] == (width, 1) and one_row_each and self.step == (1, 1, 1):
            return SHIFTED if self.places < MOST_SHIFTED else 1
        return step if self.strides[4] == 1 and step <= MOST_STEPS else 0


NUMBERS = 5 + 6 * 3


class ColumnNumbers(NamedTuple):
    """The numbers of :class:`Columns` as a kernel reads them; those of axes three each."""

    image: IrValue
    channel: IrValue
    strides: Sequence[IrValue]
    size: Sequence[IrValue]
    out_size: Sequence[IrValue]
    taps: Sequence[IrValue]
    step: Sequence[IrValue]
    offset: Sequence[IrValue]
    delta: Sequence[IrValue]

    @classmethod
    def of(cls, values: Sequence[IrValue]) -> ColumnNumbers:
        """The numbers in their order."""
        return cls(values[0], values[1], *(values[i : i + 3] for i in range(2, NUMBERS, 3)))


PARAMETERS = ("ptr", "ptr", "ptr", "i64", "i64", "i64", "i64")

Load = Callable[[IrValue], IrValue]


def columns_function(module: IrModule, reading: int, element: str) -> Code:
    """Writes a function that writes columns.

    Its parameters are the address of :attr:`Columns.numbers`, the images' address (of the first channel that
    is asked for), the address of the columns, the first place (counted on from image to image), the number of
    places, the number of channels, and the distance of rows of columns. There is a row for each element of a
    filter, channel by channel; up to a vector more is written behind the places.

    Args:
        module: gets the function.
        reading: see :attr:`Columns.reading`.
        element: the type of numbers.
    """
    with module.function(NAME, *PARAMETERS, exported=True) as code:
        Reader(code, reading, element)
        return code


class Reader:
    """Writes the body of a function that writes columns."""

    def __init__(self, code: Code, reading: int, element: str) -> None:
        self.element = element
        self.lanes = vector_lanes(element)
        self.type = vector(element, self.lanes)
        self._reading = reading
        self.code = code
        slots, self._x, self._out, self._begin, self._count, self._channels, self._pitch = code.parameters
        numbers = ColumnNumbers.of([code.load(slots, i, "i64") for i in range(NUMBERS)])
        self._image, self._channel, self._strides = numbers[:3]
        self._size, self._out_size, self._taps, self._step, self._offset, self._delta = numbers[3:]
        self._channel_pitch = self._taps[0] * self._taps[1] * self._taps[2] * self._pitch
        if reading == SHIFTED:
            self._write_images()
        else:
            self._write_rows()

    @contextlib.contextmanager
    def _lines(self, width: IrValue) -> Iterator[tuple[IrValue, IrValue, IrValue]]:
        """Loops over lines of so many places, and over vectors of the places that are asked for.

        Gives the number of the line, the first place of the vector in it, and the address of the columns.
        """
        code, begin, count = self.code, self._begin, self._count
        last = (begin + count - 1) // width + 1
        with code.loop(begin // width, last) as line:
            before = line * width
            start = code.select(begin > before, begin - before, 0)
            left = begin + count - before
            stop = code.select(left < width, left, width)
            with code.loop(start, stop, self.lanes) as place:
                yield line, place, code.at(self._out, before + place - begin, self.element)

    def _write_images(self) -> None:
        """Places of an image in one row: each lane has a row and a column of its own."""
        code, lanes = self.code, self.lanes
        height, width = self._size[1:]
        wide, high = (code.splat(code.convert(v, "i32"), lanes) for v in (width, height))
        part = code.splat(1.0 / code.convert(width, "float"), lanes)
        with self._lines(width * height) as (line, place, target):
            number = code.lane_numbers("i32", lanes) + code.splat(code.convert(place, "i32"), lanes)
            row = code.convert((code.convert(number, "float") + 0.5) * part, "i32")
            column = number - row * wide
            source = code.at(self._x, line * self._image + place, self.element)
            with code.loop(0, self._taps[1]) as j:
                down = self._offset[1] + j * self._delta[1]
                in_rows = code.unsigned_less(row + code.splat(code.convert(down, "i32"), lanes), high)
                with code.loop(0, self._taps[2]) as k:
                    right = self._offset[2] + k * self._delta[2]
                    mask = in_rows & code.unsigned_less(
                        column + code.splat(code.convert(right, "i32"), lanes), wide
                    )
                    tap = j * self._taps[2] + k
                    place_of_tap = code.at(source, down * width + right, self.element)

                    def load(here: IrValue, mask: IrValue = mask) -> IrValue:
                        return code.load(here, 0, self.type, mask)

                    self._copy(place_of_tap, target, tap, load)

    def _write_rows(self) -> None:
        """A row of places after the other: what a tap meets begins and ends at the ends of a row."""
        code = self.code
        rows = self._out_size[1]
        with self._lines(self._out_size[2]) as (line, place, target):
            plane = line // rows
            at = [plane % self._out_size[0], line % rows, place]
            source = code.at(self._x, plane // self._out_size[0] * self._image, self.element)
            with code.loop(0, self._taps[0]) as i, code.loop(0, self._taps[1]) as j:
                d, y = (
                    at[n] * self._step[n] + self._offset[n] + tap * self._delta[n]
                    for n, tap in enumerate((i, j))
                )
                inside = code.unsigned_less(d, self._size[0]) & code.unsigned_less(y, self._size[1])
                limit = code.select(inside, self._size[2], 0)  # outside, no element is read
                row = code.at(source, d * self._strides[0] + y * self._strides[1], self.element)
                with code.loop(0, self._taps[2]) as k:
                    x = place * self._step[2] + self._offset[2] + k * self._delta[2]
                    tap = (i * self._taps[1] + j) * self._taps[2] + k
                    self._copy(
                        code.at(row, x * self._strides[2], self.element),
                        target,
                        tap,
                        vector_loader(
                            code, self._reading, self.type, x, limit, self._step[2], self._strides[2]
                        ),
                    )

    def _copy(self, source: IrValue, target: IrValue, tap: IrValue, load: Load) -> None:
        """Copy a vector for each channel to its row of a tap."""
        code, element = self.code, self.element
        row = code.at(target, tap * self._pitch, element)
        with code.loop(0, self._channels) as c:
            here = code.at(source, c * self._channel, element)
            code.store(load(here), row, c * self._channel_pitch)


def vector_loader(
    code: Code, reading: int, type: str, first: IrValue, limit: IrValue, step: IrValue, stride: IrValue
) -> Load:
    """A function that loads a vector of an image's row: elements from 0 to `limit` exist, the others are 0.

    Args:
        code: is written to.
        reading: see :attr:`Columns.reading`; rows of shifted images are read like others.
        type: of the vector.
        first: number of its first element in the row.
        limit: how many elements the row has.
        step: how many elements on the next one of the vector is.
        stride: distance of neighbouring elements in memory.
    """
    lanes = lanes_of(type)
    numbers = code.lane_numbers("i32", lanes)
    start, end, by = (code.splat(code.convert(v, "i32"), lanes) for v in (first, limit, step))
    if reading:
        masks = [code.unsigned_less(numbers + part * lanes + start, end) for part in range(abs(reading))]

        def load(here: IrValue) -> IrValue:
            parts = [code.load(here, part * lanes, type, mask) for part, mask in enumerate(masks)]
            return parts[0] if len(parts) == 1 else code.shuffle(parts[0], parts[1], range(0, 2 * lanes, 2))

        return load
    mask = code.unsigned_less(numbers * by + start, end)
    distances = code.lane_numbers("i64", lanes) * code.splat(step * stride, lanes)
    return lambda here: code.gather(here, distances, type, mask)
