"""A compute pipeline with the layouts it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dl4all.runtime.backend import check_interface
from dl4all.runtime.spirv import Module
from dl4all.runtime.vulkan.instance import api, check

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend


class VulkanProgram:
    """Bindings 0, 1, ... of set 0 are storage buffers; push constants start at byte 0."""

    __slots__ = ("_backend", "_shader", "layout", "module", "pipeline", "set_layout", "writes")

    def __init__(self, backend: VulkanBackend, module: Module, constants: Sequence[int]) -> None:
        check_interface(module, constants, backend.info.limits, backend.features)
        self._backend = backend
        self.module = module
        self.writes = tuple(not binding.readonly for binding in module.interface.bindings)
        ffi = api().ffi
        self._shader = self.set_layout = self.layout = self.pipeline = ffi.NULL
        try:
            self._create_layouts()
            self._create_pipeline(constants)
        except BaseException:
            self.free()
            raise
        backend.programs.add(self)

    def _create_layouts(self) -> None:
        vulkan = api()
        ffi, lib, device = vulkan.ffi, vulkan.lib, self._backend.device
        interface = self.module.interface
        bindings = ffi.new(
            "VkDescriptorSetLayoutBinding[]",
            [
                {
                    "binding": binding.index,
                    "descriptorType": vulkan.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                    "descriptorCount": 1,
                    "stageFlags": vulkan.VK_SHADER_STAGE_COMPUTE_BIT,
                }
                for binding in interface.bindings
            ],
        )
        create_set = ffi.new(
            "VkDescriptorSetLayoutCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                "bindingCount": len(interface.bindings),
                "pBindings": bindings,
            },
        )
        set_layout = ffi.new("VkDescriptorSetLayout*")
        check(
            lib.vkCreateDescriptorSetLayout(device, create_set, ffi.NULL, set_layout),
            f"descriptor layout of {self.module.name}",
        )
        self.set_layout = set_layout[0]
        push = ffi.new(
            "VkPushConstantRange*",
            {"stageFlags": vulkan.VK_SHADER_STAGE_COMPUTE_BIT, "size": interface.push_bytes},
        )
        create_layout = ffi.new(
            "VkPipelineLayoutCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                "setLayoutCount": 1,
                "pSetLayouts": set_layout,
                "pushConstantRangeCount": int(interface.push_bytes > 0),
                "pPushConstantRanges": push,
            },
        )
        layout = ffi.new("VkPipelineLayout*")
        check(
            lib.vkCreatePipelineLayout(device, create_layout, ffi.NULL, layout),
            f"pipeline layout of {self.module.name}",
        )
        self.layout = layout[0]

    def _create_pipeline(self, constants: Sequence[int]) -> None:
        vulkan = api()
        ffi, lib, device = vulkan.ffi, vulkan.lib, self._backend.device
        code = ffi.from_buffer("uint32_t[]", self.module.code)
        create_shader = ffi.new(
            "VkShaderModuleCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                "codeSize": len(self.module.code),
                "pCode": code,
            },
        )
        shader = ffi.new("VkShaderModule*")
        check(
            lib.vkCreateShaderModule(device, create_shader, ffi.NULL, shader),
            f"shader module {self.module.name}",
        )
        self._shader = shader[0]
        entries = ffi.new(
            "VkSpecializationMapEntry[]",
            [{"constantID": i, "offset": 4 * i, "size": 4} for i in range(len(constants))],
        )
        values = ffi.new("uint32_t[]", list(constants))
        specialization = ffi.new(
            "VkSpecializationInfo*",
            {
                "mapEntryCount": len(constants),
                "pMapEntries": entries,
                "dataSize": 4 * len(constants),
                "pData": values,
            },
        )
        entry = ffi.new("char[]", b"main")
        create = ffi.new(
            "VkComputePipelineCreateInfo*",
            {
                "sType": vulkan.VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                "stage": {
                    "sType": vulkan.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                    "stage": vulkan.VK_SHADER_STAGE_COMPUTE_BIT,
                    "module": self._shader,
                    "pName": entry,
                    "pSpecializationInfo": specialization,
                },
                "layout": self.layout,
                "basePipelineIndex": -1,
            },
        )
        pipeline = ffi.new("VkPipeline*")
        check(
            lib.vkCreateComputePipelines(device, self._backend.pipeline_cache, 1, create, ffi.NULL, pipeline),
            f"pipeline of {self.module.name}",
        )
        self.pipeline = pipeline[0]

    def free(self) -> None:
        vulkan = api()
        ffi, lib, device = vulkan.ffi, vulkan.lib, self._backend.device
        lib.vkDestroyPipeline(device, self.pipeline, ffi.NULL)
        lib.vkDestroyPipelineLayout(device, self.layout, ffi.NULL)
        lib.vkDestroyDescriptorSetLayout(device, self.set_layout, ffi.NULL)
        lib.vkDestroyShaderModule(device, self._shader, ffi.NULL)
        self._shader = self.set_layout = self.layout = self.pipeline = ffi.NULL
        self._backend.programs.discard(self)
