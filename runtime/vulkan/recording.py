"""Commands in command buffers of their own, to be submitted as often as wanted.

Descriptor sets and barriers are found once. Push constants are part of a command buffer: where they
change, it is written again with the sets and barriers that are already there, into one that is not running.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dl4all.errors import DeviceError
from dl4all.runtime.hazards import Hazards, accesses
from dl4all.runtime.protocols import SUBMISSION_SECONDS, Command, Copy, Dispatch, Grid
from dl4all.runtime.split_dispatch import cut
from dl4all.runtime.validation import check_command, check_replay
from dl4all.runtime.vulkan.buffer import destroy_views
from dl4all.runtime.vulkan.commands import allocate_commands, descriptor_pool
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.structs import create, destroy
from dl4all.runtime.vulkan.timeline import Timeline

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

COPIES = 3  # of the command buffers, each with its own push constants


class _Step(NamedTuple):
    """A command, or a tile of a long one."""

    command: int  # its index
    program: Any
    barrier: bool  # before it
    descriptors: Any
    first: Grid
    groups: Grid


class Ready:
    """Command buffers with certain push constants, and the last submission of them."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces
        self.push: dict[int, bytes] | None = None
        self.timeline: Timeline | None = None
        self.value = 0

    @property
    def running(self) -> bool:
        return self.timeline is not None and not self.timeline.query(self.value)

    def wait(self) -> None:
        if self.timeline is not None:
            self.timeline.wait(self.value)


class VulkanRecording:
    def __init__(self, backend: VulkanBackend, commands: Sequence[Command]) -> None:
        self.commands = tuple(commands)
        self.lock = threading.RLock()  # held by who replays it
        self.hazards = Hazards()  # everything that the commands read and write
        self._uses: set[Any] = set()  # buffers and programs
        self._stale = False  # one of them was freed
        self._backend = backend
        device = backend.device
        self._push: dict[int, bytes] = {}
        self._views: list[Any] = []  # that no buffer keeps
        self._ready: list[Ready] = []
        self._write = backend.writer(api().VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT)
        self._descriptors = self._command_pool = api().ffi.NULL
        try:
            dispatches = sum(isinstance(command, Dispatch) for command in self.commands)
            if dispatches:
                self._descriptors = descriptor_pool(device, dispatches)
            self._command_pool = create(
                "CommandPool",
                device,
                "a command pool",
                flags=api().VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                queueFamilyIndex=backend.queue_family,
            )
            self._pieces = self._plan()
        except BaseException:
            self._release()
            raise
        backend.recordings.add(self)

    def _plan(self) -> list[list[_Step]]:
        """The commands in pieces, one for each submission, none predicted to run for too long."""
        pieces: list[list[_Step]] = [[]]
        seconds = 0.0
        since_barrier = Hazards()
        for index, command in enumerate(self.commands):
            check_command(self._backend, command)
            reads, writes = accesses(command)
            self._uses.update(span.buffer for span in (*reads, *writes))
            depends = since_barrier.found(reads, writes)
            if depends:
                since_barrier.clear()
            since_barrier.add(reads, writes)
            self.hazards.add(reads, writes)
            lasts = command.seconds if isinstance(command, Dispatch) else 0.0
            if pieces[-1] and seconds + lasts > SUBMISSION_SECONDS:
                pieces.append([])
                seconds = 0.0
            seconds += lasts
            if not isinstance(command, Dispatch):
                pieces[-1].append(_Step(index, None, depends, None, (0, 0, 0), (0, 0, 0)))
                continue
            # The writer's set is overwritten by its next call.
            program = command.program.fitting(command.spans)
            found = self._write.descriptors(self._descriptors, program, command.spans, self._views)
            descriptors = api().ffi.new("VkDescriptorSet*", found[0])
            self._uses.add(command.program)
            whole = program.module.interface.counts_groups or lasts <= SUBMISSION_SECONDS
            tiles = [((0, 0, 0), command.groups)] if whole else cut(command.groups, lasts, SUBMISSION_SECONDS)
            for first, groups in tiles:
                if first != (0, 0, 0):
                    pieces.append([])
                pieces[-1].append(
                    _Step(index, program, depends and first == (0, 0, 0), descriptors, first, groups)
                )
        return pieces

    def set_push(self, push: Mapping[int, bytes]) -> None:
        """Replace push constants, by the command's index.

        Raises:
            ArgumentError: there is no dispatch of that index, or it takes another number of bytes.
        """
        check_replay(self.commands, push)
        self._push.update(push)

    def ready(self) -> Ready:
        """Command buffers with the present push constants, which may be running already.

        Raises:
            DeviceError: something that it uses was freed.
        """
        if self._stale:
            raise DeviceError("[vulkan] a buffer or program that the recording uses was freed")
        for ready in self._ready:
            if ready.push == self._push:
                return ready
        ready = self._free_to_write()
        ready.push = None  # until it is written
        for commands, steps in zip(ready.pieces, self._pieces, strict=True):
            self._write.begin(commands[0])
            self._write.barrier()
            for step in steps:
                self._write_step(step)
            self._write.last_barrier()
            check(api().lib.vkEndCommandBuffer(commands[0]), "recording")
        ready.push = dict(self._push)
        return ready

    def _free_to_write(self) -> Ready:
        for ready in self._ready:
            if not ready.running:
                return ready
        if len(self._ready) < COPIES:
            pool = self._command_pool
            pieces = [allocate_commands(self._backend.device, pool, 1) for _ in self._pieces]
            self._ready.append(Ready(pieces))
            return self._ready[-1]
        # In turn, or the one that was submitted last would be waited for as often as the first.
        self._ready.append(self._ready.pop(0))
        self._ready[-1].wait()
        return self._ready[-1]

    def _write_step(self, step: _Step) -> None:
        write, command = self._write, self.commands[step.command]
        if step.barrier:
            write.barrier()
        if not isinstance(command, Dispatch):
            write.copy(command) if isinstance(command, Copy) else write.fill(command)
            return
        push = self._push.get(step.command, command.push)
        write.dispatch_part(step.program, step.descriptors, push, step.first, step.groups)

    def forget(self, thing: Any) -> None:
        """A buffer or program is about to be freed."""
        self._stale = self._stale or thing in self._uses

    def free(self) -> None:
        if self in self._backend.recordings:
            self._backend.recordings.discard(self)
            self._release()

    def _release(self) -> None:
        destroy("CommandPool", self._backend.device, self._command_pool)
        destroy("DescriptorPool", self._backend.device, self._descriptors)
        destroy_views(self._backend.device, self._views)
