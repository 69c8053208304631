"""Copies of transposed tensors, by tiles of 4 by 4 elements."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, ceil_div, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import Shape
from dl4all.scheduler.device.programs import Launch

TRANSPOSE_PUSH = PushBlock(
    "memory/transpose.comp",
    "uint x_offset, y_offset, x_tiles, y_tiles, x_stride, y_stride, sizes[2], x_strides[2], y_strides[2];",
)
TRANSPOSES = {nbytes: shader("memory/transpose.comp", BYTES=nbytes) for nbytes in (1, 2, 4)}
"""Shaders by the bytes of an element."""

TILES_PER_WORKGROUP = (4, 32)  # along the source's last axis and along the target's
BATCH_AXES = 2  # axes that the kernel has beside the two transposed ones


def transpose_launch(
    itemsize: int, shape: Shape, source: Shape, target: Shape, offsets: Sequence[int]
) -> Launch | None:
    """The launch that copies elements of that many bytes, or None where they, strides or sizes do not fit.

    Args:
        itemsize: of the elements, in bytes.
        shape: with merged axes.
        source: strides of the source.
        target: strides of the target.
        offsets: of source and target.
    """
    if len(shape) < 2 or target[-1] != 1 or source.count(1) != 1 or source[-1] == 1:
        return None
    source_axis, target_axis = source.index(1), len(shape) - 1  # whose elements are neighbours
    batch = [axis for axis in range(target_axis) if axis != source_axis]
    steps = [
        source[target_axis],
        target[source_axis],
        *(strides[axis] for strides in (source, target) for axis in batch),
    ]
    aligned = (shape[source_axis], shape[target_axis], *steps, *offsets)
    if itemsize not in TRANSPOSES or len(batch) > BATCH_AXES or any(n % 4 for n in aligned):
        return None
    tiles = shape[source_axis] // 4, shape[target_axis] // 4
    groups = ceil_div(tiles[0], TILES_PER_WORKGROUP[0]), ceil_div(tiles[1], TILES_PER_WORKGROUP[1])
    if max(groups) > MAX_GRID_SIZE:
        return None
    missing = BATCH_AXES - len(batch)
    sizes = [*(1,) * missing, *(shape[axis] for axis in batch)]
    batch_strides = [
        [*(0,) * missing, *(strides[axis] // 4 for axis in batch)] for strides in (source, target)
    ]
    push = TRANSPOSE_PUSH.pack(
        *(offset // 4 for offset in offsets), *tiles, source[target_axis] // 4, target[source_axis] // 4,
        *sizes, *batch_strides[0], *batch_strides[1],
    )  # fmt: skip
    return Launch(TRANSPOSES[itemsize], (*groups, min(sizes[0] * sizes[1], MAX_GRID_SIZE)), push)
