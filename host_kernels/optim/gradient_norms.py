"""Clipping and scaling of all gradients at once: the sum of their squares, and products with a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.host_kernels.lib.rows import CHUNK, row_passes
from dl4all.host_kernels.lib.tensor_lists import for_all_jobs, list_launch, pieces
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector


def _check_float32(*layouts: ArrayLayout) -> None:
    """
    Raises:
        NoKernel: another dtype.
    """
    if any(layout.dtype != np.float32 for layout in layouts):
        raise NoKernel("other than float32")


@host_kernel("square sum")
def prepare_square_sum(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch of the sum of the squares of all elements that are read.

    Raises:
        NoKernel: tensors are not contiguous, or not of float32.
    """
    _check_float32(*reads, *writes)
    return list_launch(square_sum, (), 1, reads, others=1, scratch=8)


def square_sum(roles: int, dtype: str) -> IrModule:
    """Slots: those of lists, with the addresses of the result and of scratch memory after the tensors'.

    Squares are added up in float64, chunk by chunk.
    """
    lanes = provider.processor().lanes()
    type, wide = vector("float", lanes), vector("double", lanes)
    module = IrModule()
    with module.part("range") as part:
        slots, begin, _ = part.parameters
        sums = part.load(slots, part.slot(0) + 2, "ptr")
        total = part.variable(wide, 0.0)
        with pieces(part, 1, after=2) as ([x], first, last):

            def step(i: IrValue, mask: IrValue | None) -> None:
                value = part.convert(part.load(x, i, type, mask), "double")
                total.value = part.intrinsic("fmuladd", value, value, total.value)

            row_passes(part, last, lanes, step, first)
        part.store(part.sum_of(total.value), sums, begin // CHUNK)
    with module.kernel("square_sum") as code:
        slots = code.parameters[0]
        count = for_all_jobs(code, part, 1, others=2)
        jobs = code.slot(0)
        result, sums = (code.load(slots, jobs + place, "ptr") for place in (1, 2))
        whole = code.variable("double", 0.0)
        with code.loop(0, (count + (CHUNK - 1)) // CHUNK) as chunk:
            whole.value = whole.value + code.load(sums, chunk, "double")
        code.store(code.convert(whole.value, "float"), result, 0)
    return module


@host_kernel("scale")
def prepare_scale(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch that multiplies what is written by the only number that is read.

    Raises:
        NoKernel: tensors are not contiguous, or not of float32.
    """
    _check_float32(*reads, *writes)
    return list_launch(scale, (), 1, writes, others=1)


def scale(roles: int, dtype: str) -> IrModule:
    """Slots: those of lists, with the address of the factor before the tensors'. 1 changes nothing."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    module = IrModule()
    with module.part("range") as part:
        factor = part.splat(part.load(part.slot(1, "ptr"), 0, "float"), lanes)
        with pieces(part, 1, before=1) as ([x], first, last):

            def step(i: IrValue, mask: IrValue | None) -> None:
                part.store(part.load(x, i, type, mask) * factor, x, i, mask)

            row_passes(part, last, lanes, step, first)
    with module.kernel("scale") as code:
        factor = code.load(code.slot(1, "ptr"), 0, "float")
        with code.if_(factor.differs(1.0)):
            for_all_jobs(code, part, 1, others=1)
    return module


@host_kernel("unscale")
def prepare_unscale(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch that multiplies tensors by the number that is read, and looks for infinite elements and nan.

    The first tensor that is written has one element, which becomes 1 if there are such elements.

    Raises:
        NoKernel: tensors are not contiguous, or not of float32.
    """
    _check_float32(*reads, *writes)
    return list_launch(unscale, (), 1, writes[1:], others=2)


def unscale(roles: int, dtype: str) -> IrModule:
    """Slots: those of lists, with the addresses of the factor and of what is found before the tensors'."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    module = IrModule()
    with module.part("range") as part:
        factor = part.splat(part.load(part.slot(1, "ptr"), 0, "float"), lanes)
        found = part.variable(type, 0.0)
        with pieces(part, 1, before=2) as ([x], first, last):

            def step(i: IrValue, mask: IrValue | None) -> None:
                value = part.load(x, i, type, mask)
                found.value = part.select((value - value).differs(0.0), 1.0, found.value)
                part.store(value * factor, x, i, mask)

            row_passes(part, last, lanes, step, first)
        with part.if_(part.largest_of(found.value) > 0.0):
            part.store(part.constant("float", 1.0), part.slot(2, "ptr"), 0)
    with module.kernel("unscale") as code:
        for_all_jobs(code, part, 1, others=2)
    return module
