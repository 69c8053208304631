"""A compute pipeline with the layouts it needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dl4all.errors import PipelineError
from dl4all.runtime.protocols import Span
from dl4all.runtime.requirements import check_interface
from dl4all.runtime.spirv import SpirvModule
from dl4all.runtime.spirv.texel_buffers import Descriptor, read_as_texels
from dl4all.runtime.vulkan.buffer import TAIL
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.structs import array, create, destroy, struct

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.backend import VulkanBackend

DISPATCH_BASE = 16  # VK_PIPELINE_CREATE_DISPATCH_BASE_BIT, which the package lacks


class BoundDescriptor(NamedTuple):
    """A descriptor of a program, in Vulkan's numbers."""

    binding: int
    span: int
    type: int
    format: int  # of texels
    texel: int  # bytes of one, 1 without a format


class VulkanProgram:
    """Bindings 0, 1, ... of set 0 are buffers; push constants start at byte 0.

    With ``texels`` they are texel buffers where the shader only reads them; see ``fitting``.
    """

    __slots__ = (
        "_backend",
        "_code",
        "_constants",
        "_fits",
        "_lock",
        "_shader",
        "_tiled",
        "_with_storage",
        "bound",
        "largest_span",
        "layout",
        "module",
        "pipeline",
        "set_layout",
        "writes",
    )

    def __init__(
        self, backend: VulkanBackend, module: SpirvModule, constants: Sequence[int], *, texels: bool = False
    ) -> None:
        check_interface(module, constants, backend.info.limits, backend.features)
        self._backend = backend
        self.module = module
        self._constants = tuple(constants)
        self._lock = threading.RLock()
        self.writes = module.interface.writes
        self._with_storage: VulkanProgram | None = None
        rewritten = read_as_texels(module.code, module.interface) if texels else None
        self._code, descriptors = rewritten or (module.code, _storage_buffers(module))
        self.bound = tuple(map(_bound, descriptors))
        self.largest_span = backend.info.limits.storage_buffer_range
        most = backend.info.limits.texel_elements
        self._fits = tuple(
            (d.span, d.format.nbytes, most * d.format.nbytes - TAIL) for d in descriptors if d.format
        )
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

    def fitting(self, spans: Sequence[Span]) -> VulkanProgram:
        """This program, or its twin without texel buffers where a span is less than a texel, or too large.

        Raises:
            OutOfMemoryError, DeviceLostError, PipelineError: that cannot be built.
        """
        for span, least, most in self._fits:
            if not least <= spans[span].nbytes <= most:
                break
        else:
            return self
        with self._lock:
            if self._with_storage is None:
                self._with_storage = VulkanProgram(self._backend, self.module, self._constants)
            return self._with_storage

    def _create_layouts(self) -> None:
        vulkan, device = api(), self._backend.device
        interface, name = self.module.interface, self.module.name
        stage = vulkan.VK_SHADER_STAGE_COMPUTE_BIT
        bindings = [
            {
                "binding": bound.binding,
                "descriptorType": bound.type,
                "descriptorCount": 1,
                "stageFlags": stage,
            }
            for bound in self.bound
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
            codeSize=len(self._code),
            pCode=vulkan.ffi.from_buffer("uint32_t[]", self._code),
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
            if self._with_storage is not None:
                self._with_storage.free()
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


def _storage_buffers(module: SpirvModule) -> tuple[Descriptor, ...]:
    return tuple(Descriptor(binding.index, binding.index, None) for binding in module.interface.bindings)


def _bound(descriptor: Descriptor) -> BoundDescriptor:
    vulkan, (binding, span, texels) = api(), descriptor
    if texels is None:
        return BoundDescriptor(binding, span, vulkan.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 0, 1)
    channels = {1: "R32", 2: "R32G32", 4: "R32G32B32A32"}[texels.components]
    kind = {"float": "SFLOAT", "uint": "UINT", "int": "SINT"}[texels.kind]
    format = getattr(vulkan, f"VK_FORMAT_{channels}_{kind}")
    return BoundDescriptor(
        binding, span, vulkan.VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, format, texels.nbytes
    )
