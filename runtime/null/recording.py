"""Commands that were checked, and are again when they are replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dl4all.errors import ArgumentError
from dl4all.runtime.backend import Command, Dispatch
from dl4all.runtime.checks import check_command

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullRecording:
    __slots__ = ("_backend", "commands")

    def __init__(self, backend: NullBackend, commands: Sequence[Command]) -> None:
        for command in commands:
            check_command(backend, command)
        self._backend = backend
        self.commands = tuple(commands)
        backend.recordings.add(self)

    def check(self, push: Mapping[int, bytes]) -> None:
        """Refuse a replay with push constants that do not fit, or of commands on what was freed.

        Raises:
            ArgumentError, DeviceError
        """
        for command in self.commands:
            check_command(self._backend, command)
        for index, data in push.items():
            found = self.commands[index] if 0 <= index < len(self.commands) else None
            if not isinstance(found, Dispatch):
                raise ArgumentError(f"[replay] command {index} of {len(self.commands)} is no dispatch")
            takes = found.program.module.interface.push_bytes
            if len(data) != takes:
                raise ArgumentError(
                    f"[replay] command {index} takes {takes} bytes of push constants, got {len(data)}"
                )

    def free(self) -> None:
        if self in self._backend.recordings:
            self._backend.recordings.discard(self)
            self._backend.count("free recording")
