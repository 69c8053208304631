"""Floats of 16 bits on devices: conversion to float32 and back, where a kernel reads and writes float32 only.

Operands are unpacked before a kernel runs and its result is rounded once, at the end, so that sums keep their
precision on the way.
"""

from __future__ import annotations

from collections.abc import Callable

from dl4all.ops.core.dtypes import BFLOAT16, FLOAT32, HALVES
from dl4all.ops.core.kernels.launch import ceil_div, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.device.programs import Launch

PUSH = PushBlock("memory/half.comp", "uint n, x_offset;")
UNPACK, PACK = (
    {
        dtype: shader("memory/half.comp", PACK=pack, BFLOAT16=int(dtype == BFLOAT16))
        for dtype in sorted(HALVES, key=str)
    }
    for pack in (0, 1)
)
SHADERS = (*UNPACK.values(), *PACK.values())
WORKGROUP = 128


def unpacked(x: TensorBase) -> TensorBase:
    """Convert floats of 16 bits to a float32 tensor of the same memory layout, without a history."""
    cls = type(x).result_class
    if 0 in x.shape:
        return cls(x.device.allocate(0), x.shape, FLOAT32, x.device)
    extents = [(size - 1) * stride for size, stride in zip(x.shape, x.strides, strict=True)]
    first = (x.offset + sum(extent for extent in extents if extent < 0)) // 2  # words
    words = ceil_div(x.offset + sum(extent for extent in extents if extent > 0) + 1, 2) - first
    flat = cls(x.device.allocate(8 * words, "unpack"), (2 * words,), FLOAT32, x.device)
    push = PUSH.pack(n=words, x_offset=first)
    x.device.launch(
        Launch(UNPACK[x.dtype], strided_grid(words, WORKGROUP, x.device), push), x.storage, flat.storage
    )
    return cls(flat.storage, x.shape, FLOAT32, x.device, x.strides, x.offset - 2 * first)


def by_float32(out: TensorBase, fill: Callable[[TensorBase], None]) -> None:
    """Fill a result of any dtype by a function that adds to what it has written; 16 bits are rounded once."""
    if out.dtype not in HALVES:
        fill(out)
        return
    cls = type(out).result_class
    wide = cls(out.device.allocate(4 * out.numel(), "sums"), out.shape, FLOAT32, out.device)
    fill(wide)
    rounding = primitives.cast.kernel
    assert rounding is not None
    rounding.run(out, wide, dtype=out.dtype.name)


def pack_into(out: TensorBase, x: TensorBase) -> None:
    """Round contiguous float32 to 16 bits, written from the start of the memory of `out` on."""
    count = x.numel()
    if count:
        grid = strided_grid(ceil_div(count, 2), WORKGROUP, x.device)
        launch = Launch(PACK[out.dtype], grid, PUSH.pack(n=count, x_offset=x.offset))
        x.device.launch(launch, x.storage, out.storage)
