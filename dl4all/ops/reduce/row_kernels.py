"""How kernels of rows are launched: those that gather something along an axis and then write each element."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from dl4all.ops.core import launch
from dl4all.ops.core.launch import ceil_div, check_rounds, pack, shader
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device import Device
from dl4all.scheduler.programs import Launch

WORKGROUP = 128
SUBGROUP_WORKGROUP = 32
TOGETHER = 8  # invocations of a subgroup
ROWS_OF_SUBGROUPS = SUBGROUP_WORKGROUP // TOGETHER  # in a workgroup
FEW = 16  # steps along a row that one invocation does alone
STEPS = 256  # that an invocation does at most where few share a row; sums of more would lose digits
PASSES = 4  # over a row, at most
WIDEST = 32  # rows side by side where their elements lie side by side; a cache line's worth
MANY = 2048  # rows that keep a device busy with less than a workgroup for each


RowShaders: TypeAlias = Mapping[tuple[bool, bool], Shader]
"""Variants of a kernel that includes ``include/rows.glsl``, by SUBGROUPS and FOURS."""


class Variant(NamedTuple):
    code: Shader
    width: int  # elements that are read at once, in which sizes and offsets are counted
    lanes: int  # rows of a workgroup by subgroups; 0 where invocations join in a tree


class Rows(NamedTuple):
    """The variant for some rows, and what it is launched with."""

    code: Shader
    groups: Grid
    push: bytes  # the first of its push constants
    width: int


def row_shaders(path: str, kinds: tuple[bool, ...] = (False, True), **defines: Any) -> RowShaders:
    """The variants of a kernel, all of them unless `kinds` says with or without subgroups."""
    return {
        (subgroups, fours): shader(path, SUBGROUPS=int(subgroups), FOURS=int(fours), **defines)
        for subgroups in kinds
        for fours in (False, True)
    }


def power_of_2(count: int) -> int:
    """The next one, up to the size of a workgroup."""
    return min(1 << max(count - 1, 0).bit_length(), WORKGROUP)


def four_at_once(size: int, inner: int, *operands: TensorBase) -> bool:
    """Whether fours of the elements along the middle axis of (outer, size, inner) lie at such multiples."""
    return inner == 1 and size % 4 == 0 and not any(operand.offset % 4 for operand in operands)


def choose(shaders: RowShaders, by_four: bool, inner: int, length: int, device: Device) -> Variant:
    """The variant for a device, where `length` elements of a row are gathered at once."""
    fours = by_four and any(fours for _, fours in shaders)
    width = 4 if fours else 1
    if (True, fours) in shaders and device.info.short_subgroups:
        steps = ceil_div(length, width)
        if steps <= FEW or (inner >= TOGETHER and steps <= STEPS):
            return Variant(shaders[True, fours], width, SUBGROUP_WORKGROUP)
        if inner < TOGETHER and steps <= STEPS * TOGETHER:
            return Variant(shaders[True, fours], width, ROWS_OF_SUBGROUPS)
    return Variant(shaders[False, fours], width, 0)


def of_rows(
    shaders: RowShaders, rows: int, size: int, inner: int, *operands: TensorBase, by_four: bool = True
) -> Rows:
    """The variant for contiguous operands of shape (outer, size, inner), where outer * inner is `rows`.

    `by_four` says whether what else the kernel reads allows four elements at once.
    """
    by_four = by_four and four_at_once(size, inner, *operands)
    code, width, lanes = choose(shaders, by_four, inner, size, operands[0].device)
    if not lanes:
        lanes = WORKGROUP // power_of_2(size // width)  # so that no invocation is idle
        if inner > 1:
            lanes = max(lanes, min(power_of_2(inner), WIDEST))
        elif rows > MANY:
            lanes = max(lanes, WORKGROUP // WIDEST)
        check_rounds(operands[0].device, PASSES * ceil_div(size // width, WORKGROUP // lanes))
    tiles = ceil_div(rows, lanes)
    columns = min(tiles, launch.STRIDED_GRID_CAP)
    push = pack(rows, size // width, inner, lanes, columns)
    return Rows(code, (columns, 1, ceil_div(tiles, columns)), push, width)


def run_rows(shaders: RowShaders, out: TensorBase, dim: int, *operands: TensorBase) -> None:
    """Launch a kernel of rows along axis `dim` of `out`, all of whose operands have their shape or are read
    row by row."""
    shape = out.shape or (1,)
    axis = dim % len(shape)
    sources = [contiguous(operand) for operand in operands]
    rows = of_rows(shaders, out.numel() // shape[axis], shape[axis], math.prod(shape[axis + 1 :]), *sources)
    push = rows.push + pack(*(source.offset // rows.width for source in sources))
    out.device.launch(Launch(rows.code, rows.groups, push), *(t.storage for t in (*sources, out)))
