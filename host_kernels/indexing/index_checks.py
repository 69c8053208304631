"""Indices as kernels take them: checked, and turned into places in flattened axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dl4all.host_kernels.lib.elements import loaded, memory_type
from dl4all.host_kernels.lib.rows import CHUNK
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, contiguous_strides
from dl4all.runtime.cpu.llvm.ir import Code, IrModule

OUTER_AXES = 3  # but for the innermost one

SHORT = 8  # elements of an innermost axis for which another one takes its place, if there is a longer one
TURNED_BLOCK = 1024  # of another axis: its cache lines are used again for the next number of the others

(SIZE, SCALE, IGNORED, UNIT_COUNT, GRAIN, BLOCK, INNER_UNITS, COUNT, STRIDE, STEP, OUT_STRIDE) = range(11)
OUTER = 11
X, OUT, STATUS, CONSTANTS = range(4)


@host_kernel("check_indices")
def prepare_check(
    size: int,
    negative: bool,
    ignored: int | None,
    scale: int,
    grid: Shape | None,
    adds: bool,
    reads: Sequence[ArrayLayout],
    writes: Sequence[ArrayLayout],
) -> HostLaunch:
    """The launch for what :func:`dl4all.ops.indexing.host_indices.checked` describes.

    It reads the indices, and writes places and the number of the first index that is out of range, -1 if
    there is none.

    Raises:
        NoKernel: the indices have too many axes.
    """
    index = reads[0]
    steps = (0,) * len(index.shape) if grid is None else grid
    lines = [index.strides, steps, contiguous_strides(index.shape)]
    sizes, groups = merge_axes(index.shape, lines)
    if len(sizes) > OUTER_AXES + 1:
        raise NoKernel("too many axes")
    axes = list(range(len(sizes)))
    if axes and sizes[-1] < SHORT:
        longest = max(axes, key=lambda axis: sizes[axis])
        axes = [*axes[:longest], *axes[longest + 1 :], longest]
    turned = axes != sorted(axes)
    missing = OUTER_AXES + 1 - len(sizes)
    (*outer, count), (*outer_strides, stride), (*outer_steps, step), (*outer_places, out_stride) = (
        (fill,) * missing + tuple(group[axis] for axis in axes)
        for fill, group in ((1, sizes), *((0, group) for group in groups))
    )
    block = min(count, TURNED_BLOCK if turned else CHUNK)
    blocks = -(-count // block)
    constants = [
        size, scale, ignored or 0, math.prod(outer) * blocks, max(1, CHUNK // block), block,
        math.prod(outer) if turned else blocks, count,
        stride, step, out_stride, *outer, *outer_strides, *outer_steps, *outer_places,
    ]  # fmt: skip
    key = (memory_type(index.dtype), negative, ignored is not None, adds, turned)
    return HostLaunch(check_indices, key, CONSTANTS, constants, work=index.numel())


def check_indices(source: str, negative: bool, ignores: bool, adds: bool, turned: bool) -> IrModule:
    """Slots: indices, places, status, constants.

    Args:
        source: type of the indices.
        negative: whether negative ones count from the end.
        ignores: whether one value selects nothing.
        adds: whether places are added to what is there.
        turned: whether another axis than the last one is the innermost.
    """
    module = IrModule()
    with module.part("blocks") as code:
        _write_blocks(code, source, negative, ignores, adds, turned)
        part = code
    with module.kernel("check_indices") as code:
        code.store(code.constant("i64", -1), code.slot(STATUS, "ptr"), 0)
        code.parallel(
            part, code.parameters[0], code.slot(CONSTANTS + UNIT_COUNT), code.slot(CONSTANTS + GRAIN)
        )
    return module


def _write_blocks(code: Code, source: str, negative: bool, ignores: bool, adds: bool, turned: bool) -> None:
    _, begin, end = code.parameters
    x, out, status = (code.slot(number, "ptr") for number in (X, OUT, STATUS))
    size, scale, ignored, block, inner_units, count, stride, step = (
        code.slot(CONSTANTS + place)
        for place in (SIZE, SCALE, IGNORED, BLOCK, INNER_UNITS, COUNT, STRIDE, STEP)
    )
    out_stride = code.slot(CONSTANTS + OUT_STRIDE)
    none = code.constant("i64", 2**63 - 1)
    first_wrong = code.variable("i64", none)
    with code.loop(begin, end) as unit:
        first, second = unit % inner_units, unit // inner_units
        number_of_block, rest = (second, first) if turned else (first, second)
        start = number_of_block * block
        base, place, origin = (code.as_value("i64", 0) for _ in range(3))
        for axis in reversed(range(OUTER_AXES)):
            length, axis_stride, axis_step, axis_place = (
                code.slot(CONSTANTS + OUTER + group * OUTER_AXES + axis) for group in range(4)
            )
            number = rest % length
            rest = rest // length
            base = base + number * axis_stride
            place = place + number * axis_step
            origin = origin + number * axis_place
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
            target = origin + i * out_stride if turned else origin + i
            if adds:
                result = result + code.load(out, target, "i32")
            code.store(code.select(wrong, code.constant("i32", -1), result), out, target)
            at = code.select(wrong, target, none)
            first_wrong.value = code.intrinsic("smin", first_wrong.value, at)
    with code.if_(first_wrong.value < none):
        code.emit("i64", f"atomicrmw umin {status!r}, {first_wrong.value!r} seq_cst")
