"""Every way in which this project runs commands on a device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dl4all.runtime.cpu.backend import CpuBackend
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.null.backend import NullBackend
from dl4all.runtime.protocols import Backend
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.testing.conformance.targets import Way
from tests.conftest import DEVICES, need


def staging(index: int) -> VulkanBackend:
    """A device whose memory the host cannot see, as a discrete GPU's."""
    return VulkanBackend(index, zero_copy=False)


VULKAN: dict[str, tuple[Callable[[int], Backend], str]] = {
    "vulkan": (VulkanBackend, "vulkan"),
    "vulkan-staging": (staging, "vulkan"),
    "kompute": (KomputeBackend, "kompute"),
}


def _way(name: str, backend: str, index: int, open_backend: Callable[[int], Backend]) -> Way:
    """One that is skipped where the device is missing, or fails where DL4ALL_TEST_DEVICES names it."""

    def open_or_skip() -> Backend:
        need(f"{backend}:{index}")
        return open_backend(index)

    return Way(f"{name}:{index}", open_or_skip, (pytest.mark.vulkan,))


# One for each device that the tests were asked to use: vulkan:1 adds itself and vulkan-staging:1.
OWN = [
    Way("cpu", CpuBackend),
    Way("null", NullBackend),
    *(
        _way(name, backend, int(device.partition(":")[2]), open_backend)
        for name, (open_backend, backend) in VULKAN.items()
        for device in DEVICES
        if device.startswith(f"{backend}:")
    ),
]
