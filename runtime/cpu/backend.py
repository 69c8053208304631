"""The machine's processor and memory."""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np
import psutil

from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.runtime.cpu import heap
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.recording import CpuRecording, refuse_programs
from dl4all.runtime.cpu.stream import CpuStream
from dl4all.runtime.device_info import DeviceInfo, Limits
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.spirv import SpirvModule


class CpuBackend:
    """The CPU. ``index`` is there for symmetry and must be 0."""

    features: frozenset[str] = frozenset()
    capabilities = Capabilities(programs=False, clock=None)

    def __init__(self, index: int = 0) -> None:
        heap.keep_freed()
        self.info = describe()
        self.stream = CpuStream()

    def new_stream(self) -> CpuStream:
        return CpuStream()

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> CpuBuffer:
        if kind != "device" and kind not in get_args(MemoryKind):
            raise ArgumentError(f"[cpu] no memory of kind {kind!r}; use {' or '.join(get_args(MemoryKind))}")
        if nbytes <= 0:
            raise ArgumentError(f"[cpu] no buffer has {nbytes} bytes; the smallest has 1")
        try:
            if nbytes > self.info.memory:
                raise MemoryError  # systems promise more than they have
            return CpuBuffer.empty(nbytes)
        except MemoryError:
            raise OutOfMemoryError(
                f"[cpu] {nbytes} bytes do not fit into {self.info.memory}; free tensors or use a smaller "
                "batch"
            ) from None

    def memory(self) -> Memory:
        found = psutil.virtual_memory()
        return Memory(found.available, found.total)

    def program(self, module: SpirvModule, constants: Sequence[int]) -> NoReturn:
        refuse_programs()

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> CpuRecording:
        return CpuRecording(commands, changing)

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
        driver="NumPy + LLVM" if provider.available() else "NumPy",
        driver_version=f"{np.__version__}, {compiled}"
        if (compiled := provider.description())
        else np.__version__,
        api_version="",
        memory=memory,
        subgroup_size=0,
        features=frozenset({"float16", "int8", "int16", "int64"}),
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
