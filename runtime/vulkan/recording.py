"""Commands in command buffers of their own, to be submitted as often as wanted.

Descriptor sets and barriers are found once. Commands that may change lie in segments apart from the others,
so that only those are written again where something does.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dl4all.runtime.hazards import Hazards, accesses
from dl4all.runtime.levels import levels
from dl4all.runtime.protocols import SUBMISSION_SECONDS, Command, Dispatch
from dl4all.runtime.recorded_commands import RecordedCommands
from dl4all.runtime.split_dispatch import cut
from dl4all.runtime.vulkan.buffer import destroy_views
from dl4all.runtime.vulkan.commands import allocate_commands, descriptor_pool
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.segment import BoundProgram, ChangingSegment, Segment, SegmentStep
from dl4all.runtime.vulkan.structs import create, destroy

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

CHANGING_SEGMENTS = 16  # of a submission; more command buffers cost more than a few commands written again


class Submission:
    """The content of one submission: command buffers, in order."""

    def __init__(self, steps: Sequence[SegmentStep], changing: Collection[int]) -> None:
        parts = segments([step.command in changing for step in steps], CHANGING_SEGMENTS)
        self.buffers: Any = api().ffi.new("VkCommandBuffer[]", len(parts))
        self.count = len(parts)
        self.fixed: list[Segment] = []
        self.changing: list[ChangingSegment] = []
        for position, part in enumerate(parts):
            held = [steps[i] for i in part]
            if position and held[0].barrier:  # the segment before ends with it
                held[0] = held[0]._replace(barrier=False)
            closes = position + 1 < len(parts) and steps[part.stop].barrier
            slots = sorted({step.command for step in held} & set(changing))
            if slots:
                self.changing.append(ChangingSegment(held, self.buffers, position, slots, closes=closes))
            else:
                self.fixed.append(Segment(held, self.buffers, position, closes=closes))


class VulkanRecording:
    def __init__(
        self, backend: VulkanBackend, commands: Sequence[Command], changing: Collection[int]
    ) -> None:
        self._commands = RecordedCommands(backend, commands, changing)
        self.commands = self._commands.recorded
        self.lock = threading.RLock()  # held by who replays it
        self.hazards = Hazards()  # what the commands that stay read and write
        self.device = backend.device
        self.bound: dict[int, BoundProgram] = {}  # of the commands that stay
        self._backend = backend
        self._views: list[Any] = []  # that no buffer keeps
        self._pieces: list[Submission] = []
        self._outdated: set[ChangingSegment] = set()  # whose commands changed
        self.write = backend.writer(api().VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT)
        self._descriptors = self.command_pool = api().ffi.NULL
        try:
            self.command_pool = create(
                "CommandPool",
                self.device,
                "a command pool",
                flags=api().VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                queueFamilyIndex=backend.queue_family,
            )
            self._bind()
            self._pieces = [Submission(steps, self._commands.changing) for steps in self._plan()]
            self._write_what_stays()
        except BaseException:
            self._release()
            raise
        self._outdated.update(segment for piece in self._pieces for segment in piece.changing)
        backend.recordings.add(self)

    def _bind(self) -> None:
        """Make the descriptor sets of the commands that stay."""
        stay = {
            index: command
            for index, command in enumerate(self.commands)
            if isinstance(command, Dispatch) and index not in self._commands.changing
        }
        if stay:
            self._descriptors = descriptor_pool(self.device, len(stay))
        for index, command in stay.items():
            program = command.program.fitting(command.spans)
            # The writer's set is overwritten by its next call.
            found = self.write.descriptors(self._descriptors, program, command.spans, self._views)
            self.bound[index] = BoundProgram(program, api().ffi.new("VkDescriptorSet*", found[0]))

    def _plan(self) -> list[list[SegmentStep]]:
        """The commands in pieces, one for each submission, none predicted to run for too long.

        Those that do not depend on each other go together, so that as few barriers as possible are between.
        """
        used = [accesses(command) for command in self.commands]
        for index, (reads, writes) in enumerate(used):
            if index not in self._commands.changing:
                self.hazards.add(reads, writes)
        level_of = levels(used)
        pieces: list[list[SegmentStep]] = [[]]
        seconds, level = 0.0, 0
        # No system stops what its own processor computes, so there all commands are one submission.
        most = math.inf if self._backend.info.type == "software" else SUBMISSION_SECONDS
        for index in sorted(range(len(used)), key=level_of.__getitem__):
            command = self.commands[index]
            depends, level = level_of[index] > level, level_of[index]
            lasts = command.seconds if isinstance(command, Dispatch) else 0.0
            if pieces[-1] and seconds + lasts > most:
                pieces.append([])
                seconds = 0.0
            seconds += lasts
            if not isinstance(command, Dispatch):
                pieces[-1].append(SegmentStep(index, depends, (0, 0, 0), (0, 0, 0)))
                continue
            whole = command.program.module.interface.counts_groups or lasts <= SUBMISSION_SECONDS
            tiles = [((0, 0, 0), command.groups)] if whole else cut(command.groups, lasts, SUBMISSION_SECONDS)
            for first, groups in tiles:
                if first != (0, 0, 0):
                    pieces.append([])
                pieces[-1].append(SegmentStep(index, depends and first == (0, 0, 0), first, groups))
        return pieces

    def _write_what_stays(self) -> None:
        fixed = [segment for piece in self._pieces for segment in piece.fixed]
        if fixed:
            buffers = allocate_commands(self.device, self.command_pool, len(fixed))
            for segment, buffer in zip(fixed, buffers, strict=True):
                segment.write(self.write, buffer, self, {}, {})
                segment.submit_as(buffer)

    def change(self, changes: Mapping[int, Dispatch]) -> None:
        """Replace dispatches.

        Raises:
            ArgumentError: one does not fit.
            DeviceError: something that it uses was freed.
        """
        different = self._commands.different(changes)
        if not different:
            return
        # Before they change: an exception in between leaves a segment to look at again.
        self._outdated.update(
            segment
            for piece in self._pieces
            for segment in piece.changing
            if not different.keys().isdisjoint(segment.slots)
        )
        self._commands.replace(different)

    def ready(self) -> list[Submission]:
        """The command buffers to submit, which may be running already.

        Raises:
            DeviceError: something that it uses was freed.
        """
        self._commands.check()
        if self._outdated:
            for segment in tuple(self._outdated):
                segment.choose(self, self._commands.changing)
                self._outdated.discard(segment)
        return self._pieces

    def forget(self, thing: Any) -> None:
        """A buffer or program is about to be freed."""
        self._commands.forget(thing)

    def free(self) -> None:
        if self in self._backend.recordings:
            self._backend.recordings.discard(self)
            self._release()

    def _release(self) -> None:
        for piece in self._pieces:
            for segment in piece.changing:
                for version in segment.versions:
                    version.free()
        destroy("CommandPool", self._backend.device, self.command_pool)
        destroy("DescriptorPool", self._backend.device, self._descriptors)
        destroy_views(self._backend.device, self._views)


def segments(changing: Sequence[bool], most: int) -> list[range]:
    """Steps cut into runs of those that change and of those that do not.

    Where more than `most` runs change, they are joined over what lies between, the shortest first.

    >>> segments([False, True, True, False, False, True, False], 2)
    [range(0, 1), range(1, 3), range(3, 5), range(5, 6), range(6, 7)]
    >>> segments([False, True, True, False, False, True, False], 1)
    [range(0, 1), range(1, 6), range(6, 7)]
    """
    runs: list[tuple[int, int]] = []
    start = 0
    for changes, run in itertools.groupby(changing):
        stop = start + len(list(run))
        if changes:
            runs.append((start, stop))
        start = stop
    gaps = sorted(range(1, len(runs)), key=lambda i: runs[i][0] - runs[i - 1][1])
    joined = set(gaps[: max(0, len(runs) - most)])
    cuts = {0, len(changing)}
    for i, (start, stop) in enumerate(runs):
        if i not in joined:
            cuts.add(start)
        if i + 1 not in joined:
            cuts.add(stop)
    edges = sorted(cuts)
    return [range(*edge) for edge in itertools.pairwise(edges)] or [range(0)]
