"""A compute pipeline with the layouts it needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dl4all.errors import PipelineError
from dl4all.runtime.requirements import check_interface
from dl4all.runtime.spirv import Module
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.structs import array, create, destroy, struct

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

DISPATCH_BASE = 16  # VK_PIPELINE_CREATE_DISPATCH_BASE_BIT, which the package lacks


class VulkanProgram:
    """Bindings 0, 1, ... of set 0 are storage buffers; push constants start at byte 0."""

    __slots__ = (
        "_backend",
        "_constants",
        "_lock",
        "_shader",
        "_tiled",
        "layout",
        "module",
        "pipeline",
        "set_layout",
        "writes",
    )

    def __init__(self, backend: VulkanBackend, module: Module, constants: Sequence[int]) -> None:
        check_interface(module, constants, backend.info.limits, backend.features)
        self._backend = backend
        self.module = module
        self._constants = tuple(constants)
        self._lock = threading.RLock()
        self.writes = module.interface.writes
        null = api().ffi.NULL
        self._shader = self.set_layout = self.layout = self.pipeline = self._tiled = null
        try:
            self._create_layouts()
            self.pipeline = self._create_pipeline(0)
        except BaseException:
            self._release()
            raise
        backend.programs.add(self)

    def tiled(self) -> Any:
        """The pipeline that may begin at another workgroup than the first; few programs ever need it.

        Raises:
            OutOfMemoryError, DeviceLostError, PipelineError: it cannot be built.
        """
        with self._lock:  # streams of two threads may come to it at once
            if not self._tiled:
                self._tiled = self._create_pipeline(DISPATCH_BASE)
            return self._tiled

    def _create_layouts(self) -> None:
        vulkan, device = api(), self._backend.device
        interface, name = self.module.interface, self.module.name
        stage = vulkan.VK_SHADER_STAGE_COMPUTE_BIT
        bindings = [
            {
                "binding": binding.index,
                "descriptorType": vulkan.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                "descriptorCount": 1,
                "stageFlags": stage,
            }
            for binding in interface.bindings
        ]
        self.set_layout = create(
            "DescriptorSetLayout",
            device,
            f"the descriptor layout of {name}",
            bindingCount=len(bindings),
            pBindings=array("VkDescriptorSetLayoutBinding", bindings),
        )
        ranges = [{"stageFlags": stage, "size": interface.push_bytes}] if interface.push_bytes else []
        self.layout = create(
            "PipelineLayout",
            device,
            f"the pipeline layout of {name}",
            setLayoutCount=1,
            pSetLayouts=array("VkDescriptorSetLayout", [self.set_layout]),
            pushConstantRangeCount=len(ranges),
            pPushConstantRanges=array("VkPushConstantRange", ranges),
        )
        self._shader = create(
            "ShaderModule",
            device,
            f"the shader module {name}",
            codeSize=len(self.module.code),
            pCode=vulkan.ffi.from_buffer("uint32_t[]", self.module.code),
        )

    def _create_pipeline(self, flags: int) -> Any:
        vulkan, device = api(), self._backend.device
        count = len(self._constants)
        entries = [{"constantID": i, "offset": 4 * i, "size": 4} for i in range(count)]
        specialization = struct(
            "VkSpecializationInfo",
            mapEntryCount=count,
            pMapEntries=array("VkSpecializationMapEntry", entries),
            dataSize=4 * count,
            pData=array("uint32_t", self._constants),
        )
        info = struct(
            "VkComputePipelineCreateInfo",
            flags=flags,
            stage={
                "sType": vulkan.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                "stage": vulkan.VK_SHADER_STAGE_COMPUTE_BIT,
                "module": self._shader,
                "pName": array("char", b"main"),
                "pSpecializationInfo": specialization,
            },
            layout=self.layout,
            basePipelineIndex=-1,
        )
        pipeline = vulkan.ffi.new("VkPipeline*")
        assert self._backend.pipeline_cache is not None  # only while the device is being opened
        result = vulkan.lib.vkCreateComputePipelines(
            device, self._backend.pipeline_cache.handle, 1, info, vulkan.ffi.NULL, pipeline
        )
        check(result, f"building the pipeline of {self.module.name}", PipelineError)
        self._backend.name_object("PIPELINE", pipeline[0], self.module.name)
        return pipeline[0]

    def free(self) -> None:
        if self in self._backend.programs:
            self._backend.programs.discard(self)
            self._backend.forget(self)
            self._release()

    def _release(self) -> None:
        device = self._backend.device
        destroy("Pipeline", device, self._tiled)
        destroy("Pipeline", device, self.pipeline)
        destroy("PipelineLayout", device, self.layout)
        destroy("DescriptorSetLayout", device, self.set_layout)
        destroy("ShaderModule", device, self._shader)
