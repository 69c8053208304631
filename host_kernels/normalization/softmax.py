"""softmax, log_softmax and logsumexp with their gradients, along any axis."""

from __future__ import annotations

import math
from typing import Any

from dl4all.host_kernels.lib.lines import (
    FIELDS,
    LineGeometry,
    Lines,
    LineSlots,
    each_line,
    larger,
    largest_lane,
)
from dl4all.host_kernels.normalization.batch_norm import storages_of
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue

LOWEST = -87.3
"""Above it exponentials are normal numbers."""

WAITING = 4096
"""Elements of a line whose exponentials wait in a thread's own memory."""

WORK = 8
"""Operations that an element takes, about."""


def axis_geometry(x: ArrayLayout, first: int, last: int) -> tuple[LineGeometry, bool]:
    """Lines over the axes from `first` to `last`, and whether kernels go across them."""
    shape = x.shape
    outer, length, inner = (
        math.prod(part) for part in (shape[:first], shape[first : last + 1], shape[last + 1 :])
    )
    return LineGeometry.of_axis(outer, length, inner)


def _launch(text: Any, dim: int, log: bool, *layouts: ArrayLayout) -> HostLaunch:
    """The launch of a kernel for operands of one shape and the result.

    Raises:
        NoKernel: one is not of contiguous floats of 32 or 16 bits.
    """
    storages = storages_of(*layouts)
    x = layouts[0]
    axis = dim % max(len(x.shape), 1)
    geometry, across = axis_geometry(x, axis, axis)
    short = not across and geometry.width <= provider.processor().lanes()
    fits = not across and geometry.width <= WAITING
    key = (across, short, log, storages, fits)
    return HostLaunch(text, key, len(layouts), geometry, work=WORK * x.numel())


@host_kernel("softmax", copies=True)
def prepare_softmax(out: ArrayLayout, x: ArrayLayout, dim: int) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous floats of 32 or 16 bits.
    """
    return _launch(softmax, dim, False, x, out)


@host_kernel("log_softmax", copies=True)
def prepare_log_softmax(out: ArrayLayout, x: ArrayLayout, dim: int) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous floats of 32 or 16 bits.
    """
    return _launch(softmax, dim, True, x, out)


@host_kernel("softmax_backward", copies=True)
def prepare_softmax_backward(
    out: ArrayLayout, grad: ArrayLayout, result: ArrayLayout, dim: int
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    return _launch(softmax_backward, dim, False, grad, result, out)


@host_kernel("log_softmax_backward", copies=True)
def prepare_log_softmax_backward(
    out: ArrayLayout, grad: ArrayLayout, result: ArrayLayout, dim: int
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    return _launch(softmax_backward, dim, True, grad, result, out)


@host_kernel("logsumexp", copies=True)
def prepare_logsumexp(out: ArrayLayout, x: ArrayLayout, dim: Any, keepdim: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32, or the axes are not neighbours.
    """
    storages = storages_of(x, out)
    rank = len(x.shape)
    named = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = sorted(axis % max(rank, 1) for axis in named)
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise NoKernel("axes that are not neighbours")
    geometry, across = axis_geometry(x, axes[0], axes[-1])
    return HostLaunch(logsumexp, (across, storages), 2, geometry, work=WORK * x.numel())


# Forward


def softmax(across: bool, short: bool, log: bool, storages: tuple[str, ...], fits: bool) -> IrModule:
    """Softmax or its logarithm; `short` lines fit in a vector, where they stay.

    Exponentials wait in the result; where that would round them, in memory of the thread's own, or they are
    computed twice.
    """
    module = IrModule()
    with module.part("lines") as part:
        slots = LineSlots(part, ("x", "out"), FIELDS, storages=storages)
        buffer = part.local("float", WAITING)

        def line(lines: Lines) -> None:
            x, out = slots["x"], slots["out"]
            waiting = None if log else out
            if waiting is not None and out.storage:
                waiting = part.at(buffer, 0 - lines.base, "float") if fits else None
            if short:
                mask = part.first_lanes(slots["width"], lanes := lines.lanes)
                start = lines.number * slots["line_stride"]
                value = part.load(x, start, lines.type, mask)
                shifted = value - part.splat(largest_lane(part, part.select(mask, value, -math.inf)), lanes)
                above = power(part, shifted)
                total = part.splat(part.sum_of(part.select(mask, above, 0.0)), lanes)
                result = shifted - functions.log(part, total) if log else above / total
                part.store(result, out, start, mask)
                return
            most, total = largest_and_sum(lines, x, waiting)
            last = functions.log(part, total) if log else 1.0 / total

            def finish(i: IrValue, mask: IrValue | None, copy: int) -> None:
                value = part.load(x if waiting is None else waiting, i, lines.type, mask)
                above = value - most if waiting is None else value
                if waiting is None and not log:
                    above = power(part, above)
                part.store(above - last if log else above * last, out, i, mask)

            lines.each(finish)

        each_line(part, slots, across, line)
    with module.kernel("softmax") as code:
        given = LineSlots(code, ("x", "out"), FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


def power(code: Code, x: IrValue) -> IrValue:
    """exp(x) of numbers up to 0, within 2 ulps; 0 below the smallest normal number."""
    bounded = code.select(x < LOWEST, LOWEST, x)
    _, n, rest = functions.reduced_by_log2(code, bounded)
    result = (functions.small_expm1(code, rest) + 1.0) * code.bits((n << 23) + functions.ONE_BITS, "float")
    return code.select(x < LOWEST, 0.0, result)


def largest_of_line(lines: Lines, x: IrValue) -> IrValue:
    """The largest element of a line, nan if there is one."""
    code = lines.code
    largest = [code.variable(lines.type, -math.inf) for _ in range(2)]

    def widest(i: IrValue, mask: IrValue | None, copy: int) -> None:
        value = code.load(x, i, lines.type, mask)
        if mask is not None and not lines.across:
            value = code.select(mask, value, -math.inf)
        largest[copy].value = larger(code, largest[copy].value, value)

    lines.each(widest, 2)
    largest[0].value = larger(code, largest[0].value, largest[1].value)
    return lines.largest(largest[0])


def sum_of_powers(lines: Lines, x: IrValue, most: IrValue, out: IrValue | None = None) -> IrValue:
    """The sum of the exponentials of elements less `most`; they are written to `out`, if there is one."""
    code = lines.code
    total = lines.sum("float", 1)

    def exponential(i: IrValue, mask: IrValue | None, copy: int) -> None:
        value = power(code, code.load(x, i, lines.type, mask) - most)
        if out is not None:
            code.store(value, out, i, mask)
        total.add(value, mask, copy)

    lines.each(exponential, sums=[total])
    return code.convert(total.total(), "float")


def largest_and_sum(lines: Lines, x: IrValue, out: IrValue | None = None) -> tuple[IrValue, IrValue]:
    """The largest element of a line, and the sum of the exponentials of the others' distances from it."""
    most = largest_of_line(lines, x)
    return most, sum_of_powers(lines, x, most, out)


def logsumexp(across: bool, storages: tuple[str, ...]) -> IrModule:
    """One number for each line."""
    module = IrModule()
    with module.part("lines") as part:
        slots = LineSlots(part, ("x", "out"), FIELDS, storages=storages)

        def line(lines: Lines) -> None:
            most = largest_of_line(lines, slots["x"])
            result = functions.log(part, sum_of_powers(lines, slots["x"], most)) + most
            finite = part.intrinsic("fabs", most) < math.inf
            lines.put(part.select(finite, result, most), slots["out"])

        each_line(part, slots, across, line)
    with module.kernel("logsumexp") as code:
        given = LineSlots(code, ("x", "out"), FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


# Backward


def softmax_backward(across: bool, short: bool, log: bool, storages: tuple[str, ...], fits: bool) -> IrModule:
    """``result * (grad - sum(grad * result))``; of the logarithm, ``grad - exp(result) * sum(grad)``."""
    module = IrModule()
    with module.part("lines") as part:
        slots = LineSlots(part, ("grad", "result", "out"), FIELDS, storages=storages)

        def line(lines: Lines) -> None:
            grad, result, out = slots["grad"], slots["result"], slots["out"]

            def gradient(g: IrValue, y: IrValue, total: IrValue) -> IrValue:
                if log:
                    return part.intrinsic("fmuladd", -functions.exp(part, y), total, g)
                return y * (g - total)

            if short:
                mask = part.first_lanes(slots["width"], lines.lanes)
                start = lines.number * slots["line_stride"]
                g, y = (part.load(array, start, lines.type, mask) for array in (grad, result))
                total = part.sum_of(g if log else g * y)
                part.store(gradient(g, y, part.splat(total, lines.lanes)), out, start, mask)
                return
            sums = lines.sum("float", 2)

            def add(i: IrValue, mask: IrValue | None, copy: int) -> None:
                g = part.load(grad, i, lines.type, mask)
                if log:
                    sums.add(g, mask, copy)
                else:
                    sums.add_product(g, part.load(result, i, lines.type, mask), mask, copy)

            lines.each(add, 2, [sums])
            total = part.convert(sums.total(), "float")

            def write(i: IrValue, mask: IrValue | None, copy: int) -> None:
                g, y = (part.load(array, i, lines.type, mask) for array in (grad, result))
                part.store(gradient(g, y, total), out, i, mask)

            lines.each(write)

        each_line(part, slots, across, line)
    with module.kernel("softmax_backward") as code:
        given = LineSlots(code, ("grad", "result", "out"), FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module
