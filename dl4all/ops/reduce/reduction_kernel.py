"""How axes are reduced: their names in arguments, and the kernel that serves all reductions of floats."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core import launch
from dl4all.ops.core.launch import ceil_div, pack, shader
from dl4all.ops.core.op import empty, primitives
from dl4all.ops.core.strides import axis, merge_axes
from dl4all.ops.core.tensor_base import DTYPES, Shape, TensorBase
from dl4all.ops.memory.views import contiguous, permute
from dl4all.ops.reduce.row_kernels import MANY, ROWS_OF_SUBGROUPS, TOGETHER, WIDEST, power_of_2
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.programs import Launch

WORKGROUP = 128
RANK = 4  # axes that the kernel keeps, and reduces, after merging
BUSY = 512  # workgroups that are enough for any device
LEAST_RUN = 64  # steps of an invocation that are worth a slice of their own
WORDS = {"MOMENTS": 3, "ARGMAX": 2, "ARGMIN": 2, "LOGSUMEXP": 2}  # of a state, where it is more than 1


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
    found = sorted(axis(op, d, max(ndim, 1)) for d in dims)
    if len(set(found)) != len(found):
        raise ArgumentError(f"[{op}] dim {dim} names an axis twice")
    return tuple(found) if ndim else ()


def one_axis(op: str, dim: Any, ndim: int) -> int:
    """The axis that an argument `dim` names; a 0-d tensor is taken for one of a single element.

    Raises:
        ArgumentError: it is no int, or there is no such axis.
    """
    if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool):
        raise ArgumentError(f"[{op}] dim must be an int, got {dim!r}")
    return axis(op, int(dim), max(ndim, 1))


def reduced(shape: Shape, axes: tuple[int, ...], keepdim: bool) -> Shape:
    """The shape without the axes, or with size 1 in their places.

    >>> reduced((2, 3, 5), (1,), True)
    (2, 1, 5)
    """
    if keepdim:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def widened(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of sums and products: int64 of bool and integers, so that they do not overflow."""
    return dtype if dtype.kind == "f" else np.dtype(np.int64)


def named(op: str, dtype: Any) -> np.dtype[Any]:
    """The dtype that an argument names.

    Raises:
        DTypeError: it is none that tensors can have.
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        pass
    else:
        if found in DTYPES:
            return found
    raise DTypeError(f"[{op}] {dtype!r} is no dtype of tensors; use one of {', '.join(map(str, DTYPES))}")


class _Layout(NamedTuple):
    """Sizes and strides of the kept and of the reduced axes."""

    kept: Shape
    kept_strides: Shape
    sizes: Shape
    strides: Shape


class Reduction:
    """A reduction of float32 on devices.

    Args:
        kind: what is gathered, see ``reduce/reductions.glsl``.
        element: what is taken of an element ``x``, as a GLSL expression.
        result: what becomes of the gathered ``s``; both may use ``p.number``.
        ordered: whether it matters which element comes first; then it is one axis, or all.
        wide: the result is an int64.
    """

    def __init__(
        self, kind: str, result: str, element: str = "x", *, ordered: bool = False, wide: bool = False
    ) -> None:
        common = {"KIND": kind, "RESULT(s)": f"({result})", "WIDE": int(wide), "POWER": int("powf" in result)}
        taking = {"ELEMENT(x)": f"({element})"} if kind in ("SUM", "PRODUCT", "LARGEST", "SMALLEST") else {}
        self._gather = {
            (rank, subgroups): shader(
                "reduce/reduce.comp", **common, **taking, MERGE=0, REDUCED=rank, SUBGROUPS=int(subgroups)
            )
            for rank in ((1,) if ordered else (1, RANK))
            for subgroups in (False, True)
        }
        # How the state of one element is made does not matter any more.
        unused = {"ELEMENT(x)": "x"} if taking else {}
        self.merge = shader("reduce/reduce.comp", **common, **unused, MERGE=1, REDUCED=1, SUBGROUPS=0)
        self._words = WORDS.get(kind, 1)
        self._ordered = ordered
        self.shaders = (*self._gather.values(), self.merge)

    def __call__(self, out: TensorBase, x: TensorBase, axes: tuple[int, ...], number: float = 1.0) -> None:
        """Fill `out` with the reduction of `x` over the axes."""
        if x.dtype != np.float32:
            x = primitives.cast(x, "float32")
        x, layout = _arranged(x, axes, self._ordered)
        subgroups = out.device.info.short_subgroups and _by_four(layout, x.offset)
        width = 4 if subgroups else 1
        if subgroups:
            layout = _in_fours(layout)
        outputs, size = out.numel(), math.prod(layout.sizes)
        lanes = ROWS_OF_SUBGROUPS if subgroups else _lanes(outputs, layout)
        step = TOGETHER if subgroups else WORKGROUP // lanes  # elements, or fours, that are taken at once
        tiles = ceil_div(outputs, lanes)
        slices = max(1, min(ceil_div(BUSY, tiles), ceil_div(size, step) * width // LEAST_RUN))
        slice = ceil_div(ceil_div(size, slices), step) * step
        slices = ceil_div(size, slice) if size else 1
        rank = len(layout.sizes) if len(layout.sizes) == 1 else RANK
        push = pack(x.offset // width, *layout.kept, *layout.kept_strides, *layout.sizes, *layout.strides)
        code, used = self._gather[rank, subgroups], max(1, sum(kept != 1 for kept in layout.kept))
        if slices == 1:
            _run(code, outputs, size, lanes, 1, slice, number, push, used, x, out)
            return
        states = empty(
            type(out).result_class, (outputs * slices * self._words,), np.dtype(np.float32), out.device
        )
        _run(code, outputs, size, lanes, slices, slice, number, push, used, x, states)
        self.join(out, states, slices, number)

    def join(self, out: TensorBase, states: TensorBase, slices: int, number: float = 1.0) -> None:
        """Fill `out` from the states of each element's slices, which lie side by side."""
        lanes = WORKGROUP // power_of_2(slices)
        _run(self.merge, out.numel(), slices, lanes, 1, slices, number, b"", 1, states, out)


def on_host(out: TensorBase, values: Any) -> None:
    """Fill `out` with what was computed on the host."""
    out.storage = out.device.upload(np.asarray(values, out.dtype))


def _run(
    code: Shader,
    outputs: int,
    size: int,
    lanes: int,
    slices: int,
    slice: int,
    number: float,
    rest: bytes,
    axes: int,
    source: TensorBase,
    target: TensorBase,
) -> None:
    tiles = ceil_div(outputs, lanes)
    columns = min(tiles, launch.STRIDED_GRID_CAP)
    push = pack(outputs, size, lanes, columns, slices, slice, float(number)) + rest
    grid = columns, slices, ceil_div(tiles, columns)
    target.device.launch(Launch(code, grid, push, (axes,)), source.storage, target.storage)


def _lanes(outputs: int, layout: _Layout) -> int:
    """How many outputs a workgroup has side by side: a power of 2."""
    size = math.prod(layout.sizes)
    enough = WORKGROUP // power_of_2(size)  # so that no invocation is idle
    if outputs > MANY:
        enough = max(enough, WORKGROUP // WIDEST)  # a row still fills a cache line; a tree has fewer levels
    width = layout.kept[-1]
    steps = (s for s, n in zip(layout.strides, layout.sizes, strict=True) if n > 1 and s > 0)
    if width > 1 and 0 < layout.kept_strides[-1] < min(steps, default=math.inf):
        return max(enough, min(power_of_2(width), WIDEST if size > LEAST_RUN else WORKGROUP))
    return enough


def _by_four(layout: _Layout, offset: int) -> bool:
    """Whether fours of reduced elements lie at multiples of four."""
    others = (*layout.kept_strides, *layout.strides[:-1], offset)
    return layout.strides[-1:] == (1,) and layout.sizes[-1] % 4 == 0 and not any(n % 4 for n in others)


def _in_fours(layout: _Layout) -> _Layout:
    return _Layout(
        layout.kept,
        tuple(stride // 4 for stride in layout.kept_strides),
        (*layout.sizes[:-1], layout.sizes[-1] // 4),
        (*(stride // 4 for stride in layout.strides[:-1]), 1),
    )


def _arranged(x: TensorBase, axes: tuple[int, ...], ordered: bool) -> tuple[TensorBase, _Layout]:
    """The tensor, or a copy, with no more axes than the kernel has once neighbours are merged."""
    if ordered and len(axes) > 1:
        x = contiguous(x)  # or the elements would not be counted in their order
    kept = tuple(i for i in range(len(x.shape)) if i not in axes)
    layout = _layout(x, kept, axes, ordered)
    if layout is None:
        turned = permute(x, *kept, *axes)
        x = primitives.clone(turned)
        first = len(kept)
        layout = _layout(x, tuple(range(first)), tuple(range(first, len(x.shape))), ordered)
    assert layout is not None
    return x, layout


def _layout(x: TensorBase, kept: tuple[int, ...], axes: tuple[int, ...], ordered: bool) -> _Layout | None:
    """None if there are too many axes for the kernel."""
    outer, (outer_strides,) = merge_axes(tuple(x.shape[i] for i in kept), [tuple(x.strides[i] for i in kept)])
    if not ordered:  # then as they lie in memory, so that more of them merge
        axes = tuple(sorted(axes, key=lambda i: -x.strides[i]))
    inner, (inner_strides,) = merge_axes(tuple(x.shape[i] for i in axes), [tuple(x.strides[i] for i in axes)])
    if len(outer) > RANK or len(inner) > RANK:
        return None
    missing = RANK - len(outer)
    outer, outer_strides = (1,) * missing + outer, (0,) * missing + outer_strides
    missing = (1 if len(inner) <= 1 else RANK) - len(inner)
    return _Layout(outer, outer_strides, (1,) * missing + inner, (0,) * missing + inner_strides)
