"""Copies and fills by shaders: Kompute's own copy moves whole tensors, and it has no fill."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.runtime.protocols import Copy, Dispatch, Fill, Grid, Span, check_copy
from dl4all.runtime.spirv import Shader, load

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend
    from dl4all.runtime.kompute.program import KomputeProgram

COPY = Shader("memory/copy_words.comp")
FILL = Shader("memory/fill_words.comp")
SHADERS = (COPY, FILL)  # a wheel carries them compiled
LOCAL = 128  # invocations of a workgroup
GROUPS = 65535  # that every device can start; the invocations stride over the rest


def check_span(backend: KomputeBackend, span: Span) -> None:
    """Refuse a span of a buffer that is not there, or beyond its end.

    Raises:
        ArgumentError, DeviceError
    """
    buffer, offset, nbytes = span
    backend.check_buffer(buffer)
    if offset % 4 or offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise ArgumentError(
            f"[kompute] {nbytes} bytes from {offset} on are no span of a buffer of {buffer.nbytes} bytes"
        )


class Copies:
    """The programs, loaded when they are first needed."""

    def __init__(self, backend: KomputeBackend) -> None:
        self._backend = backend
        self._programs: dict[Shader, KomputeProgram] = {}

    def dispatch(self, command: Copy | Fill) -> Dispatch | None:
        """The dispatch that does it; None where a buffer is larger than what a shader can bind.

        Raises:
            ArgumentError, DeviceError
        """
        check_span(self._backend, command.target)
        buffer, offset, nbytes = command.target
        n = -(-nbytes // 4)
        buffers = [buffer]
        if isinstance(command, Copy):
            check_span(self._backend, command.source)
            check_copy(command)
            buffers.insert(0, command.source.buffer)
            shader, push = COPY, struct.pack("<3I", n, command.source.offset // 4, offset // 4)
        else:
            if not 0 <= command.word < 2**32:
                raise ArgumentError(f"[fill] {command.word} is no 32-bit word")
            shader, push = FILL, struct.pack("<3I", n, offset // 4, command.word)
        if max(buffer.nbytes for buffer in buffers) > self._backend.info.limits.storage_buffer_range:
            return None
        spans = [Span(buffer, 0, buffer.nbytes) for buffer in buffers]
        return Dispatch(self._program(shader), spans, _grid(n), push)

    def _program(self, shader: Shader) -> KomputeProgram:
        program = self._programs.get(shader)
        if program is None:
            program = self._programs[shader] = self._backend.program(load(shader), ())
        return program


def through_host(command: Copy | Fill) -> None:
    """Copy or fill in the memory that is mapped, and send it."""
    buffer, offset, nbytes = command.target
    if isinstance(command, Copy):
        data = command.source.buffer.read(command.source.offset, nbytes)
    else:
        data = np.full(-(-nbytes // 4), command.word, np.uint32).view(np.uint8)
    buffer.write(offset, data)


def _grid(n: int) -> Grid:
    return min(-(-n // LOCAL), GROUPS), 1, 1
