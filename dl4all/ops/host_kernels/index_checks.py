"""Indices as kernels take them: checked, and turned into places in flattened axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.host_kernels.elements import loaded, memory_type
from dl4all.ops.host_kernels.rows import CHUNK
from dl4all.runtime.cpu.llvm.ir import Code, Module

OUTER_AXES = 3  # but for the innermost one

(SIZE, SCALE, IGNORED, UNIT_COUNT, GRAIN, BLOCK, BLOCKS, COUNT, STRIDE, STEP) = range(10)
OUTER = 10
X, OUT, STATUS, CONSTANTS = range(4)


@host_kernel("check_indices")
def prepare_check(
    size: int,
    negative: bool,
    ignored: int | None,
    scale: int,
    grid: Shape | None,
    adds: bool,
    reads: Sequence[Layout],
    writes: Sequence[Layout],
) -> HostLaunch:
    """The launch for what :func:`dl4all.ops.indexing.host_indices.checked` describes.

    It reads the indices, and writes places and the number of the first index that is out of range, -1 if
    there is none.

    Raises:
        NoKernel: the indices have too many axes.
    """
    index = reads[0]
    steps = (0,) * len(index.shape) if grid is None else grid
    sizes, (strides, grid_strides) = merge_axes(index.shape, [index.strides, steps])
    if len(sizes) > OUTER_AXES + 1:
        raise NoKernel("too many axes")
    missing = OUTER_AXES + 1 - len(sizes)
    (*outer, count), (*outer_strides, stride), (*outer_steps, step) = (
        (fill,) * missing + group for fill, group in ((1, sizes), (0, strides), (0, grid_strides))
    )
    block = min(count, CHUNK)
    blocks = -(-count // block)
    constants = [
        size, scale, ignored or 0, math.prod(outer) * blocks, max(1, CHUNK // block), block, blocks, count,
        stride, step, *outer, *outer_strides, *outer_steps,
    ]  # fmt: skip
    key = (memory_type(index.dtype), negative, ignored is not None, adds)
    return HostLaunch(check_indices, key, CONSTANTS, constants, work=index.numel())


def check_indices(source: str, negative: bool, ignores: bool, adds: bool) -> Module:
    """Slots: indices, places, status, constants.

    Args:
        source: type of the indices.
        negative: whether negative ones count from the end.
        ignores: whether one value selects nothing.
        adds: whether places are added to what is there.
    """
    module = Module()
    with module.part("blocks") as code:
        _write_blocks(code, source, negative, ignores, adds)
        part = code
    with module.kernel("check_indices") as code:
        code.store(code.constant("i64", -1), code.slot(STATUS, "ptr"), 0)
        code.parallel(
            part, code.parameters[0], code.slot(CONSTANTS + UNIT_COUNT), code.slot(CONSTANTS + GRAIN)
        )
    return module


def _write_blocks(code: Code, source: str, negative: bool, ignores: bool, adds: bool) -> None:
    _, begin, end = code.parameters
    x, out, status = (code.slot(number, "ptr") for number in (X, OUT, STATUS))
    size, scale, ignored, block, blocks, count, stride, step = (
        code.slot(CONSTANTS + place) for place in (SIZE, SCALE, IGNORED, BLOCK, BLOCKS, COUNT, STRIDE, STEP)
    )
    none = code.constant("i64", 2**63 - 1)
    first_wrong = code.variable("i64", none)
    with code.loop(begin, end) as unit:
        start = unit % blocks * block
        row = unit // blocks
        origin, place, rest = row * count, code.as_value("i64", 0), row
        base = code.as_value("i64", 0)
        for axis in reversed(range(OUTER_AXES)):
            length, axis_stride, axis_step = (
                code.slot(CONSTANTS + OUTER + group * OUTER_AXES + axis) for group in range(3)
            )
            number = rest % length
            rest = rest // length
            base = base + number * axis_stride
            place = place + number * axis_step
        with code.loop(start, code.intrinsic("smin", start + block, count)) as i:
            index = loaded(code, x, base + i * stride, source, "i64")
            wrong = (index < (-size if negative else 0)) | (index >= size)
            found = code.select(index < 0, index + size, index) if negative else index
            found = found * scale + (place + i * step)
            if ignores:
                left_out = index.equals(ignored)
                found = code.select(left_out, -1, found)
                wrong = wrong & index.differs(ignored)
            result = code.convert(found, "i32")
            if adds:
                result = result + code.load(out, origin + i, "i32")
            code.store(code.select(wrong, code.constant("i32", -1), result), out, origin + i)
            at = code.select(wrong, origin + i, none)
            first_wrong.value = code.intrinsic("smin", first_wrong.value, at)
    with code.if_(first_wrong.value < none):
        code.emit("i64", f"atomicrmw umin {status!r}, {first_wrong.value!r} seq_cst")
