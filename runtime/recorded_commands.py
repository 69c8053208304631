"""A recording's commands as they stand: dispatches may be replaced, and what a command uses may be freed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dl4all.errors import DeviceError
from dl4all.runtime.hazards import accesses
from dl4all.runtime.protocols import Command, Dispatch
from dl4all.runtime.validation import ValidatedBackend, check_changes, check_changing, check_command


class RecordedCommands:
    """Checked commands of `owner`; those of the indices `changing` may be replaced.

    Raises:
        ArgumentError: a command does not fit the device, or one that may change is no dispatch.
        DeviceError: something that a command uses was freed.
    """

    def __init__(
        self, owner: ValidatedBackend, commands: Sequence[Command], changing: Collection[int]
    ) -> None:
        for command in commands:
            check_command(owner, command)
        self.recorded = tuple(commands)
        self.changing = check_changing(commands, changing)  # as they stand
        self._owner = owner
        self._freed: set[int] = set()  # changing commands that use something that was freed
        self._stale = False  # what stays uses something that was freed
        self._stays = {command.program for command in commands if isinstance(command, Dispatch)}
        for index, command in enumerate(commands):
            if index not in self.changing:
                self._stays.update(span.buffer for spans in accesses(command) for span in spans)

    def __getitem__(self, index: int) -> Command:
        return self.changing.get(index) or self.recorded[index]

    def different(self, changes: Mapping[int, Dispatch]) -> dict[int, Dispatch]:
        """The changes that are not what there is already, checked.

        Raises:
            ArgumentError: one does not fit, or its command was not recorded as one that may change.
            DeviceError: something was freed.
        """
        check_changes(self.recorded, self.changing, changes)
        found = {}
        for index, command in changes.items():
            old = self.changing[index]
            if type(command.spans) is not tuple:  # a caller's list may change
                command = command._replace(spans=tuple(command.spans))
            if command == old:
                continue
            if command.spans != old.spans or len(command.push) != len(old.push):
                check_command(self._owner, command)
            found[index] = command
        return found

    def replace(self, changes: Mapping[int, Dispatch]) -> None:
        """Put checked changes in the place of what there is."""
        self.changing.update(changes)
        self._freed.difference_update(changes)

    def forget(self, thing: Any) -> None:
        """A buffer or program is about to be freed."""
        self._stale = self._stale or thing in self._stays
        for index, command in self.changing.items():
            if any(span.buffer is thing for span in command.spans):
                self._freed.add(index)

    def check(self) -> None:
        """Refuse to run commands on what is not there any more.

        Raises:
            DeviceError
        """
        if self._stale or self._freed:
            raise DeviceError(f"[{self._owner.name}] a buffer or program that the recording uses was freed")
