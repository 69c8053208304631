"""Sums, means, products, norms and extremes along any axes: which unit of work is computed how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.host_kernels.lib.elements import memory_type
from dl4all.host_kernels.lib.rows import CHUNK
from dl4all.host_kernels.reduce.reduction_units import (
    BLOCK,
    EXTREMES,
    KEPT_AXES,
    REDUCED_AXES,
    WIDE,
    Types,
    reduction,
)
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tape import repeated_axes
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.reduce.reduction_kernel import axes_of
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir_types import SIZES

UNITS = 64  # from which on all threads are busy
TILE = 256  # the fewest columns of a unit
PART = 2 * CHUNK  # elements of a part, at least


class ReductionGeometry(NamedTuple):
    """The way of a kernel through an array. Sizes and strides count elements."""

    vertical: bool  # lanes are columns
    adjacent: bool  # what lanes read lies side by side
    kept: tuple[Shape, Shape]  # sizes and strides of KEPT_AXES, without the columns
    reduced: tuple[Shape, Shape]  # of REDUCED_AXES, without the innermost one
    rows: tuple[int, int]  # the innermost reduced axis
    columns: int

    @property
    def counts(self) -> bool:
        """Whether there is more than one kept axis."""
        return self.kept[0][:-1] != (1,) * (KEPT_AXES - 1)

    @property
    def results(self) -> int:
        return math.prod(self.kept[0]) * self.columns

    @property
    def terms(self) -> int:
        return math.prod(self.reduced[0]) * self.rows[0]


def geometry(x: ArrayLayout, axes: Sequence[int]) -> ReductionGeometry:
    """
    Raises:
        NoKernel: there are too many axes, or no elements.
    """
    if 0 in x.shape:
        raise NoKernel("no elements")
    kept_axes = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = sorted(axes, key=lambda axis: -abs(x.strides[axis]))
    kept, reduced = (_merged(x, group) for group in (kept_axes, order))
    rows, columns = (1, 1), 1
    inner_kept, inner_reduced = kept[-1:], reduced[-1:]
    adjacent_rows = bool(inner_reduced) and inner_reduced[0][1] == 1
    vertical = not adjacent_rows and bool(inner_kept) and inner_kept[0][1] == 1
    if vertical:
        columns = kept.pop()[0]
    if reduced:
        rows = reduced.pop()
    if len(kept) > KEPT_AXES or len(reduced) > REDUCED_AXES:
        raise NoKernel("too many axes")
    return ReductionGeometry(
        vertical,
        vertical or adjacent_rows,
        _padded(kept, KEPT_AXES),
        _padded(reduced, REDUCED_AXES),
        rows,
        columns,
    )


def _merged(x: ArrayLayout, axes: Sequence[int]) -> list[tuple[int, int]]:
    sizes, (strides,) = merge_axes(
        tuple(x.shape[axis] for axis in axes), [tuple(x.strides[axis] for axis in axes)]
    )
    return list(zip(sizes, strides, strict=True))


def _padded(axes: list[tuple[int, int]], count: int) -> tuple[Shape, Shape]:
    pairs = [(1, 0)] * (count - len(axes)) + axes
    return tuple(size for size, _ in pairs), tuple(stride for _, stride in pairs)


def reduction_launch(
    kind: str, out: ArrayLayout, x: ArrayLayout, axes: Sequence[int], number: float = 1.0
) -> HostLaunch:
    """The launch of a reduction; `number` is what a mean divides by.

    Raises:
        NoKernel: there is none for these layouts or dtypes.
    """
    types = types_of(kind, x.dtype, out.dtype)
    g = geometry(x, axes)
    lanes = lanes_for(g, SIZES[types.total])
    constants, parts = partition(g, lanes, divides=True)
    scratch = parts * g.results * SIZES[types.wide] if parts > 1 else 0
    key = (kind, types, g.vertical, lanes, g.counts, parts > 1)
    constants.append(float(number))
    return HostLaunch(reduction, key, 2, constants, scratch=scratch, work=g.results * g.terms)


def lanes_for(g: ReductionGeometry, size: int) -> int:
    """The number of elements that are computed with at a time, by the bytes of the largest value of one."""
    return provider.processor().lanes(size) if g.adjacent else 1


def partition(g: ReductionGeometry, lanes: int, *, divides: bool) -> tuple[list[int | float], int]:
    """The constants of a launch but for the number, and how many parts the terms of a result are cut into.

    Args:
        g: what is reduced.
        lanes: of a vector.
        divides: whether there may be several parts.
    """
    size, results, terms = g.rows[0], g.results, g.terms
    units, tile = math.prod(g.kept[0]), g.columns
    if units < UNITS and results * terms > PART:
        even = WIDE * lanes
        tile = min(tile, max(TILE, -(-tile * units // (UNITS * even)) * even))
    tiles = -(-g.columns // tile)
    units *= tiles
    step = size
    if divides and units < UNITS // 4:
        parts = min(-(-UNITS // units), results * terms // PART, size // BLOCK)
        if parts > 1:
            step = -(-size // parts)
            step += -step % (BLOCK if g.vertical else BLOCK * WIDE * lanes)
    parts = -(-size // step)
    grain = max(1, CHUNK * units * parts // (results * terms))
    return [
        units * parts, grain, results, max(1, CHUNK // parts), parts, step, tile, tiles, g.columns,
        *g.kept[0], *g.kept[1], *g.reduced[0], *g.reduced[1], *g.rows,
    ], parts  # fmt: skip


def types_of(kind: str, source: np.dtype[Any], target: np.dtype[Any]) -> Types:
    """
    Raises:
        NoKernel: there is no such conversion.
    """
    read, written = memory_type(source), memory_type(target)
    element = {"half": "float", "bf16": "float", "u8": "i16", "u1": "i16"}.get(read, read)
    if kind in EXTREMES:
        return Types(read, element, element, element, written)
    if kind == "count":
        return Types(read, element, "i64", "i64", written)
    if kind_of(target) == "f":
        total = "double" if target == np.float64 or kind == "prod" else "float"  # errors of products add up
        return Types(read, total, total, "double", written)
    if kind_of(target) in "iu" and kind_of(source) in "iub":
        return Types(read, "i64", "i64", "i64", written)
    raise NoKernel(f"{kind} of {source} as {target}")


@host_kernel("sum")
def prepare_sum(out: ArrayLayout, x: ArrayLayout, dim: Any, keepdim: bool, dtype: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    return reduction_launch("sum", out, x, axes_of("sum", dim, len(x.shape)))


@host_kernel("sum_to")
def prepare_sum_to(out: ArrayLayout, x: ArrayLayout, shape: Shape) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    return reduction_launch("sum", out, x, repeated_axes(tuple(shape), x.shape))


@host_kernel("mean")
def prepare_mean(out: ArrayLayout, x: ArrayLayout, dim: Any, keepdim: bool, dtype: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    axes = axes_of("mean", dim, len(x.shape))
    number = math.prod(x.shape[axis] for axis in axes)
    return reduction_launch("mean", out, x, axes, number)


@host_kernel("prod")
def prepare_prod(out: ArrayLayout, x: ArrayLayout, dim: Any, keepdim: bool, dtype: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    return reduction_launch("prod", out, x, axes_of("prod", dim, len(x.shape)))


@host_kernel("amax")
def prepare_amax(out: ArrayLayout, x: ArrayLayout, dim: Any, keepdim: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    return reduction_launch("amax", out, x, axes_of("amax", dim, len(x.shape)))


@host_kernel("amin")
def prepare_amin(out: ArrayLayout, x: ArrayLayout, dim: Any, keepdim: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    return reduction_launch("amin", out, x, axes_of("amin", dim, len(x.shape)))


@host_kernel("count_nonzero")
def prepare_count(out: ArrayLayout, x: ArrayLayout, dim: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`reduction_launch`.
    """
    return reduction_launch("count", out, x, axes_of("count_nonzero", dim, len(x.shape)))


NORMS = {1.0: "magnitudes", 2.0: "euclidean"}


@host_kernel("norm")
def prepare_norm(out: ArrayLayout, x: ArrayLayout, p: Any, dim: Any, keepdim: bool, dtype: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the order is another one than 1 and 2, or see :func:`reduction_launch`.
    """
    order = 2.0 if p == "fro" else float(p)
    if order not in NORMS or kind_of(x.dtype) != "f":
        raise NoKernel(f"norm of order {p} of {x.dtype}")
    return reduction_launch(NORMS[order], out, x, axes_of("norm", dim, len(x.shape)))
