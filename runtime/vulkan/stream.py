"""Commands in order, recorded into batches.

Commands are recorded until the batch is full or somebody needs a result, then submitted in one
piece; up to ``IN_FLIGHT`` batches run while the next is recorded. Spans read and written since the last
barrier are tracked, and a barrier is recorded only before a command that depends on one of them.

An exception may come at any line, as Ctrl-C does, and the next use goes on from there. Where a batch stands
is what its own few notes say: each changes by one statement, and what was half done is done again or has no
effect. A command that was cut short may have left a barrier or bindings, or run all the same; one that was
accepted runs once (docs/decisions/0008-interrupts.md).
"""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dl4all.errors import DeviceError
from dl4all.runtime.hazards import Hazards, accesses
from dl4all.runtime.protocols import SUBMISSION_SECONDS, Bytes, Copy, Dispatch, Fill, Ran, Span
from dl4all.runtime.split_dispatch import cut
from dl4all.runtime.validation import check_command, check_transfer
from dl4all.runtime.vulkan.batch import BATCH, Batch
from dl4all.runtime.vulkan.buffer import VulkanBuffer
from dl4all.runtime.vulkan.event import VulkanEvent
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.queue import Queue
from dl4all.runtime.vulkan.recording import VulkanRecording
from dl4all.runtime.vulkan.segment import Uses, Version
from dl4all.runtime.vulkan.structs import create, destroy
from dl4all.runtime.vulkan.timeline import Timeline
from dl4all.runtime.vulkan.timestamps import Ticks, Timestamps, ticks

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

IN_FLIGHT = 3  # batches
REPLAYS_IN_FLIGHT = 16
STAGED_BYTES = 64 << 20  # of one batch's uploads, before it is submitted


class VulkanStream:
    def __init__(self, backend: VulkanBackend, queue: Queue) -> None:
        vulkan = api()
        self._backend, self._queue = backend, queue
        self._command_pool = create(
            "CommandPool",
            backend.device,
            "a command pool",
            flags=vulkan.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
            queueFamilyIndex=backend.queue_family,
        )
        try:
            self._timeline = backend.new_timeline()
        except BaseException:
            destroy("CommandPool", backend.device, self._command_pool)
            raise
        self._write = backend.writer(vulkan.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
        self._batch: Batch | None = None  # being recorded
        self._batches: list[Batch] = []  # all of them; those with a value run, except the one being recorded
        self._hazards = Hazards()  # since the last barrier
        self._busy = Hazards()  # since the stream was last known to be idle
        self._replayed: set[VulkanRecording] = set()  # since then, too
        self._versions: dict[Version, Uses] = {}  # of their changing segments; what these use is noted
        self._waits: list[VulkanEvent] = []  # for the next submission
        self._awaited: dict[Timeline, VulkanEvent] = {}  # the last of each that the host has not seen come
        self._ticks: Ticks | None = None  # looked up when a dispatch is first timed
        self._timed_until = 0.0  # the end of the last timed dispatch, on the host's clock
        backend.streams.add(self)

    # Commands

    def dispatch(self, command: Dispatch, ran: Ran | None = None) -> None:
        check_command(self._backend, command)
        if command.seconds > SUBMISSION_SECONDS or (ran is not None and not self._has_timestamps()):
            self._dispatch_apart(command, ran)
            return
        program, spans, groups, push, seconds = command
        program = program.fitting(spans)
        batch = self._record(seconds)
        batch.length += 1  # first: what comes now takes room, whether it is finished or not
        write = self._write
        descriptors = write.descriptors(batch.descriptors, program, spans, batch.views)
        self._order(*accesses(command), alone=ran is not None)
        write.bind(program.pipeline, program.layout, descriptors, push)
        if ran is None:
            write.dispatch(groups)
        else:
            timestamps = self._timestamps(batch)
            timestamps.before(write.buffer)
            write.dispatch(groups)
            timestamps.after(write.buffer, ran)
        batch.seconds += seconds
        if batch.length >= BATCH:
            self._submit()

    def copy(self, command: Copy) -> None:
        check_command(self._backend, command)
        self._copy(command)

    def _copy(self, command: Copy) -> None:
        batch = self._record()
        batch.length += 1
        self._order([command.source], [command.target])
        self._write.copy(command)
        if batch.length >= BATCH:
            self._submit()

    def fill(self, command: Fill) -> None:
        check_command(self._backend, command)
        batch = self._record()
        batch.length += 1
        self._order([], [command.target])
        self._write.fill(command)
        if batch.length >= BATCH:
            self._submit()

    def upload(self, target: Span, data: Bytes) -> None:
        self._check_open()
        check_transfer(self._backend, target, data)
        if not data.size:
            return
        target = Span(target.buffer, target.offset, data.size)
        mapped = target.buffer.mapped
        if mapped is not None and not self._in_use(target, writing=True):
            mapped[target.offset : target.offset + data.size] = data
            return
        batch = self._record()
        staging = VulkanBuffer(self._backend, data.size, "host")
        batch.staging.append(staging)
        assert staging.mapped is not None
        staging.mapped[: data.size] = data
        self._copy(Copy(Span(staging, 0, data.size), target))
        if sum(buffer.nbytes for buffer in batch.staging) > STAGED_BYTES:
            self._submit()

    def download(self, source: Span, out: Bytes) -> None:
        self._check_open()
        check_transfer(self._backend, source, out)
        if not out.size:
            return
        source = Span(source.buffer, source.offset, out.size)
        mapped = source.buffer.mapped
        if mapped is not None:
            if self._in_use(source, writing=False):
                self._wait_for_everything()
            out[:] = mapped[source.offset : source.offset + out.size]
            return
        staging = VulkanBuffer(self._backend, out.size, "host")
        try:
            self._copy(Copy(source, Span(staging, 0, out.size)))
            self._wait_for_everything()
        except BaseException:
            self._outlive(staging)
            raise
        assert staging.mapped is not None
        out[:] = staging.mapped[: out.size]
        staging.free()

    def replay(self, recording: VulkanRecording, changes: Mapping[int, Dispatch] | None = None) -> None:
        self._check_open()
        if recording not in self._backend.recordings:
            raise DeviceError("[vulkan] the recording was freed, or belongs to another device")
        self._submit()
        timeline = self._timeline
        with recording.lock:  # another thread may replay it in a stream of its own
            if changes:
                recording.change(changes)
            pieces = recording.ready()
            self._replayed.add(recording)
            for piece in pieces:
                value = timeline.submitted + 1
                for segment in piece.changing:
                    version = segment.version
                    version.submitted[timeline] = value
                    if self._versions.get(version) is not version.uses:
                        self._busy.add(*version.uses)
                        self._versions[version] = version.uses
                self._hand_over(piece.buffers, piece.count)
        early = timeline.submitted - REPLAYS_IN_FLIGHT
        if early > 0 and not timeline.query(early):
            timeline.wait(early)
        self._hazards.clear()  # it begins and ends with a barrier

    def record_event(self) -> VulkanEvent:
        self._check_open()
        if self._waits:
            self._record()  # an empty batch, so that what was waited for is part of the event
        self._submit()
        return VulkanEvent(self._timeline, self._timeline.submitted)

    def wait_event(self, event: VulkanEvent) -> None:
        self._check_open()
        if event.timeline is self._timeline or event.query():
            return
        self._submit()  # what was recorded before does not wait
        self._waits.append(event)
        # Without those that have come, or a program that never reads would gather them for ever.
        self._awaited = {t: e for t, e in self._awaited.items() if t is not event.timeline and not e.query()}
        self._awaited[event.timeline] = event

    def in_flight(self) -> bool:
        """Whether something that was submitted still runs. Any thread may ask; nothing waits."""
        return not self._timeline.query(self._timeline.submitted)

    def synchronize(self) -> None:
        self._submit()
        while batch := self._oldest():
            self._retire(batch)
        self._timeline.wait(self._timeline.submitted)  # replays
        self._settled()

    def close(self) -> None:
        if self not in self._backend.streams:
            return
        device = self._backend.device
        try:
            self.synchronize()
            self._backend.reuse(self._timeline)
        except DeviceError:  # lost, or without memory to submit what is left
            api().lib.vkDeviceWaitIdle(device)
            self._timeline.abandon()
        self._backend.streams.discard(self)
        for batch in self._batches:
            batch.free()
        destroy("CommandPool", device, self._command_pool)
        self._batch = None
        self._batches.clear()

    def forget(self, thing: Any) -> None:
        """A buffer is about to be freed."""
        self._hazards.forget(thing)
        self._busy.forget(thing)

    # Recording

    def _record(self, seconds: float = 0.0) -> Batch:
        """The batch being recorded, or a new one if it has no room for so many seconds."""
        batch = self._batch
        if batch is not None:
            if batch.ended is None and batch.length < BATCH and batch.seconds + seconds <= SUBMISSION_SECONDS:
                return batch
            self._submit()
        self._check_open()
        running = [batch for batch in self._batches if batch.value]
        if len(running) >= IN_FLIGHT:
            self._retire(min(running, key=operator.attrgetter("value")))
        idle = [batch for batch in self._batches if not batch.value]
        batch = idle[0] if idle else Batch(self._backend.device)
        if not idle:
            self._batches.append(batch)
        batch.prepare(self._command_pool)
        batch.begun = True
        self._write.begin(batch.commands[0])
        self._batch = batch
        return batch

    def _check_open(self) -> None:
        if self not in self._backend.streams:
            self._backend.check_open()
            raise DeviceError("[vulkan] the stream is closed")

    def _order(self, reads: list[Span], writes: list[Span], *, alone: bool = False) -> None:
        """Put a barrier before a command that depends on an earlier one, or is to run alone.

        A barrier orders everything before it, in earlier batches too (submission order), so what
        is known lives on across batches.
        """
        if alone or self._hazards.found(reads, writes):
            self._write.barrier()
            self._hazards.clear()
        self._hazards.add(reads, writes)
        self._busy.add(reads, writes)

    def _dispatch_apart(self, command: Dispatch, ran: Ran | None) -> None:
        """A dispatch in submissions of its own: timed by the host's clock, or too long for one."""
        if ran is not None:
            self.synchronize()
        start = time.perf_counter()
        self._submit()
        program, spans, groups, push, seconds = command
        program = program.fitting(spans)
        if program.module.interface.counts_groups:
            pieces = [((0, 0, 0), groups)]
        else:
            pieces = cut(groups, seconds, SUBMISSION_SECONDS)
        for i, (first, size) in enumerate(pieces):
            batch = self._record()
            batch.length += 1
            descriptors = self._write.descriptors(batch.descriptors, program, spans, batch.views)
            if i == 0:  # the pieces do not depend on each other
                self._order(*accesses(command))
            self._write.dispatch_part(program, descriptors, push, first, size)
            self._submit()
        if ran is not None:
            self.synchronize()
            ran(start, time.perf_counter(), "host")

    # Timing

    def _has_timestamps(self) -> bool:
        if self._ticks is None:
            self._ticks = ticks(self._backend.info.index)
        return self._ticks.bits > 0

    def _timestamps(self, batch: Batch) -> Timestamps:
        assert self._ticks is not None
        if batch.timestamps is None:
            batch.timestamps = Timestamps(self._backend.device, self._ticks, BATCH)
        return batch.timestamps

    # Submission

    def _submit(self) -> None:
        """Hand over the batch being recorded, from where an exception may have left it."""
        batch = self._batch
        if batch is None:
            return
        if batch.ended is None:
            self._write.last_barrier()
            [batch.ended] = map(api().lib.vkEndCommandBuffer, batch.commands)
        if batch.ended:  # the driver could not keep what was recorded
            self._batch = None
            check(batch.ended, "recording")
        # Where submitting fails for want of memory, it can be tried again.
        submitted = self._timeline.submitted
        if not 0 < batch.value <= submitted:
            batch.value = submitted + 1
            if batch.timestamps is not None:
                batch.timestamps.submit()
            self._hand_over(batch.commands)
        self._batch = None
        self._waits.clear()

    def _hand_over(self, commands: Any, count: int = 1) -> None:
        waits = [event for event in self._waits if not event.query()]
        self._timeline.submit(self._queue, commands, waits, count)
        self._waits.clear()

    def _oldest(self) -> Batch | None:
        """Of the batches that run, the one that was submitted first."""
        running = [batch for batch in self._batches if batch.value and batch is not self._batch]
        return min(running, key=operator.attrgetter("value"), default=None)

    def _retire(self, batch: Batch) -> None:
        """Wait for the oldest running batch and make it ready for use again."""
        self._timeline.wait(batch.value)
        try:
            if batch.timestamps is not None:
                self._timed_until = batch.timestamps.report(self._timed_until)
        finally:
            batch.value = 0
        batch.clean()

    def _outlive(self, staging: VulkanBuffer) -> None:
        """Keep memory that was to be copied to, which may or may not happen, until nothing runs that does."""
        last = self._batch or max(self._batches, key=operator.attrgetter("value"), default=None)
        if last is None:
            staging.free()
        else:
            last.staging.append(staging)

    # What the host may touch

    def _in_use(self, span: Span, *, writing: bool) -> bool:
        """Whether the device may still use a span in a way that the host's access would disturb."""
        if self._awaited and not all(event.query() for event in self._awaited.values()):
            return True
        self._awaited.clear()
        if not self._busy_with(span, writing=writing):
            return False
        if self._batch is None and self._timeline.query(self._timeline.submitted):
            self._settled()
            return False
        return True

    def _busy_with(self, span: Span, *, writing: bool) -> bool:
        reads, writes = ([], [span]) if writing else ([span], [])
        return self._busy.found(reads, writes) or any(
            recording.hazards.found(reads, writes) for recording in self._replayed
        )

    def _wait_for_everything(self) -> None:
        self.synchronize()
        for event in self._awaited.values():
            event.synchronize()
        self._awaited.clear()

    def _settled(self) -> None:
        """Nothing of this stream runs."""
        self._busy.clear()
        self._replayed.clear()
        self._versions.clear()
