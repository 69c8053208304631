"""When each dispatch of a batch ran, by the device's own clock.

Timestamps of one queue can be compared with each other, and with the host's clock only by way of what
both sides saw. A batch cannot begin before it was submitted, nor before the one in front of it has
ended; its first timestamp is taken to be the later of the two. By induction no dispatch is
placed later than it ran, so that on the host's clock each lies between its submission and the
end of the wait for it, and none overlaps another.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from dl4all.runtime.protocols import Ran
from dl4all.runtime.vulkan.discovery import physical_devices
from dl4all.runtime.vulkan.instance import api, check


class Ticks(NamedTuple):
    """The clock of a queue: a timestamp's valid bits (0: it has none), and the seconds of a tick."""

    bits: int
    seconds: float


def ticks(index: int) -> Ticks:
    """The clock of the queue that physical device `index` is used through."""
    physical = next(device for device in physical_devices() if device.info.index == index)
    ffi, lib = api().ffi, api().lib
    count = ffi.new("uint32_t*")
    lib.vkGetPhysicalDeviceQueueFamilyProperties(physical.handle, count, ffi.NULL)
    families = ffi.new("VkQueueFamilyProperties[]", count[0])
    lib.vkGetPhysicalDeviceQueueFamilyProperties(physical.handle, count, families)
    properties = ffi.new("VkPhysicalDeviceProperties*")
    lib.vkGetPhysicalDeviceProperties(physical.handle, properties)
    return Ticks(families[physical.queue_family].timestampValidBits, properties.limits.timestampPeriod * 1e-9)


class Timestamps:
    """The query pool of a batch: two timestamps for each of up to `dispatches` dispatches."""

    def __init__(self, device: Any, ticks: Ticks, dispatches: int) -> None:
        vulkan = api()
        ffi, lib = vulkan.ffi, vulkan.lib
        self._device, self._ticks, self._count = device, ticks, 2 * dispatches
        self._lib = lib
        self._stage = vulkan.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT  # when all commands before have finished
        self._flags = vulkan.VK_QUERY_RESULT_64_BIT
        create = ffi.new(
            "VkQueryPoolCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                "queryType": vulkan.VK_QUERY_TYPE_TIMESTAMP,
                "queryCount": self._count,
            },
        )
        pool = ffi.new("VkQueryPool*")
        check(lib.vkCreateQueryPool(device, create, ffi.NULL, pool), "creating a query pool")
        self._pool = pool[0]
        self._waiting: list[Ran] = []
        self._open = False  # the last dispatch has begun and not ended
        self._lost = False  # an exception came between: what the pool holds does not fit together
        self._submitted = 0.0

    def before(self, commands: Any) -> None:
        """Record that a dispatch is about to begin."""
        self._lost = self._lost or self._open
        self._open = True
        if self._lost:
            return
        if not self._waiting:
            self._lib.vkCmdResetQueryPool(commands, self._pool, 0, self._count)
        self._lib.vkCmdWriteTimestamp(commands, self._stage, self._pool, 2 * len(self._waiting))

    def after(self, commands: Any, ran: Ran) -> None:
        """Record that it has ended."""
        if self._lost:
            return
        self._lib.vkCmdWriteTimestamp(commands, self._stage, self._pool, 2 * len(self._waiting) + 1)
        self._waiting.append(ran)
        self._open = False

    def submit(self) -> None:
        """Note the time just before the batch is submitted."""
        self._submitted = time.perf_counter()

    def report(self, earlier: float) -> float:
        """Tell everybody who waits, now that the batch has run.

        `earlier` is the end of what ran on the queue before, and the end of this is returned.
        """
        if self._lost or self._open:
            self._waiting.clear()
        self._lost = self._open = False
        if not self._waiting:
            return earlier
        values = np.empty(2 * len(self._waiting), np.uint64)
        pointer = api().ffi.from_buffer(values)
        check(
            self._lib.vkGetQueryPoolResults(
                self._device, self._pool, 0, values.size, values.nbytes, pointer, 8, self._flags
            ),
            "reading timestamps",
        )
        waiting, self._waiting = self._waiting, []
        end = max(earlier, self._submitted)
        times = end + placed(values.tolist(), self._ticks)
        for ran, first, last in zip(waiting, times[::2], times[1::2], strict=True):
            ran(float(first), float(last), "device")
            end = float(last)
        return end

    def free(self) -> None:
        self._lib.vkDestroyQueryPool(self._device, self._pool, api().ffi.NULL)


def placed(values: list[int], ticks: Ticks) -> Any:
    """Seconds since the first timestamp, never falling.

    Only the valid bits count, and they may wrap round between two timestamps.

    >>> placed([0xFFF0, 0xFFFF, 0x10004, 0x10004], Ticks(16, 0.5)).tolist()
    [0.0, 7.5, 10.0, 10.0]
    """
    mask = (1 << ticks.bits) - 1
    since = [((value & mask) - (values[0] & mask)) & mask for value in values]
    return np.maximum.accumulate(np.array(since) * ticks.seconds)
