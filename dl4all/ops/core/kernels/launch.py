"""Helpers to launch kernels: shaders, push constants and grids."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from dl4all.errors import TooLargeError
from dl4all.ops.core.dtypes import FLOAT8, HALVES, INT8, INT16
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime import spirv
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader, storage_types
from dl4all.runtime.spirv.storage_types import StorageType
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.scheduler.push_constants import marked

MAX_GRID_SIZE = 65535  # workgroups along one axis, on every device
STRIDED_GRID_CAP = 32768  # workgroups of a kernel with a grid-stride loop
SOFTWARE_ROUNDS = 8  # of such a loop on a processor, where it takes a while to begin a workgroup
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # the smallest number that rounds to infinity
SOFTWARE_GROUPS = 64  # at least, so that no thread waits for the last one
MAX_LOOP_ROUNDS = 60_000  # of all loops of one invocation, on drivers that have a limit


def shader(path: str, **defines: Any) -> Shader:
    """A shader with preprocessor definitions, e.g. ``shader("linalg/gemm.comp", TM=4)``."""
    return Shader(path).with_macros(defines)


def pack(*values: int | float) -> bytes:
    """Push constants: ints as 32-bit integers, floats as float32, in order.

    Negative ints are packed as signed integers, the others as unsigned ones.

    >>> pack(1, 0.5).hex()
    '010000000000003f'

    Raises:
        TooLargeError: an int has more than 32 bits.
    """
    codes = "".join(["f" if isinstance(v, float) else "I" if v >= 0 else "i" for v in values])
    try:
        packed = struct.pack(f"<{codes}", *values)
        return marked(values, packed) if listeners.active else packed
    except OverflowError:  # struct refuses numbers that float32 rounds to infinity
        return pack(*(_to_float32(v) if isinstance(v, float) else v for v in values))
    except struct.error:
        raise too_wide(values) from None


def too_wide(values: Iterable[int | float]) -> TooLargeError:
    """The error that among numbers for a kernel one has more bits than it takes."""
    wide = next((v for v in values if not isinstance(v, float) and not -(2**31) <= v < 2**32), None)
    return TooLargeError(
        f"[launch] kernels count in 32 bits, and {wide} has more; use smaller tensors, or the CPU"
    )


def _to_float32(value: float) -> float:
    return value if math.isnan(value) or abs(value) < FLOAT32_OVERFLOW else math.copysign(math.inf, value)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def strided_grid(elements: int, workgroup: int, device: Device | None = None) -> Grid:
    """The grid of a kernel with a grid-stride loop over `elements`; for `device`, if that is given."""
    groups = ceil_div(elements, workgroup)
    return min(groups if device is None else rounded_groups(groups, device), STRIDED_GRID_CAP), 1, 1


def rounded_groups(groups: int, device: Device) -> int:
    """The number of workgroups to launch where each can do the work of several in a loop.

    GPUs begin workgroups for nothing and want many. On a software driver the threads of the processor run
    them one after the other, and beginning one costs as much as some hundred elements.
    """
    if device.info.type != "software":
        return groups
    return max(ceil_div(groups, SOFTWARE_ROUNDS), min(groups, SOFTWARE_GROUPS))


class NoKernel(Exception):
    """An op has no kernel for these operands; its body computes instead."""


class LoopTooLong(NoKernel):
    """The driver would stop a kernel before its end."""


def check_rounds(device: Device, rounds: int) -> None:
    """Check the total number of rounds of all loops of one invocation.

    Raises:
        LoopTooLong: the driver is llvmpipe, which silently leaves loops after 65535 rounds.
    """
    if rounds > MAX_LOOP_ROUNDS and device.info.driver_id == "mesa_llvmpipe":
        raise LoopTooLong(f"an invocation would have {rounds} rounds of loops, the driver stops after 65535")


STORED = HALVES | {INT8}
"""The dtypes that kernels of float32 may read in its place."""


BITS = dict.fromkeys(HALVES, INT16) | dict.fromkeys(FLOAT8, INT8)
"""The integers that stand for short floats in kernels that move elements or look at bits."""


def stores_halves(device: Device) -> bool:
    """Whether kernels of a device write floats of 16 bits."""
    return "storage16" in device.features


def kernel_dtype(dtype: np.dtype[Any], *, moved: bool = False) -> str:
    """The name of the dtype of a kernel that takes a dtype: see :func:`holding` and :func:`as_bits`."""
    if moved:
        return BITS.get(dtype, dtype).name
    return "float32" if dtype in HALVES else dtype.name


def as_bits(tensor: Any) -> Any:
    """Floats of 16 and 8 bits as BITS, for kernels that move elements or look at bits; others as they are."""
    if not isinstance(tensor, TensorBase) or tensor.dtype not in BITS:
        return tensor
    cls, dtype = type(tensor).result_class, BITS[tensor.dtype]
    return cls(tensor.storage, tensor.shape, dtype, tensor.device, tensor.strides, tensor.offset)


def holding(code: Shader, *tensors: TensorBase) -> Shader:
    """The shader as it reads and writes these tensors, which are bound in this order.

    Shaders compute in float32. For floats of 16 bits their loads and stores are rewritten, on devices that
    :func:`stores_halves`; int8 is read as floats where the shader has floats. All other tensors are what
    the shader says.
    """
    for tensor in tensors:
        if tensor.dtype in STORED:
            dtypes = tuple([one.dtype for one in tensors])
            return _holding(code, dtypes, tensor.device.info.type == "software")
    return code


@functools.lru_cache(4096)
def _holding(code: Shader, dtypes: tuple[np.dtype[Any], ...], in_words: bool) -> Shader:
    """`in_words`: of two elements each what is only read; a processor fetches them as texels."""
    writes = spirv.load(code).interface.writes
    types = [
        StorageType(dtype.name, in_words and not written) if dtype in HALVES else None
        for dtype, written in zip(dtypes, writes, strict=True)
    ]
    for binding, dtype in enumerate(dtypes):
        if dtype == INT8 and code.holds_floats(binding):  # of a product; other kernels read words of them
            types[binding] = storage_types.INT8
    return code.storing(types) if any(types) else code


def run(
    code: Shader,
    groups: Grid,
    push: bytes,
    *tensors: TensorBase,
    constants: tuple[int, ...] = (),
    flops: int = 0,
) -> None:
    """Launch a shader on the device of the tensors, which are bound in this order.

    ``constants`` are the values of specialization constants, ``flops`` is the number of floating point
    operations of kernels that do many for each byte.
    """
    device = tensors[0].device
    launch = Launch(holding(code, *tensors), groups, push, constants, flops)
    device.launch(launch, *(tensor.storage for tensor in tensors))
