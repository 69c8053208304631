"""Reductions of integers and bools by a kernel: sums, products, extremes and their indices."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from dl4all.ops.core.dtypes import DTYPES, kind_of
from dl4all.ops.core.kernels.launch import NoKernel, ceil_div, check_rounds, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous, permute
from dl4all.ops.sorting.keys import KEY_KINDS, workgroups
from dl4all.ops.sorting.placement import prefers_host

Kind = Literal["sum", "prod", "amax", "amin", "argmax", "argmin"]

WORKGROUP = 128
LEAST_SLICE = 16 * WORKGROUP  # elements; shorter ones are not worth a workgroup
MOST_SLICES = 256

INT64 = np.dtype(np.int64)
KINDS: dict[Kind, int] = {"sum": 0, "prod": 1, "amax": 2, "amin": 3, "argmax": 4, "argmin": 5}
REDUCE_PUSH = PushBlock("sorting/reduce.comp", "uint rows, size, x_offset, slices, slice, columns;")
SHADERS = {
    (dtype.name, kind, wide): shader(
        "sorting/reduce.comp",
        KIND=KEY_KINDS[dtype],
        BYTES=dtype.itemsize,
        REDUCTION=number,
        WIDE=int(wide),
    )
    for dtype in DTYPES
    if kind_of(dtype) != "f"
    for kind, number in KINDS.items()
    for wide in (True, False)
    if wide or kind in ("amax", "amin")
}
"""By the dtype of the elements, the reduction, and whether the result is an int64."""

SHARED.extend(dict.fromkeys(SHADERS.values()))


def reduce_integers(out: TensorBase, input: TensorBase, axes: tuple[int, ...], kind: Kind) -> None:
    """Fill a tensor of int64, or of int32 with an extreme that fits, with a reduction over axes.

    Raises:
        NoKernel: other dtypes, or the host computes faster.
    """
    wide = out.dtype == INT64
    if (input.dtype.name, kind, wide) not in SHADERS or not (wide or out.dtype == np.int32):
        raise NoKernel(f"no kernel reduces {input.dtype} to {out.dtype}")
    if prefers_host(out.device, input.numel(), waits=False):
        raise NoKernel("a software driver's kernel is slower than the host")
    kept = tuple(i for i in range(len(input.shape)) if i not in axes)
    x = contiguous(permute(input, *kept, *axes)) if input.shape else input
    rows = out.numel()
    size = math.prod(input.shape[i] for i in axes)
    slices = 1 if kind in ("argmax", "argmin") else max(min(ceil_div(size, LEAST_SLICE), MOST_SLICES), 1)
    slices = max(ceil_div(size, ceil_div(size, slices) or 1), 1)  # none is empty, for that has no extreme
    if slices > 1:
        states = empty(type(out).result_class, (rows, slices), INT64, out.device)
        _launch(states, x, (rows, size, slices), kind)
        x, size = states, slices
    _launch(out, x, (rows, size, 1), kind)


def _launch(out: TensorBase, x: TensorBase, sizes: tuple[int, int, int], kind: Kind) -> None:
    """Reduce each slice of contiguous rows, given by the number of rows, their size and their slices."""
    rows, size, slices = sizes
    slice = ceil_div(size, slices)
    check_rounds(out.device, ceil_div(slice, WORKGROUP))
    groups, columns = workgroups(rows * slices)
    push = REDUCE_PUSH.pack(
        rows=rows, size=size, x_offset=x.offset, slices=slices, slice=slice, columns=columns
    )
    run(SHADERS[x.dtype.name, kind, out.dtype == INT64], groups, push, x, out)
