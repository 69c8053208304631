"""Kernels of ops on devices other than the CPU, and shaders that belong to no op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dl4all.errors import PipelineError, TooLargeError
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.spirv import Shader

KERNEL_REFUSALS = (NoKernel, PipelineError, TooLargeError)
"""Raised while a kernel is launched; the op's body computes then."""

SHARED: list[Shader] = []
"""Shaders of functions that are no ops, such as copies."""

OPTIONAL_SHADERS: list[Shader] = []
"""Shaders that not every compiler can build, or device run; there are others for what they do."""


@dataclass(frozen=True)
class Kernel:
    """The kernel of an op on devices other than the CPU.

    ``run(out, *arrays, **arguments)`` fills the contiguous tensor `out`. ``shaders`` lists every shader that
    it may launch; a wheel ships them compiled. ``dtypes`` are the result types that it can compute.
    ``halves`` says what becomes of floats of 16 bits: shaders for float32 read and write them
    (:func:`dl4all.ops.core.kernels.launch.holding`), or move them as int16, or operands are widened before.
    """

    run: Callable[..., None]
    shaders: tuple[Shader, ...]
    dtypes: tuple[str, ...] = ("float32",)
    halves: Literal["read", "moved", "widened"] = "read"
