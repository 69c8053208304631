"""Commands that were checked, and are again where they change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dl4all.runtime.protocols import Command, Dispatch
from dl4all.runtime.recorded_commands import RecordedCommands

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullRecording:
    __slots__ = ("_backend", "_commands", "commands")

    def __init__(self, backend: NullBackend, commands: Sequence[Command], changing: Collection[int]) -> None:
        self._commands = RecordedCommands(backend, commands, changing)
        self._backend = backend
        self.commands = self._commands.recorded
        backend.recordings.add(self)

    def change(self, changes: Mapping[int, Dispatch] | None) -> None:
        """Replace dispatches.

        Raises:
            ArgumentError: one does not fit.
            DeviceError: something that is used now was freed.
        """
        if changes:
            self._commands.replace(self._commands.different(changes))
        self._commands.check()

    def forget(self, thing: Any) -> None:
        """A buffer or program is about to be freed."""
        self._commands.forget(thing)

    def free(self) -> None:
        if self in self._backend.recordings:
            self._backend.recordings.discard(self)
            self._backend.count("free recording")
