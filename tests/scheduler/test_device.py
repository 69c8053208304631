"""Devices as tensors see them: memory, launches, and use from several threads."""

from __future__ import annotations

import dataclasses
import gc
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShaderError, UnknownDeviceError
from dl4all.runtime import spirv
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device import current as scheduler
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.current import synchronize
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.testing.conformance.support.kernels import write_shaders
from tests.conftest import need

STEP = Shader("step.comp")
N = 1000


@pytest.fixture(autouse=True)
def shaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches find the conformance suite's kernels."""
    write_shaders(tmp_path)
    load = spirv.load
    monkeypatch.setattr(spirv, "load", lambda shader: load(shader, tmp_path))


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")])
def gpu(request: pytest.FixtureRequest) -> Device:
    """A device that runs shaders, made anew: its programs and its pool are the test's own."""
    need(request.param)
    return Device.of_backend(request.param, open_device(request.param)._backend)


def download(place: Device, storage: Any, count: int = N) -> npt.NDArray[np.uint32]:
    out = np.full(count, 0xDEADBEEF, np.uint32)
    place.download(storage, out)
    return out


def step(n: int = N, k: int = 1, groups: tuple[int, int, int] | None = None) -> Launch:
    return Launch(STEP, groups or (-(-n // 64), 1, 1), struct.pack("<II", n, k))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(7, dtype=np.uint8),
        np.arange(1001, dtype=np.float32),
        np.arange(24).reshape(2, 3, 4),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(24)[::-2],
        np.broadcast_to(np.float64(3.5), (4, 5)),
        np.array(2.5, np.float16),
        np.array([True, False]),
        np.empty((0,), np.float32),
        np.empty((3, 0, 2), np.float32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}{array.strides}",
)
def test_arrays_come_back(device: str, array: npt.NDArray[Any]) -> None:
    place = open_device(device)
    storage = place.upload(array)
    assert storage.nbytes == array.nbytes
    out = np.ones(array.shape, array.dtype)
    place.download(storage, out)
    np.testing.assert_array_equal(out, array)


def test_an_uploaded_array_may_change_at_once(device: str) -> None:
    place = open_device(device)
    array = np.arange(N, dtype=np.uint32)
    storages = []
    for i in range(50):
        array[:] = i
        storages.append(place.upload(array))
    for i, storage in enumerate(storages):
        np.testing.assert_array_equal(download(place, storage), np.full(N, i))


def test_new_memory_is_poisoned_in_tests(device: str) -> None:
    """Or the tests of ops could pass on zeros that the system happened to hand out."""
    place = open_device(device)
    storage = place.allocate(4 * N)
    np.testing.assert_array_equal(download(place, storage), np.full(N, 0xFFFFFFFF))
    del storage
    np.testing.assert_array_equal(download(place, place.allocate(4 * N)), np.full(N, 0xFFFFFFFF))


def test_adopted_memory_is_the_arrays_own() -> None:
    place = open_device("cpu")
    array = np.arange(5, dtype=np.uint32)
    storage = place.memory.adopt(array)
    array[2] = 77
    assert download(place, storage, 5).tolist() == [0, 1, 77, 3, 4]


def test_launches_are_in_order(gpu: Device) -> None:
    x = gpu.upload(np.ones(N, np.uint32))
    expected = np.ones(N, np.uint32)
    for k in range(100):
        y = gpu.allocate(4 * N)
        gpu.launch(step(k=k), x, y)
        x = y  # the old one goes back to the pool while the launch may be pending
        expected = expected * np.uint32(3) + np.uint32(k)
    np.testing.assert_array_equal(download(gpu, x), expected)


@pytest.mark.parametrize("groups", [(0, 1, 1), (1, 0, 1), (16, 1, 0)])
def test_no_workgroups_is_no_work(gpu: Device, groups: tuple[int, int, int]) -> None:
    x, y = gpu.upload(np.ones(N, np.uint32)), gpu.allocate(4 * N)
    gpu.launch(step(groups=groups), x, y)
    np.testing.assert_array_equal(download(gpu, y), np.full(N, 0xFFFFFFFF))


def test_a_launch_that_does_not_fit_its_shader(gpu: Device) -> None:
    x = gpu.allocate(4 * N)
    message = r"^\[step.comp\] expects 2 buffers and 8 bytes of push constants, got "
    for launch, storages, got in (
        (step(), (x,), "1 and 8"),
        (step(), (x, x, x), "3 and 8"),
        (step(), (), "0 and 8"),
        (Launch(STEP, (1, 1, 1), b""), (x, x), "2 and 0"),
        (Launch(STEP, (1, 1, 1), bytes(12)), (x, x), "2 and 12"),
    ):
        with pytest.raises(ShaderError, match=f"{message}{got}$"):
            gpu.launch(launch, *storages)


def test_a_launch_that_is_too_large(gpu: Device) -> None:
    x, y = gpu.allocate(4 * N), gpu.allocate(4 * N + 4)
    limits = gpu.info.limits
    most = tuple(limits.workgroup_count)
    with pytest.raises(ArgumentError, match=rf"^\[step.comp\] \(1, {most[1] + 1}, 1\) workgroups are more"):
        gpu.launch(step(groups=(1, most[1] + 1, 1)), x, y)
    gpu.info = dataclasses.replace(gpu.info, limits=dataclasses.replace(limits, storage_buffer_range=4 * N))
    gpu.launch(step(), x, x)
    with pytest.raises(ArgumentError, match=rf"an operand of {4 * N + 4} bytes is more than {gpu.name} can"):
        gpu.launch(step(), x, y)


def test_programs_are_built_once(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[int, ...]] = []
    real = gpu._backend.program

    def count(module: spirv.SpirvModule, values: tuple[int, ...]) -> Any:
        built.append(values)
        return real(module, values)

    monkeypatch.setattr(gpu._backend, "program", count)
    y = gpu.allocate(64)
    constants = Shader("constants.comp")
    for values in ((4, 2), (4, 2), (8, 1), (4, 2)):
        gpu.launch(Launch(constants, (1, 1, 1), b"", values), y)
        assert download(gpu, y, 2).tolist() == list(values)
    assert built == [(4, 2), (8, 1)]


def test_memory_comes_back_to_the_pool(gpu: Device) -> None:
    before = gpu.pool.stats.allocated
    storages = [gpu.allocate(5000) for _ in range(4)]
    assert gpu.pool.stats.allocated > before
    ring: list[Any] = [storages.pop()]
    ring.append(ring)  # reached by the garbage collector only
    del ring
    storages.clear()
    gc.collect()
    assert gpu.pool.stats.allocated == before
    assert gpu.pool.trim() > 0


def test_trimming_with_work_pending(gpu: Device) -> None:
    x, y = gpu.upload(np.ones(N, np.uint32)), gpu.allocate(4 * N)
    for _ in range(40):
        gpu.launch(step(), x, gpu.allocate(8 << 20))
    gpu.launch(step(k=5), x, y)
    assert gpu.pool.trim() > 0
    np.testing.assert_array_equal(download(gpu, y), np.full(N, 8))


def test_names_and_devices() -> None:
    cpu = open_device("cpu")
    assert open_device("cpu:0") is cpu
    assert open_device(cpu) is cpu
    assert str(cpu) == "cpu"
    assert repr(cpu) == "device('cpu')"
    with pytest.raises(UnknownDeviceError):
        open_device("cuda")


def test_synchronize_waits_for_one_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(Device, "synchronize", lambda self: waited.append(self.name))
    monkeypatch.setattr(
        scheduler, "_devices", {n: Device.of_backend(n, open_device("cpu")._backend) for n in "ab"}
    )
    synchronize()
    assert waited == ["a", "b"]
    synchronize("cpu")
    assert waited == ["a", "b", "cpu"]


def test_threads_share_a_device(gpu: Device) -> None:
    """Each has a chain of its own; memory goes round among them by the pool."""

    def work(number: int) -> None:
        for round_ in range(4):
            x = gpu.upload(np.full(N, number, np.uint32))
            expected = number
            for k in range(30):
                y = gpu.allocate(4 * N)
                gpu.launch(step(k=k), x, y)
                x, expected = y, (expected * 3 + k) % 2**32
            np.testing.assert_array_equal(download(gpu, x), np.full(N, expected))
            if round_ == number % 4:
                gpu.pool.trim()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))
    assert gpu.pool.stats.allocated == 0


def test_threads_open_one_device() -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(open_device, ["cpu"] * 8))
    assert len(set(map(id, found))) == 1


@pytest.mark.vulkan
def test_a_network_that_moves_lies_side_by_side() -> None:
    """In one buffer, but for what is small enough for slabs."""
    need("vulkan:0")
    place = Device.of_backend("vulkan:0", open_device("vulkan:0")._backend)
    net = dl.nn.Sequential(*(dl.nn.Linear(300 + 50 * i, 350 + 50 * i) for i in range(6)))
    net.to(place)
    large = [p for p in net.parameters() if p.numel() > 1024]
    assert len(large) == 6
    assert len({id(p.storage.buffer) for p in large}) == 1
    assert dl.memory.stats(place).reserved <= 1.1 * dl.memory.stats(place).allocated
