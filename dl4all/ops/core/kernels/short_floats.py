"""Floats of 16 and 8 bits on devices: conversion to float32 and back, for kernels of float32.

Operands are unpacked before a kernel runs and its result is rounded once, at the end, so that sums keep their
precision on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.dtypes import BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT16, FLOAT32, HALVES
from dl4all.ops.core.kernels.launch import ceil_div, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

PUSH = PushBlock("memory/short_floats.comp", "uint n, x_offset;")


class FloatFormat(NamedTuple):
    """A format of floats below float32, by its bits."""

    mantissa: int  # bits
    bias: int  # of the exponent
    special: int  # the first magnitude that is no number: infinity or a nan
    quiet_nan: int
    largest: int  # the magnitude of what is beyond the range: infinity or the largest number
    wide_special: int = 0x7F800000  # the special one in float32


FORMATS = {
    FLOAT16: FloatFormat(10, 15, special=0x7C00, quiet_nan=0x7E00, largest=0x7C00),
    BFLOAT16: FloatFormat(7, 127, special=0x7F80, quiet_nan=0x7FC0, largest=0x7F80),
    FLOAT8_E5M2: FloatFormat(2, 15, special=0x7C, quiet_nan=0x7E, largest=0x7C),
    FLOAT8_E4M3FN: FloatFormat(3, 7, special=0x7F, quiet_nan=0x7F, largest=0x7E, wide_special=0x7FC00000),
}
"""The formats that devices convert by kernels, by dtype; float8_e4m3fn has no infinity."""


def _converter(dtype: np.dtype[Any], pack: int) -> Shader:
    macros = {name.upper(): f"{value}u" for name, value in FORMATS[dtype]._asdict().items()}
    return shader("memory/short_floats.comp", PACK=pack, BITS=8 * dtype.itemsize, **macros)


UNPACK, PACK = ({dtype: _converter(dtype, pack) for dtype in FORMATS} for pack in (0, 1))
SHADERS = (*UNPACK.values(), *PACK.values())
WORKGROUP = 128


def unpacked(x: TensorBase) -> TensorBase:
    """Convert short floats to a float32 tensor of the same memory layout, without a history."""
    cls, per_word = type(x).result_class, 4 // x.dtype.itemsize
    if 0 in x.shape:
        return cls(x.device.allocate(0), x.shape, FLOAT32, x.device)
    extents = [(size - 1) * stride for size, stride in zip(x.shape, x.strides, strict=True)]
    first = (x.offset + sum(extent for extent in extents if extent < 0)) // per_word  # words
    words = ceil_div(x.offset + sum(extent for extent in extents if extent > 0) + 1, per_word) - first
    count = per_word * words
    flat = cls(x.device.allocate(4 * count, "unpack"), (count,), FLOAT32, x.device)
    push = PUSH.pack(n=words, x_offset=first)
    x.device.launch(
        Launch(UNPACK[x.dtype], strided_grid(words, WORKGROUP, x.device), push), x.storage, flat.storage
    )
    return cls(flat.storage, x.shape, FLOAT32, x.device, x.strides, x.offset - per_word * first)


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
    """Round contiguous float32 to the dtype of `out`, written from the start of its memory on."""
    count = x.numel()
    if count:
        grid = strided_grid(ceil_div(count * out.dtype.itemsize, 4), WORKGROUP, x.device)
        launch = Launch(PACK[out.dtype], grid, PUSH.pack(n=count, x_offset=x.offset))
        x.device.launch(launch, x.storage, out.storage)
