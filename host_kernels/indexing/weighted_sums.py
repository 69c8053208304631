"""Weighted sums of elements along an axis, as interpolation takes them, and their gradients."""

from __future__ import annotations

import numpy as np

from dl4all.host_kernels.lib.lines import LineSlots
from dl4all.host_kernels.lib.rows import grain_of, row_passes
from dl4all.host_kernels.normalization.batch_norm import check_contiguous
from dl4all.host_kernels.pool.pooling import fill
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

ARRAYS = ("source", "places", "weights", "target")
INTEGERS = ("outer", "source_size", "target_size", "inner", "columns", "taps", "grain")


@host_kernel("resampled")
def prepare_resampled(transposed: bool, reads: list[ArrayLayout], writes: list[ArrayLayout]) -> HostLaunch:
    """The launch for a source and a target with three axes, of which the middle one is resampled.

    Raises:
        NoKernel: they are not of contiguous float32.
    """
    source, places, weights = reads
    [target] = writes
    check_contiguous(source, weights, target)
    if places.dtype != np.int64 or not places.is_contiguous():
        raise NoKernel("places that are not int64 in memory")
    outer, size, inner = source.shape
    taps, columns = places.shape
    grain = grain_of(max(size, target.shape[1]) * inner)
    constants = (outer, size, target.shape[1], inner, columns, taps, grain)
    work = 2 * taps * columns * outer * inner
    return HostLaunch(resampled, (transposed, inner == 1), len(ARRAYS), constants, work=work)


def resampled(transposed: bool, single: bool) -> IrModule:
    """``target[:, j]`` is the sum of ``weights[t, j] * source[:, places[t, j]]`` over taps t.

    Transposed, ``target[:, places[t, j]] += weights[t, j] * source[:, j]``. With `single` the last axis has
    one element.
    """
    module = IrModule()
    with module.part("outer") as part:
        slots = LineSlots(part, ARRAYS, INTEGERS)
        _, begin, end = part.parameters
        inner = slots["inner"]
        with part.loop(begin, end) as number:
            source = part.at(slots["source"], number * slots["source_size"] * inner, "float")
            target = part.at(slots["target"], number * slots["target_size"] * inner, "float")
            if transposed:
                fill(part, target, slots["target_size"] * inner, 0.0)
            if single:
                (_scattered if transposed else _gathered)(part, slots, source, target)
            else:
                with part.loop(0, slots["columns"]) as column:
                    (_spread if transposed else _added)(part, slots, source, target, column)
    with module.kernel("resampled") as code:
        given = LineSlots(code, ARRAYS, INTEGERS)
        code.parallel(part, code.parameters[0], given["outer"], given["grain"])
    return module


def _gathered(code: Code, slots: LineSlots, source: IrValue, target: IrValue) -> None:
    """A row of the target, whose elements are wherever their places say."""
    lanes = provider.processor().lanes()
    type, places_type = vector("float", lanes), vector("i64", lanes)

    def columns(i: IrValue, mask: IrValue | None) -> None:
        total = code.variable(type, 0.0)
        with code.loop(0, slots["taps"]) as tap:
            at = tap * slots["columns"] + i
            places = code.load(slots["places"], at, places_type, mask)
            every = code.constant(vector("i1", lanes), 1) if mask is None else mask
            value = code.gather(source, places, type, every)
            total.value = code.intrinsic(
                "fmuladd", value, code.load(slots["weights"], at, type, mask), total.value
            )
        code.store(total.value, target, i, mask)

    row_passes(code, slots["columns"], lanes, columns)


def _scattered(code: Code, slots: LineSlots, source: IrValue, target: IrValue) -> None:
    """Add the elements of a row of the source to wherever their places say, in a fixed order."""
    with code.loop(0, slots["columns"]) as column:
        value = code.load(source, column, "float")
        with code.loop(0, slots["taps"]) as tap:
            place, weight = _tap(code, slots, tap, column)
            total = code.intrinsic("fmuladd", value, weight, code.load(target, place, "float"))
            code.store(total, target, place)


def _added(code: Code, slots: LineSlots, source: IrValue, target: IrValue, column: IrValue) -> None:
    """One column of the target, the elements of the last axis side by side."""
    lanes = provider.processor().lanes()
    type, inner = vector("float", lanes), slots["inner"]

    def elements(i: IrValue, mask: IrValue | None) -> None:
        total = code.variable(type, 0.0)
        with code.loop(0, slots["taps"]) as tap:
            place, weight = _tap(code, slots, tap, column)
            value = code.load(source, place * inner + i, type, mask)
            total.value = code.intrinsic("fmuladd", value, code.splat(weight, lanes), total.value)
        code.store(total.value, target, column * inner + i, mask)

    row_passes(code, inner, lanes, elements)


def _spread(code: Code, slots: LineSlots, source: IrValue, target: IrValue, column: IrValue) -> None:
    """Add one column of the source to those of the target that it is a sum of."""
    lanes = provider.processor().lanes()
    type, inner = vector("float", lanes), slots["inner"]
    with code.loop(0, slots["taps"]) as tap:
        place, weight = _tap(code, slots, tap, column)
        first = place * inner

        def elements(i: IrValue, mask: IrValue | None) -> None:
            value = code.load(source, column * inner + i, type, mask)
            before = code.load(target, first + i, type, mask)
            total = code.intrinsic("fmuladd", value, code.splat(weight, lanes), before)
            code.store(total, target, first + i, mask)

        row_passes(code, inner, lanes, elements)


def _tap(code: Code, slots: LineSlots, tap: IrValue, column: IrValue) -> tuple[IrValue, IrValue]:
    """The place and the weight of a tap."""
    at = tap * slots["columns"] + column
    return code.load(slots["places"], at, "i64"), code.load(slots["weights"], at, "float")
