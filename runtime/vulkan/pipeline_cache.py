"""Compiled pipelines on disk, for each device and driver, so that the next process need not compile them.

What a file holds is the driver's own affair. It is read only under the driver's own key for it, and only
if its digest is right: drivers are not asked to survive damaged data.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from dl4all.errors import DeviceError
from dl4all.runtime.records import file_cache
from dl4all.runtime.vulkan.discovery import PhysicalDevice
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.structs import create, destroy

log = logging.getLogger("dl4all")


def file_of(physical: PhysicalDevice) -> Path:
    """The file of a device with its driver's present version."""
    properties = api().ffi.new("VkPhysicalDeviceProperties*")
    api().lib.vkGetPhysicalDeviceProperties(physical.handle, properties)
    known = (physical.info.uuid, physical.info.driver, physical.info.driver_version, properties.driverVersion)
    key = repr((*known, bytes(properties.pipelineCacheUUID)))
    return file_cache.folder() / "pipelines" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.bin"


class PipelineCache:
    """A VkPipelineCache that begins with what is on disk."""

    def __init__(self, device: Any, physical: PhysicalDevice) -> None:
        self._device = device
        self._file = file_of(physical)
        self._found = file_cache.read(self._file)
        try:
            self.handle = _create(device, self._found)
        except DeviceError as error:
            log.debug("the driver refuses its own pipeline cache %s: %s", self._file, error)
            self.handle = _create(device, None)

    def save(self) -> None:
        """Write what was added, together with what other processes have written meanwhile."""
        try:
            if self._data() == self._found:
                return
            others = file_cache.read(self._file)
            if others not in (None, self._found):
                self._merge(others)
            file_cache.try_write(self._file, self._data())
        except DeviceError as error:
            log.debug("the pipeline cache is not kept: %s", error)

    def free(self) -> None:
        destroy("PipelineCache", self._device, self.handle)

    def _merge(self, content: bytes | None) -> None:
        ffi, lib = api().ffi, api().lib
        other = _create(self._device, content)
        try:
            source = ffi.new("VkPipelineCache*", other)
            check(lib.vkMergePipelineCaches(self._device, self.handle, 1, source), "merging pipeline caches")
        finally:
            destroy("PipelineCache", self._device, other)

    def _data(self) -> bytes:
        ffi, lib = api().ffi, api().lib
        size = ffi.new("size_t*")
        result = lib.vkGetPipelineCacheData(self._device, self.handle, size, ffi.NULL)
        check(result, "asking for the pipeline cache")
        content = ffi.new("uint8_t[]", size[0])
        result = lib.vkGetPipelineCacheData(self._device, self.handle, size, content)
        check(result, "reading the pipeline cache")
        return bytes(ffi.buffer(content, size[0]))


def _create(device: Any, content: bytes | None) -> Any:
    data = content or b""
    pointer = api().ffi.from_buffer(data) if data else api().ffi.NULL
    return create(
        "PipelineCache", device, "a pipeline cache", initialDataSize=len(data), pInitialData=pointer
    )
