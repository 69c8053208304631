"""float16 on devices: conversion to float32 and back, since kernels compute in float32 only.

Operands are unpacked before a kernel runs and its result is rounded once, at the end, so that sums keep their
precision on the way.
"""

from __future__ import annotations

import numpy as np

from dl4all.ops.core.kernels.launch import ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.spirv import Shader

HALF, FLOAT = np.dtype(np.float16), np.dtype(np.float32)
FLOAT16_PUSH = PushBlock("memory/float16.comp", "uint n, x_offset;")
UNPACK, PACK = (shader("memory/float16.comp", PACK=what) for what in (0, 1))
SHADERS: tuple[Shader, ...] = (UNPACK, PACK)
WORKGROUP = 128


def unpacked(x: TensorBase) -> TensorBase:
    """Convert float16 to a float32 tensor of the same memory layout, without a history."""
    cls = type(x).result_class
    if 0 in x.shape:
        return cls(x.device.allocate(0), x.shape, FLOAT, x.device)
    extents = [(size - 1) * stride for size, stride in zip(x.shape, x.strides, strict=True)]
    first = (x.offset + sum(extent for extent in extents if extent < 0)) // 2  # words
    words = ceil_div(x.offset + sum(extent for extent in extents if extent > 0) + 1, 2) - first
    flat = cls(x.device.allocate(8 * words, "unpack"), (2 * words,), FLOAT, x.device)
    run(UNPACK, strided_grid(words, WORKGROUP), FLOAT16_PUSH.pack(n=words, x_offset=first), x, flat)
    return cls(flat.storage, x.shape, FLOAT, x.device, x.strides, x.offset - 2 * first)


def pack_into(out: TensorBase, x: TensorBase) -> None:
    """Round contiguous float32 to float16, written from the start of the memory of `out` on."""
    count = x.numel()
    if count:
        run(
            PACK,
            strided_grid(ceil_div(count, 2), WORKGROUP),
            FLOAT16_PUSH.pack(n=count, x_offset=x.offset),
            x,
            out,
        )
