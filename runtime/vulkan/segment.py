"""A part of a recording that lies in a command buffer of its own.

What stays is written once. Where dispatches change there are several versions of a segment, each with its
own command buffer and descriptor sets: one that runs is never written, and one that is wanted again, as when
results alternate between two places, is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dl4all.runtime.protocols import Copy, Dispatch, Fill, Grid, Span
from dl4all.runtime.vulkan.buffer import destroy_views
from dl4all.runtime.vulkan.commands import CommandWriter, allocate_commands, descriptor_pool
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.structs import destroy
from dl4all.runtime.vulkan.timeline import Timeline

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.recording import VulkanRecording

VERSIONS = 4  # of a segment


class Step(NamedTuple):
    """A command, or a tile of a long one."""

    command: int  # its index
    barrier: bool  # before it
    first: Grid
    groups: Grid


class Bound(NamedTuple):
    """A dispatch's program, as it fits the spans, and the descriptor set that binds them."""

    program: VulkanProgram
    descriptors: Any


class Segment:
    """Steps between a recording's changes, and where their command buffer stands in a submission."""

    def __init__(self, steps: Sequence[Step], buffers: Any, position: int) -> None:
        self.steps = tuple(steps)
        self._buffers, self._position = buffers, position

    def submit_as(self, buffer: Any) -> None:
        """Let a command buffer be submitted for it."""
        self._buffers[self._position] = buffer

    def write(
        self,
        write: CommandWriter,
        buffer: Any,
        recording: VulkanRecording,
        bound: dict[int, Bound],
        changed: dict[int, Dispatch],
    ) -> None:
        """Record the steps; `bound` and `changed` are the changing dispatches."""
        write.begin(buffer)
        if self._position == 0:
            write.barrier()
        for step in self.steps:
            if step.barrier:
                write.barrier()
            index = step.command
            command = changed.get(index) or recording.commands[index]
            if isinstance(command, Copy):
                write.copy(command)
            elif isinstance(command, Fill):
                write.fill(command)
            else:
                program, descriptors = bound.get(index) or recording.bound[index]
                write.dispatch_part(program, descriptors, command.push, step.first, step.groups)
        if self._position == len(self._buffers) - 1:
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
        ffi = api().ffi
        self._device = device
        # Where Vulkan writes the handles to: an exception on the way back loses none.
        self._pool = ffi.new("VkDescriptorPool*")
        self._sets: dict[tuple[int, VulkanProgram], _Descriptors] = {}
        self.buffer: Any = None
        self.holds: tuple[Dispatch, ...] | None = None
        self.submitted: dict[Timeline, int] = {}  # the value that each stream's last submission brings

    def prepare(self, command_pool: Any, dispatches: int) -> None:
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

    def bind(self, write: CommandWriter, index: int, command: Dispatch) -> Bound:
        """The descriptor set of a changing dispatch, which may not run, on its spans."""
        program = command.program.fitting(command.spans)
        key = index, program
        found = self._sets.get(key)
        if found is None:
            # The writer's is overwritten by its next call.
            handle = write.allocate_descriptors(self._pool[0], program)
            found = self._sets[key] = _Descriptors(api().ffi.new("VkDescriptorSet*", handle[0]))
        if found.spans != command.spans:
            found.spans = None  # until it is updated
            destroy_views(self._device, found.views)
            write.update_descriptors(found.handle, program, command.spans, found.views)
            found.spans = command.spans
        return Bound(program, found.handle)

    def free(self) -> None:
        """The command buffer goes with its pool."""
        destroy("DescriptorPool", self._device, self._pool[0])
        for descriptors in self._sets.values():
            destroy_views(self._device, descriptors.views)


class ChangingSegment(Segment):
    """A segment with the changing dispatches `slots`, in versions."""

    def __init__(self, steps: Sequence[Step], buffers: Any, position: int, slots: Sequence[int]) -> None:
        super().__init__(steps, buffers, position)
        self.slots = tuple(slots)
        self.versions: list[Version] = []  # the one that was wanted last at the end

    def choose(self, recording: VulkanRecording, changing: dict[int, Dispatch]) -> None:
        """Let the next submissions run these dispatches, in a version that holds them or one written anew."""
        wanted = tuple([changing[index] for index in self.slots])
        for version in self.versions:
            if version.holds == wanted:
                break
        else:
            version = self._idle(recording)
            version.holds = None  # until it is written
            version.prepare(recording.command_pool, len(self.slots))
            changed = dict(zip(self.slots, wanted, strict=True))
            bound = {index: version.bind(recording.write, index, changed[index]) for index in changed}
            self.write(recording.write, version.buffer, recording, bound, changed)
            version.holds = wanted
        self.versions = [*(other for other in self.versions if other is not version), version]
        self.submit_as(version.buffer)

    def submitted(self, timeline: Timeline, value: int) -> None:
        """Note a submission of what was chosen, before it is tried."""
        self.versions[-1].submitted[timeline] = value

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
