"""Convolutions of groups with one channel or one filter, as depthwise ones, row by row of results.

A few rows of results are added up in registers, a vector wide: there is too little to multiply for tiles.
"""

from __future__ import annotations

from dl4all.host_kernels.conv.columns import NUMBERS, ColumnNumbers, vector_loader
from dl4all.host_kernels.conv.epilogue import epilogue
from dl4all.host_kernels.conv.parts import PartPlan
from dl4all.host_kernels.conv.shifted_rows import ShiftedRows
from dl4all.host_kernels.conv.slots import ConvolutionSlots, Form
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

MOST_WRITTEN_OUT = 49
"""Of filters whose taps are written out: all of 7x7."""


def rows_computed(high: int, rows: int) -> int:
    """The rows that are computed for so many, some at a time."""
    return -(-high // rows) * rows


def direct_chunks(module: IrModule, form: Form, slots: ConvolutionSlots) -> Code:
    """The part that computes planes of results: a filter's for an image."""
    assert form.direct is not None
    element, (rows, lanes, one, *_) = form.tile.element, form.direct
    type = vector(element, lanes)
    with module.part("chunks") as code:
        _, begin, end = code.parameters
        at = {name: slots.read(code, name) for name in PartPlan._fields}
        x, w, out = (slots.read(code, name) for name in ("x", "w", "scratch" if form.gathered else "out"))
        plane = Plane(code, form, slots, at)
        rows_of_image = slots.read(code, "rows")
        with code.loop(begin, end) as number:
            n, row = number // rows_of_image, number % rows_of_image
            group, f = row // at["filters"], row % at["filters"]
            source = code.at(x, n * plane.image + group * at["group_stride"], element)
            filters = code.at(
                w, at["filter_first"] + group * at["filter_group"] + f * at["filter_row"], element
            )
            start = at["out_first"] + n // at["run_images"] * at["out_run"] + row * at["out_row"]
            target = code.at(out, start + n % at["run_images"] * at["image_places"], element)
            finished = None
            if not form.gathered:
                finished = epilogue(code, slots, form.epilogue, element, row, target, lanes)
            high, wide = plane.out_size[1:]
            with code.loop(0, high, rows) as y0, code.loop(0, wide, lanes) as x0:
                if one:
                    zero = code.splat(code.constant(element, 0.0), lanes)
                    sums = plane.added([zero] * rows, source, filters, y0, x0)
                else:
                    totals = [code.variable(type, 0.0) for _ in range(rows)]
                    with code.loop(0, at["channels"]) as c:
                        here = code.at(source, c * plane.channel, element)
                        own = code.at(filters, c * at["filter_channel"], element)
                        more = plane.added([total.value for total in totals], here, own, y0, x0)
                        for total, value in zip(totals, more, strict=True):
                            total.value = value
                    sums = [total.value for total in totals]
                mask = code.first_lanes(wide - x0, lanes)
                for r, value in enumerate(sums):
                    with code.if_(y0 + r < high):
                        place = (y0 + r) * wide + x0
                        code.store(finished(value, place, mask) if finished else value, target, place, mask)
        return code


class Plane:
    """Sums of a channel's products, for some rows of a vector of results."""

    def __init__(self, code: Code, form: Form, slots: ConvolutionSlots, at: dict[str, IrValue]) -> None:
        assert form.direct is not None
        self._code, self._form = code, form.direct
        self._element, self._reading = form.tile.element, form.reading
        self._type = vector(self._element, form.direct.lanes)
        numbers = ColumnNumbers.of([slots.read(code, f"columns{i}") for i in range(NUMBERS)])
        self.image, self.channel, (_, self._row_stride, self._stride) = numbers[:3]
        self._size, self.out_size, self._taps, self._step, self._offset, self._delta = numbers[3:]
        self._tap_right = at["filter_inner"]
        self._tap_down = code.select(
            at["outer"].equals(1), self._taps[2] * at["filter_inner"], at["filter_outer"]
        )
        self._rows = None
        if form.direct.taps:
            self._rows = ShiftedRows(code, form.direct, self._element, self._reading, numbers)

    def added(
        self, sums: list[IrValue], source: IrValue, filters: IrValue, y0: IrValue, x0: IrValue
    ) -> list[IrValue]:
        """The sums and the products of a channel at these addresses; y0 and x0 are the first result's."""
        if self._rows is not None:
            return self._written_out(self._rows, sums, source, filters, y0, x0)
        return self._counted(sums, source, filters, y0, x0)

    def _factor(self, filters: IrValue, down: IrValue | int, right: IrValue | int) -> IrValue:
        place = self._tap_down * down + self._tap_right * right
        return self._code.splat(self._code.load(filters, place, self._element), self._form.lanes)

    def _written_out(
        self,
        rows: ShiftedRows,
        sums: list[IrValue],
        source: IrValue,
        filters: IrValue,
        y0: IrValue,
        x0: IrValue,
    ) -> list[IrValue]:
        high, wide = self._form.taps
        sums, factors = list(sums), [[self._factor(filters, j, k) for k in range(wide)] for j in range(high)]
        for value, k, met in rows.vectors(source, y0, x0, len(sums)):
            for r, j in met:
                sums[r] = self._code.intrinsic("fmuladd", factors[j][k], value, sums[r])
        return sums

    def _counted(
        self, sums: list[IrValue], source: IrValue, filters: IrValue, y0: IrValue, x0: IrValue
    ) -> list[IrValue]:
        code = self._code
        totals = [code.variable(self._type, 0.0) for _ in sums]
        for total, value in zip(totals, sums, strict=True):
            total.value = value
        with code.loop(0, self._taps[1]) as kh, code.loop(0, self._taps[2]) as kw:
            factor = self._factor(filters, kh, kw)
            across = x0 * self._step[2] + self._offset[2] + kw * self._delta[2]
            for r, total in enumerate(totals):
                down = (y0 + r) * self._step[1] + self._offset[1] + kh * self._delta[1]
                limit = code.select(code.unsigned_less(down, self._size[1]), self._size[2], 0)
                load = vector_loader(
                    code, self._reading, self._type, across, limit, self._step[2], self._stride
                )
                value = load(code.at(source, down * self._row_stride + across * self._stride, self._element))
                total.value = code.intrinsic("fmuladd", factor, value, total.value)
        return [total.value for total in totals]
