"""Canaries, staging, pinned and shared memory, and arenas, on devices."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from dl4all.allocator.planner import Lifetime
from dl4all.allocator.staging import CHUNK
from dl4all.errors import DeviceError, ShaderError
from dl4all.ops.elementwise.arithmetic import neg
from dl4all.runtime import spirv
from dl4all.runtime.spirv import Shader
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.scheduler.device.programs import Launch
from tests.conftest import need

BEYOND = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer X { float x[]; };
layout(push_constant) uniform Push { uint n; } p;
void main() { if (gl_GlobalInvocationID.x < p.n) x[gl_GlobalInvocationID.x] = 1.0; }
"""
GPUS = [pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")]


@pytest.fixture(autouse=True)
def poisoned() -> None:
    """Instead of the one that fills memory: buffers and guards are looked at here."""


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


@pytest.fixture
def staging() -> Iterator[dl.Device]:
    """A Vulkan device whose memory the host does not see."""
    need("vulkan:0")
    backend = VulkanBackend(0, zero_copy=False)
    yield dl.Device.of_backend("vulkan-staging:0", backend)
    gc.collect()
    backend.close()


# Canaries


@pytest.mark.parametrize("elements", [1, 3, 64, 1000])
def test_a_shader_that_writes_too_far_is_caught_and_named(
    gpu: str, elements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beyond.comp").write_text(BEYOND)
    load = spirv.load
    monkeypatch.setattr(spirv, "load", lambda shader: load(shader, tmp_path))
    monkeypatch.setenv("DL4ALL_MEMORY_DEBUG", "1")
    place = dl.Device.of_backend(gpu, dl.device(gpu)._backend)

    def fill(count: int) -> None:
        launch = Launch(Shader("beyond.comp"), (-(-count // 64), 1, 1), struct.pack("<I", count))
        place.launch(launch, storage)

    storage = place.allocate(4 * elements, "softmax")
    fill(elements)
    with pytest.raises(ShaderError, match=r"beyond.*wrote 0 bytes behind the end .* made for softmax"):
        fill(elements + 1)
    fill(elements)  # the guard is whole again


def test_ops_run_with_canaries(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_MEMORY_DEBUG", "1")
    place = dl.Device.of_backend(gpu, dl.device(gpu)._backend)
    a = np.random.default_rng(0).normal(size=(7, 13)).astype(np.float32)
    x = dl.tensor(a, device=place)
    np.testing.assert_allclose((x @ x.T).relu().numpy(), np.maximum(a @ a.T, 0), rtol=1e-5, atol=1e-5)


# Staging and pinned memory


@pytest.mark.vulkan
@pytest.mark.parametrize("nbytes", [4, 1000, CHUNK, CHUNK + 4, 5 * CHUNK + 12])
def test_staged_transfers_are_exact(staging: dl.Device, nbytes: int) -> None:
    random = np.random.default_rng(nbytes)
    arrays = [random.integers(0, 2**31, nbytes // 4).astype(np.int32) for _ in range(3)]
    tensors = [dl.from_numpy(array, device=staging) for array in arrays]
    for array in arrays:
        array += 1  # they may be changed at once
    for array, tensor in zip(arrays, tensors, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array - 1)


@pytest.mark.vulkan
def test_staged_downloads_begin_at_any_byte(staging: dl.Device) -> None:
    array = np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)
    storage = dl.from_numpy(array, device=staging).storage
    for start, nbytes in ((0, 1000), (1, 7), (2, 998), (3, 96), (997, 3)):
        out = np.empty(nbytes, np.uint8)
        staging.download(storage, out, start)
        np.testing.assert_array_equal(out, array[start : start + nbytes])


@pytest.mark.vulkan
def test_many_uploads_ask_the_driver_for_nothing(staging: dl.Device) -> None:
    array = np.ones(100_000, np.float32)
    total = dl.zeros(100_000, device=staging)
    for i in range(60):
        total = total + dl.from_numpy(array * i, device=staging)
        if i == 5:
            buffers = len(staging._backend.buffers)  # type: ignore[attr-defined]
    assert len(staging._backend.buffers) == buffers  # type: ignore[attr-defined]
    assert total.numpy()[7] == sum(range(60))


@pytest.mark.vulkan
def test_pinned_arrays_are_uploaded_as_they_are(staging: dl.Device) -> None:
    dl.from_numpy(np.ones(10, np.float32), device=staging)
    pinned = dl.pin(np.zeros((500, 100), np.float32), staging)
    kept = []
    for i in range(5):
        pinned[...] = np.arange(500)[:, None] + i
        kept.append(dl.from_numpy(pinned, device=staging) * 2)
        part = dl.from_numpy(pinned[100:200], device=staging)
        np.testing.assert_array_equal(part.numpy(), pinned[100:200])
    for i, tensor in enumerate(kept):
        np.testing.assert_array_equal(tensor.numpy(), 2 * (np.arange(500)[:, None] + i) + np.zeros((1, 100)))
    buffers = len(staging._backend.buffers)  # type: ignore[attr-defined]
    del pinned
    dl.synchronize(staging)
    assert len(staging._backend.buffers) == buffers - 1  # type: ignore[attr-defined]


def test_pin_gives_an_array_on_every_device(device: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    pinned = dl.pin(array, device)
    np.testing.assert_array_equal(dl.tensor(pinned, device=device).numpy(), array)
    pinned[0, 0] = 100
    assert array[0, 0] == 0


# Memory that the host sees


@pytest.mark.vulkan
def test_a_host_view_is_the_tensors_own_memory() -> None:
    need("vulkan:0")
    x = dl.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device="vulkan:0")
    if x.storage.buffer.mapped is None:
        pytest.skip("this device has memory of its own")
    y = (x * 2).T
    view = dl.memory.host_view(y)
    np.testing.assert_array_equal(view, 2 * np.arange(12).reshape(3, 4).T)
    view[1, 0] = -1
    assert (y + 0).numpy()[1, 0] == -1
    copy = y.numpy()
    copy[...] = 0
    assert (y + 0).numpy()[1, 0] == -1  # numpy() stays a copy


@pytest.mark.vulkan
def test_a_host_view_keeps_the_memory() -> None:
    need("vulkan:0")
    place = dl.device("vulkan:0")
    x = dl.full((1000,), 3.0, device=place)
    if x.storage.buffer.mapped is None:
        pytest.skip("this device has memory of its own")
    before = dl.memory.stats(place).allocated
    view = dl.memory.host_view(x)[10:20]
    del x
    others = [dl.zeros(1000, device=place) for _ in range(3)]
    dl.synchronize(place)
    np.testing.assert_array_equal(view, np.full(10, 3.0))
    del view, others
    assert dl.memory.stats(place).allocated == before - 4000


@pytest.mark.vulkan
def test_there_is_no_host_view_where_the_host_sees_nothing(staging: dl.Device) -> None:
    with pytest.raises(DeviceError, match=r"use \.numpy"):
        dl.memory.host_view(dl.ones(3, device=staging))


def test_only_what_a_view_shows_is_downloaded(device: str) -> None:
    base = np.arange(120, dtype=np.int16).reshape(4, 5, 6)
    x = dl.from_numpy(base.copy(), device=device)
    for key in (1, (slice(1, 3), 2), (3, 4, 5), (slice(None, None, 2), slice(1, None))):
        np.testing.assert_array_equal(x[key].numpy(), base[key])
    np.testing.assert_array_equal(x.T.numpy(), base.T)


# Arenas


def test_an_arena_runs_a_plan(gpu: str) -> None:
    """Four tensors that take turns in the memory of three."""
    place = dl.device(gpu)
    n = 1000
    before = dl.memory.stats(gpu).allocated
    arena = place.memory.arena([Lifetime(4 * n, 0, 1), Lifetime(4 * n, 1, 2), Lifetime(4 * n, 2, 3)])
    assert arena.plan.lower_bound == 8 * n
    x, y, z = (dl.Tensor(arena.storage(i), (n,), dl.float32, place) for i in range(3))
    place.write(x.storage, np.arange(n, dtype=np.float32))
    assert neg.kernel is not None
    neg.kernel.run(y, x)
    neg.kernel.run(z, y)
    np.testing.assert_array_equal(z.numpy(), np.arange(n))
    assert (z.storage.buffer, z.storage.span.offset) == (x.storage.buffer, x.storage.span.offset)
    del arena, x, y
    assert dl.memory.stats(gpu).allocated > before
    del z
    assert dl.memory.stats(gpu).allocated == before
