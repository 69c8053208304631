"""Cumulative sums of integers and bools by a kernel, as int64."""

from __future__ import annotations

import math

from dl4all.ops.core.dtypes import DTYPES, kind_of
from dl4all.ops.core.kernels.launch import NoKernel, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.ops.sorting.keys import KEY_KINDS, workgroups
from dl4all.ops.sorting.placement import prefers_host

SUMS_PUSH = PushBlock("sorting/sums.comp", "uint rows, size, inner, x_offset, columns;")
SUMS = {
    dtype.name: shader("sorting/sums.comp", KIND=KEY_KINDS[dtype], BYTES=dtype.itemsize)
    for dtype in DTYPES
    if kind_of(dtype) != "f"
}
SHARED.extend(dict.fromkeys(SUMS.values()))


def cumulative_sums(out: TensorBase, input: TensorBase, axis: int) -> None:
    """Fill an int64 tensor with the sums of each element and all earlier ones along an axis.

    Raises:
        NoKernel: the input is of floats, or the host sums faster.
    """
    if input.dtype.name not in SUMS:
        raise NoKernel(f"no kernel adds up {input.dtype} as int64")
    if prefers_host(out.device, out.numel(), waits=False):
        raise NoKernel("a software driver's kernel is slower than the host")
    shape = out.shape or (1,)
    size, inner = shape[axis], math.prod(shape[axis + 1 :])
    rows = out.numel() // size
    x = contiguous(input)
    groups, columns = workgroups(rows)
    run(
        SUMS[x.dtype.name],
        groups,
        SUMS_PUSH.pack(rows=rows, size=size, inner=inner, x_offset=x.offset, columns=columns),
        x,
        out,
    )
