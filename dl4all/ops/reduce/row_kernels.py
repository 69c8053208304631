"""Launches of row kernels, which reduce along an axis and then write each element, as softmax does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from dl4all.ops.core.kernels import launch
from dl4all.ops.core.kernels.launch import ceil_div, check_rounds, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.device import Device

WORKGROUP = 128
SUBGROUP_WORKGROUP = 32
SUBGROUP_SIZE = 8  # invocations
ROWS_PER_SUBGROUP_WORKGROUP = SUBGROUP_WORKGROUP // SUBGROUP_SIZE
MAX_STEPS_ALONE = 16  # along a row that one invocation reduces alone
MAX_STEPS_PER_INVOCATION = 256  # where few invocations share a row; longer sums would lose digits
MAX_PASSES = 4  # over a row
MAX_ADJACENT_ROWS = 32  # of a workgroup where elements of neighbouring rows are adjacent; fills a cache line
MANY_ROWS = 2048  # that keep a device busy with less than a workgroup for each
TREE, SHUFFLE, ARITHMETIC = range(3)
"""Values of the macro SUBGROUPS: none, of 8 invocations on a processor, or a GPU's with their arithmetic."""

FORMS = (TREE, SHUFFLE, ARITHMETIC)
KEPT = (4, 2)
"""Vec4s or elements that an invocation keeps in registers, at most, of one operand or of each of two."""

LEAST_GROUP, LARGEST_GROUP = 64, 512  # a wave of any GPU is full; a row of several thousand elements fits
LEAST_STEPS = LEAST_GROUP // 2  # vec4s or elements of a row; with fewer most invocations would be idle


RowShaders: TypeAlias = Mapping[tuple[int, bool], Shader]
"""Variants of a kernel that includes ``include/rows.glsl``, by its macros SUBGROUPS and FOURS."""


ROW_PUSH = "uint rows, size, inner, lanes, columns;"
"""The first push constants of row kernels."""
_ROW_PUSH = PushBlock((), ROW_PUSH)


class RowVariant(NamedTuple):
    """A variant of a row kernel."""

    code: Shader
    width: int  # elements that are read at once; sizes and offsets count these
    lanes: int  # rows of a workgroup with SUBGROUPS; 0 where invocations join in a tree


class RowLaunch(NamedTuple):
    """A variant, and the arguments of its launch."""

    code: Shader
    groups: Grid
    push: bytes  # its first push constants
    width: int
    constants: tuple[int, ...] = ()  # SIZE and KEEP, from specialization constant 1 on


def row_shaders(path: str, subgroups: tuple[int, ...] = (TREE, SHUFFLE), **defines: Any) -> RowShaders:
    """The variants of a kernel, for these values of SUBGROUPS."""
    return {
        (subgroup, vec4): shader(path, SUBGROUPS=subgroup, FOURS=int(vec4), **defines)
        for subgroup in subgroups
        for vec4 in (False, True)
    }


def next_power_of_2(count: int) -> int:
    """The smallest power of 2 that is not less than `count`, but at most the size of a workgroup."""
    return min(1 << max(count - 1, 0).bit_length(), WORKGROUP)


def reads_vec4(size: int, inner: int, *operands: TensorBase) -> bool:
    """Whether elements along the middle axis of (outer, size, inner) can be read as aligned vec4s."""
    return inner == 1 and size % 4 == 0 and not any(operand.offset % 4 for operand in operands)


def choose_variant(shaders: RowShaders, vec4: bool, inner: int, length: int, device: Device) -> RowVariant:
    """The best variant for a device, where `length` elements of a row are reduced at once."""
    vec4 = vec4 and any(has_vec4 for _, has_vec4 in shaders)
    width = 4 if vec4 else 1
    if (SHUFFLE, vec4) in shaders and device.info.short_subgroups:
        steps = ceil_div(length, width)
        if steps <= MAX_STEPS_ALONE or (inner >= SUBGROUP_SIZE and steps <= MAX_STEPS_PER_INVOCATION):
            return RowVariant(shaders[SHUFFLE, vec4], width, SUBGROUP_WORKGROUP)
        if inner < SUBGROUP_SIZE and steps <= MAX_STEPS_PER_INVOCATION * SUBGROUP_SIZE:
            return RowVariant(shaders[SHUFFLE, vec4], width, ROWS_PER_SUBGROUP_WORKGROUP)
    return RowVariant(shaders[TREE, vec4], width, 0)


def adds_in_subgroups(device: Device) -> bool:
    """Whether subgroups are those of a GPU, and can add up their values."""
    return device.info.type != "software" and "subgroup_arithmetic" in device.info.features


def group_in_registers(steps: int, operands: int, device: Device) -> tuple[int, int] | None:
    """The workgroup that holds a row of `steps` vec4s or elements, and how many of them an invocation keeps.

    None where a row is too long, or so short that most invocations of a workgroup would be idle.
    """
    if not adds_in_subgroups(device) or steps < LEAST_STEPS:
        return None
    size, most = LEAST_GROUP, min(LARGEST_GROUP, device.info.limits.workgroup_invocations)
    while size * KEPT[operands - 1] < steps:
        size *= 2
    return (size, ceil_div(steps, size)) if size <= most else None


def row_launch(
    shaders: RowShaders, rows: int, size: int, inner: int, *operands: TensorBase, vec4: bool = True
) -> RowLaunch:
    """The launch for contiguous operands of shape (outer, size, inner), where outer * inner is `rows`.

    `vec4` is false if another operand of the kernel cannot be read as vec4s.
    """
    vec4 = vec4 and reads_vec4(size, inner, *operands)
    code, width, lanes = choose_variant(shaders, vec4, inner, size, operands[0].device)
    constants: tuple[int, ...] = ()
    if inner == 1 and (ARITHMETIC, vec4) in shaders:
        constants = group_in_registers(size // width, len(operands), operands[0].device) or ()
    if constants:
        code, lanes = shaders[ARITHMETIC, vec4], 1
    elif not lanes:
        lanes = WORKGROUP // next_power_of_2(size // width)  # so that no invocation is idle
        if inner > 1:
            lanes = max(lanes, min(next_power_of_2(inner), MAX_ADJACENT_ROWS))
        elif rows > MANY_ROWS:
            lanes = max(lanes, WORKGROUP // MAX_ADJACENT_ROWS)
        check_rounds(operands[0].device, MAX_PASSES * ceil_div(size // width, WORKGROUP // lanes))
    tiles = ceil_div(rows, lanes)
    columns = min(tiles, launch.STRIDED_GRID_CAP)
    push = _ROW_PUSH.pack(rows=rows, size=size // width, inner=inner, lanes=lanes, columns=columns)
    return RowLaunch(code, (columns, 1, ceil_div(tiles, columns)), push, width, constants)


def run_rows(shaders: RowShaders, block: PushBlock, out: TensorBase, dim: int, *operands: TensorBase) -> None:
    """Launch a row kernel along axis `dim` of `out`. Operands have its shape, or one element for each row.

    Its push constants end with the operands' offsets.
    """
    shape = out.shape or (1,)
    axis = dim % len(shape)
    sources = [contiguous(operand) for operand in operands]
    size, inner = shape[axis], math.prod(shape[axis + 1 :])
    rows = row_launch(shaders, out.numel() // size, size, inner, *sources)
    push = block.after(rows.push, *(source.offset // rows.width for source in sources))
    constants = (0, *rows.constants) if rows.constants else ()
    launch.run(rows.code, rows.groups, push, *sources, out, constants=constants)
