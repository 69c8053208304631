"""Every way in which this project runs SPIR-V, opened apart from the devices of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dl4all.runtime.backend import Backend
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.vulkan.backend import VulkanBackend
from tests.conformance.kernels import Kernels, write_shaders
from tests.conftest import DEVICES, need


def staging(index: int) -> VulkanBackend:
    """A device whose memory the host cannot see, as a discrete GPU's."""
    return VulkanBackend(index, zero_copy=False)


WAYS: dict[str, tuple[Callable[[int], Backend], str]] = {
    "vulkan": (VulkanBackend, "vulkan"),
    "vulkan-staging": (staging, "vulkan"),
    "kompute": (KomputeBackend, "kompute"),
}
# One case for each device that the tests were asked to use: vulkan:1 adds itself and vulkan-staging:1.
CASES = [
    pytest.param(
        (way, int(device.partition(":")[2])),
        id=f"{way}:{device.partition(':')[2]}",
        marks=pytest.mark.vulkan,
    )
    for way, (_, backend) in WAYS.items()
    for device in DEVICES
    if device.startswith(f"{backend}:")
]


@pytest.fixture(scope="session")
def shaders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shaders folder with the suite's kernels."""
    folder = tmp_path_factory.mktemp("shaders")
    write_shaders(folder)
    return folder


@pytest.fixture(scope="session", params=CASES)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A device, opened in each way."""
    way, index = request.param
    open_backend, name = WAYS[way]
    need(f"{name}:{index}")
    backend = open_backend(index)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def kernels(backend: Backend, shaders: Path) -> Kernels:
    """The suite's kernels on that device."""
    return Kernels(backend, shaders)


@pytest.fixture(autouse=True)
def freed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Free the buffers that a test made, when nothing runs any more."""
    yield
    if "backend" in request.fixturenames:
        backend: Any = request.getfixturevalue("backend")
        backend.stream.synchronize()
        for buffer in list(backend.buffers):
            buffer.free()
