"""Concatenation of any number of tensors in one call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dl4all.host_kernels.lib.rows import grain_of, row_passes
from dl4all.host_kernels.memory.copies import RAW_TYPES
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.strides import merge_axes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import IrModule
from dl4all.runtime.cpu.llvm.ir_types import vector

PARTS, ADDRESSES = range(2)  # slots; the result and the constants follow the addresses of the parts
ROWS, ROW, BLOCK, BLOCKS, OF_PARTS = range(5)  # constants; then strides, runs and offsets of all parts


@host_kernel("cat")
def prepare_cat(axis: int, reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch that reads tensors of one dtype, and writes them along an axis.

    Raises:
        NoKernel: the axes of a tensor from `axis` on have gaps, or those before it are not one.
    """
    target = writes[0]
    if not target.is_contiguous() or any(x.dtype != target.dtype for x in reads):
        raise NoKernel("other than one dtype")
    rows = math.prod(target.shape[:axis])
    runs = [math.prod(x.shape[axis:]) for x in reads]
    strides = list[int]()
    for x in reads:
        sizes, (outer,) = merge_axes(x.shape[:axis], [x.strides[:axis]])
        if len(sizes) > 1 or not ArrayLayout(x.shape[axis:], x.dtype, x.strides[axis:]).is_contiguous():
            raise NoKernel("a part with gaps")
        strides.append(outer[0] if outer else 0)
    row = sum(runs)
    block = min(rows, grain_of(row // len(reads)))
    offsets = [0, *itertools.accumulate(runs)][:-1]
    constants = [rows, row, block, -(-rows // block), *strides, *runs, *offsets]
    addresses = len(reads) + 1
    key = (RAW_TYPES[target.dtype.itemsize],)
    return HostLaunch(cat, key, addresses, constants, work=rows * row, header=(len(reads),))


def cat(element: str) -> IrModule:
    """A unit of work is a block of rows of one part. Slots and constants: see above."""
    lanes = provider.processor().lanes({name: size for size, name in RAW_TYPES.items()}[element])
    type = vector(element, lanes)
    module = IrModule()
    with module.part("blocks") as code:
        slots, begin, end = code.parameters
        parts = code.slot(PARTS)
        first = parts + ADDRESSES
        out = code.load(slots, first, "ptr")
        rows, row, block, blocks = (code.load(slots, first + 1 + place, "i64") for place in range(OF_PARTS))
        with code.loop(begin, end) as unit:
            part = unit // blocks
            start = unit % blocks * block
            place = first + (1 + OF_PARTS) + part
            source = code.load(slots, part + ADDRESSES, "ptr")
            stride, run, offset = (code.load(slots, place + parts * i, "i64") for i in range(3))
            with code.loop(start, code.intrinsic("smin", start + block, rows)) as i:
                x = code.at(source, i * stride, element)
                target = code.at(out, i * row + offset, element)
                row_passes(
                    code, run, lanes, lambda j, mask: code.store(code.load(x, j, type, mask), target, j, mask)
                )
        units = code
    with module.kernel("cat") as code:
        slots = code.parameters[0]
        parts = code.slot(PARTS)
        blocks = code.load(slots, parts + (ADDRESSES + 1 + BLOCKS), "i64")
        code.parallel(units, slots, parts * blocks, 1)
    return module
