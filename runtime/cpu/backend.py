"""The machine's processor and memory."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil

from dl4all.errors import DeviceError
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.cpu.stream import CpuStream
from dl4all.runtime.info import DeviceInfo, Limits
from dl4all.runtime.spirv import Module


class CpuBackend:
    """The CPU. ``index`` is there for symmetry and must be 0."""

    features: frozenset[str] = frozenset()

    def __init__(self, index: int = 0) -> None:
        self.info = describe()
        self.stream = CpuStream()

    def allocate(self, nbytes: int) -> CpuBuffer:
        return CpuBuffer.empty(nbytes)

    def program(self, module: Module, constants: Sequence[int]) -> NoReturn:
        raise DeviceError("[cpu] the CPU runs no SPIR-V; ops run their NumPy reference there")

    def close(self) -> None:
        """Host memory goes back by itself."""


def find() -> tuple[DeviceInfo, ...]:
    """The one CPU."""
    return (describe(),)


def open(index: int) -> CpuBackend:
    """The CPU."""
    return CpuBackend(index)


def describe() -> DeviceInfo:
    memory = psutil.virtual_memory().total
    return DeviceInfo(
        index=0,
        hardware=f"{_processor_name()} ({psutil.cpu_count() or 1} threads)",
        uuid=platform.machine(),
        type="cpu",
        vendor=platform.machine(),
        driver="NumPy",
        driver_version=np.__version__,
        api_version="",
        memory=memory,
        subgroup_size=0,
        subgroup_shuffle=False,
        float16=True,
        int8=True,
        backends=("cpu",),
        limits=Limits(storage_buffer_range=memory, allocation_size=memory),
    )


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine() or "CPU")
