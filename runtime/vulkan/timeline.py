"""The progress of a stream: a number that rises with each of its submissions.

An exception may come at any line. Whether something was submitted is known all the same: the call and the
note of it are one statement, ``[result], value = map(vkQueueSubmit, ...), next``, within which the
interpreter runs C alone and handles no signal (docs/decisions/0008-interrupts.md).

A timeline semaphore counts on the device, and other streams' submissions can wait for a value of it
there. Where there is none, every submission has a fence, and who waits for a value waits on the host.
"""

from __future__ import annotations

import functools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dl4all.runtime import fork
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.queue import Queue
from dl4all.runtime.vulkan.structs import create, destroy, struct

FOREVER = 2**64 - 1
SLICE = 0.05  # seconds that a thread waits in one piece: signals are handled between two


def wait_in_slices(wait: Callable[[int], int], timeout: float | None) -> bool:
    """Wait with ``wait(nanoseconds)`` for up to `timeout` seconds; whether it succeeded in that time.

    Raises:
        DeviceLostError, DeviceError
    """
    vulkan = api()
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = min(SLICE, end - time.monotonic())
        result = wait(max(0, int(left * 1e9)))
        if result != vulkan.VK_TIMEOUT:
            check(result, "waiting for the device")
            return True
        if left < SLICE:
            return False


class SemaphoreTimeline:
    """Counts with a timeline semaphore."""

    def __init__(self, device: Any) -> None:
        vulkan = api()
        self._device, self._lib = device, vulkan.lib
        self._value = 0  # of the last submission that was tried
        self._result = 0  # and what came of it
        self._reached = 0
        kind = struct("VkSemaphoreTypeCreateInfo", semaphoreType=vulkan.VK_SEMAPHORE_TYPE_TIMELINE)
        self.semaphore = create("Semaphore", device, "a timeline semaphore", pNext=kind)
        # Filled in anew by each submission: building structures costs microseconds.
        self._signal_value = vulkan.ffi.new("uint64_t*")
        self._signal = vulkan.ffi.new("VkSemaphore*", self.semaphore)
        self._values = struct(
            "VkTimelineSemaphoreSubmitInfo",
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=self._signal_value,
        )
        self._submission = struct(
            "VkSubmitInfo",
            pNext=self._values,
            signalSemaphoreCount=1,
            pSignalSemaphores=self._signal,
        )

    @property
    def submitted(self) -> int:
        """The value that the last submission will bring."""
        return self._value if self._result == 0 else self._value - 1

    def submit(self, queue: Queue, commands: Any, waits: Sequence[tuple[Any, int]], count: int = 1) -> None:
        """Submit `count` command buffers that begin when other timelines have come to a value.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        vulkan = api()
        submission = self._submission
        submission.pCommandBuffers, submission.commandBufferCount = commands, count
        if waits:
            semaphores = vulkan.ffi.new("VkSemaphore[]", [timeline.semaphore for timeline, _ in waits])
            values = vulkan.ffi.new("uint64_t[]", [value for _, value in waits])
            stages = vulkan.ffi.new(
                "VkPipelineStageFlags[]", [vulkan.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT] * len(waits)
            )
            submission.pWaitSemaphores, submission.pWaitDstStageMask = semaphores, stages
            self._values.pWaitSemaphoreValues = values
        submission.waitSemaphoreCount = self._values.waitSemaphoreValueCount = len(waits)
        self._signal_value[0] = value = self.submitted + 1
        call = [queue.handle], [1], [submission], [vulkan.ffi.NULL]
        with queue.lock:
            [self._result], self._value = map(self._lib.vkQueueSubmit, *call), value
        check(self._result, "submitting")

    def query(self, value: int) -> bool:
        """Whether the timeline has come to `value`."""
        if self._reached < value:
            counter = api().ffi.new("uint64_t*")  # several threads may ask
            check(self._lib.vkGetSemaphoreCounterValue(self._device, self.semaphore, counter), "asking")
            self._reached = max(self._reached, counter[0])
        return self._reached >= value

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Wait until it has; False if `timeout` seconds were not enough."""
        if self._reached >= value:
            return True
        vulkan = api()
        target = vulkan.ffi.new("uint64_t*", value)
        info = struct("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=self._signal, pValues=target)
        if not wait_in_slices(functools.partial(self._lib.vkWaitSemaphores, self._device, info), timeout):
            return False
        self._reached = max(self._reached, value)
        return True

    def abandon(self) -> None:
        """Its events have come, whatever the device says: nothing of the stream runs any more."""
        self._reached = FOREVER

    def free(self) -> None:
        self.abandon()
        destroy("Semaphore", self._device, self.semaphore)


class FenceTimeline:
    """Counts submissions with a fence each."""

    def __init__(self, device: Any) -> None:
        self._device, self._lib = device, api().lib
        self._value = self._result = 0
        self._reached = 0
        self._lock = fork.rlock()
        self._fences: list[Any] = []  # all of them
        self._idle: list[Any] = []
        self._trying: tuple[int, Any] = (0, None)  # a value, and the fence that it is submitted with
        self._pending: deque[tuple[int, Any]] = deque()
        self._waiting = 0  # threads in vkWaitForFences: a fence that one waits for is not reset

    @property
    def submitted(self) -> int:
        """The value that the last submission will bring."""
        return self._value if self._result == 0 else self._value - 1

    def submit(self, queue: Queue, commands: Any, waits: Sequence[tuple[Any, int]], count: int = 1) -> None:
        """Submit `count` command buffers, when other timelines have come to a value.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        for timeline, value in waits:
            timeline.wait(value)
        submission = struct("VkSubmitInfo", commandBufferCount=count, pCommandBuffers=commands)
        with self._lock:
            self._collect()
            fence, value = self._fence(), self.submitted + 1
            self._trying = value, fence
            call = [queue.handle], [1], [submission], [fence[0]]
            with queue.lock:
                [self._result], self._value = map(self._lib.vkQueueSubmit, *call), value
            self._collect()
        check(self._result, "submitting")

    def _fence(self) -> Any:
        """One that is not in use."""
        if self._idle:
            return self._idle.pop()
        fence = api().ffi.new("VkFence*")
        self._fences.append(fence)
        create("Fence", self._device, "a fence", fence)
        return fence

    def query(self, value: int) -> bool:
        """Whether the timeline has come to `value`."""
        with self._lock:
            self._collect()
            return self._reached >= value

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Wait until it has; False if `timeout` seconds were not enough."""
        with self._lock:
            self._collect()
            fence = dict(self._pending).get(value)
            if fence is None:
                return True
            self._waiting += 1
        try:
            waited = functools.partial(self._lib.vkWaitForFences, self._device, 1, fence, 1)
            come = wait_in_slices(waited, timeout)
        finally:
            with self._lock:
                self._waiting -= 1
        if not come:
            return False
        with self._lock:
            self._reached = max(self._reached, value)
        return True

    def _collect(self) -> None:
        """See which fences have been signalled, in order; make them ready for use if nobody looks at them."""
        vulkan = api()
        value, fence = self._trying
        if value:  # what was tried last is pending, if it was submitted
            if value <= self.submitted:
                if not self._pending or self._pending[-1][0] < value:
                    self._pending.append((value, fence))
            else:
                self._idle.append(fence)
            self._trying = 0, None
        for number, fence in self._pending:
            if number > self._reached:
                result = self._lib.vkGetFenceStatus(self._device, fence[0])
                if result == vulkan.VK_NOT_READY:
                    break
                check(result, "asking")
                self._reached = number
        if not self._waiting:
            while self._pending and self._pending[0][0] <= self._reached:
                fence = self._pending[0][1]
                check(self._lib.vkResetFences(self._device, 1, fence), "resetting a fence")
                self._pending.popleft()
                self._idle.append(fence)

    def abandon(self) -> None:
        """Its events have come, whatever the device says: nothing of the stream runs any more."""
        self._reached = FOREVER

    def free(self) -> None:
        self.abandon()
        for fence in self._fences:
            destroy("Fence", self._device, fence[0])
        self._fences.clear()
        self._idle.clear()
        self._pending.clear()


Timeline = SemaphoreTimeline | FenceTimeline
