"""Checks that refuse what a device would answer with undefined behaviour, before it gets there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import (
    Bytes,
    Capabilities,
    Command,
    Copy,
    Dispatch,
    MemoryKind,
    Span,
    check_copy,
)


class ValidatedBackend(Protocol):
    """A backend that knows what it has made."""

    @property
    def name(self) -> str: ...

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def buffers(self) -> Collection[Any]: ...

    @property
    def programs(self) -> Collection[Any]: ...


def check_allocation(backend: ValidatedBackend, nbytes: int, kind: MemoryKind) -> None:
    """Refuse sizes and kinds of memory that there are not.

    Raises:
        ArgumentError
    """
    if nbytes <= 0 or kind not in ("device", "host"):
        raise ArgumentError(
            f"[{backend.name}] expected more than 0 bytes of kind device or host, got {nbytes} of {kind!r}"
        )


def check_command(backend: ValidatedBackend, command: Command) -> None:
    """Refuse a command that does not fit the device or what it works on.

    Raises:
        ArgumentError: something does not fit.
        DeviceError: something was freed.
    """
    if isinstance(command, Dispatch):
        check_dispatch(backend, command)
        return
    check_span(backend, command.target)
    if isinstance(command, Copy):
        check_span(backend, command.source)
        check_copy(command)
    elif not 0 <= command.word < 2**32:
        raise ArgumentError(f"[fill] {command.word} is no 32-bit word")


def check_changing(commands: Sequence[Command], changing: Collection[int]) -> dict[int, Dispatch]:
    """The dispatches that may be replaced when commands are replayed, by their indices.

    Raises:
        ArgumentError: there is no dispatch of such an index.
    """
    found = {}
    for index in sorted(changing):
        command = commands[index] if 0 <= index < len(commands) else None
        if not isinstance(command, Dispatch):
            raise ArgumentError(
                f"[record] only dispatches can change; command {index} of {len(commands)} is none"
            )
        found[index] = command
    return found


def check_changes(
    commands: Sequence[Command], changing: Collection[int], changes: Mapping[int, Dispatch]
) -> None:
    """Refuse what cannot take the place of recorded commands, by whose indices it is given.

    The caller checks what the new dispatches bind and their push constants.

    Raises:
        ArgumentError: a command was not recorded as one that may change, or something else than other spans
            and push constants changes.
    """
    for index, new in changes.items():
        if index not in changing:
            raise ArgumentError(
                f"[replay] command {index} of {len(commands)} may not change; name it in `changing` when "
                "the commands are recorded"
            )
        old = commands[index]
        assert isinstance(old, Dispatch)
        if not isinstance(new, Dispatch) or new.program is not old.program or new.groups != old.groups:
            raise ArgumentError(
                f"[replay] command {index} can change its spans and push constants only: expected a dispatch "
                f"of {old.groups} workgroups of {old.program.module.name}, got {_described(new)}"
            )


def _described(command: Any) -> str:
    if not isinstance(command, Dispatch):
        return type(command).__name__
    return f"{command.groups} of {command.program.module.name}"


def check_transfer(backend: ValidatedBackend, span: Span, data: Bytes) -> None:
    """Refuse an upload or download that is larger than its span.

    Raises:
        ArgumentError, DeviceError
    """
    _check_place(backend, span)
    if data.size > span.nbytes:
        raise ArgumentError(f"[{backend.name}] {data.size} bytes do not fit a span of {span.nbytes}")


def check_span(backend: ValidatedBackend, span: Span) -> None:
    """Refuse a span of what is not there.

    Raises:
        ArgumentError: it does not lie within its buffer.
        DeviceError: that was freed.
    """
    _check_place(backend, span)
    buffer, offset, nbytes = span
    end = offset + nbytes
    if offset % 4 or (nbytes % 4 and end != buffer.nbytes):
        raise ArgumentError(f"[{backend.name}] {nbytes} bytes from {offset} on: both must be multiples of 4")


def _check_place(backend: ValidatedBackend, span: Span) -> None:
    buffer, offset, nbytes = span
    if buffer not in backend.buffers:
        raise DeviceError(f"[{backend.name}] the buffer was freed, or belongs to another device")
    end = offset + nbytes
    if offset < 0 or nbytes < 0 or end > buffer.nbytes:
        raise ArgumentError(
            f"[{backend.name}] bytes {offset} to {end} do not fit into a buffer of {buffer.nbytes}"
        )


def check_dispatch(backend: ValidatedBackend, command: Dispatch) -> None:
    """As :func:`check_command`."""
    program, spans, groups, push, _ = command
    if program not in backend.programs:
        raise DeviceError(f"[{backend.name}] the program was freed, or belongs to another device")
    interface = program.module.interface
    if len(spans) != len(interface.bindings) or len(push) != interface.push_bytes:
        raise ArgumentError(
            f"[{backend.name}] {program.module.name} binds {len(interface.bindings)} buffers and takes "
            f"{interface.push_bytes} bytes of push constants, got {len(spans)} and {len(push)}"
        )
    limits, alignment = backend.info.limits, backend.capabilities.offset_alignment
    buffers, most = backend.buffers, limits.storage_buffer_range
    for span in spans:
        buffer, offset, nbytes = span
        end = offset + nbytes
        if not (  # in one look, as every dispatch of every op comes here
            buffer in buffers
            and offset >= 0
            and 0 <= nbytes <= most
            and end <= buffer.nbytes
            and (not offset or (alignment and not offset % alignment and not offset % 4))
            and (not nbytes % 4 or end == buffer.nbytes)
        ):
            _refuse_span(backend, program, span)
    x, y, z = groups
    most_x, most_y, most_z = limits.workgroup_count
    if not (0 <= x <= most_x and 0 <= y <= most_y and 0 <= z <= most_z):
        raise ArgumentError(
            f"[{backend.name}] {program.module.name}: {groups} workgroups do not fit into "
            f"{limits.workgroup_count}"
        )


def _refuse_span(backend: ValidatedBackend, program: Any, span: Span) -> None:
    """Say what is wrong with a span that a dispatch is to bind."""
    check_span(backend, span)
    limits, alignment = backend.info.limits, backend.capabilities.offset_alignment
    if span.offset and (not alignment or span.offset % alignment):
        raise ArgumentError(
            f"[{backend.name}] {program.module.name} is given a span from byte {span.offset} on, "
            f"the device binds at multiples of {alignment}"
        )
    raise ArgumentError(
        f"[{backend.name}] {program.module.name} binds {span.nbytes} bytes, the device allows "
        f"{limits.storage_buffer_range}"
    )
