"""A VkQueue, which several streams may share."""

from __future__ import annotations

import threading
from typing import Any

from dl4all.runtime.vulkan.instance import api


class Queue:
    """Takes one submission at a time: a timeline's."""

    def __init__(self, device: Any, family: int, index: int) -> None:
        vulkan = api()
        handle = vulkan.ffi.new("VkQueue*")
        vulkan.lib.vkGetDeviceQueue(device, family, index, handle)
        self.handle = handle[0]
        # Held while something is submitted. One that the same thread may take again: an exception must not
        # leave it locked for ever.
        self.lock = threading.RLock()
