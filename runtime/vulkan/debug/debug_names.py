"""Names of objects and regions of commands, for tools that show them (``VK_EXT_debug_utils``).

RenderDoc, Radeon GPU Profiler, Nsight and the validation layers show pipelines, buffers and queues under
these names, and the commands of a command buffer as a tree: the user's regions, ops, dispatches. Whether
anybody looks is for :mod:`dl4all.runtime.vulkan.debug.debug_tools` to say; where nobody does, none of this is
made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dl4all.runtime import op_regions
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.op_regions import Region
from dl4all.runtime.protocols import Copy, Fill, Grid
from dl4all.runtime.vulkan.commands import CommandWriter
from dl4all.runtime.vulkan.debug.debug_tools import function
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.structs import array, struct

if TYPE_CHECKING:
    from dl4all.runtime.vulkan.program import VulkanProgram


class DebugNames:
    """The extension's functions, for one device, and the names of its pipelines."""

    def __init__(self, made: Any, device: Any) -> None:
        self._device = device
        self._set_name = function(api(), made, "vkSetDebugUtilsObjectNameEXT")
        self.begin_label = function(api(), made, "vkCmdBeginDebugUtilsLabelEXT")
        self.end_label = function(api(), made, "vkCmdEndDebugUtilsLabelEXT")
        self._pipelines: dict[int, str] = {}

    @property
    def there(self) -> bool:
        """Whether the instance has the extension."""
        return all((self._set_name, self.begin_label, self.end_label))

    def give(self, kind: str, handle: Any, name: str) -> None:
        """Name an object of a kind of VkObjectType, such as ``BUFFER``."""
        vulkan = api()
        number = int(vulkan.ffi.cast("uintptr_t", handle))
        if kind == "PIPELINE":
            self._pipelines[number] = name
        info = struct(
            "VkDebugUtilsObjectNameInfoEXT",
            objectType=getattr(vulkan, f"VK_OBJECT_TYPE_{kind}"),
            objectHandle=number,
            pObjectName=_text(name),
        )
        self._set_name(self._device, info)

    def of_pipeline(self, handle: Any) -> str:
        return self._pipelines.get(int(api().ffi.cast("uintptr_t", handle)), "a pipeline")


def named(made: Any, device: Any, info: DeviceInfo, queues: list[Any]) -> DebugNames | None:
    """The names of a device's objects, its own among them; None where the instance does not have them."""
    names = DebugNames(made, device)
    if not names.there:
        return None
    names.give("DEVICE", device, f"dl4all vulkan:{info.index}")
    for number, queue in enumerate(queues):
        names.give("QUEUE", queue, f"dl4all vulkan:{info.index}, queue {number}")
    op_regions.watched = True
    return names


class LabellingWriter(CommandWriter):
    """Writes commands into regions of the ops that give them, each command in one of its own.

    Regions are closed at the end of a command buffer, and opened again in the next.
    """

    repeats = False

    def __init__(self, device: Any, begin_flags: int, names: DebugNames) -> None:
        super().__init__(device, begin_flags)
        self._names = names
        self._open: tuple[Region, ...] = ()
        self._pipeline = ""

    def begin(self, buffer: Any) -> None:
        self._open = ()
        super().begin(buffer)

    def end(self) -> None:
        self._enter(())
        super().end()

    def last_barrier(self) -> None:
        self._enter(())
        super().last_barrier()

    def bind(self, pipeline: Any, layout: Any, descriptors: Any, push: bytes) -> None:
        self._pipeline = self._names.of_pipeline(pipeline)
        super().bind(pipeline, layout, descriptors, push)

    def dispatch(self, groups: Grid) -> None:
        with self._label(f"{self._pipeline} {groups}"):
            super().dispatch(groups)

    def dispatch_part(
        self, program: VulkanProgram, descriptors: Any, push: bytes, first: Grid, groups: Grid
    ) -> None:
        if first == (0, 0, 0):
            super().dispatch_part(program, descriptors, push, first, groups)
            return
        with self._label(f"{program.module.name} {groups} from {first} on"):
            super().dispatch_part(program, descriptors, push, first, groups)

    def copy(self, command: Copy) -> None:
        with self._label(f"copy {command.source.nbytes} bytes"):
            super().copy(command)

    def fill(self, command: Fill) -> None:
        with self._label(f"fill {command.target.nbytes} bytes"):
            super().fill(command)

    @contextlib.contextmanager
    def _label(self, name: str) -> Iterator[None]:
        self._enter(op_regions.path())
        self._begin_label(name)
        try:
            yield
        finally:
            self._names.end_label(self.buffer)

    def _begin_label(self, name: str) -> None:
        self._names.begin_label(self.buffer, struct("VkDebugUtilsLabelEXT", pLabelName=_text(name)))

    def _enter(self, path: tuple[Region, ...]) -> None:
        """Close regions that the thread has left, and open those that it has entered since."""
        while self._open != path[: len(self._open)]:
            # What is noted before the call is lost at an interrupt between them: a label that nothing ends,
            # which is allowed, where one that ends twice is not.
            self._open = self._open[:-1]
            self._names.end_label(self.buffer)
        for region in path[len(self._open) :]:
            self._begin_label(region.name)
            self._open = (*self._open, region)


def _text(name: str) -> Any:
    return array("char", name.encode(errors="replace"))
