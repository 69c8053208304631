"""Structures: their types, and that what they point to lives."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest

import dl4all.runtime.vulkan as package
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.structs import _structure_types, array, struct
from tests.conftest import need

pytestmark = pytest.mark.vulkan
USED = sorted(
    {
        name
        for file in Path(package.__path__[0]).glob("*.py")
        for name in re.findall(r'struct\(\s*"(\w+)"|Group\(\s*"(\w+)"', file.read_text())
        for name in name
        if name
    }
)


@pytest.mark.parametrize("name", USED)
def test_every_structure_has_the_type_that_its_name_says(name: str) -> None:
    need("vulkan:0")
    fields = dict(api().ffi.typeof(name).fields)
    assert ("sType" in fields) == (name.lower() in _structure_types())
    if "sType" in fields:
        assert struct(name).sType == _structure_types()[name.lower()]


def test_some_types_by_their_number() -> None:
    need("vulkan:0")
    assert struct("VkFenceCreateInfo").sType == 8
    assert struct("VkPhysicalDevice16BitStorageFeatures").sType == 1000083000
    assert struct("VkPhysicalDeviceShaderFloat16Int8Features").sType == 1000082000


def test_what_a_structure_points_to_lives_as_long_as_it_does() -> None:
    need("vulkan:0")
    made = struct(
        "VkSubmitInfo",
        pNext=struct("VkTimelineSemaphoreSubmitInfo", pSignalSemaphoreValues=array("uint64_t", [4711])),
    )
    gc.collect()
    [array("uint64_t", [i]) for i in range(1000)]  # would take the place of what was freed
    timeline = api().ffi.cast("VkTimelineSemaphoreSubmitInfo*", made.pNext)
    assert timeline.pSignalSemaphoreValues[0] == 4711
