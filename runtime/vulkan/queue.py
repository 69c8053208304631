"""A VkQueue, which several streams may share."""

from __future__ import annotations

import threading
from typing import Any

from dl4all.runtime.vulkan.instance import api, check


class Queue:
    """Takes one submission at a time."""

    def __init__(self, device: Any, family: int, index: int) -> None:
        vulkan = api()
        handle = vulkan.ffi.new("VkQueue*")
        vulkan.lib.vkGetDeviceQueue(device, family, index, handle)
        self._handle = handle[0]
        self._lock = threading.Lock()

    def submit(self, submission: Any, fence: Any) -> None:
        """Begin the work of a VkSubmitInfo.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        with self._lock:
            check(api().lib.vkQueueSubmit(self._handle, 1, submission, fence), "submitting")
