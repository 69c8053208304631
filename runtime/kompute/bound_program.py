"""Programs bound to buffers: Kompute's algorithms, kept with what was recorded of them.

An algorithm owns a pipeline and is bound to its tensors, and creating one takes a quarter of a millisecond
to many. It is found again when the same program meets the same buffers, which is every time in a
loop whose buffers come from a pool. Push constants belong to the sequence that a dispatch is recorded in,
which takes microseconds; but Kompute's manager never forgets a sequence quite (48 bytes), so that a few
are kept as well.

Algorithms are not destroyed, only let go: Kompute counts their owners, and a recording may be one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from dl4all.errors import ArgumentError, DeviceError, PipelineError
from dl4all.runtime.kompute.buffer import KomputeBuffer
from dl4all.runtime.kompute.library import kp, typed
from dl4all.runtime.kompute.program import KomputeProgram
from dl4all.runtime.protocols import Dispatch, Grid

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend

KEPT = 1024  # launches; each owns a pipeline
SEQUENCES = 8  # of one launch, each with other push constants

Key = tuple[KomputeProgram, tuple[KomputeBuffer, ...], Grid]


def operation(algorithm: Any, push: bytes) -> Any:
    """A dispatch that can be recorded. `push` has the size that the algorithm was made with."""
    return kp().OpAlgoDispatch(algorithm, np.frombuffer(push, np.uint32))


def check_offsets(command: Dispatch) -> None:
    """Refuse spans that Kompute would bind somewhere else.

    Raises:
        ArgumentError
    """
    for span in command.spans:
        if span.offset:
            raise ArgumentError(
                f"[kompute] {command.program.module.name} is given a span from byte {span.offset} on; "
                "Kompute binds whole buffers only, so copy it to one of its own"
            )


def check_push(program: KomputeProgram, push: bytes) -> None:
    """Refuse push constants of another size than the program's.

    Raises:
        ArgumentError
    """
    takes = program.module.interface.push_bytes
    if len(push) != takes:
        raise ArgumentError(
            f"[kompute] {program.module.name} takes {takes} bytes of push constants, got {len(push)}"
        )


class KomputeLaunch:
    """A program, the buffers it is bound to, and its grid."""

    __slots__ = ("_backend", "_sequences", "algorithm", "key")

    def __init__(self, backend: KomputeBackend, key: Key, push: bytes) -> None:
        program, buffers, groups = key
        _check(backend, key)
        check_push(program, push)
        self._backend = backend
        self.key = key
        self._sequences: OrderedDict[bytes, Any] = OrderedDict()
        try:
            self.algorithm: Any = backend.manager.algorithm(
                [buffer.tensor for buffer in buffers],
                program.module.code,
                groups,
                program.constants,
                np.frombuffer(push, np.uint32),
            )
        except RuntimeError as error:
            raise typed(error, f"building {program.module.name}", PipelineError) from None
        for users in (program.users, *(buffer.users for buffer in buffers)):
            users.add(self)

    def sequence(self, push: bytes) -> Any:
        """One dispatch with these push constants, ready to be evaluated."""
        found = self._sequences.get(push)
        if found is None:
            check_push(self.key[0], push)
            found = self._sequences[push] = self._backend.sequence([operation(self.algorithm, push)])
            if len(self._sequences) > SEQUENCES:
                _, oldest = self._sequences.popitem(last=False)
                oldest.destroy()
        return found

    def free(self) -> None:
        """Let it go. It may not be running."""
        self._backend.launches.discard(self)
        for sequence in self._sequences.values():
            sequence.destroy()
        self._sequences.clear()
        self.algorithm = None
        program, buffers, _ = self.key
        for users in (program.users, *(buffer.users for buffer in buffers)):
            users.discard(self)


class KomputeLaunches:
    """The launches of a device that were used last."""

    def __init__(self, backend: KomputeBackend) -> None:
        self._backend = backend
        self._kept: OrderedDict[Key, KomputeLaunch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, command: Dispatch) -> KomputeLaunch:
        """That of a dispatch, made if it is not there.

        Raises:
            ArgumentError: what is bound or the grid does not fit.
            DeviceError: something was freed.
        """
        program, spans, groups, push, _ = command
        key = (program, tuple([span.buffer for span in spans]), groups)
        found = self._kept.get(key)
        if found is None:
            found = KomputeLaunch(self._backend, key, push)
            self._kept[key] = found
            if len(self._kept) > KEPT:
                next(iter(self._kept.values())).free()
        else:
            self._kept.move_to_end(key)
        check_offsets(command)
        return found

    def discard(self, launch: KomputeLaunch) -> None:
        """Forget one."""
        self._kept.pop(launch.key, None)

    def clear(self) -> None:
        """Let all go."""
        for launch in tuple(self._kept.values()):
            launch.free()


def _check(backend: KomputeBackend, key: Key) -> None:
    program, buffers, groups = key
    if program not in backend.programs:
        raise DeviceError("[kompute] the program was freed, or belongs to another device")
    name, limits = program.module.name, backend.info.limits
    if len(buffers) != len(program.writes):
        raise ArgumentError(f"[kompute] {name} binds {len(program.writes)} buffers, got {len(buffers)}")
    for buffer in buffers:
        backend.check_buffer(buffer)
        if buffer.nbytes > limits.storage_buffer_range:
            raise ArgumentError(
                f"[kompute] {name} is given a buffer of {buffer.nbytes} bytes; Kompute binds whole buffers, "
                f"and the device allows {limits.storage_buffer_range}"
            )
    if any(not 0 <= count <= most for count, most in zip(groups, limits.workgroup_count, strict=True)):
        raise ArgumentError(
            f"[kompute] {name}: {groups} workgroups, the device allows {limits.workgroup_count}"
        )
