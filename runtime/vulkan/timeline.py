"""How far a stream has come: a number that rises with each of its submissions.

A timeline semaphore counts on the device, and other streams' submissions can wait for a value of it
there. Where there is none, every submission has a fence, and who waits for a value waits on the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from dl4all.runtime import fork
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.queue import Queue
from dl4all.runtime.vulkan.structs import create, destroy, struct

FOREVER = 2**64 - 1


def nanoseconds(seconds: float | None) -> int:
    """A timeout as Vulkan takes it."""
    return FOREVER if seconds is None else min(max(0, int(seconds * 1e9)), FOREVER)


class SemaphoreTimeline:
    """Counts with a timeline semaphore."""

    def __init__(self, device: Any) -> None:
        vulkan = api()
        self._device, self._lib = device, vulkan.lib
        self.submitted = 0  # the value that the last submission will bring
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
            commandBufferCount=1,
            signalSemaphoreCount=1,
            pSignalSemaphores=self._signal,
        )

    def submit(self, queue: Queue, commands: Any, waits: Sequence[tuple[Any, int]]) -> int:
        """Submit a command buffer that begins when other timelines have come to a value."""
        vulkan = api()
        submission = self._submission
        submission.pCommandBuffers = commands
        if waits:
            semaphores = vulkan.ffi.new("VkSemaphore[]", [timeline.semaphore for timeline, _ in waits])
            values = vulkan.ffi.new("uint64_t[]", [value for _, value in waits])
            stages = vulkan.ffi.new(
                "VkPipelineStageFlags[]", [vulkan.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT] * len(waits)
            )
            submission.pWaitSemaphores, submission.pWaitDstStageMask = semaphores, stages
            self._values.pWaitSemaphoreValues = values
        submission.waitSemaphoreCount = self._values.waitSemaphoreValueCount = len(waits)
        self._signal_value[0] = self.submitted + 1
        queue.submit(submission, vulkan.ffi.NULL)
        self.submitted += 1
        return self.submitted

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
        result = self._lib.vkWaitSemaphores(self._device, info, nanoseconds(timeout))
        if result == vulkan.VK_TIMEOUT:
            return False
        check(result, "waiting for the device")
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
        self.submitted = 0
        self._reached = 0
        self._lock = fork.lock()
        self._pending: deque[tuple[int, Any]] = deque()
        self._idle: list[Any] = []
        self._waiting = 0  # threads in vkWaitForFences: a fence that one waits for is not reset

    def submit(self, queue: Queue, commands: Any, waits: Sequence[tuple[Any, int]]) -> int:
        """Submit a command buffer, when other timelines have come to a value."""
        for timeline, value in waits:
            timeline.wait(value)
        vulkan = api()
        with self._lock:
            self._collect()
            if self._idle:
                fence = self._idle.pop()
            else:
                fence = vulkan.ffi.new("VkFence*", create("Fence", self._device, "a fence"))
        submission = struct("VkSubmitInfo", commandBufferCount=1, pCommandBuffers=commands)
        try:
            queue.submit(submission, fence[0])
        except BaseException:
            with self._lock:
                self._idle.append(fence)
            raise
        with self._lock:
            self.submitted += 1
            self._pending.append((self.submitted, fence))
        return self.submitted

    def query(self, value: int) -> bool:
        """Whether the timeline has come to `value`."""
        with self._lock:
            self._collect()
            return self._reached >= value

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Wait until it has; False if `timeout` seconds were not enough."""
        with self._lock:
            self._collect()
            fence = next((fence for number, fence in self._pending if number == value), None)
            if fence is None:
                return True
            self._waiting += 1
        try:
            result = self._lib.vkWaitForFences(self._device, 1, fence, 1, nanoseconds(timeout))
        finally:
            with self._lock:
                self._waiting -= 1
        if result == api().VK_TIMEOUT:
            return False
        check(result, "waiting for the device")
        with self._lock:
            self._reached = max(self._reached, value)
        return True

    def _collect(self) -> None:
        """See which fences have been signalled, in order; make them ready for use if nobody looks at them."""
        vulkan = api()
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
                self._idle.append(fence)
                self._pending.popleft()

    def abandon(self) -> None:
        """Its events have come, whatever the device says: nothing of the stream runs any more."""
        self._reached = FOREVER

    def free(self) -> None:
        self.abandon()
        for fence in [*self._idle, *(fence for _, fence in self._pending)]:
            destroy("Fence", self._device, fence[0])
        self._idle.clear()
        self._pending.clear()


Timeline = SemaphoreTimeline | FenceTimeline
