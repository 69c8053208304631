"""A part of a recording that lies in a command buffer of its own.

What stays is written once. Where dispatches change there are several versions of a segment, each with its
own command buffer and descriptor sets: one that runs is never written, and one that is wanted again, as when
results alternate between two places, is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dl4all.runtime.hazards import accesses
from dl4all.runtime.protocols import Copy, Dispatch, Grid, Span
from dl4all.runtime.vulkan.buffer import destroy_views
from dl4all.runtime.vulkan.commands import CommandWriter, allocate_commands, descriptor_pool
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.structs import destroy
from dl4all.runtime.vulkan.timeline import Timeline

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.recording import VulkanRecording

VERSIONS = 4  # of a segment

Uses = tuple[list[Span], list[Span]]


class SegmentStep(NamedTuple):
    """A command, or a tile of a long one."""

    command: int  # its index
    barrier: bool  # before it
    first: Grid
    groups: Grid


class BoundProgram(NamedTuple):
    """A dispatch's program, as it fits the spans, and the descriptor set that binds them."""

    program: VulkanProgram
    descriptors: Any


class Segment:
    """Steps between a recording's changes, and where their command buffer stands in a submission.

    It ends with a barrier where ``closes`` says so: what is written often holds as little as possible.
    """

    def __init__(
        self, steps: Sequence[SegmentStep], buffers: Any, position: int, *, closes: bool = False
    ) -> None:
        self.steps = tuple(steps)
        self._closes = closes
        self._buffers, self._position = buffers, position
        self._first, self._last = position == 0, position == len(buffers) - 1

    def submit_as(self, buffer: Any) -> None:
        """Let a command buffer be submitted for it."""
        self._buffers[self._position] = buffer

    def write(
        self,
        write: CommandWriter,
        buffer: Any,
        recording: VulkanRecording,
        changing: Mapping[int, Dispatch],
        bound: Mapping[int, BoundProgram],
    ) -> None:
        """Record the steps; `changing` dispatches are bound as `bound` says."""
        write.begin(buffer)
        if self._first:
            write.barrier()
        for index, barrier, first, groups in self.steps:
            if barrier:
                write.barrier()
            command = changing.get(index) or recording.commands[index]
            if isinstance(command, Dispatch):
                program, descriptors = bound.get(index) or recording.bound[index]
                write.dispatch_part(program, descriptors, command.push, first, groups)
            elif isinstance(command, Copy):
                write.copy(command)
            else:
                write.fill(command)
        if self._closes:
            write.barrier()
        if self._last:
            write.last_barrier()
        write.end()


class _Descriptors:
    """A descriptor set that is updated when it does not run."""

    __slots__ = ("handle", "spans", "views")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.spans: Sequence[Span] | None = None  # that it binds
        self.views: list[Any] = []  # that no buffer keeps


class Version:
    """A segment with certain dispatches, and the last submissions of it."""

    def __init__(self, device: Any) -> None:
        self._device = device
        # Where Vulkan writes the handle to: an exception on the way back loses none.
        self._pool = api().ffi.new("VkDescriptorPool*")
        self._sets: dict[tuple[int, VulkanProgram], _Descriptors] = {}
        self.buffer: Any = None
        self.holds: tuple[Dispatch, ...] | None = None
        self.uses: Uses = ([], [])  # what those read and write; another object where that changes
        self._calls: list[Callable[[], int | None]] = []  # of the driver, that write it
        self._push: list[bytearray] = []  # what these point to
        self._spans: list[Sequence[Span]] = []  # what they bind
        self.submitted: dict[Timeline, int] = {}  # the value that each stream's last submission brings

    def _prepare(self, command_pool: Any, dispatches: int) -> None:
        """Make what it consists of, the first time."""
        if self.buffer is None:
            if not self._pool[0]:  # a program has a twin, for spans that are too small or large for texels
                descriptor_pool(self._device, 2 * dispatches, self._pool)
            self.buffer = allocate_commands(self._device, command_pool, 1)[0]

    @property
    def running(self) -> bool:
        for timeline, value in tuple(self.submitted.items()):
            # a submission that failed has a value which never comes
            if not timeline.query(min(value, timeline.submitted)):
                return True
            self.submitted.pop(timeline, None)
        return False

    def wait(self) -> None:
        """Wait until it does not run."""
        for timeline, value in tuple(self.submitted.items()):
            timeline.wait(min(value, timeline.submitted))

    def hold(
        self, segment: ChangingSegment, recording: VulkanRecording, wanted: tuple[Dispatch, ...]
    ) -> None:
        """Write the segment with these dispatches. It may not run.

        Where only push constants change, the calls of the driver are the same as before.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        self._prepare(recording.command_pool, len(segment.slots))
        if self.holds is None:  # beginning one anew that an exception left half written is not allowed
            check(api().lib.vkResetCommandBuffer(self.buffer, 0), "resetting commands")
        self.holds = None  # until it is written
        spans = [command.spans for command in wanted]
        if self._calls and spans == self._spans:
            for push, command in zip(self._push, wanted, strict=True):
                push[:] = command.push
            for call in self._calls:
                if result := call():
                    check(result, "recording")
        else:
            self._write(segment, recording, wanted)
            self._spans = spans
        self.holds = wanted

    def _write(
        self, segment: ChangingSegment, recording: VulkanRecording, wanted: tuple[Dispatch, ...]
    ) -> None:
        self._calls = []
        self.uses = _uses(wanted)
        self._push = [bytearray(command.push) for command in wanted]
        bound, changing = dict[int, BoundProgram](), dict[int, Dispatch]()
        for index, command, push in zip(segment.slots, wanted, self._push, strict=True):
            bound[index] = self._bind(recording.write, index, command)
            held: Any = push
            changing[index] = command._replace(push=held)
        with recording.write.kept() as kept:
            segment.write(recording.write, self.buffer, recording, changing, bound)
        copies = any(isinstance(recording.commands[step.command], Copy) for step in segment.steps)
        if recording.write.repeats and not copies:
            self._calls = kept.calls

    def _bind(self, write: CommandWriter, index: int, command: Dispatch) -> BoundProgram:
        """The descriptor set of a changing dispatch, which may not run, on its spans."""
        program = command.program.fitting(command.spans)
        found = self._sets.get((index, program))
        if found is None:
            # The writer's is overwritten by its next call.
            handle = write.allocate_descriptors(self._pool[0], program)
            found = _Descriptors(api().ffi.new("VkDescriptorSet*", handle[0]))
            self._sets[index, program] = found
        if found.spans != command.spans:
            found.spans = None  # until it is updated
            destroy_views(self._device, found.views)
            write.update_descriptors(found.handle, program, command.spans, found.views)
            found.spans = command.spans
        return BoundProgram(program, found.handle)

    def free(self) -> None:
        """The command buffer goes with its pool."""
        destroy("DescriptorPool", self._device, self._pool[0])
        for descriptors in self._sets.values():
            destroy_views(self._device, descriptors.views)


class ChangingSegment(Segment):
    """A segment with the changing dispatches `slots`, in versions."""

    def __init__(
        self,
        steps: Sequence[SegmentStep],
        buffers: Any,
        position: int,
        slots: Sequence[int],
        *,
        closes: bool = False,
    ) -> None:
        super().__init__(steps, buffers, position, closes=closes)
        self.slots = tuple(slots)
        self.versions: list[Version] = []  # the one that was wanted last at the end

    def choose(self, recording: VulkanRecording, changing: Mapping[int, Dispatch]) -> None:
        """Let the next submissions run these dispatches, in a version that holds them or one written anew."""
        wanted = tuple([changing[index] for index in self.slots])
        for version in self.versions:
            if version.holds == wanted:
                break
        else:
            version = self._idle(recording)
            version.hold(self, recording, wanted)
        self.versions = [*[other for other in self.versions if other is not version], version]
        self.submit_as(version.buffer)

    @property
    def version(self) -> Version:
        """The chosen version."""
        return self.versions[-1]

    def _idle(self, recording: VulkanRecording) -> Version:
        """A version that does not run: a new one, or else that which was wanted longest ago."""
        if len(self.versions) < VERSIONS:
            self.versions.insert(0, Version(recording.device))
            return self.versions[0]
        for version in self.versions:
            if not version.running:
                return version
        self.versions[0].wait()
        return self.versions[0]


def _uses(commands: Sequence[Dispatch]) -> Uses:
    reads: list[Span] = []
    writes: list[Span] = []
    for command in commands:
        for known, found in zip((reads, writes), accesses(command), strict=True):
            known += found
    return reads, writes
