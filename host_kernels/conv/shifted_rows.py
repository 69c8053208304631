"""Vectors of an image's rows, shifted as the taps of a small filter see them, each read once.

The taps are written out. A vector of the image is part of several results, and each tap has one mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dl4all.host_kernels.conv.columns import ColumnNumbers
from dl4all.host_kernels.conv.parts import Part
from dl4all.host_kernels.conv.slots import DirectForm
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

LEAST_ROWS = 4
"""Of results at a time: sums of one row would wait for each other."""

Met = list[tuple[int, int]]
"""Rows of results, and the rows of the filter by which they meet a row of the image."""


def direct_form(
    parts: list[Part], channels: int, element: str, most_taps: int, cost: Callable[[int, int], int]
) -> DirectForm:
    """The form of a kernel of such parts.

    Args:
        parts: of the convolution.
        channels: of a filter.
        element: the type of numbers.
        most_taps: of filters that are written out.
        cost: of a height of results and a number of rows at a time; the cheapest number is taken.
    """
    columns, lanes = parts[0].columns, vector_lanes(element)
    _, high, wide = columns.out_size
    while lanes > LEAST_ROWS and 2 * wide <= lanes:
        lanes //= 2
    if len(parts) > 1 or columns.rows > most_taps or not columns.reading:
        return DirectForm(LEAST_ROWS, lanes, int(channels == 1), (), (), ())
    most = 2 * LEAST_ROWS if provider.processor().registers > 16 else LEAST_ROWS
    rows = min(range(LEAST_ROWS, most + 1), key=lambda rows: (cost(high, rows), -rows))
    return DirectForm(rows, lanes, int(channels == 1), columns.taps[1:], columns.step[1:], columns.delta[1:])


class ShiftedRows:
    """Reads vectors of images."""

    def __init__(
        self, code: Code, form: DirectForm, element: str, reading: int, numbers: ColumnNumbers
    ) -> None:
        """
        Args:
            code: is written to, outside of all loops.
            form: whose taps are written out.
            element: the type of numbers.
            reading: of the columns.
            numbers: of the columns.
        """
        self._code, self._form, self._element, self._vectors = code, form, element, abs(reading)
        self._type = vector(element, form.lanes)
        self._row_stride = numbers.strides[1]
        self._size, self._offset = numbers.size, numbers.offset
        self._zeros = code.local(self._type, self._vectors)
        for i in range(self._vectors):
            zero = code.splat(code.constant(element, 0.0), form.lanes)
            code.store(zero, self._zeros, i * form.lanes)

    def vectors(
        self, source: IrValue, y0: IrValue, x0: IrValue, rows: int
    ) -> Iterator[tuple[IrValue, int, Met]]:
        """Read what some rows of results meet: vectors, and the column and rows by which they meet them.

        Args:
            source: address of the channel.
            y0, x0: the first result.
            rows: of results.
        """
        code, lanes = self._code, self._form.lanes
        (high, wide), (step_y, step_x), (delta_y, delta_x) = self._form[3:]
        numbers = code.lane_numbers("i32", lanes)
        end = code.splat(code.convert(self._size[2], "i32"), lanes)
        first = x0 * step_x + self._offset[2]
        masks = []
        for k in range(wide):
            start = code.splat(code.convert(first + k * delta_x, "i32"), lanes)
            masks.append(
                [code.unsigned_less(numbers + part * lanes + start, end) for part in range(self._vectors)]
            )
        meets: dict[int, Met] = {}
        for r in range(rows):
            for j in range(high):
                meets.setdefault(r * step_y + j * delta_y, []).append((r, j))
        for place, met in sorted(meets.items()):
            down = y0 * step_y + self._offset[1] + place
            inside = code.unsigned_less(down, self._size[1])
            line = code.at(source, down * self._row_stride + first, self._element)
            for k in range(wide):
                here = code.select(inside, code.at(line, k * delta_x, self._element), self._zeros)
                read = [code.load(here, part * lanes, self._type, mask) for part, mask in enumerate(masks[k])]
                value = read[0] if len(read) == 1 else code.shuffle(read[0], read[1], range(0, 2 * lanes, 2))
                yield value, k, met
