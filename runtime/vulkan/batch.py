"""A command buffer that is recorded, submitted, and used again when it has run."""

from __future__ import annotations

from typing import Any

from dl4all.runtime.vulkan.buffer import VulkanBuffer, destroy_views
from dl4all.runtime.vulkan.commands import allocate_commands, descriptor_pool
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.structs import destroy
from dl4all.runtime.vulkan.timestamps import Timestamps

BATCH = 32  # commands; long enough to hide a submission, short enough to keep the device busy


class Batch:
    """Commands, and what must live until they have run.

    A stream records one batch at a time. Of the others, those with a ``value`` run, or have run.
    """

    __slots__ = (
        "_device",
        "_pool",
        "begun",
        "commands",
        "descriptors",
        "ended",
        "length",
        "seconds",
        "staging",
        "timestamps",
        "value",
        "views",
    )

    def __init__(self, device: Any) -> None:
        self._device = device
        self._pool = api().ffi.new("VkDescriptorPool*")
        self.descriptors: Any = None  # what that holds
        self.commands: Any = None
        self.timestamps: Timestamps | None = None  # made when a dispatch is first timed
        self.staging: list[VulkanBuffer] = []
        self.views: list[Any] = []  # that no buffer keeps
        self.value = 0  # of the stream's timeline, when it has run
        self.begun = False  # something may have been recorded since it was cleaned
        self.length = 0  # of its commands
        self.seconds = 0.0  # that its dispatches are predicted to take
        self.ended: int | None = None  # what vkEndCommandBuffer said

    def prepare(self, command_pool: Any) -> None:
        """Make it ready to be recorded into. It must not run.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        if self.descriptors is None:
            if not self._pool[0]:
                descriptor_pool(self._device, BATCH, self._pool)
            self.descriptors = self._pool[0]
        if self.commands is None:
            self.commands = allocate_commands(self._device, command_pool, 1)
        if self.begun:
            self.clean()

    def clean(self) -> None:
        """Forget what was recorded, after it has run or will not.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        lib = api().lib
        self._free_what_it_keeps()
        if self.ended is None:  # beginning one anew that is being recorded is not allowed
            check(lib.vkResetCommandBuffer(self.commands[0], 0), "resetting commands")
        check(lib.vkResetDescriptorPool(self._device, self._pool[0], 0), "resetting descriptors")
        self.length = 0
        self.seconds = 0.0
        self.ended = None
        self.begun = False

    def free(self) -> None:
        """The command buffer goes with its pool."""
        self._free_what_it_keeps()
        destroy("DescriptorPool", self._device, self._pool[0])
        if self.timestamps is not None:
            self.timestamps.free()

    def _free_what_it_keeps(self) -> None:
        for buffer in self.staging:
            buffer.free()
        self.staging.clear()
        if self.views:
            destroy_views(self._device, self.views)
