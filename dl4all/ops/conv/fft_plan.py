"""The cut of images into tiles for a convolution by Fourier transforms, and its cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from dl4all.ops.conv.problem import Direction, Problem
from dl4all.ops.core.kernels.launch import ceil_div

Pair: TypeAlias = tuple[int, int]  # vertical, horizontal

MAX_LENGTH = 1024  # complex numbers of a transform along one axis

# Measured on llvmpipe, in the unit of dl4all.ops.conv.costs.
COST_PER_TRANSFORMED_FLOAT = 40  # for each doubling of the transform's length
COST_PER_TERM = 22  # One term of a sum of products, for each float.
COST_PER_SUM = 60  # Storing a sum of products, for each float.
COST_PER_CHECKED_RESULT = 300  # Reading a result once more, to repair it if it is not finite.


class FftPlan(NamedTuple):
    """The cut of images into tiles, along both axes."""

    size: Pair  # complex numbers of a transform
    span: Pair  # results of a tile
    grid: Pair  # tiles

    @property
    def pairs(self) -> int:
        """The number of pairs of complex numbers of a map, the transform of one channel of a tile."""
        return (self.size[1] // 2 + 1) * self.size[0] // 2

    @property
    def nbytes(self) -> int:
        """Of a map."""
        return self.pairs * 16


def plan_cost(problem: Problem, direction: Direction, plan: FftPlan) -> float:
    """The cost of a plan, without its launches."""
    images, channels, filters = problem.images, problem.channels, problem.filters
    tiles = images * math.prod(plan.grid)
    filter_maps = filters * channels // problem.groups
    maps = tiles * (channels + filters) + filter_maps
    terms = tiles * filter_maps
    if direction == "forward":
        sums, results = tiles * filters, images * filters * problem.out_pixels
    elif direction == "input_gradient":
        sums, results = tiles * channels, images * channels * problem.in_pixels
    else:
        sums, results = filter_maps, 0
    per_float = (
        maps * math.log2(math.prod(plan.size)) * COST_PER_TRANSFORMED_FLOAT
        + terms * COST_PER_TERM
        + sums * COST_PER_SUM
    )
    return plan.pairs * 4 * per_float + results * COST_PER_CHECKED_RESULT


@functools.lru_cache(maxsize=1024)
def best_plan(problem: Problem, direction: Direction) -> FftPlan:
    """The cheapest plan."""
    size = (
        problem.size[1:]
        if direction == "input_gradient"
        else tuple((n - 1) * s + 1 for n, s in zip(problem.out_size[1:], problem.win.stride[1:], strict=True))
    )
    heights, widths = (tuple(_lengths(*both)) for both in zip(filter_extent(problem), size, strict=True))
    plans = (FftPlan(*zip(down, right, strict=True)) for down in heights for right in widths)
    return min(plans, key=lambda plan: plan_cost(problem, direction, plan))


def _lengths(extent: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Along one axis: complex numbers of a transform, results of a tile, and tiles."""
    length = max(2, 1 << (extent - 1).bit_length())
    while length <= MAX_LENGTH:
        span = min(length - extent + 1, size)
        yield length, span, ceil_div(size, span)
        if span == size:
            break
        length *= 2


def filter_extent(problem: Problem) -> Pair:
    """The extent of a filter with its gaps, along both axes."""
    win = problem.win
    height, width = (d * (k - 1) + 1 for d, k in zip(win.dilation[1:], win.kernel[1:], strict=True))
    return height, width
