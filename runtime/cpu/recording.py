"""Copies and fills in host memory, one after the other, as often as wanted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

import numpy as np

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.protocols import Bytes, Command, Copy, Dispatch, Fill, Span, check_copy
from dl4all.runtime.validation import check_changing


def refuse_programs() -> NoReturn:
    """Say that there are none here."""
    raise DeviceError("[cpu] the CPU runs no SPIR-V; ops run their NumPy reference there")


def check(command: Command) -> None:
    """Refuse what cannot be run.

    Raises:
        ArgumentError: spans or sizes do not fit.
        DeviceError: it is a dispatch.
    """
    if isinstance(command, Dispatch):
        refuse_programs()
    if isinstance(command, Copy):
        check_copy(command)
        bytes_of(command.source)
    elif not 0 <= command.word < 2**32:
        raise ArgumentError(f"[fill] {command.word} is no 32-bit word")
    bytes_of(command.target)


def bytes_of(span: Span) -> Bytes:
    """The memory of a span.

    Raises:
        ArgumentError: it does not lie within its buffer.
        DeviceError: that was freed.
    """
    buffer, offset, nbytes = span
    if buffer.freed:
        raise DeviceError("[cpu] the buffer was freed; what was in it is gone")
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise ArgumentError(
            f"[cpu] bytes {offset} to {offset + nbytes} are not within a buffer of {buffer.nbytes}"
        )
    data: Bytes = buffer.data[offset : offset + nbytes]
    return data


def run(command: Copy | Fill) -> None:
    """Copy or fill."""
    target = bytes_of(command.target)
    if isinstance(command, Copy):
        target[:] = bytes_of(command.source)
        return
    pattern = np.array([command.word], np.uint32)
    whole = target.size // 4 * 4
    target[:whole].view(np.uint32)[:] = pattern
    target[whole:] = pattern.view(np.uint8)[: target.size - whole]


class CpuRecording:
    def __init__(self, commands: Sequence[Command], changing: Collection[int]) -> None:
        for command in commands:
            check(command)
        check_changing(commands, changing)
        self.commands = tuple(commands)
        self._freed = False

    def replay(self) -> None:
        """Run the commands.

        Raises:
            DeviceError: the recording was freed.
        """
        if self._freed:
            raise DeviceError("[cpu] the recording was freed")
        for command in self.commands:
            if not isinstance(command, Dispatch):
                run(command)

    def free(self) -> None:
        self._freed = True
