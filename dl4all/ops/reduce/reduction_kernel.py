"""Arguments of reductions (axes and dtypes), and the kernel that all reductions of floats share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.dtypes import FLOATS, checked_dtype, kind_of
from dl4all.ops.core.kernels import launch
from dl4all.ops.core.kernels.launch import ceil_div, pack, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty, primitives
from dl4all.ops.core.strides import axis, merge_axes
from dl4all.ops.core.tensor_base import DTypeLike, Shape, TensorBase, host_int
from dl4all.ops.memory.views import contiguous, permute
from dl4all.ops.reduce import row_kernels
from dl4all.ops.reduce.row_kernels import (
    ARITHMETIC,
    FORMS,
    LEAST_GROUP,
    MANY_ROWS,
    MAX_ADJACENT_ROWS,
    ROWS_PER_SUBGROUP_WORKGROUP,
    SHUFFLE,
    SUBGROUP_SIZE,
    TREE,
    next_power_of_2,
)
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.device import Device

WORKGROUP = 128
RANK = 4  # the most axes, after merging, that the kernel keeps, and that it reduces
BUSY_WORKGROUPS = 512  # that keep any device busy
MAX_STEPS_OF_LEAST_GROUP = 8  # of an invocation; longer sums are worth a larger workgroup
MIN_STEPS_PER_SLICE = 64  # of an invocation; shorter slices are not worth a workgroup
MIN_SOFTWARE_STEPS_PER_SLICE = 512  # On processors a second launch takes longer than these.
# Words of 32 bits, where there are more than one.
STATE_WORDS = {"MOMENTS": 3, "WIDE_MOMENTS": 5, "ARGMAX": 2, "ARGMIN": 2, "LOGSUMEXP": 2}


def axes_of(op: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """The axes that an argument `dim` names: an int, several, or None and () for all.

    >>> axes_of("sum", (-1, 0), 3)
    (0, 2)

    Raises:
        ArgumentError: an axis does not exist, or is named twice.
    """
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if dim is None or not dims:
        return tuple(range(ndim))
    if not all(isinstance(d, (int, np.integer)) and not isinstance(d, bool) for d in dims):
        raise ArgumentError(f"[{op}] dim must be an int, a tuple of ints or None, got {dim!r}")
    axes = sorted(axis(op, d, max(ndim, 1)) for d in dims)
    if len(set(axes)) != len(axes):
        raise ArgumentError(f"[{op}] dim {dim} names an axis twice")
    return tuple(axes) if ndim else ()


def one_axis(op: str, dim: Any, ndim: int) -> int:
    """The axis that an argument `dim` names; a 0-d tensor counts as a vector of one element.

    Raises:
        ArgumentError: `dim` is not an int, or there is no such axis.
    """
    dim = dim if isinstance(dim, (int, np.integer)) else host_int(dim)
    if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool):
        raise ArgumentError(f"[{op}] dim must be an int, got {dim!r}")
    return axis(op, int(dim), max(ndim, 1))


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdim: bool) -> Shape:
    """The shape without the axes, or with size 1 in their place.

    >>> reduced_shape((2, 3, 5), (1,), True)
    (2, 1, 5)
    """
    if keepdim:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def accumulation_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The default dtype of sums and products: int64 for bool and integers, so that they do not overflow."""
    return dtype if kind_of(dtype) == "f" else np.dtype(np.int64)


def sum_dtype(op: str, input: Any, dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype of a sum or product of `input`: `dtype`, or by default that of the accumulation.

    Raises:
        DTypeError: `dtype` is not a dtype of tensors.
    """
    return accumulation_dtype(input.dtype) if dtype is None else checked_dtype(op, dtype)


def float_dtype(op: str, input: Any, dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype of a result that must be floating: `dtype`, or by default that of `input`.

    Raises:
        DTypeError: the dtype is not floating, or not a dtype of tensors.
    """
    result = input.dtype if dtype is None else checked_dtype(op, dtype)
    if kind_of(result) != "f":
        raise DTypeError(f"[{op}] expected floats of one dtype, got {result}; pass dtype=dl.float32")
    return np.dtype(result)


class _Layout(NamedTuple):
    """Sizes and strides of the kept and of the reduced axes."""

    kept: Shape
    kept_strides: Shape
    sizes: Shape
    strides: Shape


_REDUCE = "uint outputs, size, lanes, columns, slices, slice; float number;"
REDUCE_PUSH = PushBlock("reduce/reduce.comp", _REDUCE, MERGE=1)
GATHER_PUSH = PushBlock("reduce/reduce.comp", f"{_REDUCE} uint x_offset;", MERGE=0)
"""Sizes and strides of the operand follow."""


class Reduction:
    """A reduction of float32 on devices.

    Args:
        kind: the state that elements are accumulated in, see ``reduce/reductions.glsl``.
        element: the GLSL expression that is accumulated for an element ``x``.
        result: the GLSL expression of the result of a state ``s``; both may use ``p.number``.
        ordered: whether the index of an element matters; then one axis, or all, are reduced.
        wide: whether the result is an int64.
    """

    def __init__(
        self, kind: str, result: str, element: str = "x", *, ordered: bool = False, wide: bool = False
    ) -> None:
        common = {"KIND": kind, "RESULT(s)": f"({result})", "WIDE": int(wide), "POWER": int("powf" in result)}
        uses_element = kind in ("SUM", "PRODUCT", "LARGEST", "SMALLEST")
        per_element = {"ELEMENT(x)": f"({element})"} if uses_element else {}
        self._gather = {
            (rank, form): shader(
                "reduce/reduce.comp", **common, **per_element, MERGE=0, REDUCED=rank, SUBGROUPS=form
            )
            for rank in ((1,) if ordered else (1, RANK))
            for form in FORMS
        }
        # States are merged without looking at elements, so one variant serves all expressions.
        unused = {"ELEMENT(x)": "x"} if uses_element else {}
        self.merge_shader = shader("reduce/reduce.comp", **common, **unused, MERGE=1, REDUCED=1, SUBGROUPS=0)
        self._words = STATE_WORDS.get(kind, 1)
        self._ordered = ordered
        self.shaders = (*self._gather.values(), self.merge_shader)

    def __call__(self, out: TensorBase, x: TensorBase, axes: tuple[int, ...], number: float = 1.0) -> None:
        """Fill `out` with the reduction of `x` over the axes."""
        if x.dtype not in FLOATS:
            x = primitives.cast(x, "float32")
        x, layout = _arrange(x, axes, self._ordered)
        form = _form(layout, x.offset, out.device)
        width = 1 if form == TREE else 4
        if form != TREE:
            layout = _vec4_layout(layout)
        outputs, size = out.numel(), math.prod(layout.sizes)
        workgroup, lanes = WORKGROUP, 1
        if form == SHUFFLE:
            workgroup, lanes = SUBGROUP_SIZE * ROWS_PER_SUBGROUP_WORKGROUP, ROWS_PER_SUBGROUP_WORKGROUP
        elif form == TREE:
            lanes = _lane_count(outputs, layout)
        elif size <= LEAST_GROUP * MAX_STEPS_OF_LEAST_GROUP:
            workgroup = LEAST_GROUP
        step = workgroup // lanes  # elements, or vec4s, that are read at once
        tiles = ceil_div(outputs, lanes)
        steps = ceil_div(size, step) * width
        software = out.device.info.type == "software"
        least = MIN_SOFTWARE_STEPS_PER_SLICE if software else MIN_STEPS_PER_SLICE
        slices = max(1, min(ceil_div(BUSY_WORKGROUPS, tiles), steps // least))
        slice = ceil_div(ceil_div(size, slices), step) * step
        slices = ceil_div(size, slice) if size else 1
        rank = len(layout.sizes) if len(layout.sizes) == 1 else RANK
        gathered = [x.offset // width, *layout.kept, *layout.kept_strides, *layout.sizes, *layout.strides]
        used = max(1, sum(kept != 1 for kept in layout.kept))
        constants = (used, workgroup) if form == ARITHMETIC else (used,)
        code = self._gather[rank, form]
        if slices == 1:
            _run_reduce(code, outputs, size, lanes, 1, slice, number, gathered, constants, x, out)
            return
        states = empty(
            type(out).result_class, (outputs * slices * self._words,), np.dtype(np.float32), out.device
        )
        _run_reduce(code, outputs, size, lanes, slices, slice, number, gathered, constants, x, states)
        self.merge_slices(out, states, slices, number)

    def merge_slices(self, out: TensorBase, states: TensorBase, slices: int, number: float = 1.0) -> None:
        """Fill `out` from the states of the slices of each output, which are adjacent."""
        lanes = WORKGROUP // next_power_of_2(slices)
        _run_reduce(self.merge_shader, out.numel(), slices, lanes, 1, slices, number, [], (1,), states, out)


def _run_reduce(
    code: Shader,
    outputs: int,
    size: int,
    lanes: int,
    slices: int,
    slice: int,
    number: float,
    gathered: Sequence[int],
    constants: tuple[int, ...],
    source: TensorBase,
    target: TensorBase,
) -> None:
    tiles = ceil_div(outputs, lanes)
    columns = min(tiles, launch.STRIDED_GRID_CAP)
    push = REDUCE_PUSH.pack(outputs, size, lanes, columns, slices, slice, float(number))
    if gathered:
        push = GATHER_PUSH.after(push, gathered[0]) + pack(*gathered[1:])
    grid = columns, slices, ceil_div(tiles, columns)
    launch.run(code, grid, push, source, target, constants=constants)


def _lane_count(outputs: int, layout: _Layout) -> int:
    """The number of adjacent outputs that a workgroup computes: a power of 2."""
    size = math.prod(layout.sizes)
    lanes = WORKGROUP // next_power_of_2(size)  # so that no invocation is idle
    if outputs > MANY_ROWS:
        lanes = max(lanes, WORKGROUP // MAX_ADJACENT_ROWS)  # fills a cache line, and a tree has fewer levels
    width = layout.kept[-1]
    steps = (s for s, n in zip(layout.strides, layout.sizes, strict=True) if n > 1 and s > 0)
    if width > 1 and 0 < layout.kept_strides[-1] < min(steps, default=math.inf):
        limit = MAX_ADJACENT_ROWS if size > MIN_STEPS_PER_SLICE else WORKGROUP
        return max(lanes, min(next_power_of_2(width), limit))
    return lanes


def _form(layout: _Layout, offset: int, device: Device) -> int:
    """The value of SUBGROUPS for the variant that is best on the device."""
    if not _reads_vec4(layout, offset):
        return TREE
    if device.info.short_subgroups:
        return SHUFFLE
    in_subgroups = row_kernels.adds_in_subgroups(device)
    return ARITHMETIC if in_subgroups and math.prod(layout.sizes) // 4 >= row_kernels.LEAST_STEPS else TREE


def _reads_vec4(layout: _Layout, offset: int) -> bool:
    """Whether the reduced elements can be read as aligned vec4s."""
    alignments = (*layout.kept_strides, *layout.strides[:-1], offset)
    return layout.strides[-1:] == (1,) and layout.sizes[-1] % 4 == 0 and not any(n % 4 for n in alignments)


def _vec4_layout(layout: _Layout) -> _Layout:
    """The layout with sizes and strides that count vec4s."""
    return _Layout(
        layout.kept,
        tuple(stride // 4 for stride in layout.kept_strides),
        (*layout.sizes[:-1], layout.sizes[-1] // 4),
        (*(stride // 4 for stride in layout.strides[:-1]), 1),
    )


def _arrange(x: TensorBase, axes: tuple[int, ...], ordered: bool) -> tuple[TensorBase, _Layout]:
    """The tensor, copied if it has too many axes for the kernel, and its layout with merged axes."""
    if ordered and len(axes) > 1:
        x = contiguous(x)  # else indices would not count elements in row-major order
    kept = tuple(i for i in range(len(x.shape)) if i not in axes)
    layout = _layout(x, kept, axes, ordered)
    if layout is None:
        x = primitives.clone(permute(x, *kept, *axes))
        first = len(kept)
        layout = _layout(x, tuple(range(first)), tuple(range(first, len(x.shape))), ordered)
    assert layout is not None
    return x, layout


def _layout(x: TensorBase, kept: tuple[int, ...], axes: tuple[int, ...], ordered: bool) -> _Layout | None:
    """The layout with merged axes; None if these are too many for the kernel."""
    outer, (outer_strides,) = merge_axes(tuple(x.shape[i] for i in kept), [tuple(x.strides[i] for i in kept)])
    if not ordered:  # in the order of memory, so that more of them merge
        axes = tuple(sorted(axes, key=lambda i: -x.strides[i]))
    inner, (inner_strides,) = merge_axes(tuple(x.shape[i] for i in axes), [tuple(x.strides[i] for i in axes)])
    if len(outer) > RANK or len(inner) > RANK:
        return None
    missing = RANK - len(outer)
    outer, outer_strides = (1,) * missing + outer, (0,) * missing + outer_strides
    missing = (1 if len(inner) <= 1 else RANK) - len(inner)
    return _Layout(outer, outer_strides, (1,) * missing + inner, (0,) * missing + inner_strides)
