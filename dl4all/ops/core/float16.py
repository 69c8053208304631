"""float16 on devices: stored in half the bytes, computed with in float32.

Kernels know float32 only. What lies in memory as float16 is unpacked before they run, and what they compute
is rounded once, at the end: sums do not lose their digits on the way.
"""

from __future__ import annotations

import numpy as np

from dl4all.ops.core.launch import ceil_div, pack, run, shader, strided_grid
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.spirv import Shader

HALF, FLOAT = np.dtype(np.float16), np.dtype(np.float32)
UNPACK, PACK = (shader("memory/float16.comp", PACK=what) for what in (0, 1))
SHADERS: tuple[Shader, ...] = (UNPACK, PACK)
WORKGROUP = 128


def unpacked(x: TensorBase) -> TensorBase:
    """A float32 tensor with the elements of a float16 one, laid out as they are, without a history."""
    made = type(x).result_class
    if 0 in x.shape:
        return made(x.device.allocate(0), x.shape, FLOAT, x.device)
    steps = [(size - 1) * stride for size, stride in zip(x.shape, x.strides, strict=True)]
    first = (x.offset + sum(step for step in steps if step < 0)) // 2  # words
    words = ceil_div(x.offset + sum(step for step in steps if step > 0) + 1, 2) - first
    flat = made(x.device.allocate(8 * words, "unpack"), (2 * words,), FLOAT, x.device)
    run(UNPACK, strided_grid(words, WORKGROUP), pack(words, first), x, flat)
    return made(flat.storage, x.shape, FLOAT, x.device, x.strides, x.offset - 2 * first)


def pack_into(out: TensorBase, x: TensorBase) -> None:
    """Fill `out`, float16 from the start of its memory on, with the elements of contiguous float32."""
    count = x.numel()
    if count:
        run(PACK, strided_grid(ceil_div(count, 2), WORKGROUP), pack(count, x.offset), x, out)
