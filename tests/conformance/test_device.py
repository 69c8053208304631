"""Devices as a whole: several at once, closing, and the errors that name them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError, UnknownDeviceError
from dl4all.runtime.backend import Backend
from dl4all.runtime.cpu.backend import CpuBackend
from dl4all.runtime.kompute import stream as kompute_stream
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.spirv import Shader, load
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.instance import check
from tests.conformance.conftest import WAYS
from tests.conformance.kernels import Kernels, get, poison, put
from tests.conftest import need


@pytest.fixture(params=list(WAYS))
def fresh(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A device that the test may close or break."""
    open_backend, name = WAYS[request.param]
    need(f"{name}:0")
    backend = open_backend(0)
    yield backend
    backend.close()


@pytest.mark.vulkan
def test_a_closed_device_says_so(fresh: Any, shaders: Path) -> None:
    kernels = Kernels(fresh, shaders)
    x, y = put(fresh, np.arange(64, dtype=np.uint32)), poison(fresh, 64)
    kernels.run("step", x, y, n=64, k=1)
    fresh.close()
    assert not fresh.buffers
    data = np.zeros(4, np.uint8)
    for use in (
        lambda: fresh.allocate(256),
        lambda: kernels.run("step", x, y, n=64, k=1),
        lambda: fresh.stream.upload(x, data),
        lambda: fresh.stream.download(x, data),
    ):
        with pytest.raises(DeviceError, match=r"is closed; what was on it is gone$"):
            use()
    fresh.close()
    x.free()  # what outlives its device does no harm


@pytest.mark.vulkan
def test_closing_releases_what_is_in_use(fresh: Any, shaders: Path) -> None:
    """The validation layer reports what is left; without it, this looks for crashes only."""
    kernels = Kernels(fresh, shaders)
    buffers = [poison(fresh, 4096) for _ in range(20)]
    for i in range(70):
        kernels.run("step", buffers[i % 20], buffers[(i + 1) % 20], n=4096, k=1)
    fresh.stream.upload(buffers[0], np.zeros(16, np.uint8))
    fresh.close()
    assert not fresh.buffers


@pytest.mark.vulkan
def test_devices_side_by_side(shaders: Path) -> None:
    """Commands of all backends in turn; none disturbs another."""
    opened: list[Any] = []
    try:
        for open_backend, name in (*WAYS.values(), *WAYS.values()):
            need(f"{name}:0")
            opened.append(open_backend(0))
        kernels = [Kernels(backend, shaders) for backend in opened]
        buffers = [put(backend, np.full(100, i, np.uint32)) for i, backend in enumerate(opened)]
        for _ in range(50):
            for i, buffer in enumerate(buffers):
                kernels[i].run("step_in_place", buffer, n=100, k=i)
        for i, backend in enumerate(opened):
            expected = i
            for _ in range(50):
                expected = (expected * 3 + i) % 2**32
            np.testing.assert_array_equal(get(backend, buffers[i], 100), np.full(100, expected))
            backend.close()  # while the others go on
    finally:
        for backend in opened:
            backend.close()


@pytest.mark.vulkan
@pytest.mark.parametrize("open_backend", [VulkanBackend, KomputeBackend])
def test_no_such_device(open_backend: type[VulkanBackend] | type[KomputeBackend]) -> None:
    name = "vulkan" if open_backend is VulkanBackend else "kompute"
    need(f"{name}:0")
    with pytest.raises(UnknownDeviceError, match=rf"^\[{name}\] no device 4711; there are \[0"):
        open_backend(4711)


@pytest.mark.vulkan
def test_kompute_counts_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kompute goes on with a null handle when the driver refuses, so it must not be asked."""
    need("kompute:0")
    backend = KomputeBackend(0)
    try:
        backend.info = dataclasses.replace(backend.info, memory=1 << 20)
        first = backend.allocate(600_000)
        with pytest.raises(OutOfMemoryError, match=r"600064 of 1048576 bytes are taken"):
            backend.allocate(600_000)
        first.free()
        assert backend.allocate(600_000).nbytes == 600_064
    finally:
        backend.close()


@pytest.mark.vulkan
def test_kompute_keeps_a_limited_number_of_recordings(shaders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("kompute:0")
    monkeypatch.setattr(kompute_stream, "KEPT", 3)
    backend = KomputeBackend(0)
    try:
        kernels = Kernels(backend, shaders)
        x, expected = put(backend, np.ones(64, np.uint32)), 1
        for i in range(40):
            kernels.run("step_in_place", x, n=64, k=i % 5)
            expected = (expected * 3 + i % 5) % 2**32
            assert len(backend.stream._recordings) <= 3
        assert len(x.recordings) == 3
        assert get(backend, x, 1)[0] == expected
        x.free()
        assert not backend.stream._recordings  # none may run on freed memory
    finally:
        backend.close()


@pytest.mark.vulkan
@pytest.mark.parametrize("zero_copy", [True, False])
def test_a_lost_device_can_be_closed(zero_copy: bool, shaders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    backend = VulkanBackend(0, zero_copy=zero_copy)
    kernels = Kernels(backend, shaders)
    x, y = put(backend, np.zeros(64, np.uint32)), poison(backend, 64)
    kernels.run("step", x, y, n=64, k=1)
    backend.stream.synchronize()
    kernels.run("step", y, x, n=64, k=1)  # being recorded

    def lost() -> None:
        check(-4, "waiting for the device")

    monkeypatch.setattr(backend.stream, "synchronize", lost)
    with pytest.raises(DeviceLostError):
        backend.stream.synchronize()
    backend.close()
    assert not backend.buffers
    assert not backend.programs


@pytest.mark.vulkan
@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (-1, OutOfMemoryError, r"^\[vulkan\] here: VK_ERROR_OUT_OF_HOST_MEMORY; free tensors"),
        (-2, OutOfMemoryError, r"^\[vulkan\] here: VK_ERROR_OUT_OF_DEVICE_MEMORY; free tensors"),
        (-4, DeviceLostError, r"^\[vulkan\] here: the driver gave the device up"),
        (-3, DeviceError, r"^\[vulkan\] here failed: VK_ERROR_INITIALIZATION_FAILED$"),
        (2, DeviceError, r"^\[vulkan\] here failed: VK_TIMEOUT$"),
        (-987654, DeviceError, r"^\[vulkan\] here failed: -987654$"),
    ],
)
def test_result_codes(code: int, error: type[DeviceError], message: str) -> None:
    need("vulkan:0")
    with pytest.raises(error, match=message) as caught:
        check(code, "here")
    assert type(caught.value) is error


def test_the_cpu_runs_no_shader(shaders: Path) -> None:
    backend = CpuBackend()
    with pytest.raises(DeviceError, match=r"^\[cpu\] the CPU runs no SPIR-V"):
        backend.program(load(Shader("step.comp"), shaders), ())
    with pytest.raises(DeviceError, match=r"^\[cpu\] the CPU runs no SPIR-V"):
        backend.stream.dispatch(None, [], (1, 1, 1), b"")


def test_cpu_memory() -> None:
    backend: Backend = CpuBackend()
    data = np.arange(7, dtype=np.uint8)
    buffer = put(backend, data)
    out = np.zeros(5, np.uint8)
    backend.stream.download(buffer, out)
    np.testing.assert_array_equal(out, data[:5])
    backend.close()
