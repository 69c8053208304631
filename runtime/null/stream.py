"""Commands that are checked, counted and not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dl4all.errors import DeviceError
from dl4all.runtime.backend import Bytes, Grid, Ran
from dl4all.runtime.null.buffer import NullBuffer
from dl4all.runtime.null.program import NullProgram

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullStream:
    def __init__(self, backend: NullBackend) -> None:
        self._backend = backend

    def dispatch(
        self,
        program: NullProgram,
        buffers: Sequence[NullBuffer],
        groups: Grid,
        push: bytes,
        ran: Ran | None = None,
    ) -> None:
        self._backend.enter("dispatch")
        name, interface = program.module.name, program.module.interface
        limits = self._backend.info.limits
        if program not in self._backend.programs:
            raise DeviceError(f"[null] {name} was freed, or belongs to another device")
        if len(buffers) != len(interface.bindings):
            raise DeviceError(f"[null] {name} binds {len(interface.bindings)} buffers, got {len(buffers)}")
        for buffer in buffers:
            self._check(buffer, 0)
            if buffer.nbytes > limits.storage_buffer_range:
                raise DeviceError(
                    f"[null] {name} binds {buffer.nbytes} bytes, the device allows "
                    f"{limits.storage_buffer_range}"
                )
        if any(not 0 <= count <= most for count, most in zip(groups, limits.workgroup_count, strict=True)):
            raise DeviceError(f"[null] {name}: {groups} workgroups do not fit into {limits.workgroup_count}")
        if len(push) != interface.push_bytes:
            raise DeviceError(
                f"[null] {name} takes {interface.push_bytes} bytes of push constants, got {len(push)}"
            )
        self._backend.count("dispatch")

    def upload(self, buffer: NullBuffer, data: Bytes) -> None:
        self._backend.enter("upload")
        self._check(buffer, data.size)
        self._backend.count("upload", data.size)

    def download(self, buffer: NullBuffer, out: Bytes) -> None:
        """Fill `out` with zeros: what was uploaded is not kept."""
        self._backend.enter("download")
        self._check(buffer, out.size)
        out[:] = 0
        self._backend.count("download", out.size)

    def synchronize(self) -> None:
        self._backend.enter("synchronize")
        self._backend.count("synchronize")

    def _check(self, buffer: NullBuffer, nbytes: int) -> None:
        if buffer not in self._backend.buffers:
            raise DeviceError("[null] the buffer was freed, or belongs to another device")
        if nbytes > buffer.nbytes:
            raise DeviceError(f"[null] {nbytes} bytes do not fit into a buffer of {buffer.nbytes}")
