"""Barriers where a command depends on an earlier one, and nowhere else; batches; long work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.runtime import protocols as protocol
from dl4all.runtime.protocols import Dispatch, Span, span
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.batch import BATCH
from dl4all.runtime.vulkan.event import VulkanEvent
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.recording import CHANGING_SEGMENTS
from dl4all.runtime.vulkan.segment import VERSIONS
from dl4all.runtime.vulkan.stream import VulkanStream
from tests.conftest import need
from tests.runtime.vulkan.driver import Driver, install
from tests.runtime.vulkan.scene import N, after, module, push, step, words

pytestmark = pytest.mark.vulkan


class Recorder:
    """Four buffers, and the number of calls since :meth:`start`."""

    def __init__(self, backend: VulkanBackend, driver: Driver, folder: Path) -> None:
        self.backend, self.driver, self.stream = backend, driver, backend.stream
        self.program = backend.program(module(folder), ())
        self.a, self.b, self.c, self.d = (span(backend.allocate(4 * N)) for _ in range(4))
        for seed, piece in enumerate((self.a, self.b, self.c, self.d)):
            self.stream.upload(piece, words(seed).view(np.uint8))
        self.start()

    def step(self, x: Span, y: Span) -> None:
        """A dispatch that reads x and writes y."""
        self.stream.dispatch(step(self.program, x, y))

    def start(self) -> None:
        """Forget what was read and written before."""
        self.stream.synchronize()
        self.stream._hazards.clear()
        self.driver.calls.clear()

    def calls(self, name: str) -> int:
        """How often a function of the API was called."""
        return self.driver.calls[name]


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A device of its own, since the calls of others would count."""
    need("vulkan:0")
    driver = install(monkeypatch)
    backend = VulkanBackend(0)
    yield Recorder(backend, driver, tmp_path)
    backend.close()


@pytest.mark.parametrize(
    ("pairs", "barriers"),
    [
        (["ab", "cd"], 0),  # nothing in common
        (["ab", "ac", "ad"], 0),  # reads in common
        (["ab", "bc"], 1),  # read after write
        (["ab", "ca"], 1),  # write after read
        (["ab", "cb"], 1),  # write after write
        (["ab", "cd", "bd"], 1),  # one barrier settles both
        (["ab", "bc", "ad"], 1),  # the barrier settled ab, and bc has nothing to do with ad
        (["ab", "bc", "da"], 1),  # a was read before the barrier
        (["ab", "bc", "cd"], 2),
        (["ab", "ba"] * 5, 9),
    ],
)
def test_barriers(recorder: Recorder, pairs: list[str], barriers: int) -> None:
    for pair in pairs:
        recorder.step(*(getattr(recorder, name) for name in pair))
    assert recorder.calls("vkCmdDispatch") == len(pairs)
    assert recorder.calls("vkCmdPipelineBarrier") == barriers


def test_timed_dispatches_run_alone(recorder: Recorder) -> None:
    """Even those that have nothing in common, or their times would overlap."""
    for x, y in ((recorder.a, recorder.b), (recorder.c, recorder.d)):
        recorder.stream.dispatch(step(recorder.program, x, y), lambda *_: None)
    assert recorder.calls("vkCmdDispatch") == 2
    assert recorder.calls("vkCmdPipelineBarrier") == 2


def test_a_dependency_on_an_earlier_batch(recorder: Recorder) -> None:
    recorder.step(recorder.a, recorder.b)
    recorder.stream._submit()
    before = recorder.calls("vkCmdPipelineBarrier")  # the one that lets the host see results
    recorder.step(recorder.c, recorder.d)
    assert recorder.calls("vkCmdPipelineBarrier") == before
    recorder.step(recorder.b, recorder.c)
    assert recorder.calls("vkCmdPipelineBarrier") == before + 1


def test_commands_are_submitted_in_batches(recorder: Recorder) -> None:
    for _ in range(2 * BATCH):
        recorder.step(recorder.a, recorder.b)
    assert recorder.calls("vkQueueSubmit") == 2
    recorder.step(recorder.a, recorder.b)
    assert recorder.calls("vkQueueSubmit") == 2
    recorder.stream.synchronize()
    assert recorder.calls("vkQueueSubmit") == 3
    recorder.stream.synchronize()
    assert recorder.calls("vkQueueSubmit") == 3


def test_batches_are_used_again(recorder: Recorder) -> None:
    for _ in range(40 * BATCH):
        recorder.step(recorder.a, recorder.b)
    assert recorder.calls("vkQueueSubmit") == 40
    assert len(recorder.stream._batches) <= 4  # three run while one is recorded


@pytest.mark.parametrize("zero_copy", [True, False])
def test_staging_buffers_go_when_they_are_done(zero_copy: bool, tmp_path: Path) -> None:
    need("vulkan:0")
    backend = VulkanBackend(0, zero_copy=zero_copy)
    try:
        program = backend.program(module(tmp_path), ())
        x, y = (span(backend.allocate(4 * N)) for _ in range(2))
        stream, buffers = backend.stream, {x.buffer, y.buffer}
        for _ in range(100):
            stream.dispatch(step(program, x, y))
            stream.upload(x, np.zeros(4 * N, np.uint8))  # x is in use, so it is staged
            stream.download(y, np.zeros(4 * N, np.uint8))
        stream.dispatch(step(program, x, y))
        stream.upload(x, np.zeros(4 * N, np.uint8))
        assert backend.buffers > buffers
        stream.synchronize()
        assert backend.buffers == buffers
    finally:
        backend.close()


def test_large_uploads_do_not_wait_for_each_other(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the staging memory of a whole network would be held at one time."""
    monkeypatch.setattr("dl4all.runtime.vulkan.stream.STAGED_BYTES", 4 * N * 3)
    for _ in range(20):
        recorder.step(recorder.a, recorder.b)  # a is in use
        recorder.stream.upload(recorder.a, words(9).view(np.uint8))
    assert recorder.calls("vkQueueSubmit") == 5
    assert len(recorder.backend.buffers) < 4 + 4 * 5


def test_disjoint_pieces_of_one_buffer_do_not_depend_on_each_other(recorder: Recorder) -> None:
    # Devices bind buffers at multiples of 256 bytes at most.
    buffer = recorder.backend.allocate(4096 * 8)
    pieces = [span(buffer, 4096 * i, 4 * N) for i in range(8)]
    for x, y in itertools.pairwise(pieces[::2]):
        recorder.step(x, y)
    assert recorder.calls("vkCmdPipelineBarrier") == 2  # a chain
    recorder.start()
    for x, y in zip(pieces[::2], pieces[1::2], strict=True):
        recorder.step(x, y)
    assert recorder.calls("vkCmdPipelineBarrier") == 0
    recorder.step(span(buffer, 0, 8), recorder.a)  # read before
    assert recorder.calls("vkCmdPipelineBarrier") == 0
    recorder.step(recorder.b, span(buffer, 4096 * 7 + 256, 16))  # written in part
    assert recorder.calls("vkCmdPipelineBarrier") == 1


def predicted(command: Dispatch, seconds: float) -> Dispatch:
    return command._replace(seconds=seconds)


def test_a_submission_is_not_predicted_to_take_longer_than_the_bound(recorder: Recorder) -> None:
    assert protocol.SUBMISSION_SECONDS == 1.0
    for x, y in [(recorder.a, recorder.b)] * 6:
        recorder.stream.dispatch(predicted(step(recorder.program, x, y), 0.4))
    assert recorder.calls("vkQueueSubmit") == 2  # of two each; the last two are still being recorded


def test_a_long_dispatch_is_cut(recorder: Recorder) -> None:
    """Along its grid, each piece in a submission of its own."""
    command = step(recorder.program, recorder.a, recorder.b, 3)
    assert command.groups == (4, 1, 1)
    recorder.stream.dispatch(predicted(command, 3.5))
    recorder.stream.synchronize()
    assert (recorder.calls("vkCmdDispatch"), recorder.calls("vkCmdDispatchBase")) == (1, 3)
    assert recorder.calls("vkQueueSubmit") == 4
    recorder.stream.dispatch(predicted(command, 1000.0))
    recorder.stream.synchronize()
    assert (recorder.calls("vkCmdDispatch"), recorder.calls("vkCmdDispatchBase")) == (2, 6)
    assert recorder.calls("vkQueueSubmit") == 8
    assert recorder.calls("vkCreateComputePipelines") == 1  # that which begins in the middle
    out = np.zeros(N, np.uint32)
    recorder.stream.download(recorder.b, out.view(np.uint8))
    np.testing.assert_array_equal(out, after(words(0), 3))


@pytest.mark.parametrize(
    ("kind", "submissions"),
    [("discrete", 5), ("software", 2)],  # 2 + 2 + 1 + 2 halves; nobody stops a processor, but halves are two
)
def test_a_recording_of_long_work_is_cut(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, kind: Any, submissions: int
) -> None:
    monkeypatch.setattr(recorder.backend, "info", replace(recorder.backend.info, type=kind))
    command = predicted(step(recorder.program, recorder.a, recorder.b, 3), 0.4)
    recording = recorder.backend.record([command] * 5 + [predicted(command, 2.0)])
    recorder.stream.replay(recording)
    recorder.stream.synchronize()
    assert recorder.calls("vkQueueSubmit") == submissions
    assert recorder.calls("vkCmdDispatchBase") == 1


def test_a_recording_is_written_once(recorder: Recorder) -> None:
    """And what may change again where it does, into a command buffer that does not run."""
    chain = [step(recorder.program, recorder.a, recorder.b), step(recorder.program, recorder.b, recorder.a)]
    recording = recorder.backend.record(chain * 10, changing=[0, 7, 8])
    for _ in range(5):
        recorder.stream.replay(recording)
    assert recorder.calls("vkCmdDispatch") == 20
    assert recorder.calls("vkCmdPipelineBarrier") == 19 + 2  # and one at each end
    assert recorder.calls("vkQueueSubmit") == 5
    for k in range(6):
        recorder.stream.replay(recording, {0: step(recorder.program, recorder.a, recorder.b, k + 2)})
    assert recorder.calls("vkCmdDispatch") == 20 + 6
    recorder.stream.replay(recording, {7: step(recorder.program, recorder.b, recorder.a, 9)})
    assert recorder.calls("vkCmdDispatch") == 20 + 6 + 2
    recorder.stream.synchronize()
    for segment in recording._pieces[0].changing:
        assert len(segment.versions) <= VERSIONS


def test_a_recording_of_chains_has_the_barriers_of_one(recorder: Recorder) -> None:
    """Recorded one after the other, they run side by side."""
    first = [step(recorder.program, recorder.a, recorder.b), step(recorder.program, recorder.b, recorder.a)]
    second = [step(recorder.program, recorder.c, recorder.d), step(recorder.program, recorder.d, recorder.c)]
    recording = recorder.backend.record([*first * 10, *second * 10])
    recorder.stream.replay(recording)
    assert recorder.calls("vkCmdDispatch") == 40
    assert recorder.calls("vkCmdPipelineBarrier") == 19 + 2
    recorder.stream.download(recorder.a, out := np.zeros(4 * N, np.uint8))
    np.testing.assert_array_equal(out.view(np.uint32), after(words(0), *[1] * 20))


def test_what_was_replayed_before_is_there(recorder: Recorder) -> None:
    """As where results alternate between two places: nothing is written, no set is updated."""
    recording = recorder.backend.record([step(recorder.program, recorder.a, recorder.b)] * 3, changing=[1])
    places = [recorder.b, recorder.c, recorder.d]
    for turn in range(4):
        for place in places:
            recorder.stream.replay(recording, {1: step(recorder.program, recorder.a, place)})
            if turn % 2:
                recorder.stream.synchronize()
    assert recorder.calls("vkCmdDispatch") == 2 + 3
    assert recorder.calls("vkUpdateDescriptorSets") == 2 + 3


def test_a_recording_with_many_changes_has_few_segments(recorder: Recorder) -> None:
    command = step(recorder.program, recorder.a, recorder.b)
    recording = recorder.backend.record([command] * 200, changing=range(0, 200, 3))
    [piece] = recording._pieces
    assert len(piece.changing) == CHANGING_SEGMENTS
    recorder.stream.replay(recording, {i: command._replace(push=push(i)) for i in range(0, 200, 3)})
    recorder.stream.synchronize()
    recorder.stream.download(recorder.b, out := np.zeros(4 * N, np.uint8))
    np.testing.assert_array_equal(out.view(np.uint32), after(words(0), 1))


def test_a_submission_waits_for_the_events_of_others(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device, and only the one that comes next: one queue would keep the order without it."""
    if "timeline_semaphore" not in recorder.backend._enabled:
        pytest.skip("the host waits here")
    waits: list[list[int]] = []
    submit = recorder.driver.vkQueueSubmit

    def note(queue: Any, count: int, submission: Any, fence: Any) -> Any:
        values = api().ffi.cast("VkTimelineSemaphoreSubmitInfo*", submission.pNext)
        assert submission.waitSemaphoreCount == values.waitSemaphoreValueCount
        waits.append([values.pWaitSemaphoreValues[i] for i in range(submission.waitSemaphoreCount)])
        return submit(queue, count, submission, fence)

    others = [recorder.backend.new_stream() for _ in range(2)]
    events = []
    for count, other in enumerate(others, 1):
        for _ in range(count):
            other.dispatch(step(recorder.program, recorder.c, recorder.d))
            event = other.record_event()
        events.append(event)
    monkeypatch.setattr(recorder.driver, "vkQueueSubmit", note)
    with monkeypatch.context() as patch:
        patch.setattr(VulkanEvent, "query", lambda event: False)  # none has come yet
        for event in events:
            recorder.stream.wait_event(event)
        recorder.step(recorder.a, recorder.b)
        recorder.stream._submit()
    recorder.step(recorder.a, recorder.b)
    recorder.stream.synchronize()
    assert waits == [[event.value for event in events], []]


def test_waiting_for_a_stream_that_is_closed(recorder: Recorder) -> None:
    """Its work is done, and its semaphore gone; another's may have taken the place."""
    for _ in range(50):
        other = recorder.backend.new_stream()
        for _ in range(20):
            other.dispatch(step(recorder.program, recorder.c, recorder.d))
            recorder.stream.wait_event(other.record_event())
        other.close()
        recorder.step(recorder.a, recorder.b)
        recorder.stream.record_event()
    recorder.stream.synchronize()


def test_events_that_have_come_are_forgotten(recorder: Recorder) -> None:
    """By a stream whose memory the host never looks at."""
    other = recorder.backend.new_stream()
    for _ in range(100):
        other.dispatch(step(recorder.program, recorder.c, recorder.d))
        recorder.stream.wait_event(other.record_event())
        recorder.step(recorder.a, recorder.b)
        other.wait_event(recorder.stream.record_event())
    assert len(recorder.stream._awaited) <= 1
    assert len(other._awaited) <= 1


def test_a_recording_replayed_by_two_threads(recorder: Recorder) -> None:
    """Each in a stream of its own, always with new push constants: both write the command buffers."""
    other = recorder.backend.new_stream()
    recording = recorder.backend.record([step(recorder.program, recorder.a, recorder.b)] * 20, range(20))

    def replay(stream: VulkanStream) -> None:
        for k in range(150):
            stream.replay(recording, {k % 20: step(recorder.program, recorder.a, recorder.b, k)})
        stream.synchronize()

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(replay, stream) for stream in (recorder.stream, other)]:
            done.result()


def test_timelines_live_as_long_as_the_device(recorder: Recorder) -> None:
    """And are used again: a driver's thread may look at one after what waits for it has come."""
    if "timeline_semaphore" not in recorder.backend._enabled:
        pytest.skip("fences count here")
    for k in range(20):
        other = recorder.backend.new_stream()
        other.dispatch(step(recorder.program, recorder.c, recorder.d, k))
        event = other.record_event()
        recorder.stream.wait_event(event)
        recorder.step(recorder.a, recorder.b)
        recorder.stream.synchronize()
        other.close()
        assert event.query()
    assert recorder.calls("vkDestroySemaphore") == 0
    recorder.backend.close()
    assert recorder.calls("vkDestroySemaphore") == 2  # of the default stream, and of all the others in turn


@pytest.mark.parametrize(
    ("place", "submissions"),
    [
        ("commands.CommandWriter.last_barrier", 1),  # the next command joins the batch
        ("stream.VulkanStream._hand_over", 2),
        ("timeline.check", 2),  # the driver has it
    ],
)
def test_an_interrupted_submission_goes_on(
    recorder: Recorder, place: str, submissions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the driver has it or not: every command that was accepted runs, and once."""

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    recorder.step(recorder.a, recorder.b)
    with monkeypatch.context() as patch:
        patch.setattr(f"dl4all.runtime.vulkan.{place}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            recorder.stream._submit()
    recorder.step(recorder.b, recorder.c)
    out = np.empty(N, np.uint32)
    recorder.stream.download(recorder.c, out.view(np.uint8))
    np.testing.assert_array_equal(out, after(words(0), 1, 1))
    assert recorder.calls("vkQueueSubmit") == recorder.calls("vkEndCommandBuffer") == submissions
