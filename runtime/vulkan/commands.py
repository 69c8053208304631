"""Writing commands into a VkCommandBuffer.

What every command fills in is allocated once: building a cffi structure costs microseconds.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dl4all.runtime.protocols import VECTOR, Copy, Fill, Grid, Span
from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.structs import array, create, struct

MAX_DESCRIPTORS = 2 * MAX_BINDINGS  # a buffer may be read as texels of two formats


def allocate_commands(device: Any, pool: Any, count: int) -> Any:
    """An array of `count` command buffers."""
    vulkan = api()
    wanted = struct(
        "VkCommandBufferAllocateInfo",
        commandPool=pool,
        level=vulkan.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        commandBufferCount=count,
    )
    buffers = vulkan.ffi.new("VkCommandBuffer[]", count)
    check(vulkan.lib.vkAllocateCommandBuffers(device, wanted, buffers), "allocating command buffers")
    return buffers


def descriptor_pool(device: Any, sets: int, handle: Any = None) -> Any:
    """A pool for `sets` descriptor sets of at most MAX_BINDINGS buffers each; `handle` is as of `create`."""
    kinds = api().VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, api().VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER
    sizes = [{"type": kind, "descriptorCount": sets * MAX_DESCRIPTORS} for kind in kinds]
    return create(
        "DescriptorPool",
        device,
        "descriptors",
        handle,
        maxSets=sets,
        poolSizeCount=len(sizes),
        pPoolSizes=array("VkDescriptorPoolSize", sizes),
    )


class KeptCalls:
    """The driver's functions; ``calls`` are those that were made, to be made again on the same arguments."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self.calls: list[Callable[[], int | None]] = []

    def __getattr__(self, name: str) -> Callable[..., int | None]:
        function = getattr(self._lib, name)

        def call(*arguments: Any) -> int | None:
            self.calls.append(functools.partial(function, *arguments))
            result: int | None = function(*arguments)
            return result

        return call


class CommandWriter:
    """Writes into one command buffer at a time; ``buffer`` is the one."""

    repeats = True  # what it writes is in its calls of the driver

    def __init__(self, device: Any, begin_flags: int) -> None:
        vulkan = api()
        ffi = vulkan.ffi
        self._device, self._lib, self._null = device, vulkan.lib, ffi.NULL
        self._from_buffer = ffi.from_buffer
        self.buffer: Any = None
        shader = vulkan.VK_ACCESS_SHADER_READ_BIT | vulkan.VK_ACCESS_SHADER_WRITE_BIT
        transfer = vulkan.VK_ACCESS_TRANSFER_READ_BIT | vulkan.VK_ACCESS_TRANSFER_WRITE_BIT
        writes = vulkan.VK_ACCESS_SHADER_WRITE_BIT | vulkan.VK_ACCESS_TRANSFER_WRITE_BIT
        self._stages = vulkan.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | vulkan.VK_PIPELINE_STAGE_TRANSFER_BIT
        self._host_stage = vulkan.VK_PIPELINE_STAGE_HOST_BIT
        self._compute = vulkan.VK_PIPELINE_BIND_POINT_COMPUTE
        self._compute_stage = vulkan.VK_SHADER_STAGE_COMPUTE_BIT
        self._barrier = struct("VkMemoryBarrier", srcAccessMask=writes, dstAccessMask=shader | transfer)
        self._last_barrier = struct(
            "VkMemoryBarrier",
            srcAccessMask=writes,
            dstAccessMask=shader | transfer | vulkan.VK_ACCESS_HOST_READ_BIT,
        )
        self._begin = struct("VkCommandBufferBeginInfo", flags=begin_flags)
        self._set_layout = ffi.new("VkDescriptorSetLayout*")
        self._allocation = struct(
            "VkDescriptorSetAllocateInfo", descriptorSetCount=1, pSetLayouts=self._set_layout
        )
        self._set = ffi.new("VkDescriptorSet*")
        self._infos = ffi.new("VkDescriptorBufferInfo[]", MAX_DESCRIPTORS)
        self._views = ffi.new("VkBufferView[]", MAX_DESCRIPTORS)
        self._updates = ffi.new("VkWriteDescriptorSet[]", MAX_DESCRIPTORS)
        for i in range(MAX_DESCRIPTORS):
            self._updates[i].sType = vulkan.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
            self._updates[i].descriptorCount = 1
            self._updates[i].pBufferInfo = self._infos + i
            self._updates[i].pTexelBufferView = self._views + i
        self._region = ffi.new("VkBufferCopy*")

    def begin(self, buffer: Any) -> None:
        """Record into a command buffer from now on."""
        check(self._lib.vkBeginCommandBuffer(buffer, self._begin), "recording")
        self.buffer = buffer

    @contextlib.contextmanager
    def kept(self) -> Iterator[KeptCalls]:
        """The calls of the driver made meanwhile; those of copies point to what later ones change."""
        lib, kept = self._lib, KeptCalls(self._lib)
        self._lib = kept
        try:
            yield kept
        finally:
            self._lib = lib

    def end(self) -> None:
        """Finish the command buffer."""
        check(self._lib.vkEndCommandBuffer(self.buffer), "recording")

    def last_barrier(self) -> None:
        """Let the host, and whatever comes, see what was written."""
        self._lib.vkCmdPipelineBarrier(
            self.buffer, self._stages, self._stages | self._host_stage, 0,
            1, self._last_barrier, 0, self._null, 0, self._null,
        )  # fmt: skip

    def barrier(self) -> None:
        """Let what follows see what was written before, in earlier submissions of the queue too."""
        self._lib.vkCmdPipelineBarrier(
            self.buffer, self._stages, self._stages, 0,
            1, self._barrier, 0, self._null, 0, self._null,
        )  # fmt: skip

    def descriptors(self, pool: Any, program: VulkanProgram, spans: Sequence[Span], views: list[Any]) -> Any:
        """A descriptor set that binds spans in order; it is good until the next call, its content longer.

        What it adds to `views` must live as long as the set.
        """
        bound = self.allocate_descriptors(pool, program)
        self.update_descriptors(bound, program, spans, views)
        return bound

    def allocate_descriptors(self, pool: Any, program: VulkanProgram) -> Any:
        """A descriptor set for a program; it is good until the next call, its content longer."""
        self._allocation.descriptorPool = pool
        self._set_layout[0] = program.set_layout
        check(
            self._lib.vkAllocateDescriptorSets(self._device, self._allocation, self._set),
            "allocating descriptors",
        )
        return self._set

    def update_descriptors(
        self, descriptors: Any, program: VulkanProgram, spans: Sequence[Span], views: list[Any]
    ) -> None:
        """Let a descriptor set bind spans in order. What it adds to `views` must live as long as that."""
        bound = descriptors[0]
        infos, updates = self._infos, self._updates
        for i, (binding, span, kind, format, texel) in enumerate(program.bound):
            buffer, offset, nbytes = spans[span]
            if nbytes % VECTOR:
                nbytes = min(nbytes + -nbytes % VECTOR, buffer.nbytes - offset, program.largest_span)
            update = updates[i]
            update.dstSet = bound
            update.dstBinding = binding
            update.descriptorType = kind
            if format:
                self._views[i] = buffer.view(offset, nbytes - nbytes % texel, format, views)
            else:
                info = infos[i]
                info.buffer = buffer.handle
                info.offset = offset
                info.range = nbytes
        self._lib.vkUpdateDescriptorSets(self._device, len(program.bound), updates, 0, self._null)

    def bind(self, pipeline: Any, layout: Any, descriptors: Any, push: bytes) -> None:
        """Make a pipeline, what it is bound to and its push constants those that the next dispatch uses."""
        lib, buffer = self._lib, self.buffer
        lib.vkCmdBindPipeline(buffer, self._compute, pipeline)
        lib.vkCmdBindDescriptorSets(buffer, self._compute, layout, 0, 1, descriptors, 0, self._null)
        if push:
            lib.vkCmdPushConstants(buffer, layout, self._compute_stage, 0, len(push), self._from_buffer(push))

    def dispatch(self, groups: Grid) -> None:
        """Run what is bound."""
        self._lib.vkCmdDispatch(self.buffer, *groups)

    def dispatch_part(
        self, program: VulkanProgram, descriptors: Any, push: bytes, first: Grid, groups: Grid
    ) -> None:
        """Run workgroups of a program from `first` on, of which a whole dispatch begins with (0, 0, 0)."""
        if first == (0, 0, 0):
            self.bind(program.pipeline, program.layout, descriptors, push)
            self.dispatch(groups)
        else:
            self.bind(program.tiled(), program.layout, descriptors, push)
            self._lib.vkCmdDispatchBase(self.buffer, *first, *groups)

    def copy(self, command: Copy) -> None:
        """Copy between spans."""
        source, target = command
        if not target.nbytes:
            return
        region = self._region
        region.srcOffset, region.dstOffset, region.size = source.offset, target.offset, source.nbytes
        self._lib.vkCmdCopyBuffer(self.buffer, source.buffer.handle, target.buffer.handle, 1, region)

    def fill(self, command: Fill) -> None:
        """Fill a span."""
        buffer, offset, nbytes = command.target
        if nbytes:
            self._lib.vkCmdFillBuffer(self.buffer, buffer.handle, offset, nbytes, command.word)
