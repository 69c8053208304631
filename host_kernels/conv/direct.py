"""Convolutions of groups with one channel or one filter, as depthwise ones, row by row of results.

A few rows of results are added up in registers, a vector wide: there is too little to multiply for tiles.
"""

from __future__ import annotations

from collections.abc import Callable

from dl4all.host_kernels.conv.columns import vector_loader
from dl4all.host_kernels.conv.parts import PartPlan
from dl4all.host_kernels.conv.slots import ConvolutionSlots, Form
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

ROWS = 4
"""Of results at a time: sums of one row would wait for each other."""

Finish = Callable[[Code, IrValue, IrValue, IrValue, IrValue], None]


def direct_chunks(module: IrModule, form: Form, slots: ConvolutionSlots, finish: Finish) -> Code:
    """The part that computes planes of results: a filter's for an image."""
    element, lanes = form.tile.element, form.tile.lanes
    type = vector(element, lanes)
    with module.part("chunks") as code:
        _, begin, end = code.parameters
        at = {name: slots.read(code, name) for name in PartPlan._fields}
        x, w, out = (slots.read(code, name) for name in ("x", "w", "scratch" if form.gathered else "out"))
        numbers = [slots.read(code, f"columns{i}") for i in range(23)]
        image, channel, _, row_stride, stride = numbers[:5]
        size, out_size, taps, step, offset, delta = (numbers[i : i + 3] for i in range(5, 23, 3))
        rows = slots.read(code, "rows")
        tap_row = code.select(at["outer"].equals(1), taps[2] * at["filter_inner"], at["filter_outer"])
        with code.loop(begin, end) as plane:
            n, row = plane // rows, plane % rows
            group, f = row // at["filters"], row % at["filters"]
            source = code.at(x, n * image + group * at["group_stride"], element)
            filters = code.at(
                w, at["filter_first"] + group * at["filter_group"] + f * at["filter_row"], element
            )
            start = at["out_first"] + n // at["run_images"] * at["out_run"] + row * at["out_row"]
            target = code.at(out, start + n % at["run_images"] * at["image_places"], element)
            with code.loop(0, out_size[1], ROWS) as y0, code.loop(0, out_size[2], lanes) as x0:
                sums = [code.variable(type, 0.0) for _ in range(ROWS)]
                with (
                    code.loop(0, at["channels"]) as c,
                    code.loop(0, taps[1]) as kh,
                    code.loop(0, taps[2]) as kw,
                ):
                    place = c * at["filter_channel"] + kh * tap_row + kw * at["filter_inner"]
                    factor = code.splat(code.load(filters, place, element), lanes)
                    across = x0 * step[2] + offset[2] + kw * delta[2]
                    for r, total in enumerate(sums):
                        down = (y0 + r) * step[1] + offset[1] + kh * delta[1]
                        limit = code.select(code.unsigned_less(down, size[1]), size[2], 0)
                        load = vector_loader(code, form.reading, type, across, limit, step[2], stride)
                        here = c * channel + down * row_stride + across * stride
                        value = load(code.at(source, here, element))
                        total.value = code.intrinsic("fmuladd", factor, value, total.value)
                for r, total in enumerate(sums):
                    with code.if_(y0 + r < out_size[1]):
                        mask = code.first_lanes(out_size[2] - x0, lanes)
                        code.store(total.value, target, (y0 + r) * out_size[2] + x0, mask)
            if any(form.epilogue) and not form.gathered:
                finish(code, target, target, row, at["image_places"])
        return code
