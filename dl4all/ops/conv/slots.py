"""Sums up the partial results that kernels write side by side, each into a slot of its own."""

from __future__ import annotations

from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase

SUM_PUSH = PushBlock("conv/sum.comp", "uint n, slots, y_offset, step;")
SUM = shader("conv/sum.comp")
WORKGROUP = 64


def sum_slots(out: TensorBase, slots: TensorBase, size: int, count: int, offset: int) -> None:
    """Fill `size` elements of `out` from `offset` on with the sum of `count` slots."""
    grid = strided_grid(size, WORKGROUP)
    run(SUM, grid, SUM_PUSH.pack(n=size, slots=count, y_offset=offset, step=grid[0] * WORKGROUP), slots, out)
