"""Max pooling: maxima, and what is done at the places of maxima.

Maxima are taken along the columns of an image first, then along rows. Their places are looked for element by
element of the windows, in vectors of windows, from copies of the windows' rows with padding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.host_kernels.lib.lines import LineSlots, larger, largest_lane
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.host_kernels.normalization.batch_norm import check_contiguous
from dl4all.host_kernels.pool.pooling import (
    INTEGERS,
    WindowSpan,
    column_span,
    fill,
    part_memory,
    picked,
    plan_of,
    planes_of,
    row_span,
)
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.pool.max_pool import max_pooling
from dl4all.ops.pool.windows import Pooling, adaptive
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

UNROLLED = (2, 3)
"""Sizes of windows that have code of their own."""


def _prepare_maxima(out: ArrayLayout, x: ArrayLayout, pooling: Pooling) -> HostLaunch:
    check_contiguous(x)
    integers, scratch, stride = plan_of(pooling, planes_of(x), band=False)
    sizes = [0, 0]
    if pooling.win is not None:
        sizes = [
            k if k in UNROLLED and d == 1 else 0
            for k, d in zip(pooling.win.kernel, pooling.win.dilation, strict=True)
        ]
    return HostLaunch(max_pool, (stride, *sizes), 2, integers, scratch=scratch, work=2 * x.numel())


@host_kernel("max_pool2d", copies=True)
def prepare_max_pool(out: ArrayLayout, x: ArrayLayout, **arguments: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32.
    """
    return _prepare_maxima(out, x, max_pooling(x.shape, **arguments))


@host_kernel("adaptive_max_pool2d", copies=True)
def prepare_adaptive_max_pool(out: ArrayLayout, x: ArrayLayout, output_size: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32.
    """
    return _prepare_maxima(out, x, adaptive("adaptive_max_pool2d", x.shape, output_size))


def _prepare_places(arrays: dict[str, ArrayLayout], x: ArrayLayout, pooling: Pooling) -> HostLaunch:
    integers, scratch, stride = plan_of(pooling, planes_of(x), band=pooling.win is not None, extra=1)
    return HostLaunch(
        max_pool_places, (stride, tuple(arrays)), len(arrays), integers, scratch=scratch, work=4 * x.numel()
    )


@host_kernel("max_pool_backward", copies=True)
def prepare_backward(out: ArrayLayout, grad: ArrayLayout, x: ArrayLayout, pooling: Pooling) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32.
    """
    check_contiguous(grad, x)
    return _prepare_places({"grad": grad, "x": x, "gradient": out}, x, pooling)


@host_kernel("max_pool_at", copies=True)
def prepare_taken(out: ArrayLayout, values: ArrayLayout, by: ArrayLayout, pooling: Pooling) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous float32.
    """
    check_contiguous(values, by)
    return _prepare_places({"values": values, "x": by, "taken": out}, by, pooling)


@host_kernel("max_pool2d_with_indices")
def prepare_indices(pooling: Pooling, reads: list[ArrayLayout], writes: list[ArrayLayout]) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32.
    """
    [x], [indices] = reads, writes
    check_contiguous(x)
    assert indices.dtype == np.int64
    return _prepare_places({"x": x, "indices": indices}, x, pooling)


# Maxima


def max_pool(stride: int, rows: int, columns: int) -> IrModule:
    """Slots: the images, their maxima, scratch memory, the integers of pooling."""
    lanes, is_adaptive = provider.processor().lanes(), stride < 0
    type = vector("float", lanes)
    module = IrModule()
    with module.part("planes") as part:
        slots = LineSlots(part, ("x", "out", "scratch"), INTEGERS)
        _, begin, end = part.parameters
        row = part_memory(part, slots, begin)
        fill(part, row, slots["row_length"], -math.inf)
        inside = part.at(row, slots["column_padding"], "float")
        width, out_width = slots["width"], slots["out_width"]
        with part.loop(begin, end) as plane:
            image = part.at(slots["x"], plane * slots["height"] * width, "float")
            target = part.at(slots["out"], plane * slots["out_height"] * out_width, "float")
            with part.loop(0, slots["out_height"]) as number:
                span = row_span(part, slots, number, is_adaptive)
                out = part.at(target, number * out_width, "float")
                _down_columns(part, slots, image, inside, span, rows)
                if is_adaptive:
                    with part.loop(0, out_width) as window:
                        across = column_span(part, slots, window, True)
                        largest = part.variable(type, -math.inf)

                        def widest(i: IrValue, mask: IrValue | None) -> None:
                            value = part.load(row, across.origin + i, type, mask)
                            if mask is not None:
                                value = part.select(mask, value, -math.inf)
                            largest.value = larger(part, largest.value, value)

                        row_passes(part, across.end, lanes, widest)
                        part.store(largest_lane(part, largest.value), out, window)
                else:

                    def along_row(i: IrValue, mask: IrValue | None) -> None:
                        place = i * slots["column_stride"]
                        best = part.variable(type, -math.inf)

                        def tap(number: IrValue | int) -> None:
                            offset = part.as_value("i64", number) * slots["column_step"]
                            best.value = larger(
                                part, best.value, picked(part, row, place + offset, stride, slots)
                            )

                        if columns:
                            for known in range(columns):
                                tap(known)
                        else:
                            with part.loop(0, slots["columns"]) as column:
                                tap(column)
                        part.store(best.value, out, i, mask)

                    row_passes(part, out_width, lanes, along_row)
    with module.kernel("max_pool") as code:
        given = LineSlots(code, ("x", "out", "scratch"), INTEGERS)
        code.parallel(part, code.parameters[0], given["planes"], given["grain"])
    return module


def _down_columns(
    code: Code, slots: LineSlots, image: IrValue, target: IrValue, span: WindowSpan, rows: int
) -> None:
    """The largest element of each column of a window's rows."""
    lanes = provider.processor().lanes()
    type, width, step = vector("float", lanes), slots["width"], slots["row_step"]
    if rows:  # a row outside counts as the next one inside, which changes no maximum
        last = slots["height"] - 1
        places = []
        for number in range(rows):
            inside = code.intrinsic(
                "smin", code.intrinsic("smax", span.origin + number, code.constant("i64", 0)), last
            )
            places.append(inside * width)

        def column(i: IrValue, mask: IrValue | None) -> None:
            best = code.load(image, places[0] + i, type, mask)
            for place in places[1:]:
                best = larger(code, best, code.load(image, place + i, type, mask))
            code.store(best, target, i, mask)

    else:

        def column(i: IrValue, mask: IrValue | None) -> None:
            best = code.variable(type, -math.inf)
            with code.loop(span.first, span.end) as number:
                place = (span.origin + number * step) * width + i
                best.value = larger(code, best.value, code.load(image, place, type, mask))
            code.store(best.value, target, i, mask)

    row_passes(code, width, lanes, column)


# Places of maxima


def max_pool_places(stride: int, arrays: tuple[str, ...]) -> IrModule:
    """The place of each window's maximum in `x`: the first one, or the last nan.

    `indices` are the places, -1 where there is only padding; `taken` are elements of `values`, 0 there;
    `gradient` is the sum of the elements of `grad`.
    """
    names = (*arrays, "scratch")
    module = IrModule()
    with module.part("planes") as part:
        slots = LineSlots(part, names, INTEGERS)
        _, begin, end = part.parameters
        band = part_memory(part, slots, begin)
        size, out_size = slots["height"] * slots["width"], slots["out_height"] * slots["out_width"]
        rows = slots["rows"] if stride >= 0 else part.constant("i64", 0)
        places = part.at(band, rows * slots["row_length"], "i32")
        fill(part, band, rows * slots["row_length"], -math.inf)
        with part.loop(begin, end) as plane:
            image = part.at(slots["x"], plane * size, "float")
            if "gradient" in slots:
                fill(part, part.at(slots["gradient"], plane * size, "float"), size, 0.0)
            with part.loop(0, slots["out_height"]) as number:
                span = row_span(part, slots, number, stride < 0)
                if stride < 0:
                    _adaptive_places(part, slots, image, places, span)
                else:
                    _copy_rows(part, slots, image, band, span)
                    _sliding_places(part, slots, band, places, span, stride)
                with part.loop(0, slots["out_width"]) as column:
                    place = part.convert(part.load(places, column, "i32"), "i64")
                    at = plane * out_size + number * slots["out_width"] + column
                    _use(part, slots, place, plane * size, at)
    with module.kernel("max_pool_places") as code:
        given = LineSlots(code, names, INTEGERS)
        code.parallel(part, code.parameters[0], given["planes"], given["grain"])
    return module


def _use(code: Code, slots: LineSlots, place: IrValue, image: IrValue, window: IrValue) -> None:
    """Do what the arrays name with the place of one window's maximum."""
    if "indices" in slots:
        code.store(place, slots["indices"], window)
    if "taken" in slots:
        code.store(code.constant("float", 0.0), slots["taken"], window)
    with code.if_(place >= 0):
        if "taken" in slots:
            code.store(code.load(slots["values"], image + place, "float"), slots["taken"], window)
        if "gradient" in slots:
            total = code.load(slots["gradient"], image + place, "float")
            code.store(total + code.load(slots["grad"], window, "float"), slots["gradient"], image + place)


def _copy_rows(code: Code, slots: LineSlots, image: IrValue, band: IrValue, span: WindowSpan) -> None:
    """The rows of a window, to the band of the scratch memory; -inf in place of those outside."""
    lanes = provider.processor().lanes()
    type, width, length = vector("float", lanes), slots["width"], slots["row_length"]
    with code.loop(0, slots["rows"]) as number:
        target = code.at(band, number * length + slots["column_padding"], "float")
        source = code.at(image, (span.origin + number * slots["row_step"]) * width, "float")
        inside = (number >= span.first) & (number < span.end)
        with code.if_(inside):
            row_passes(
                code,
                width,
                lanes,
                lambda i, mask: code.store(code.load(source, i, type, mask), target, i, mask),
            )
        with code.if_(~inside):
            fill(code, target, width, -math.inf)


def _sliding_places(
    code: Code, slots: LineSlots, band: IrValue, places: IrValue, span: WindowSpan, stride: int
) -> None:
    """The places of the maxima of a row of windows."""
    lanes = provider.processor().lanes()
    type, whole_type = vector("float", lanes), vector("i32", lanes)
    width, length, step = slots["width"], slots["row_length"], slots["column_step"]
    apart = code.splat(code.convert(slots["column_stride"], "i32"), lanes) * code.lane_numbers("i32", lanes)

    def windows(i: IrValue, mask: IrValue | None) -> None:
        start = i * slots["column_stride"]
        best, found = code.variable(type, -math.inf), code.variable(whole_type, -1)
        with code.loop(span.first, span.end) as row:
            base = (span.origin + row * slots["row_step"]) * width + start - slots["column_padding"]
            with code.loop(0, slots["columns"]) as column:
                offset = column * step
                value = picked(code, band, row * length + start + offset, stride, slots)
                wins = (value > best.value) | value.differs(value)
                place = apart + code.splat(code.convert(base + offset, "i32"), lanes)
                best.value = code.select(wins, value, best.value)
                found.value = code.select(wins, place, found.value)
        code.store(found.value, places, i, mask)

    row_passes(code, slots["out_width"], lanes, windows)
    with code.loop(0, slots["out_width"]) as window:
        with_none = code.load(places, window, "i32") < 0  # all its elements are -inf, or padding
        with code.if_(with_none):
            across = column_span(code, slots, window, False)
            some = (across.first < across.end) & (span.first < span.end)
            row = span.origin + span.first * slots["row_step"]
            place = row * width + across.origin + across.first * step
            code.store(code.convert(code.select(some, place, -1), "i32"), places, window)


def _adaptive_places(code: Code, slots: LineSlots, image: IrValue, places: IrValue, span: WindowSpan) -> None:
    """The places of the maxima of a row of adaptive windows, element by element."""
    with code.loop(0, slots["out_width"]) as window:
        across = column_span(code, slots, window, True)
        first = span.origin * slots["width"] + across.origin
        best, found = code.variable("float", -math.inf), code.variable("i64", first)
        with code.loop(0, span.end) as row, code.loop(0, across.end) as column:
            place = first + row * slots["width"] + column
            value = code.load(image, place, "float")
            wins = (value > best.value) | value.differs(value)
            best.value = code.select(wins, value, best.value)
            found.value = code.select(wins, place, found.value)
        code.store(code.convert(found.value, "i32"), places, window)
