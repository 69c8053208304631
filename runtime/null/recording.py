"""Commands that were checked, and are again when they are replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dl4all.runtime.protocols import Command
from dl4all.runtime.validation import check_command, check_replay

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
        check_replay(self.commands, push)

    def free(self) -> None:
        if self in self._backend.recordings:
            self._backend.recordings.discard(self)
            self._backend.count("free recording")
