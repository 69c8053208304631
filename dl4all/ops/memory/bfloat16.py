"""bfloat16 as a format to store: dl4all has no such dtype, and holds its elements as int16 patterns.

A bfloat16 is the upper half of a float32. Other libraries' tensors of it, such as PyTorch's on ``dlall``, are
computed with as float32 and rounded once, at the end.
"""

from __future__ import annotations

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.launch import ceil_div, pack, run, shader, strided_grid
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.memory.views import contiguous

WORKGROUP = 128
UNPACK, PACK = (shader("memory/bfloat16.comp", PACK=what) for what in (0, 1))
PATTERN, FLOAT = np.dtype(np.int16), np.dtype(np.float32)
NAN = np.uint32(0x7FC0)


def _infer_widen(input: TensorBase) -> Result:
    if input.dtype != PATTERN:
        raise DTypeError(f"[bfloat16_to_float32] expected patterns as int16, got {input.dtype}")
    return input.shape, FLOAT


def _infer_round(input: TensorBase) -> Result:
    if input.dtype != FLOAT:
        raise DTypeError(f"[float32_to_bfloat16] expected float32, got {input.dtype}; call .float() first")
    return input.shape, PATTERN


def _run_widen(out: TensorBase, input: TensorBase) -> None:
    x = contiguous(input)
    run(UNPACK, strided_grid(out.numel(), WORKGROUP, out.device), pack(out.numel(), x.offset), x, out)


def _run_round(out: TensorBase, input: TensorBase) -> None:
    x = contiguous(input)
    words = ceil_div(out.numel(), 2)
    run(PACK, strided_grid(words, WORKGROUP, out.device), pack(out.numel(), x.offset), x, out)


@op(
    infer=_infer_widen,
    kernel=Kernel(_run_widen, (UNPACK,)),
    examples=(
        example((13, 7), dtype="int16"),
        example((2, 3, 5), dtype="int16"),
        example((), dtype="int16"),
        example((0, 3), dtype="int16"),
    ),
)
def bfloat16_to_float32(input: Array) -> Array:
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
    words = np.ascontiguousarray(input).view(np.uint16).astype(np.uint32) << 16
    return words.view(np.float32).reshape(input.shape)


@op(
    infer=_infer_round,
    kernel=Kernel(_run_round, (PACK,), ("int16",)),
    examples=(
        example((13, 7)),
        example((2, 3, 5)),
        example(()),
        example((0, 3)),
    ),
)
def float32_to_bfloat16(input: Array) -> Array:
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
    words = np.ascontiguousarray(input).view(np.uint32)
    rounded = (words + np.uint32(0x7FFF) + ((words >> 16) & 1)) >> 16
    nan = (words & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, NAN, rounded).astype(np.uint16).view(np.int16).reshape(input.shape)
