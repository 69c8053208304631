"""Layer, group, instance and RMS normalisation: rows of contiguous elements, and their gradients.

Weight and bias lie beside each row (layer norm), or each of their elements is that of a run within a row. The
sums for their gradients are kept in parts: of a chunk's rows in the first form, of each run in the second.
They are added in order when all rows are done.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dl4all.host_kernels.lib.lines import (
    COPIES,
    FIELDS,
    LineGeometry,
    Lines,
    LineSlots,
    blocked_passes,
    each_line,
)
from dl4all.host_kernels.lib.rows import CHUNK, row_passes, unrolled_passes
from dl4all.host_kernels.normalization.batch_norm import deviation, storages_of
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

MOST_PARTS = 64
"""Chunks, each with sums of its own."""

ROWS = 16
"""Rows whose sums by column are in float32, before they go on in float64."""

INTEGERS = (*FIELDS, "channels", "of_group", "inner", "groups")


def _launch(
    text: Any, x: ArrayLayout, arrays: Mapping[str, ArrayLayout | None], groups: int, eps: float, center: bool
) -> HostLaunch:
    """The launch of a kernel of rows for these arrays, those that are None left out.

    Raises:
        NoKernel: one is not of contiguous floats of 32 or 16 bits.
    """
    storages = storages_of(*arrays.values())
    names = tuple(name for name, layout in arrays.items() if layout is not None)
    channels, inner = x.shape[1], math.prod(x.shape[2:])
    rows, of_group = x.shape[0] * groups, channels // groups
    length = of_group * inner
    by_channel = bool({"weight", "bias", "sums"} & {*names})
    spread = by_channel and (inner > 1 or groups > 1)
    grain = max(1, CHUNK // length)
    scratch = 0
    if "sums" in names:
        grain = max(grain, -(-rows // MOST_PARTS))
        parts = x.shape[0] if spread else -(-rows // grain)
        scratch = 16 * parts * channels + (0 if spread else 8 * rows)
    geometry = LineGeometry(rows, 1, 0, length, length, grain)
    constants = (*geometry, channels, of_group, inner, groups, float(length), float(eps))
    key = (spread, center, names, storages)
    return HostLaunch(text, key, len(names), constants, scratch=scratch, work=4 * x.numel())


@host_kernel("grouped_norm", copies=True)
def prepare_forward(
    out: ArrayLayout,
    x: ArrayLayout,
    weight: ArrayLayout | None,
    bias: ArrayLayout | None,
    groups: int,
    eps: float,
    center: bool,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"x": x, "weight": weight, "bias": bias, "out": out}
    return _launch(grouped_norm, x, arrays, groups, eps, center)


@host_kernel("grouped_norm_statistics", copies=True)
def prepare_statistics(out: ArrayLayout, x: ArrayLayout, groups: int, eps: float, center: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    return _launch(grouped_norm, x, {"x": x, "statistics": out}, groups, eps, center)


@host_kernel("grouped_norm_backward", copies=True)
def prepare_backward(
    out: ArrayLayout,
    grad: ArrayLayout,
    x: ArrayLayout,
    weight: ArrayLayout | None,
    groups: int,
    eps: float,
    center: bool,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"grad": grad, "x": x, "weight": weight, "out": out}
    return _launch(grouped_norm_backward, x, arrays, groups, eps, center)


@host_kernel("grouped_norm_sums", copies=True)
def prepare_sums(
    out: ArrayLayout, grad: ArrayLayout, x: ArrayLayout, groups: int, eps: float, center: bool
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    return _launch(grouped_norm_backward, x, {"grad": grad, "x": x, "sums": out}, groups, eps, center)


@host_kernel("normalized_backward", copies=True)
def prepare_normalized_backward(
    out: ArrayLayout, grad: ArrayLayout, x: ArrayLayout, given: ArrayLayout, groups: int
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"grad": grad, "x": x, "statistics": given, "out": out}
    return _launch(grouped_norm_backward, x, arrays, groups, 0.0, True)


@host_kernel("normalized_sums", copies=True)
def prepare_normalized_sums(
    out: ArrayLayout, grad: ArrayLayout, x: ArrayLayout, given: ArrayLayout, groups: int
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"grad": grad, "x": x, "statistics": given, "sums": out}
    return _launch(grouped_norm_backward, x, arrays, groups, 0.0, True)


@host_kernel("grouped_norm_gradients")
def prepare_gradients(
    groups: int, eps: float, center: bool, reads: list[ArrayLayout], writes: list[ArrayLayout]
) -> HostLaunch:
    """The launch of a whole backward pass.

    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    weight = reads[2] if len(reads) > 2 else None
    arrays = {"grad": reads[0], "x": reads[1], "weight": weight, "out": writes[0], "sums": writes[1]}
    return _launch(grouped_norm_backward, reads[1], arrays, groups, eps, center)


# Forward


def grouped_norm(spread: bool, center: bool, arrays: tuple[str, ...], storages: tuple[str, ...]) -> IrModule:
    """The normalised rows, or their means and scales. Floats: elements of a row, eps."""
    module = IrModule()
    with module.part("rows") as part:
        slots = LineSlots(part, arrays, INTEGERS, ("elements", "eps"), storages)

        def row(lines: Lines) -> None:
            mean, scale = _mean_and_scale(lines, slots, center)
            if "statistics" in slots:
                lines.put(mean, slots["statistics"])
                lines.put(scale, part.at(slots["statistics"], slots["lines"], "float"))
                return
            x, out, base = slots["x"], slots["out"], lines.number * slots["width"]
            if not spread:

                def beside(i: IrValue, mask: IrValue | None, copy: int) -> None:
                    value = (part.load(x, i, lines.type, mask) - mean) * scale
                    factor = (
                        part.load(slots["weight"], i - base, lines.type, mask) if "weight" in slots else None
                    )
                    term = part.load(slots["bias"], i - base, lines.type, mask) if "bias" in slots else None
                    part.store(_scaled(part, value, factor, term), out, i, mask)

                lines.each(beside, 2)
                return
            with each_run(part, slots, lines.number) as (channel, start):
                factor, term = (
                    part.splat(part.load(slots[name], channel, "float"), lines.lanes)
                    if name in slots
                    else None
                    for name in ("weight", "bias")
                )
                slope = scale if factor is None else scale * factor

                def within(i: IrValue, mask: IrValue | None, copy: int) -> None:
                    centered = part.load(x, i, lines.type, mask) - mean
                    part.store(_scaled(part, centered, slope, term), out, i, mask)

                unrolled_passes(part, slots["inner"], lines.lanes, within, 2, start)

        each_line(part, slots, False, row)
    with module.kernel("grouped_norm") as code:
        given = LineSlots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


@contextlib.contextmanager
def each_run(code: Code, slots: LineSlots, row: IrValue) -> Iterator[tuple[IrValue, IrValue]]:
    """The loop over the runs of a row: gives the channel and the place where its run starts."""
    first, start = row % slots["groups"] * slots["of_group"], row * slots["width"]
    with code.loop(0, slots["of_group"]) as i:
        yield first + i, start + i * slots["inner"]


def _scaled(code: Code, value: IrValue, factor: IrValue | None, term: IrValue | None) -> IrValue:
    """``value * factor + term``, as far as there are such."""
    if factor is None:
        return value if term is None else value + term
    return value * factor if term is None else code.intrinsic("fmuladd", value, factor, term)


def _mean_and_scale(lines: Lines, slots: LineSlots, center: bool) -> tuple[IrValue, IrValue]:
    """The mean of a row, or 0, and ``1 / sqrt(var + eps)``."""
    code = lines.code
    if "statistics" in slots and "grad" in slots:
        scales = code.at(slots["statistics"], slots["lines"], "float")
        return lines.value(slots["statistics"]), lines.value(scales)
    share, mean = lines.number_like(1.0 / slots["elements"], "double"), lines.number_like(0.0)
    if center:
        sums = lines.sum("float")

        def add(i: IrValue, mask: IrValue | None, copy: int) -> None:
            sums.add(code.load(slots["x"], i, lines.type, mask), None, copy)

        lines.each(add, COPIES, [sums])
        mean = code.convert(sums.total() * share, "float")
    squares = lines.sum("float")

    def square(i: IrValue, mask: IrValue | None, copy: int) -> None:
        value = code.load(slots["x"], i, lines.type, mask) - mean
        squares.add_product(value, value, mask, copy)

    lines.each(square, COPIES, [squares])
    return mean, deviation(lines, code.convert(squares.total() * share, "float"), slots["eps"])


# Backward


def grouped_norm_backward(
    spread: bool, center: bool, arrays: tuple[str, ...], storages: tuple[str, ...]
) -> IrModule:
    """The input's gradient and the sums for weight and bias, as far as they are among the arrays.

    Floats: elements of a row, eps.
    """
    module = IrModule()
    names = (*arrays, "scratch") if "sums" in arrays else arrays
    with module.part("rows") as part:
        slots = LineSlots(part, names, INTEGERS, ("elements", "eps"), storages)

        def row(lines: Lines) -> None:
            mean, scale = _mean_and_scale(lines, slots, center)
            if "sums" in slots and not spread:
                lines.put(mean, slots["scratch"])
                lines.put(scale, part.at(slots["scratch"], slots["lines"], "float"))
            if "out" in slots or spread:
                (_spread_row if spread else _row)(lines, slots, mean, scale, center)

        each_line(part, slots, False, row)
        if "sums" in slots and not spread:
            _, begin, end = part.parameters
            _column_sums(part, slots, begin, end)
    with module.kernel("grouped_norm_backward") as code:
        given = LineSlots(code, names, INTEGERS, storages=storages)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
        if "sums" in names:
            _added_parts(code, given, spread)
    return module


def _row(lines: Lines, slots: LineSlots, mean: IrValue, scale: IrValue, center: bool) -> None:
    """The gradient of a row: ``scale * (h - mean(h) - y * mean(h * y))`` for ``h = grad * weight``."""
    code, base = lines.code, lines.number * slots["width"]

    def loaded(i: IrValue, mask: IrValue | None) -> tuple[IrValue, IrValue]:
        h = code.load(slots["grad"], i, lines.type, mask)
        if "weight" in slots:
            h = h * code.load(slots["weight"], i - base, lines.type, mask)
        return h, code.load(slots["x"], i, lines.type, mask) - mean

    total, product = lines.sum("float", 2), lines.sum("float", 2)

    def sums(i: IrValue, mask: IrValue | None, copy: int) -> None:
        h, centered = loaded(i, mask)
        total.add(h, mask, copy)
        product.add_product(h, centered, mask, copy)

    lines.each(sums, 2, [total, product])
    share = lines.number_like(code.convert(1.0 / slots["elements"], "float"))
    mean_h = code.convert(total.total(), "float") * share if center else lines.number_like(0.0)
    factor = code.convert(product.total(), "float") * scale * scale * share

    def gradient(i: IrValue, mask: IrValue | None, copy: int) -> None:
        h, centered = loaded(i, mask)
        value = code.intrinsic("fmuladd", -centered, factor, h - mean_h) * scale
        code.store(value, slots["out"], i, mask)

    lines.each(gradient, 2)


def _spread_row(lines: Lines, slots: LineSlots, mean: IrValue, scale: IrValue, center: bool) -> None:
    """As :func:`_row`, with a weight for each run; the runs' sums go to the scratch memory."""
    code, x, grad = lines.code, slots["x"], slots["grad"]
    scalar = code.convert(code.extract(scale, 0), "double")
    total, product = code.variable("double", 0.0), code.variable("double", 0.0)
    with each_run(code, slots, lines.number) as (channel, start):
        sum_g, sum_gx = lines.sum("float", 2), lines.sum("float", 2)

        def sums(i: IrValue, mask: IrValue | None, copy: int) -> None:
            g = code.load(grad, i, lines.type, mask)
            sum_g.add(g, mask, copy)
            sum_gx.add_product(g, code.load(x, i, lines.type, mask) - mean, mask, copy)

        blocked_passes(code, slots["inner"], lines.lanes, sums, 2, start, [sum_g, sum_gx])
        of_g, of_gy = code.extract(sum_g.total(), 0), code.extract(sum_gx.total(), 0) * scalar
        if "sums" in slots:
            place = lines.number // slots["groups"] * (2 * slots["channels"]) + channel
            code.store(of_g, slots["scratch"], place)
            code.store(of_gy, slots["scratch"], place + slots["channels"])
        if "weight" in slots:
            w = code.convert(code.load(slots["weight"], channel, "float"), "double")
            of_g, of_gy = of_g * w, of_gy * w
        total.value = total.value + of_g
        product.value = product.value + of_gy
    if "out" not in slots:
        return
    elements = slots["elements"]
    mean_h = code.splat(code.convert(total.value / elements, "float"), lines.lanes)
    if not center:
        mean_h = lines.number_like(0.0)
    factor = code.splat(code.convert(product.value * scalar / elements, "float"), lines.lanes)
    with each_run(code, slots, lines.number) as (channel, start):
        weight = (
            code.load(slots["weight"], channel, "float") if "weight" in slots else code.constant("float", 1.0)
        )
        w = code.splat(weight, lines.lanes)

        def gradient(i: IrValue, mask: IrValue | None, copy: int) -> None:
            h = code.load(grad, i, lines.type, mask) * w
            centered = code.load(x, i, lines.type, mask) - mean
            value = code.intrinsic("fmuladd", -centered, factor, h - mean_h) * scale
            code.store(value, slots["out"], i, mask)

        unrolled_passes(code, slots["inner"], lines.lanes, gradient, 2, start)


def _column_sums(code: Code, slots: LineSlots, begin: IrValue, end: IrValue) -> None:
    """The sums over a chunk's rows, to the scratch memory."""
    lanes = provider.processor().lanes()
    type, double = vector("float", lanes), vector("double", lanes)
    channels, means = slots["channels"], slots["scratch"]
    scales = code.at(means, slots["lines"], "float")
    parts = code.at(slots["scratch"], slots["lines"], "i64")
    first = begin // slots["grain"] * (2 * channels)

    def column(j: IrValue, mask: IrValue | None) -> None:
        of_g, of_gy = code.variable(double, 0.0), code.variable(double, 0.0)
        with code.loop(begin, end, ROWS) as block:
            some_g, some_gy = code.variable(type, 0.0), code.variable(type, 0.0)
            with code.loop(block, code.intrinsic("smin", block + ROWS, end)) as row:
                place = row * channels + j
                g = code.load(slots["grad"], place, type, mask)
                mean, scale = (
                    code.splat(code.load(of_rows, row, "float"), lanes) for of_rows in (means, scales)
                )
                some_g.value = some_g.value + g
                y = (code.load(slots["x"], place, type, mask) - mean) * scale
                some_gy.value = code.intrinsic("fmuladd", g, y, some_gy.value)
            of_g.value = of_g.value + code.convert(some_g.value, "double")
            of_gy.value = of_gy.value + code.convert(some_gy.value, "double")
        code.store(of_g.value, parts, first + j, mask)
        code.store(of_gy.value, parts, first + channels + j, mask)

    row_passes(code, channels, lanes, column)


def _added_parts(code: Code, slots: LineSlots, spread: bool) -> None:
    """The sums of all parts, in their order."""
    lanes = provider.processor().lanes(8)
    double = vector("double", lanes)
    channels, count, grain = slots["channels"], slots["lines"], slots["grain"]
    if spread:
        parts, number = slots["scratch"], count // slots["groups"]
    else:
        parts, number = code.at(slots["scratch"], count, "i64"), (count + (grain - 1)) // grain

    def column(j: IrValue, mask: IrValue | None) -> None:
        total = code.variable(double, 0.0)
        total.value = 0.0
        with code.loop(0, number) as i:
            total.value = total.value + code.load(parts, i * (2 * channels) + j, double, mask)
        code.store(code.convert(total.value, "float"), slots["sums"], j, mask)

    row_passes(code, 2 * channels, lanes, column)
