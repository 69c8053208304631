"""Commands in order on one VkQueue, recorded into batches.

A batch is a command buffer with the descriptor sets and staging buffers it uses. Commands are
recorded until the batch is full or somebody needs a result, then submitted in one piece; up to
``IN_FLIGHT`` batches run while the next is recorded. Buffers read and written since the last
barrier are tracked, and a barrier is recorded only before a command that depends on one of them.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dl4all.errors import DeviceLostError
from dl4all.runtime.backend import MAX_BINDINGS, Bytes, Grid, Ran
from dl4all.runtime.vulkan.buffer import VulkanBuffer
from dl4all.runtime.vulkan.instance import WHOLE_SIZE, api, check
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.timestamps import Ticks, Timestamps, ticks

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

BATCH = 32  # commands; long enough to hide a submission, short enough to keep the device busy
IN_FLIGHT = 3
FOREVER = 2**64 - 1


class _Batch:
    """A command buffer, its fence, and what must live until it has run."""

    __slots__ = ("commands", "descriptors", "fence", "length", "staging", "timestamps")

    def __init__(self, device: Any, command_pool: Any) -> None:
        vulkan = api()
        ffi, lib = vulkan.ffi, vulkan.lib
        allocate = ffi.new(
            "VkCommandBufferAllocateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                "commandPool": command_pool,
                "level": vulkan.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                "commandBufferCount": 1,
            },
        )
        self.commands = ffi.new("VkCommandBuffer*")
        check(lib.vkAllocateCommandBuffers(device, allocate, self.commands), "allocating commands")
        fence = ffi.new("VkFence*")
        create_fence = ffi.new("VkFenceCreateInfo*", {"sType": vulkan.VK_STRUCTURE_TYPE_FENCE_CREATE_INFO})
        check(lib.vkCreateFence(device, create_fence, ffi.NULL, fence), "creating a fence")
        self.fence = fence
        size = ffi.new(
            "VkDescriptorPoolSize*",
            {
                "type": vulkan.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                "descriptorCount": BATCH * MAX_BINDINGS,
            },
        )
        create_pool = ffi.new(
            "VkDescriptorPoolCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                "maxSets": BATCH,
                "poolSizeCount": 1,
                "pPoolSizes": size,
            },
        )
        pool = ffi.new("VkDescriptorPool*")
        check(lib.vkCreateDescriptorPool(device, create_pool, ffi.NULL, pool), "creating descriptors")
        self.descriptors = pool[0]
        self.staging: list[VulkanBuffer] = []
        self.timestamps: Timestamps | None = None  # made when a dispatch is first timed
        self.length = 0


class VulkanStream:
    def __init__(self, backend: VulkanBackend, queue_family: int) -> None:
        vulkan = api()
        ffi, lib = vulkan.ffi, vulkan.lib
        self._backend = backend
        self._lib, self._ffi = lib, ffi
        queue = ffi.new("VkQueue*")
        lib.vkGetDeviceQueue(backend.device, queue_family, 0, queue)
        self._queue = queue[0]
        create = ffi.new(
            "VkCommandPoolCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                "flags": vulkan.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                "queueFamilyIndex": queue_family,
            },
        )
        pool = ffi.new("VkCommandPool*")
        check(lib.vkCreateCommandPool(backend.device, create, ffi.NULL, pool), "creating a command pool")
        self._command_pool = pool[0]
        self._batch: _Batch | None = None  # being recorded
        self._running: deque[_Batch] = deque()
        self._idle: list[_Batch] = []
        self._batches: list[_Batch] = []  # all of them
        self._read: set[VulkanBuffer] = set()  # since the last barrier
        self._written: set[VulkanBuffer] = set()
        self._busy: set[VulkanBuffer] = set()  # since the last synchronize
        self._ticks: Ticks | None = None  # looked up when a dispatch is first timed
        self._timed_until = 0.0  # the end of the last timed dispatch, on the host's clock
        self._prepare_structures()

    def _prepare_structures(self) -> None:
        """Allocate once what every command fills in: building a cffi structure costs microseconds."""
        vulkan, ffi = api(), self._ffi
        shader = vulkan.VK_ACCESS_SHADER_READ_BIT | vulkan.VK_ACCESS_SHADER_WRITE_BIT
        transfer = vulkan.VK_ACCESS_TRANSFER_READ_BIT | vulkan.VK_ACCESS_TRANSFER_WRITE_BIT
        writes = vulkan.VK_ACCESS_SHADER_WRITE_BIT | vulkan.VK_ACCESS_TRANSFER_WRITE_BIT
        self._stages = vulkan.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | vulkan.VK_PIPELINE_STAGE_TRANSFER_BIT
        self._host_stage = vulkan.VK_PIPELINE_STAGE_HOST_BIT
        self._compute = vulkan.VK_PIPELINE_BIND_POINT_COMPUTE
        self._compute_stage = vulkan.VK_SHADER_STAGE_COMPUTE_BIT
        barrier = {"sType": vulkan.VK_STRUCTURE_TYPE_MEMORY_BARRIER, "srcAccessMask": writes}
        self._device_barrier = ffi.new("VkMemoryBarrier*", {**barrier, "dstAccessMask": shader | transfer})
        self._host_barrier = ffi.new(
            "VkMemoryBarrier*", {**barrier, "dstAccessMask": vulkan.VK_ACCESS_HOST_READ_BIT}
        )
        self._begin = ffi.new(
            "VkCommandBufferBeginInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                "flags": vulkan.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
            },
        )
        self._submission = ffi.new(
            "VkSubmitInfo*", {"sType": vulkan.VK_STRUCTURE_TYPE_SUBMIT_INFO, "commandBufferCount": 1}
        )
        self._set_layout = ffi.new("VkDescriptorSetLayout*")
        self._allocation = ffi.new(
            "VkDescriptorSetAllocateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                "descriptorSetCount": 1,
                "pSetLayouts": self._set_layout,
            },
        )
        self._set = ffi.new("VkDescriptorSet*")
        self._infos = ffi.new("VkDescriptorBufferInfo[]", MAX_BINDINGS)
        self._updates = ffi.new("VkWriteDescriptorSet[]", MAX_BINDINGS)
        for i in range(MAX_BINDINGS):
            self._infos[i].range = WHOLE_SIZE
            self._updates[i].sType = vulkan.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
            self._updates[i].dstBinding = i
            self._updates[i].descriptorCount = 1
            self._updates[i].descriptorType = vulkan.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
            self._updates[i].pBufferInfo = self._infos + i
        self._region = ffi.new("VkBufferCopy*")

    # Commands

    def dispatch(
        self,
        program: VulkanProgram,
        buffers: Sequence[VulkanBuffer],
        groups: Grid,
        push: bytes,
        ran: Ran | None = None,
    ) -> None:
        if ran is not None and not self._has_timestamps():
            self._dispatch_and_wait(program, buffers, groups, push, ran)
            return
        ffi, lib = self._ffi, self._lib
        batch = self._record()
        written = [b for b, writes in zip(buffers, program.writes, strict=True) if writes]
        read = [b for b, writes in zip(buffers, program.writes, strict=True) if not writes]
        commands = batch.commands[0]
        self._order(commands, read, written, alone=ran is not None)

        self._allocation.descriptorPool = batch.descriptors
        self._set_layout[0] = program.set_layout
        check(
            lib.vkAllocateDescriptorSets(self._backend.device, self._allocation, self._set),
            "allocating descriptors",
        )
        for i, buffer in enumerate(buffers):
            self._infos[i].buffer = buffer.handle
            self._updates[i].dstSet = self._set[0]
        lib.vkUpdateDescriptorSets(self._backend.device, len(buffers), self._updates, 0, ffi.NULL)
        lib.vkCmdBindPipeline(commands, self._compute, program.pipeline)
        lib.vkCmdBindDescriptorSets(commands, self._compute, program.layout, 0, 1, self._set, 0, ffi.NULL)
        if push:
            lib.vkCmdPushConstants(
                commands, program.layout, self._compute_stage, 0, len(push), ffi.from_buffer(push)
            )
        if ran is None:
            lib.vkCmdDispatch(commands, *groups)
        else:
            timestamps = self._timestamps(batch)
            timestamps.before(commands)
            lib.vkCmdDispatch(commands, *groups)
            timestamps.after(commands, ran)
        self._count(batch)

    def upload(self, buffer: VulkanBuffer, data: Bytes) -> None:
        if buffer.mapped is not None and buffer not in self._busy:
            buffer.mapped[: data.size] = data
            return
        batch = self._record()
        staging = self._stage(batch, data.size)
        staging[: data.size] = data
        self._copy(batch, batch.staging[-1], buffer, data.size)

    def download(self, buffer: VulkanBuffer, out: Bytes) -> None:
        if buffer.mapped is not None:
            if buffer in self._busy:
                self.synchronize()
            out[:] = buffer.mapped[: out.size]
            return
        batch = self._record()
        staging = self._stage(batch, out.size)
        self._copy(batch, buffer, batch.staging[-1], out.size)
        self._submit()
        while self._running and batch in self._running:
            self._retire(keep_staging=batch)
        out[:] = staging[: out.size]
        self._drop_staging(batch)

    def synchronize(self) -> None:
        self._submit()
        while self._running:
            self._retire()
        self._busy.clear()

    def close(self) -> None:
        lib, ffi, device = self._lib, self._ffi, self._backend.device
        with contextlib.suppress(DeviceLostError):  # a lost device runs nothing any more
            self.synchronize()
        for batch in self._batches:
            lib.vkDestroyDescriptorPool(device, batch.descriptors, ffi.NULL)
            lib.vkDestroyFence(device, batch.fence[0], ffi.NULL)
            if batch.timestamps is not None:
                batch.timestamps.free()
        lib.vkDestroyCommandPool(device, self._command_pool, ffi.NULL)
        self._batch = None
        for batches in (self._batches, self._idle, self._running):
            batches.clear()

    # Recording

    def _record(self) -> _Batch:
        """The batch being recorded; begins one if there is none."""
        if self._batch is not None:
            return self._batch
        if len(self._running) >= IN_FLIGHT:
            self._retire()
        if self._idle:
            batch = self._idle.pop()
        else:
            batch = _Batch(self._backend.device, self._command_pool)
            self._batches.append(batch)
        check(self._lib.vkBeginCommandBuffer(batch.commands[0], self._begin), "recording")
        self._batch = batch
        return batch

    def _count(self, batch: _Batch) -> None:
        batch.length += 1
        if batch.length >= BATCH:
            self._submit()

    def _order(
        self, commands: Any, read: list[VulkanBuffer], written: list[VulkanBuffer], *, alone: bool = False
    ) -> None:
        """Put a barrier before a command that depends on an earlier one, or is to run alone.

        A barrier orders everything before it, in earlier batches too (submission order), so the
        sets live on across batches.
        """
        if (
            alone
            or not (self._written.isdisjoint(read) and self._written.isdisjoint(written))
            or not self._read.isdisjoint(written)
        ):
            self._lib.vkCmdPipelineBarrier(
                commands, self._stages, self._stages, 0,
                1, self._device_barrier, 0, self._ffi.NULL, 0, self._ffi.NULL,
            )  # fmt: skip
            self._read.clear()
            self._written.clear()
        self._read.update(read)
        self._written.update(written)
        self._busy.update(read)
        self._busy.update(written)

    def _stage(self, batch: _Batch, nbytes: int) -> Bytes:
        """A staging buffer that lives as long as the batch, as the host sees it."""
        buffer = VulkanBuffer(self._backend, nbytes, "staging")
        assert buffer.mapped is not None
        batch.staging.append(buffer)
        return buffer.mapped

    def _copy(self, batch: _Batch, source: VulkanBuffer, target: VulkanBuffer, nbytes: int) -> None:
        self._order(batch.commands[0], [source], [target])
        self._region.size = nbytes
        self._lib.vkCmdCopyBuffer(batch.commands[0], source.handle, target.handle, 1, self._region)
        self._count(batch)

    # Timing

    def _has_timestamps(self) -> bool:
        if self._ticks is None:
            self._ticks = ticks(self._backend.info.index)
        return self._ticks.bits > 0

    def _timestamps(self, batch: _Batch) -> Timestamps:
        assert self._ticks is not None
        if batch.timestamps is None:
            batch.timestamps = Timestamps(self._backend.device, self._ticks, BATCH)
        return batch.timestamps

    def _dispatch_and_wait(
        self, program: VulkanProgram, buffers: Sequence[VulkanBuffer], groups: Grid, push: bytes, ran: Ran
    ) -> None:
        """Time a dispatch by the host's clock, where the device has none."""
        self.synchronize()
        start = time.perf_counter()
        self.dispatch(program, buffers, groups, push)
        self.synchronize()
        ran(start, time.perf_counter(), "host")

    # Submission

    def _submit(self) -> None:
        batch = self._batch
        if batch is None:
            return
        ffi, lib = self._ffi, self._lib
        self._batch = None
        lib.vkCmdPipelineBarrier(
            batch.commands[0], self._stages, self._host_stage, 0,
            1, self._host_barrier, 0, ffi.NULL, 0, ffi.NULL,
        )  # fmt: skip
        check(lib.vkEndCommandBuffer(batch.commands[0]), "recording")
        self._submission.pCommandBuffers = batch.commands
        if batch.timestamps is not None:
            batch.timestamps.submit()
        check(lib.vkQueueSubmit(self._queue, 1, self._submission, batch.fence[0]), "submitting")
        self._running.append(batch)

    def _retire(self, keep_staging: _Batch | None = None) -> None:
        """Wait for the oldest running batch and make it ready for use again."""
        lib, device = self._lib, self._backend.device
        batch = self._running[0]
        check(lib.vkWaitForFences(device, 1, batch.fence, 1, FOREVER), "waiting for the device")
        self._running.popleft()
        check(lib.vkResetFences(device, 1, batch.fence), "resetting a fence")
        check(lib.vkResetDescriptorPool(device, batch.descriptors, 0), "resetting descriptors")
        if batch.timestamps is not None:
            self._timed_until = batch.timestamps.report(self._timed_until)
        batch.length = 0
        if batch is not keep_staging:
            self._drop_staging(batch)
        self._idle.append(batch)

    def _drop_staging(self, batch: _Batch) -> None:
        for buffer in batch.staging:
            for known in (self._read, self._written, self._busy):
                known.discard(buffer)
            buffer.free()
        batch.staging.clear()
