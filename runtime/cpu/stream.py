"""Copies in host memory. NumPy has always finished when it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dl4all.errors import DeviceError
from dl4all.runtime.backend import Bytes, Grid, Ran
from dl4all.runtime.cpu.buffer import CpuBuffer


class CpuStream:
    def dispatch(
        self,
        program: Any,
        buffers: Sequence[CpuBuffer],
        groups: Grid,
        push: bytes,
        ran: Ran | None = None,
    ) -> NoReturn:
        raise DeviceError("[cpu] the CPU runs no SPIR-V; ops run their NumPy reference there")

    def upload(self, buffer: CpuBuffer, data: Bytes) -> None:
        buffer.data[: data.size] = data

    def download(self, buffer: CpuBuffer, out: Bytes) -> None:
        out[:] = buffer.data[: out.size]

    def synchronize(self) -> None:
        """Nothing is ever pending."""
