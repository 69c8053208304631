"""What the conformance suite cannot ask of any backend: this project's own, side by side and in trouble."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError, ShaderError, UnknownDeviceError
from dl4all.runtime.device_info import Limits
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.runtime.protocols import Backend
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.instance import check
from dl4all.runtime.vulkan.timestamps import Ticks
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import Kernels, step, words, write_shaders
from tests.conformance.targets import VULKAN
from tests.conftest import need

N = 100


@pytest.fixture
def shaders(tmp_path: Path) -> Path:
    """A shaders folder with the suite's kernels."""
    write_shaders(tmp_path)
    return tmp_path


@pytest.fixture
def vulkan(shaders: Path) -> Iterator[Any]:
    """A device of its own."""
    need("vulkan:0")
    backend = VulkanBackend(0)
    yield Bench(backend, Kernels(backend, shaders))
    backend.close()


@pytest.mark.vulkan
def test_devices_side_by_side(shaders: Path) -> None:
    """Commands of all backends in turn, each twice; none disturbs another."""
    opened: list[Backend] = []
    try:
        for open_backend, name in (*VULKAN.values(), *VULKAN.values()):
            need(f"{name}:0")
            opened.append(open_backend(0))
        benches = [Bench(backend, Kernels(backend, shaders)) for backend in opened]
        buffers = [bench.put(words(i, N)) for i, bench in enumerate(benches)]
        for _ in range(50):
            for i, bench in enumerate(benches):
                bench.run("step_in_place", buffers[i], n=N, k=i)
        for i, bench in enumerate(benches):
            expected = words(i, N)
            for _ in range(50):
                expected = step(expected, i)
            bench.expect(buffers[i], expected)
            bench.backend.close()  # while the others go on
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
@pytest.mark.parametrize("zero_copy", [True, False])
def test_a_lost_device_can_be_closed(zero_copy: bool, shaders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    backend = VulkanBackend(0, zero_copy=zero_copy)
    bench = Bench(backend, Kernels(backend, shaders))
    x, y = bench.put(words(1, N)), bench.poison(N)
    bench.run("step", x, y, n=N, k=1)
    backend.stream.synchronize()
    bench.run("step", y, x, n=N, k=1)  # being recorded

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


@pytest.mark.vulkan
def test_a_device_without_timestamps_is_timed_by_the_host(
    vulkan: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan.stream, "_ticks", Ticks(0, 0.0))
    x, y = vulkan.put(words(1, N)), vulkan.poison(N)
    told: list[tuple[float, float, str]] = []
    for pair in ((x, y), (y, x)):
        vulkan.run("step", *pair, n=N, k=1, ran=lambda *times: told.append(times))
    assert [clock for *_, clock in told] == ["host", "host"]
    assert told[0][0] < told[0][1] < told[1][0] < told[1][1]
    vulkan.expect(x, step(step(words(1, N), 1), 1))


@pytest.mark.parametrize("name", ["null", *VULKAN])
def test_too_many_push_constants(name: str, shaders: Path) -> None:
    """No device of Vulkan allows fewer than 128 bytes, so one is made up."""
    info = dataclasses.replace(describe(), limits=dataclasses.replace(Limits(), push_constants=124))
    if name == "null":
        backend: Any = NullBackend(info)
    else:
        need(f"{VULKAN[name][1]}:0")
        backend = VULKAN[name][0](0)
        backend.info = dataclasses.replace(backend.info, limits=info.limits)
    try:
        kernels = Kernels(backend, shaders)
        with pytest.raises(ShaderError, match=r"takes 128 bytes of push constants, the device allows 124$"):
            backend.program(kernels.module("push"), ())
        assert kernels.program("step").module.interface.push_bytes == 8
    finally:
        backend.close()
