"""A driver's compiler: builds a compute pipeline and asks what became of it.

It asks by VK_KHR_pipeline_executable_properties, and takes a device that has no memory, such as RADV's null
hardware, on which nothing can run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

from dl4all.runtime.vulkan import features
from dl4all.runtime.vulkan.discovery import PhysicalDevice
from dl4all.runtime.vulkan.instance import api, check
from dl4all.runtime.vulkan.structs import array, create, destroy, struct
from lab.kernel_figures.pipelines import Pipeline

EXTENSION = "VK_KHR_pipeline_executable_properties"
CAPTURE_STATISTICS, CAPTURE_TEXTS = 0x40, 0x80  # of VkPipelineCreateFlagBits

Statistics: TypeAlias = dict[str, int | float | bool]


class Compiler:
    """A device that compiles and does nothing else; features as dl4all enables them."""

    def __init__(self, physical: PhysicalDevice) -> None:
        if EXTENSION not in physical.extensions:
            raise LookupError(f"{physical.info.driver} {physical.info.driver_version} has no {EXTENSION}")
        vulkan = api()
        enabled = features.supported(physical.handle, physical.api_version, physical.extensions)
        request = features.request(enabled, physical.api_version)
        chain = struct(
            "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
            pNext=request.chain,
            pipelineExecutableInfo=1,
        )
        names = [vulkan.ffi.new("char[]", name.encode()) for name in (*request.extensions, EXTENSION)]
        queue = struct(
            "VkDeviceQueueCreateInfo",
            queueFamilyIndex=physical.queue_family,
            queueCount=1,
            pQueuePriorities=array("float", [1.0]),
        )
        info = struct(
            "VkDeviceCreateInfo",
            pNext=chain,
            pEnabledFeatures=request.core,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queue,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=array("char*", names),
        )
        device = vulkan.ffi.new("VkDevice*")
        check(
            vulkan.lib.vkCreateDevice(physical.handle, info, vulkan.ffi.NULL, device), "opening the compiler"
        )
        self.device = device[0]
        self.features = enabled

    def compile(self, pipeline: Pipeline, *, texts: bool) -> tuple[Statistics, dict[str, str]]:
        """What the driver says of a pipeline, and with `texts` its code in the compiler's languages.

        Raises:
            DeviceError: it does not compile.
        """
        with self._built(pipeline, CAPTURE_STATISTICS | (CAPTURE_TEXTS if texts else 0)) as handle:
            return self._statistics(handle), self._texts(handle) if texts else {}

    @contextlib.contextmanager
    def _built(self, pipeline: Pipeline, flags: int) -> Iterator[Any]:
        vulkan, device = api(), self.device
        module, interface = pipeline.module, pipeline.module.interface
        stage = vulkan.VK_SHADER_STAGE_COMPUTE_BIT
        kind = vulkan.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        bindings = [
            {"binding": b.index, "descriptorType": kind, "descriptorCount": 1, "stageFlags": stage}
            for b in interface.bindings
        ]
        pushed = interface.push_bytes
        ranges = [{"stageFlags": stage, "size": pushed}] if pushed else []
        count = len(pipeline.constants)
        entries = [{"constantID": i, "offset": 4 * i, "size": 4} for i in range(count)]
        specialization = struct(
            "VkSpecializationInfo",
            mapEntryCount=count,
            pMapEntries=array("VkSpecializationMapEntry", entries),
            dataSize=4 * count,
            pData=array("uint32_t", pipeline.constants),
        )
        with contextlib.ExitStack() as made:

            def new(kind: str, **fields: Any) -> Any:
                handle = create(kind, device, f"{pipeline.name}'s {kind}", **fields)
                made.callback(destroy, kind, device, handle)
                return handle

            code = vulkan.ffi.from_buffer("uint32_t[]", module.code)
            shader = new("ShaderModule", codeSize=len(module.code), pCode=code)
            set_layout = new(
                "DescriptorSetLayout",
                bindingCount=len(bindings),
                pBindings=array("VkDescriptorSetLayoutBinding", bindings),
            )
            layout = new(
                "PipelineLayout",
                setLayoutCount=1,
                pSetLayouts=array("VkDescriptorSetLayout", [set_layout]),
                pushConstantRangeCount=len(ranges),
                pPushConstantRanges=array("VkPushConstantRange", ranges),
            )
            main = {
                "sType": vulkan.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                "stage": stage,
                "module": shader,
                "pName": array("char", b"main"),
                "pSpecializationInfo": specialization,
            }
            info = struct(
                "VkComputePipelineCreateInfo", flags=flags, stage=main, layout=layout, basePipelineIndex=-1
            )
            built = vulkan.ffi.new("VkPipeline*")
            null = vulkan.ffi.NULL
            check(vulkan.lib.vkCreateComputePipelines(device, null, 1, info, null, built), pipeline.name)
            made.callback(destroy, "Pipeline", device, built[0])
            yield built[0]

    def _statistics(self, handle: Any) -> Statistics:
        text = api().ffi.string
        found: Statistics = {}
        which = struct("VkPipelineExecutableInfoKHR", pipeline=handle, executableIndex=0)
        for one in self._list("VkPipelineExecutableStatisticKHR", "Statistics", which):
            value = one.value
            found[text(one.name).decode()] = (bool(value.b32), value.i64, value.u64, value.f64)[one.format]
        of = struct("VkPipelineInfoKHR", pipeline=handle)
        for one in self._list("VkPipelineExecutablePropertiesKHR", "Properties", of):
            found.setdefault("subgroup", one.subgroupSize)
        return found

    def _texts(self, handle: Any) -> dict[str, str]:
        ffi = api().ffi
        which = struct("VkPipelineExecutableInfoKHR", pipeline=handle, executableIndex=0)
        call, kind = "InternalRepresentations", "VkPipelineExecutableInternalRepresentationKHR"
        listed = self._list(kind, call, which)
        rooms = [ffi.new("char[]", max(1, one.dataSize)) for one in listed]
        for one, room in zip(listed, rooms, strict=True):
            one.pData = room
        count = ffi.new("uint32_t*", len(listed))
        check(self._function(call)(self.device, which, count, listed), "reading a pipeline's code")
        return {ffi.string(one.name).decode(): ffi.string(room).decode(errors="replace")
                for one, room in zip(listed, rooms, strict=True)}  # fmt: skip

    def _list(self, kind: str, call: str, of: Any) -> Any:
        """What one of the extension's functions lists, which is asked first how many there are."""
        ffi, function = api().ffi, self._function(call)
        count = ffi.new("uint32_t*")
        check(function(self.device, of, count, ffi.NULL), f"counting a pipeline's {call}")
        listed = array(kind, [{"sType": struct(kind).sType}] * count[0])
        check(function(self.device, of, count, listed), f"listing a pipeline's {call}")
        return listed

    def _function(self, call: str) -> Any:
        vulkan = api()
        name = f"vkGetPipelineExecutable{call}KHR"
        return vulkan.ffi.cast(f"PFN_{name}", vulkan.lib.vkGetDeviceProcAddr(self.device, name.encode()))
