"""bfloat16 as a format to store: dl4all has no such dtype, and holds its elements as int16 patterns.

A bfloat16 is the upper half of a float32. Other libraries' tensors of it, such as PyTorch's on ``dlall``, are
computed with as float32 and rounded once, at the end. Nothing here records gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.kernels.host_work import host_work
from dl4all.ops.core.kernels.launch import ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous

WORKGROUP = 128
BFLOAT16_PUSH = PushBlock("memory/bfloat16.comp", "uint n, x_offset;")
UNPACK, PACK = (shader("memory/bfloat16.comp", PACK=what) for what in (0, 1))
SHARED.extend((UNPACK, PACK))
PATTERN, FLOAT = np.dtype(np.int16), np.dtype(np.float32)
NAN = np.uint32(0x7FC0)


def bfloat16_to_float32(input: TensorBase) -> TensorBase:
    """The float32 of each bfloat16; all of them are exact.

    Args:
        input: bit patterns as int16, of any shape.

    Returns:
        The input's shape.

    Raises:
        DTypeError

    Example:
        >>> import dl4all as dl
        >>> from dl4all.ops.memory.bfloat16 import bfloat16_to_float32
        >>> bfloat16_to_float32(dl.tensor([0x3F80, 0x4049], dtype="int16")).tolist()
        [1.0, 3.140625]
    """
    if input.dtype != PATTERN:
        raise DTypeError(f"[bfloat16_to_float32] expected patterns as int16, got {input.dtype}")
    return _converted("bfloat16_to_float32", input, FLOAT)


def float32_to_bfloat16(input: TensorBase) -> TensorBase:
    """The nearest bfloat16 of each element; of two as near, the even one.

    Args:
        input: float32 of any shape.

    Returns:
        Bit patterns as int16, of the input's shape.

    Raises:
        DTypeError

    Example:
        >>> import dl4all as dl
        >>> from dl4all.ops.memory.bfloat16 import float32_to_bfloat16
        >>> [hex(pattern) for pattern in float32_to_bfloat16(dl.tensor([1.0, 3.14159])).tolist()]
        ['0x3f80', '0x4049']
    """
    if input.dtype != FLOAT:
        raise DTypeError(f"[float32_to_bfloat16] expected float32, got {input.dtype}; call .float() first")
    return _converted("float32_to_bfloat16", input, PATTERN)


def _converted(name: str, input: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    out: TensorBase = empty(type(input).result_class, input.shape, dtype, input.device)
    if not out.numel():
        return out
    if out.device.is_host:
        host_work(name, _widen_on_host if dtype == FLOAT else _round_on_host, [input], [out])
        return out
    x = contiguous(input)
    count = out.numel() if dtype == FLOAT else ceil_div(out.numel(), 2)
    push = BFLOAT16_PUSH.pack(n=out.numel(), x_offset=x.offset)
    run(UNPACK if dtype == FLOAT else PACK, strided_grid(count, WORKGROUP, out.device), push, x, out)
    return out


def _widen_on_host(patterns: Any, out: Any) -> None:
    words = np.ascontiguousarray(patterns).view(np.uint16).astype(np.uint32) << 16
    out[...] = words.view(np.float32).reshape(out.shape)


def _round_on_host(numbers: Any, out: Any) -> None:
    words = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = (words + np.uint32(0x7FFF) + ((words >> 16) & 1)) >> 16
    nan = (words & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    out[...] = np.where(nan, NAN, rounded).astype(np.uint16).view(np.int16).reshape(out.shape)
