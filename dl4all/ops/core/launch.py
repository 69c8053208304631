"""Small words that kernels are launched with."""

from __future__ import annotations

import math
import struct
from typing import Any

from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device import Device
from dl4all.scheduler.programs import Launch

MAX_GRID_SIZE = 65535  # along one side, on every device
STRIDED_GRID_CAP = 32768  # of kernels that stride over what is left
MAX_LOOP_ROUNDS = 60_000  # of all loops of an invocation, on drivers that have a limit


def shader(path: str, **defines: Any) -> Shader:
    """A shader with preprocessor definitions, e.g. ``shader("linalg/gemm.comp", TM=4)``."""
    return Shader(path, tuple((name, str(value)) for name, value in sorted(defines.items())))


def pack(*values: int | float) -> bytes:
    """Push constants: ints as 32-bit integers, floats as float32, in order.

    >>> pack(1, 0.5).hex()
    '010000000000003f'
    """
    return b"".join(
        _float32(v) if isinstance(v, float) else struct.pack("<I", v & 0xFFFFFFFF) for v in values
    )


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # struct refuses what float32 rounds to infinity
        return struct.pack("<f", math.copysign(math.inf, value))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def strided_grid(elements: int, workgroup: int) -> Grid:
    """Workgroups for a kernel that strides over `elements` with `workgroup` invocations each."""
    return min(ceil_div(elements, workgroup), STRIDED_GRID_CAP), 1, 1


class NoKernel(Exception):
    """An op has none for these operands; its body computes instead."""


class LoopTooLong(NoKernel):
    """A device's driver would stop a kernel before its end."""


def check_rounds(device: Device, rounds: int) -> None:
    """Raise unless the loops of one invocation may have so many rounds in all.

    Raises:
        TooLong: the driver is llvmpipe, which leaves loops after 65535 rounds without a word.
    """
    if rounds > MAX_LOOP_ROUNDS and device.info.driver_id == "mesa_llvmpipe":
        raise LoopTooLong(f"an invocation would have {rounds} rounds of loops, the driver stops after 65535")


def run(code: Shader, groups: Grid, push: bytes, *tensors: TensorBase, flops: int = 0) -> None:
    """Launch on the device of the operands, bound in the given order.

    ``flops`` counts the floating point operations where there are many for each byte.
    """
    device = tensors[0].device
    device.launch(Launch(code, groups, push, flops=flops), *(tensor.storage for tensor in tensors))
