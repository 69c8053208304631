"""A command buffer that is recorded, submitted, and used again when it has run."""

from __future__ import annotations

from typing import Any

from dl4all.runtime.vulkan.buffer import VulkanBuffer
from dl4all.runtime.vulkan.commands import allocate_commands, descriptor_pool
from dl4all.runtime.vulkan.structs import destroy
from dl4all.runtime.vulkan.timestamps import Timestamps

BATCH = 32  # commands; long enough to hide a submission, short enough to keep the device busy


class Batch:
    """Commands, and what must live until they have run."""

    __slots__ = ("commands", "descriptors", "ended", "length", "seconds", "staging", "timestamps", "value")

    def __init__(self, device: Any, command_pool: Any) -> None:
        self.commands = allocate_commands(device, command_pool, 1)
        self.descriptors = descriptor_pool(device, BATCH)
        self.timestamps: Timestamps | None = None  # made when a dispatch is first timed
        self.staging: list[VulkanBuffer] = []
        self.clear()

    def clear(self) -> None:
        """Nothing is recorded."""
        self.length = 0
        self.seconds = 0.0  # that its dispatches are predicted to take
        self.value = 0  # of the stream's timeline, when it has run
        self.ended = False

    def free_staging(self) -> None:
        for buffer in self.staging:
            buffer.free()
        self.staging.clear()

    def free(self, device: Any) -> None:
        """The command buffer goes with its pool."""
        destroy("DescriptorPool", device, self.descriptors)
        if self.timestamps is not None:
            self.timestamps.free()
