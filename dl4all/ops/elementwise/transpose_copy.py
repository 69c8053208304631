"""Copies after which other elements are neighbours, as of a transposed matrix."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.ops.core.launch import MAX_GRID_SIZE, ceil_div, pack, shader
from dl4all.ops.core.tensor_base import Shape
from dl4all.scheduler.programs import Launch

TRANSPOSE = shader("memory/transpose.comp")
TILES = (4, 32)  # of 4 by 4 elements, that a workgroup copies
OUTER = 2  # axes beside the two


def transpose_launch(shape: Shape, source: Shape, target: Shape, offsets: Sequence[int]) -> Launch | None:
    """The launch that copies elements of 4 bytes, or None where they are not by fours along two axes.

    Args:
        shape: with as few axes as possible.
        source, target: strides.
        offsets: of source and target.
    """
    if len(shape) < 2 or target[-1] != 1 or source.count(1) != 1 or source[-1] == 1:
        return None
    turned, last = source.index(1), len(shape) - 1
    others = [axis for axis in range(last) if axis != turned]
    far = [source[last], target[turned], *(strides[axis] for strides in (source, target) for axis in others)]
    if len(others) > OUTER or any(n % 4 for n in (shape[turned], shape[last], *far, *offsets)):
        return None
    along, across = shape[turned] // 4, shape[last] // 4
    groups = ceil_div(along, TILES[0]), ceil_div(across, TILES[1])
    if max(groups) > MAX_GRID_SIZE:
        return None
    missing = OUTER - len(others)
    sizes = [*(1,) * missing, *(shape[axis] for axis in others)]
    strides = [[*(0,) * missing, *(every[axis] // 4 for axis in others)] for every in (source, target)]
    push = pack(
        *(offset // 4 for offset in offsets), along, across, source[last] // 4, target[turned] // 4,
        *sizes, *strides[0], *strides[1],
    )  # fmt: skip
    return Launch(TRANSPOSE, (*groups, min(sizes[0] * sizes[1], MAX_GRID_SIZE)), push)
