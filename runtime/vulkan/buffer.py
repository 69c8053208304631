"""A VkBuffer with its own memory, mapped where the host can see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dl4all.errors import OutOfMemoryError
from dl4all.runtime.backend import Bytes
from dl4all.runtime.vulkan.instance import WHOLE_SIZE, api, check

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

Kind = Literal["device", "staging"]


class MemoryKind(NamedTuple):
    """Memory types that a kind of buffer may lie in, the best first, and which of them to map."""

    types: tuple[int, ...]
    mapped: frozenset[int]


class VulkanBuffer:
    """Device memory (``kind="device"``), or host memory that the device can copy from and to."""

    __slots__ = ("_backend", "_memory", "handle", "mapped", "nbytes")

    def __init__(self, backend: VulkanBackend, nbytes: int, kind: Kind) -> None:
        if nbytes > backend.info.limits.allocation_size:
            raise _too_large(backend, nbytes)
        vulkan = api()
        ffi, lib = vulkan.ffi, vulkan.lib
        usage = vulkan.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vulkan.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        if kind == "device":
            usage |= vulkan.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
        create = ffi.new(
            "VkBufferCreateInfo*",
            {"sType": vulkan.VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, "size": nbytes, "usage": usage},
        )
        handle = ffi.new("VkBuffer*")
        check(lib.vkCreateBuffer(backend.device, create, ffi.NULL, handle), f"creating {nbytes} bytes")
        self._backend = backend
        self.nbytes = nbytes
        self.handle = handle[0]
        self._memory = ffi.NULL
        self.mapped: Bytes | None = None
        """The memory as the host sees it, None where the host cannot."""
        try:
            self._bind(kind)
        except BaseException:
            self.free()
            raise
        backend.buffers.add(self)

    def _bind(self, kind: Kind) -> None:
        vulkan = api()
        ffi, lib = vulkan.ffi, vulkan.lib
        backend = self._backend
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(backend.device, self.handle, needs)
        types, mapped = backend.memory_kinds[kind]
        allowed = [i for i in types if needs.memoryTypeBits & (1 << i)]
        if not allowed or needs.size > backend.info.limits.allocation_size:
            raise _too_large(backend, needs.size)
        memory = ffi.new("VkDeviceMemory*")
        result = 0
        for index in allowed:
            allocate = ffi.new(
                "VkMemoryAllocateInfo*",
                {
                    "sType": vulkan.VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                    "allocationSize": needs.size,
                    "memoryTypeIndex": index,
                },
            )
            result = lib.vkAllocateMemory(backend.device, allocate, ffi.NULL, memory)
            if result == 0:
                break
        check(result, f"allocating {needs.size} bytes")
        self._memory = memory[0]
        check(lib.vkBindBufferMemory(backend.device, self.handle, self._memory, 0), "binding memory")
        if index in mapped:
            pointer = ffi.new("void**")
            check(
                lib.vkMapMemory(backend.device, self._memory, 0, WHOLE_SIZE, 0, pointer),
                "mapping memory",
            )
            self.mapped = np.frombuffer(ffi.buffer(pointer[0], self.nbytes), np.uint8)

    def free(self) -> None:
        vulkan = api()
        ffi, lib = vulkan.ffi, vulkan.lib
        if self.handle is None:
            return
        self.mapped = None
        lib.vkDestroyBuffer(self._backend.device, self.handle, ffi.NULL)
        lib.vkFreeMemory(self._backend.device, self._memory, ffi.NULL)
        self.handle = None
        self._backend.buffers.discard(self)


def _too_large(backend: VulkanBackend, nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"[vulkan] one allocation of {nbytes} bytes is more than {backend.info.hardware} "
        f"allows ({backend.info.limits.allocation_size}); use a smaller batch"
    )
