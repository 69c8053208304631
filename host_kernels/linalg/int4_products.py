"""Products with weights of 4 bits, in blocks of 32 (:mod:`dl4all.ops.linalg.int4_product`).

Each block is unpacked in registers, once for all rows of the left operand; its scale multiplies the sum of
its products.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from dl4all.host_kernels.lib.elements import converts_half
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.linalg.int4_product import ZERO
from dl4all.ops.linalg.matvec import BLOCK
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

HALF_BLOCK = BLOCK // 2  # bytes of a block
MAX_ROWS = 4  # that are multiplied together
FEATURES = {1: 4, 2: 2, 3: 1, 4: 1}  # that are, too
PARALLEL_PRODUCTS = 2**17
"""Products of two numbers that a thread computes at a time, at least: some 10 microseconds."""

UNPACKED_GROUPS = 1024
"""The same of groups that are unpacked."""


@host_kernel("int4_product")
def prepare_int4_product(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The products of rows of float32 with rows of 4-bit weights.

    Raises:
        NoKernel: operands have gaps, or the processor does not convert float16.
    """
    x, _, scales = reads
    _check(*reads, *writes)
    (rows, inner), (features, groups) = x.shape, scales.shape
    blocks = inner // BLOCK
    grain = max(FEATURES[1], PARALLEL_PRODUCTS // (rows * inner))
    constants = (rows, features, blocks, blocks // groups, grain)
    return HostLaunch(int4_product, (), 4, constants, work=rows * features * inner // 8)


@host_kernel("int4_unpack")
def prepare_int4_unpack(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The numbers that 4-bit weights stand for.

    Raises:
        NoKernel: operands have gaps, or the processor does not convert float16.
    """
    (_, scales), (out,) = reads, writes
    _check(*reads, *writes)
    blocks = out.shape[1] // BLOCK
    constants = (scales.shape[0] * scales.shape[1], blocks // scales.shape[1])
    return HostLaunch(int4_unpack, (), 3, constants, work=out.shape[0] * out.shape[1] // 8)


def _check(*layouts: ArrayLayout) -> None:
    """
    Raises:
        NoKernel
    """
    if not all(layout.is_contiguous() for layout in layouts) or not converts_half():
        raise NoKernel("operands with gaps, or no instruction for float16")


def _numbers(code: Code, block: IrValue) -> list[IrValue]:
    """The numbers q, from 0 to 15, of a block, in vectors of floats."""
    lanes = min(provider.processor().lanes(4), HALF_BLOCK)
    low, high = list[IrValue](), list[IrValue]()
    for start in range(0, HALF_BLOCK, lanes):
        both = code.unsigned(code.load(block, start, vector("i8", lanes)), "i32")
        low.append(code.convert(both & 15, "float"))
        high.append(code.convert(both >> 4, "float"))
    return low + high


def _scale(code: Code, scales: IrValue, group: IrValue, lanes: int) -> IrValue:
    return code.splat(code.convert(code.load(scales, group, "half"), "float"), lanes)


def int4_product() -> IrModule:
    """Slots: X, W, scales, Y; rows, features, blocks of a row, blocks of a scale, features of a chunk."""
    module = IrModule()
    kinds = [_write_rows(module, rows) for rows in range(1, MAX_ROWS + 1)]
    with module.part("multiply") as code:
        slots, begin, end = code.parameters
        rows = code.slot(4)
        parts = (rows + (MAX_ROWS - 1)) // MAX_ROWS
        least, larger = rows // parts, rows % parts
        row = code.variable("i64", 0)
        with code.loop(0, parts) as part:
            height = code.select(part < larger, least + 1, least)
            for number, kind in enumerate(kinds, 1):
                together = FEATURES[number]
                with code.if_(height.equals(number)), code.loop(begin, end, together) as feature:
                    code.run(kind, slots, row.value, feature, end)
            row.value = row.value + height
    with module.kernel("int4_product") as kernel:
        kernel.parallel(code, kernel.parameters[0], kernel.slot(5), kernel.slot(8))
    return module


def _write_rows(module: IrModule, rows: int) -> Code:
    """The function for so many rows of X from one on, and as many features as FEATURES says, but the end."""
    together = FEATURES[rows]
    with module.function(f"rows{rows}", "ptr", "i64", "i64", "i64") as code:
        _, row, feature, end = code.parameters
        x, w, scales, y = (code.slot(place, "ptr") for place in range(4))
        features, blocks, per_scale = (code.slot(place) for place in range(5, 8))
        inner = blocks * BLOCK
        left = [code.at(x, (row + i) * inner, "float") for i in range(rows)]
        # Past the last feature it is taken again, and not stored.
        numbers = [code.intrinsic("smin", feature + j, end - 1) for j in range(together)]
        lanes = min(provider.processor().lanes(4), HALF_BLOCK)
        type = vector("float", lanes)
        sums = [[code.variable(type, 0.0) for _ in range(together)] for _ in range(rows)]
        groups = blocks // per_scale
        with (
            code.loop(0, groups) as group,
            code.loop(group * per_scale, (group + 1) * per_scale) as block,
        ):
            factors = [
                [code.load(place, block * BLOCK + at, type) for at in range(0, BLOCK, lanes)]
                for place in left
            ]
            starts = [functools.reduce(operator.add, values) * -ZERO for values in factors]
            for j, number in enumerate(numbers):
                at = number * blocks + block
                weights = _numbers(code, code.at(w, at * HALF_BLOCK, "i8"))
                scale = _scale(code, scales, number * groups + group, lanes)
                for products, values, totals in zip(starts, factors, sums, strict=True):
                    for weight, value in zip(weights, values, strict=True):
                        products = code.intrinsic("fmuladd", weight, value, products)
                    totals[j].value = code.intrinsic("fmuladd", scale, products, totals[j].value)
        for i, totals in enumerate(sums):
            target = code.at(y, (row + i) * features, "float")
            for number, total in zip(numbers, totals, strict=True):
                code.store(code.sum_of(total.value), target, number)
    return code


def int4_unpack() -> IrModule:
    """Slots: W, scales, Y; scales, blocks of each."""
    module = IrModule()
    with module.part("unpack") as code:
        _, begin, end = code.parameters
        w, scales, y = (code.slot(place, "ptr") for place in range(3))
        lanes = min(provider.processor().lanes(4), HALF_BLOCK)
        of_scale = code.slot(4)
        with code.loop(begin, end) as group, code.loop(group * of_scale, (group + 1) * of_scale) as block:
            scale = _scale(code, scales, group, lanes)
            for place, weight in enumerate(_numbers(code, code.at(w, block * HALF_BLOCK, "i8"))):
                code.store((weight - ZERO) * scale, y, block * BLOCK + place * lanes)
    with module.kernel("int4_unpack") as kernel:
        kernel.parallel(code, kernel.parameters[0], kernel.slot(3), kernel.constant("i64", UNPACKED_GROUPS))
    return module
