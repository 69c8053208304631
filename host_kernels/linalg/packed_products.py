"""Products with weights in few bits, in blocks (:mod:`dl4all.ops.linalg.packed_formats`).

Each block is unpacked in registers, once for up to eight rows of the left operand. For one row, scales
multiply sums of products.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from dl4all.host_kernels.lib.elements import converts_half
from dl4all.host_kernels.linalg.packed_groups import GROUP_FORMATS, GroupFormat, lanes_of_groups
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.linalg.packed_formats import FORMATS
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue, IrVariable
from dl4all.runtime.cpu.llvm.ir_types import vector

Place = tuple[IrValue, IrValue]
"""The addresses of a block's bytes and of its scales."""

MAX_ROWS = 8  # that are multiplied together
PARALLEL_PRODUCTS = 2**17
"""Products of two numbers that a thread computes at a time, at least: some 10 microseconds."""

AHEAD = 8192
"""Bytes that weights are fetched ahead of their use: unpacking leaves a core too few loads under way to hide
the time that memory takes."""
LINE = 64
"""Bytes of a cache's line."""

UNPACKED_WEIGHTS = 2**15
"""Weights that a thread unpacks at a time."""


@host_kernel("packed_product")
def prepare_packed_product(
    name: str, reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]
) -> HostLaunch:
    """The products of rows of float32 with rows of weights in a format.

    Raises:
        NoKernel: operands have gaps, or the processor does not convert float16.
    """
    x, _, scales = reads
    _check(*reads, *writes)
    (rows, inner), (features, numbers) = x.shape, scales.shape
    format = FORMATS[name]
    blocks = inner // format.weights
    grain = max(_features_together(name, 1), PARALLEL_PRODUCTS // (rows * inner))
    constants = (rows, features, blocks, blocks * format.scales // numbers, grain)
    return HostLaunch(packed_product, (name,), 4, constants, work=rows * features * inner // 8)


@host_kernel("packed_unpack")
def prepare_packed_unpack(
    name: str, reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]
) -> HostLaunch:
    """The numbers that weights in a format stand for.

    Raises:
        NoKernel: operands have gaps, or the processor does not convert float16.
    """
    (_, scales), (out,) = reads, writes
    _check(*reads, *writes)
    format = FORMATS[name]
    shared = out.shape[1] // format.weights * format.scales // scales.shape[1]  # blocks of a scale
    count = out.numel() // format.weights // shared
    grain = max(1, UNPACKED_WEIGHTS // (shared * format.weights))
    return HostLaunch(packed_unpack, (name,), 3, (count, shared, grain), work=out.numel() // 8)


def _features_together(name: str, rows: int) -> int:
    """Features that are multiplied together with so many rows: their sums take half of the registers.

    Blocks of many groups, whose code is long, take half as many.
    """
    most = provider.processor().registers // 2 // rows
    if rows > 1 and GROUP_FORMATS[name].groups > 1:
        most //= 2
    return 4 if most >= 4 else 2 if most >= 2 else 1


def _check(*layouts: ArrayLayout) -> None:
    """
    Raises:
        NoKernel
    """
    if not all(layout.is_contiguous() for layout in layouts) or not converts_half():
        raise NoKernel("operands with gaps, or no instruction for float16")


def packed_product(name: str) -> IrModule:
    """Slots: X, W, scales, Y; rows, features, blocks of a row, blocks of a scale, features of a chunk."""
    module = IrModule()
    kinds = [_write_rows(module, name, rows) for rows in range(1, MAX_ROWS + 1)]
    with module.part("multiply") as code:
        slots, begin, end = code.parameters
        rows = code.slot(4)
        parts = (rows + (MAX_ROWS - 1)) // MAX_ROWS
        least, larger = rows // parts, rows % parts
        row = code.variable("i64", 0)
        with code.loop(0, parts) as part:
            height = code.select(part < larger, least + 1, least)
            for number, kind in enumerate(kinds, 1):
                together = _features_together(name, number)
                with code.if_(height.equals(number)), code.loop(begin, end, together) as feature:
                    code.run(kind, slots, row.value, feature, end)
            row.value = row.value + height
    with module.kernel("packed_product") as kernel:
        kernel.parallel(code, kernel.parameters[0], kernel.slot(5), kernel.slot(8))
    return module


def _write_rows(module: IrModule, name: str, rows: int) -> Code:
    """The function for so many rows of X from one on, and the features from one on that are computed
    together, but for those past the end."""
    format, kind, together = FORMATS[name], GROUP_FORMATS[name], _features_together(name, rows)
    size, lanes = format.weights // kind.groups, lanes_of_groups()
    with module.function(f"rows{rows}", "ptr", "i64", "i64", "i64") as code:
        _, row, feature, end = code.parameters
        x, w, scales, y = (code.slot(place, "ptr") for place in range(4))
        features, blocks, per_scale = (code.slot(place) for place in range(5, 8))
        inner = blocks * format.weights
        left = [code.at(x, (row + i) * inner, "float") for i in range(rows)]
        # Past the last feature it is taken again, and not stored.
        numbers = [code.intrinsic("smin", feature + j, end - 1) for j in range(together)]
        type = vector("float", lanes)
        sums = [[code.variable(type, 0.0) for _ in range(together)] for _ in range(rows)]
        shared = blocks // per_scale
        with (
            code.loop(0, shared) as run,
            code.loop(run * per_scale, (run + 1) * per_scale) as block,
        ):
            places = [
                (
                    code.at(w, (number * blocks + block) * format.size, "i8"),
                    code.at(scales, (number * shared + run) * format.scales, "half"),
                )
                for number in numbers
            ]
            for data, _ in places:
                for line in range(0, format.size, LINE):
                    code.prefetch(data, AHEAD + line, "i8")
            for group in range(kind.groups):
                inputs = [
                    [
                        code.load(place, block * format.weights + (group * size + at), type)
                        for at in range(0, size, lanes)
                    ]
                    for place in left
                ]
                if rows == 1:
                    _add_group(code, kind, places, group, inputs[0], sums[0])
                    continue
                for j, place in enumerate(places):
                    weights = _unpacked_group(code, kind, place, group)
                    for values, made in zip(inputs, sums, strict=True):
                        for weight, value in zip(weights, values, strict=True):
                            made[j].value = code.intrinsic("fmuladd", weight, value, made[j].value)
        for i, made in enumerate(sums):
            target = code.at(y, (row + i) * features, "float")
            for number, sum in zip(numbers, made, strict=True):
                code.store(code.sum_of(sum.value), target, number)
    return code


def _add_group(
    code: Code,
    kind: GroupFormat,
    places: Sequence[Place],
    group: int,
    values: Sequence[IrValue],
    sums: Sequence[IrVariable],
) -> None:
    """Add a group's products with one row to the sums of features: scales multiply sums, not each weight."""
    lanes = lanes_of_groups()
    total = functools.reduce(operator.add, values)
    for (data, scales), made in zip(places, sums, strict=True):
        weights, scale, offset = kind.group(code, data, scales, group)
        products = total * -kind.zero if kind.zero else values[0] * weights[0]
        begun = 0 if kind.zero else 1
        for weight, value in zip(weights[begun:], values[begun:], strict=True):
            products = code.intrinsic("fmuladd", weight, value, products)
        result = code.intrinsic("fmuladd", code.splat(scale, lanes), products, made.value)
        if offset is not None:
            result = code.intrinsic("fmuladd", code.splat(-offset, lanes), total, result)
        made.value = result


def _unpacked_group(code: Code, kind: GroupFormat, place: Place, group: int) -> list[IrValue]:
    """The weights of a group, in vectors."""
    lanes = lanes_of_groups()
    numbers, scale, offset = kind.group(code, *place, group)
    factor = code.splat(scale, lanes)
    weights = [(number - kind.zero if kind.zero else number) * factor for number in numbers]
    return weights if offset is None else [weight - code.splat(offset, lanes) for weight in weights]


def packed_unpack(name: str) -> IrModule:
    """Slots: W, scales, Y; runs of blocks that share scales, blocks of each, runs of a chunk."""
    format, kind = FORMATS[name], GROUP_FORMATS[name]
    size, lanes = format.weights // kind.groups, lanes_of_groups()
    module = IrModule()
    with module.part("unpack") as code:
        _, begin, end = code.parameters
        w, scales, y = (code.slot(place, "ptr") for place in range(3))
        shared = code.slot(4)
        with code.loop(begin, end) as run, code.loop(run * shared, (run + 1) * shared) as block:
            data = code.at(w, block * format.size, "i8")
            scale_place = code.at(scales, run * format.scales, "half")
            for group in range(kind.groups):
                for at, weight in enumerate(_unpacked_group(code, kind, (data, scale_place), group)):
                    code.store(weight, y, block * format.weights + (group * size + at * lanes))
    with module.kernel("packed_unpack") as kernel:
        kernel.parallel(code, kernel.parameters[0], kernel.slot(3), kernel.slot(5))
    return module
