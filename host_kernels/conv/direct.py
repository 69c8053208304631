"""Convolutions of groups with one channel or one filter, as depthwise ones, row by row of results.

A few rows of results are added up in registers, a vector wide: there is too little to multiply for tiles.
Where filters are small, their taps are written out: a vector of an image is read once for all results that it
is part of, and each tap has one mask for all rows.
"""

from __future__ import annotations

from dl4all.host_kernels.conv.columns import vector_loader
from dl4all.host_kernels.conv.epilogue import epilogue
from dl4all.host_kernels.conv.parts import Part, PartPlan
from dl4all.host_kernels.conv.slots import ConvolutionSlots, DirectForm, Form
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

ROWS = 4
"""Of results at a time, at least: sums of one row would wait for each other."""
MOST_WRITTEN_OUT = 49
"""Taps of a filter: all of 7x7."""


def direct_form(parts: list[Part], channels: int, element: str) -> DirectForm:
    """The form of a kernel for such parts."""
    columns, lanes = parts[0].columns, vector_lanes(element)
    _, high, wide = columns.out_size
    while lanes > 4 and 2 * wide <= lanes:
        lanes //= 2
    written_out = len(parts) == 1 and columns.rows <= MOST_WRITTEN_OUT and columns.reading != 0
    if not written_out:
        return DirectForm(ROWS, lanes, int(channels == 1), (), (), ())
    most = 2 * ROWS if provider.processor().registers > 16 else ROWS
    rows = min(range(ROWS, most + 1), key=lambda rows: (-(-high // rows) * rows, -rows))
    return DirectForm(rows, lanes, int(channels == 1), columns.taps[1:], columns.step[1:], columns.delta[1:])


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
            finished = None if form.gathered else epilogue(code, slots, form, row, target, lanes)
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
        numbers = [slots.read(code, f"columns{i}") for i in range(23)]
        self.image, self.channel, _, self._row_stride, self._stride = numbers[:5]
        self._size, self.out_size, self._taps, self._step, self._offset, self._delta = (
            numbers[i : i + 3] for i in range(5, 23, 3)
        )
        self._tap_right = at["filter_inner"]
        self._tap_down = code.select(
            at["outer"].equals(1), self._taps[2] * at["filter_inner"], at["filter_outer"]
        )
        if form.direct.taps:
            vectors = abs(form.reading)
            self._zeros = code.local(self._type, vectors)
            for i in range(vectors):
                zero = code.splat(code.constant(self._element, 0.0), form.direct.lanes)
                code.store(zero, self._zeros, i * form.direct.lanes)

    def added(
        self, sums: list[IrValue], source: IrValue, filters: IrValue, y0: IrValue, x0: IrValue
    ) -> list[IrValue]:
        """The sums and the products of a channel at these addresses; y0 and x0 are the first result's."""
        write = self._written_out if self._form.taps else self._counted
        return write(sums, source, filters, y0, x0)

    def _factor(self, filters: IrValue, down: IrValue | int, right: IrValue | int) -> IrValue:
        place = self._tap_down * down + self._tap_right * right
        return self._code.splat(self._code.load(filters, place, self._element), self._form.lanes)

    def _written_out(
        self, sums: list[IrValue], source: IrValue, filters: IrValue, y0: IrValue, x0: IrValue
    ) -> list[IrValue]:
        code, lanes, type = self._code, self._form.lanes, self._type
        (high, wide), (step_y, step_x), (delta_y, delta_x) = (
            self._form.taps,
            self._form.step,
            self._form.delta,
        )
        sums, parts = list(sums), abs(self._reading)
        numbers = code.lane_numbers("i32", lanes)
        end = code.splat(code.convert(self._size[2], "i32"), lanes)
        first = x0 * step_x + self._offset[2]
        masks = []
        for k in range(wide):
            start = code.splat(code.convert(first + k * delta_x, "i32"), lanes)
            masks.append([code.unsigned_less(numbers + part * lanes + start, end) for part in range(parts)])
        factors = [[self._factor(filters, j, k) for k in range(wide)] for j in range(high)]
        # The results that a row of the image is part of, and by which row of the filter.
        meets: dict[int, list[tuple[int, int]]] = {}
        for r in range(len(sums)):
            for j in range(high):
                meets.setdefault(r * step_y + j * delta_y, []).append((r, j))
        for place, met in sorted(meets.items()):
            down = y0 * step_y + self._offset[1] + place
            inside = code.unsigned_less(down, self._size[1])
            line = code.at(source, down * self._row_stride + first, self._element)
            for k in range(wide):
                here = code.select(inside, code.at(line, k * delta_x, self._element), self._zeros)
                read = [code.load(here, part * lanes, type, mask) for part, mask in enumerate(masks[k])]
                value = read[0] if parts == 1 else code.shuffle(read[0], read[1], range(0, 2 * lanes, 2))
                for r, j in met:
                    sums[r] = code.intrinsic("fmuladd", factors[j][k], value, sums[r])
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
