"""A Vulkan device, opened: memory, programs and streams."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Sequence
from typing import Any

from dl4all.config import texel_buffer_setting
from dl4all.errors import DeviceError, UnknownDeviceError
from dl4all.runtime import fork
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.requirements import FEATURES
from dl4all.runtime.spirv import SpirvModule
from dl4all.runtime.unowned import unowned
from dl4all.runtime.validation import check_allocation
from dl4all.runtime.vulkan import features
from dl4all.runtime.vulkan.buffer import VulkanBuffer, free_memory, memory_types
from dl4all.runtime.vulkan.commands import CommandWriter
from dl4all.runtime.vulkan.debug import debug_names
from dl4all.runtime.vulkan.debug.debug_names import DebugNames, LabellingWriter
from dl4all.runtime.vulkan.discovery import PhysicalDevice, check_memory, physical_devices
from dl4all.runtime.vulkan.instance import api, check, instance
from dl4all.runtime.vulkan.pipeline_cache import PipelineCache
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.queue import Queue
from dl4all.runtime.vulkan.recording import VulkanRecording
from dl4all.runtime.vulkan.stream import VulkanStream
from dl4all.runtime.vulkan.structs import array, struct
from dl4all.runtime.vulkan.timeline import FenceTimeline, SemaphoreTimeline, Timeline

QUEUES = 4  # that streams are spread over; devices have one to sixteen


PORTABILITY_SUBSET = "VK_KHR_portability_subset"
"""The extension of devices that leave parts of Vulkan out; where it is offered, it must be enabled."""


class VulkanBackend:
    """Vulkan's physical device number `index`.

    On integrated and software devices buffers lie in memory that the host sees as well, and uploads
    and downloads are plain copies; elsewhere they go through staging buffers. ``zero_copy=False``
    forces staging. Devices of different `opening` share nothing, where the driver lets them.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: there is no Vulkan loader or driver.
        ForkError: the parent of this process had opened a device.
    """

    name = "vulkan"

    def __init__(self, index: int, *, zero_copy: bool = True, opening: int = 0) -> None:
        fork.open_driver(f"vulkan:{index}")
        found = {device.info.index: device for device in physical_devices(opening)}
        if index not in found:
            raise UnknownDeviceError(f"[vulkan] no device {index}; there are {sorted(found)}")
        physical = self._physical = found[index]
        check_memory(physical)
        self.info: DeviceInfo = physical.info
        self._enabled = features.supported(physical.handle, physical.api_version, physical.extensions)
        self.features = self._enabled & frozenset(FEATURES.values())
        limits = self.info.limits
        self.reads_texels = _reads_texels(self.info)
        self.capabilities = Capabilities(
            offset_alignment=max(limits.storage_alignment, limits.texel_alignment * self.reads_texels),
            asynchronous=True,
            threads=True,
            replay=True,
            tiles=True,
            clock="device",
        )
        self.queue_family = physical.queue_family
        self.memory_types = memory_types(physical, zero_copy)
        self.buffers: set[VulkanBuffer] = set()
        self.programs: set[VulkanProgram] = set()
        self.recordings: set[VulkanRecording] = set()
        self.streams: set[VulkanStream] = set()
        self._timelines: list[Timeline] = []  # all of them
        self._idle_timelines: list[Timeline] = []  # of streams that were closed
        self.pipeline_cache: PipelineCache | None = None
        count = min(QUEUES, physical.queues)
        self._device: Any = _create_device(physical, self._enabled, count)
        _alive.add(self)
        queues = [Queue(self._device, self.queue_family, i) for i in range(count)]
        self._next_queue = itertools.cycle(queues)
        handles = [queue.handle for queue in queues]
        self.names: DebugNames | None = debug_names.named(instance(opening), self._device, self.info, handles)
        try:
            self.pipeline_cache = PipelineCache(self._device, physical)
            self.stream = self.new_stream()
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> Any:
        """The VkDevice.

        Raises:
            DeviceError: it is closed.
        """
        self.check_open()
        return self._device

    def check_open(self) -> None:
        """Raise DeviceError if the device is closed, ForkError if it is the parent's."""
        if self._device is None:
            fork.check(f"vulkan:{self.info.index}")
            raise DeviceError(f"[vulkan] {self.info.hardware} is closed; what was on it is gone")

    def new_stream(self) -> VulkanStream:
        self.check_open()
        return VulkanStream(self, next(self._next_queue))

    def new_timeline(self) -> Timeline:
        """The timeline by which a stream counts its submissions.

        Those of closed streams are used again, and all live as long as the device: where Mesa emulates
        timeline semaphores (llvmpipe up to 22.3 at least), its submitting thread looks at one even after
        what waits for it has come, and destroying it then corrupts memory.
        """
        if self._idle_timelines:
            return self._idle_timelines.pop()
        kind = SemaphoreTimeline if "timeline_semaphore" in self._enabled else FenceTimeline
        timeline = kind(self.device)
        self._timelines.append(timeline)
        return timeline

    def reuse(self, timeline: Timeline) -> None:
        """Take back the timeline of a stream that has nothing left to run."""
        self._idle_timelines.append(timeline)

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> VulkanBuffer:
        check_allocation(self, nbytes, kind)
        buffer = VulkanBuffer(self, nbytes, kind)
        self.name_object("BUFFER", buffer.handle, f"{kind} memory, {nbytes} bytes")
        return buffer

    def unowned(self) -> list[VulkanBuffer]:
        """Buffers that nobody can free any more."""
        return unowned(self.buffers)

    def memory(self) -> Memory:
        total = self.info.memory
        if "memory_budget" in self._enabled:
            return Memory(free_memory(self._physical, self.memory_types["device"].types[0]), total)
        return Memory(max(0, total - sum(buffer.nbytes for buffer in tuple(self.buffers))), total)

    def program(self, module: SpirvModule, constants: Sequence[int]) -> VulkanProgram:
        return VulkanProgram(self, module, constants, texels=self.reads_texels)

    def writer(self, begin_flags: int) -> CommandWriter:
        """Writes commands into command buffers that begin with these flags."""
        if self.names is None:
            return CommandWriter(self.device, begin_flags)
        return LabellingWriter(self.device, begin_flags, self.names)

    def name_object(self, kind: str, handle: Any, name: str) -> None:
        """Name an object of a kind of VkObjectType, if a tool shows names."""
        if self.names is not None:
            self.names.give(kind, handle, name)

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> VulkanRecording:
        return VulkanRecording(self, commands, changing)

    def forget(self, thing: VulkanBuffer | VulkanProgram) -> None:
        """Something is about to be freed."""
        for stream in tuple(self.streams):
            stream.forget(thing)
        for recording in tuple(self.recordings):
            recording.forget(thing)

    def close(self) -> None:
        if self._device is None:
            return
        for stream in tuple(self.streams):
            stream.close()
        owned: list[VulkanRecording | VulkanBuffer | VulkanProgram]
        owned = [*self.recordings, *self.buffers, *self.programs]
        for thing in owned:
            thing.free()
        if self.pipeline_cache is not None:
            self.pipeline_cache.save()
            self.pipeline_cache.free()
        api().lib.vkDeviceWaitIdle(self._device)  # its threads are done with the timelines, too
        for timeline in self._timelines:
            timeline.free()
        api().lib.vkDestroyDevice(self._device, api().ffi.NULL)
        self._device = None

    def leave_to_parent(self) -> None:
        """In a forked child: refuse everything, and give nothing back."""
        self._device = None
        self.streams.clear()
        for buffer in self.buffers:
            buffer.mapped = None  # not every driver lets children see the memory


_alive: weakref.WeakSet[VulkanBackend] = weakref.WeakSet()


def _forked() -> None:
    for backend in list(_alive):
        backend.leave_to_parent()


fork.in_child(_forked)


def find() -> tuple[DeviceInfo, ...]:
    """Every Vulkan device.

    Raises:
        BackendMissingError: there is no loader, no driver or no device.
    """
    return tuple(device.info for device in physical_devices())


def open(index: int) -> VulkanBackend:
    """Vulkan's device number `index`.

    Raises:
        DeviceError
    """
    return VulkanBackend(index)


def open_again(index: int, opening: int) -> VulkanBackend:
    """The same device once more, for the opening of that number.

    Raises:
        DeviceError
    """
    return VulkanBackend(index, opening=opening)


def _reads_texels(info: DeviceInfo) -> bool:
    """Whether read-only buffers are read as texel buffers (docs/decisions/0009-texel-buffers.md)."""
    setting = texel_buffer_setting()
    return info.driver_id == "mesa_llvmpipe" if setting is None else setting


def _create_device(physical: PhysicalDevice, wanted: frozenset[str], queues: int) -> Any:
    vulkan = api()
    queue = struct(
        "VkDeviceQueueCreateInfo",
        queueFamilyIndex=physical.queue_family,
        queueCount=queues,
        pQueuePriorities=array("float", [1.0] * queues),
    )
    request = features.request(wanted, physical.api_version)
    subset = {PORTABILITY_SUBSET} & physical.extensions
    names = [array("char", name.encode()) for name in (*request.extensions, *subset)]
    info = struct(
        "VkDeviceCreateInfo",
        pNext=request.chain,
        pEnabledFeatures=request.core,
        queueCreateInfoCount=1,
        pQueueCreateInfos=queue,
        enabledExtensionCount=len(names),
        ppEnabledExtensionNames=array("char*", names),
    )
    device = vulkan.ffi.new("VkDevice*")
    result = vulkan.lib.vkCreateDevice(physical.handle, info, vulkan.ffi.NULL, device)
    check(result, f"opening {physical.info.hardware}")
    return device[0]
