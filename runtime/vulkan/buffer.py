"""A VkBuffer with its own memory, mapped where the host can see it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dl4all.errors import OutOfMemoryError
from dl4all.runtime.protocols import Bytes, MemoryKind
from dl4all.runtime.vulkan.discovery import PhysicalDevice
from dl4all.runtime.vulkan.instance import WHOLE_SIZE, api, check, validation_wanted
from dl4all.runtime.vulkan.structs import create, struct

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend


VIEWS = 1024  # of a buffer that are kept; it has as many as pieces of it are read as texels

TAIL = 256
"""Bytes that a view may have more than its piece, and a buffer that is read as texels more than asked for.

llvmpipe compiles a kernel once for each of what it takes for kinds of images. Its key has of each view
whether the buffer's size is a power of two, and whether bits 8 to 15 of the view's are 0: an image has its
last level there. With the tail neither is ever so: a product of three operands was compiled up to 64 times.

No kernel reads the tail. The validation layer takes all of a view for read, and would ask for barriers beside
what lies behind its piece: where the layer runs, views have none.
"""


class MemoryTypes(NamedTuple):
    """Memory types that a kind of buffer may lie in, the best first, and which of them to map."""

    types: tuple[int, ...]
    mapped: frozenset[int]


class VulkanBuffer:
    """Memory that shaders and copies can use."""

    __slots__ = ("_backend", "_handle", "_lock", "_memory", "_tail", "_views", "handle", "mapped", "nbytes")

    def __init__(self, backend: VulkanBackend, nbytes: int, kind: MemoryKind) -> None:
        nbytes = -(-nbytes // 4) * 4  # fills and shaders work on words
        if nbytes > backend.info.limits.allocation_size:
            raise _too_large(backend, nbytes)
        vulkan = api()
        usage = (
            vulkan.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
            | vulkan.VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT
            | vulkan.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | vulkan.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        )
        self._backend = backend
        self._lock = threading.Lock()
        self._views: dict[tuple[int, int, int], Any] = {}
        self._tail = 0 if validation_wanted() else TAIL
        self.nbytes = nbytes
        self.mapped: Bytes | None = None
        # Where Vulkan writes the handles to: an exception on the way back loses none.
        self._handle, self._memory = vulkan.ffi.new("VkBuffer*"), vulkan.ffi.new("VkDeviceMemory*")
        backend.buffers.add(self)
        try:
            what = f"{nbytes} bytes"
            size = _with_tail(nbytes) if backend.reads_texels else nbytes
            self.handle = create("Buffer", backend.device, what, self._handle, size=size, usage=usage)
            self._bind(kind)
        except BaseException:
            self.free()
            raise

    def _bind(self, kind: MemoryKind) -> None:
        backend, lib, ffi = self._backend, api().lib, api().ffi
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(backend.device, self.handle, needs)
        types, mapped = backend.memory_types[kind]
        allowed = [i for i in types if needs.memoryTypeBits & (1 << i)]
        if not allowed or needs.size > backend.info.limits.allocation_size:
            raise _too_large(backend, needs.size)
        result = 0
        for index in allowed:
            wanted = struct("VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=index)
            result = lib.vkAllocateMemory(backend.device, wanted, ffi.NULL, self._memory)
            if result == 0:
                break
        check(result, f"allocating {needs.size} bytes")
        memory = self._memory[0]
        check(lib.vkBindBufferMemory(backend.device, self.handle, memory, 0), "binding memory")
        if index in mapped:
            pointer = ffi.new("void**")
            check(
                lib.vkMapMemory(backend.device, memory, 0, WHOLE_SIZE, 0, pointer),
                "mapping memory",
            )
            self.mapped = np.frombuffer(ffi.buffer(pointer[0], self.nbytes), np.uint8)

    def view(self, offset: int, nbytes: int, format: int, owned: list[Any]) -> Any:
        """The VkBufferView of a piece; it goes with the buffer, or, where there are too many, into `owned`.

        Raises:
            OutOfMemoryError, DeviceLostError
        """
        key = offset, nbytes, format
        known = self._views.get(key)
        if known is not None and known[0]:
            return known[0]
        place = api().ffi.new("VkBufferView*")
        with self._lock:
            if key in self._views or len(self._views) < VIEWS:
                place = self._views.setdefault(key, place)
            else:
                owned.append(place)
            if not place[0]:
                create(
                    "BufferView",
                    self._backend.device,
                    "a buffer view",
                    place,
                    buffer=self.handle,
                    format=format,
                    offset=offset,
                    range=nbytes if nbytes & 0xFF00 else nbytes + self._tail,
                )
        return place[0]

    def free(self) -> None:
        """Give it back. Once done, and after an exception, it may be done again."""
        if self not in self._backend.buffers:
            return
        self._backend.forget(self)
        self.handle = self.mapped = None
        lib, device, null = api().lib, self._backend.device, [api().ffi.NULL]
        destroy_views(device, self._views)
        handle, memory = self._handle, self._memory
        if handle:
            # One statement, as in a timeline: what was destroyed is known to be.
            [self._handle] = map(lib.vkDestroyBuffer, [device], [handle[0]], null)
        if memory:
            [self._memory] = map(lib.vkFreeMemory, [device], [memory[0]], null)
        self._backend.buffers.discard(self)


def destroy_views(device: Any, views: dict[Any, Any] | list[Any]) -> None:
    """Destroy buffer views and forget them; what an exception cuts short may be done again."""
    lib, null = api().lib, [api().ffi.NULL]
    for key in list(views) if isinstance(views, dict) else range(len(views)):
        if views[key] is not None:
            [views[key]] = map(lib.vkDestroyBufferView, [device], [views[key][0]], null)
    views.clear()


def _with_tail(nbytes: int) -> int:
    """The size of a buffer of texels, which is no power of two."""
    size = nbytes + TAIL
    return size if size & (size - 1) else size + TAIL


def _too_large(backend: VulkanBackend, nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"[vulkan] one allocation of {nbytes} bytes is more than {backend.info.hardware} "
        f"allows ({backend.info.limits.allocation_size}); use a smaller batch"
    )


def memory_types(physical: PhysicalDevice, zero_copy: bool) -> dict[MemoryKind, MemoryTypes]:
    """Memory types for each kind of buffer.

    Reading memory that the host does not cache is some twenty times slower than a copy by the
    device, so only cached memory is shared with the host.
    """
    cached = _with_flags(physical, "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED")
    visible = _with_flags(physical, "HOST_VISIBLE", "HOST_COHERENT")
    local = _with_flags(physical, "DEVICE_LOCAL")
    one_memory = physical.info.type in ("integrated", "software") and zero_copy
    shared = [i for i in local if i in cached] if one_memory else []
    hidden = [i for i in local if i not in visible]
    return {
        "device": MemoryTypes(tuple(dict.fromkeys([*shared, *hidden, *local])), frozenset(shared)),
        "host": MemoryTypes(tuple(dict.fromkeys([*cached, *visible])), frozenset(visible)),
    }


def _with_flags(physical: PhysicalDevice, *names: str) -> list[int]:
    wanted = 0
    for name in names:
        wanted |= getattr(api(), f"VK_MEMORY_PROPERTY_{name}_BIT")
    return [i for i, flags in enumerate(physical.memory_types) if flags & wanted == wanted]


def free_memory(physical: PhysicalDevice, memory_type: int) -> int:
    """Bytes that the driver would still give this process from the heap of a memory type."""
    budget = struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
    properties: Any = struct("VkPhysicalDeviceMemoryProperties2", pNext=budget)
    api().lib.vkGetPhysicalDeviceMemoryProperties2(physical.handle, properties)
    heap = properties.memoryProperties.memoryTypes[memory_type].heapIndex
    return max(0, int(budget.heapBudget[heap]) - int(budget.heapUsage[heap]))
