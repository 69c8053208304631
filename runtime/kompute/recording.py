"""Commands recorded into as few sequences as their order allows.

Commands of one sequence have nothing between them, so they must not depend on each other. Each goes into the
earliest sequence behind everything that it depends on. Those that may change are submitted one by one, as
they are outside of recordings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dl4all.runtime.hazards import accesses
from dl4all.runtime.kompute.bound_program import check_push, operation
from dl4all.runtime.kompute.copies import through_host
from dl4all.runtime.kompute.library import evaluate
from dl4all.runtime.levels import levels
from dl4all.runtime.protocols import SUBMISSION_SECONDS, Command, Dispatch, Span
from dl4all.runtime.validation import check_changes, check_changing

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend


def groups(commands: Sequence[Command]) -> list[list[int]]:
    """The commands' indices, grouped: no command depends on another of its group or of a later one."""
    found: dict[int, list[int]] = {}
    for index, level in enumerate(levels(map(_whole_buffers, commands))):
        found.setdefault(level, []).append(index)
    return [found[level] for level in range(len(found))]


def _whole_buffers(command: Command) -> tuple[list[Span], list[Span]]:
    """The reads and writes of a command, as Kompute binds them: spans apart from each other do not help."""
    reads, writes = ([Span(each.buffer, 0, 4) for each in spans] for spans in accesses(command))
    return reads, writes


class _Step:
    """One submission: dispatches by index, one that may change, or a copy or fill through the host."""

    __slots__ = ("changing", "dispatches", "host", "sequence")

    def __init__(self) -> None:
        self.dispatches: list[int] = []
        self.changing: int | None = None
        self.host: Any = None
        self.sequence: Any = None  # recorded when it is first needed


class KomputeRecording:
    def __init__(
        self, backend: KomputeBackend, commands: Sequence[Command], changing: Collection[int]
    ) -> None:
        self.commands = tuple(commands)
        self._backend = backend
        self._changing = check_changing(commands, changing)  # as they stand
        self._algorithms: dict[int, Any] = {}
        self._push: dict[int, bytes] = {}
        self._steps: list[_Step] = []
        self._uses: set[Any] = set()
        dispatches = [self._prepare(index, command) for index, command in enumerate(self.commands)]
        for group in groups(self.commands):
            self._plan(group, dispatches)
        for used in self._uses:
            used.users.add(self)
        backend.recordings.add(self)

    def _prepare(self, index: int, command: Command) -> Dispatch | None:
        """The dispatch that does a command, with its algorithm made; None if it goes through the host."""
        dispatch = command if isinstance(command, Dispatch) else self._backend.copies.dispatch(command)
        if dispatch is None:
            self._uses.update(span.buffer for spans in accesses(command) for span in spans)
            return None
        launch = self._backend.launches.find(dispatch)
        check_push(dispatch.program, dispatch.push)
        self._uses.add(dispatch.program)
        if index not in self._changing:
            self._algorithms[index], self._push[index] = launch.algorithm, dispatch.push
            self._uses.update(span.buffer for span in dispatch.spans)
        return dispatch

    def _plan(self, group: list[int], dispatches: Sequence[Dispatch | None]) -> None:
        """Put independent commands into submissions, none predicted to run for too long."""
        step, seconds = _Step(), 0.0
        for index in group:
            dispatch = dispatches[index]
            if dispatch is None:
                apart = _Step()
                apart.host = self.commands[index]
                self._steps.append(apart)
            elif 0 in dispatch.groups:  # Kompute would take it for something else
                continue
            elif index in self._changing:
                apart = _Step()
                apart.changing = index
                self._steps.append(apart)
            else:
                if step.dispatches and seconds + dispatch.seconds > SUBMISSION_SECONDS:
                    self._steps.append(step)
                    step, seconds = _Step(), 0.0
                step.dispatches.append(index)
                seconds += dispatch.seconds
        if step.dispatches:
            self._steps.append(step)

    @property
    def submissions(self) -> int:
        """The number of times that a replay submits and waits."""
        return len(self._steps)

    def replay(self, changes: Mapping[int, Dispatch] | None) -> None:
        """Run everything, with other dispatches in the place of some if given.

        Raises:
            ArgumentError: those do not fit.
            DeviceError: something that they use was freed.
        """
        if changes:
            check_changes(self.commands, self._changing, changes)
            for command in changes.values():
                check_push(command.program, command.push)
                self._backend.launches.find(command)
            self._changing.update(changes)
        for command in self._changing.values():  # before anything runs
            self._backend.launches.find(command)
        for step in self._steps:
            if step.host is not None:
                through_host(step.host)
            elif step.changing is not None:
                command = self._changing[step.changing]
                sequence = self._backend.launches.find(command).sequence(command.push)
                evaluate(sequence, f"running {command.program.module.name}")
            else:
                if step.sequence is None:
                    step.sequence = self._backend.sequence(
                        operation(self._algorithms[index], self._push[index]) for index in step.dispatches
                    )
                evaluate(step.sequence, f"running {self._name(step)}")

    def _name(self, step: _Step) -> str:
        command = self.commands[step.dispatches[0]]
        name = (
            command.program.module.name if isinstance(command, Dispatch) else type(command).__name__.lower()
        )
        others = len(step.dispatches) - 1
        return f"{name} and {others} more" if others else name

    def free(self) -> None:
        with self._backend.lock:
            if self not in self._backend.recordings:
                return
            for step in self._steps:
                if step.sequence is not None:
                    step.sequence.destroy()
            self._steps.clear()
            self._algorithms.clear()
            self._backend.recordings.discard(self)
            for used in self._uses:
                used.users.discard(self)
