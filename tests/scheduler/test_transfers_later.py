"""Downloads and uploads that nobody waits for when they are asked for."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.allocator import staging_pool
from dl4all.allocator.staging import CHUNK
from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.description import Failure
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.current import device as open_device
from tests.conftest import need

SECONDS = 60.0  # that a thread may take
N = 1000
EASY: dict[str, Any] = {
    "gflops": float("inf"),
    "gb_per_s": float("inf"),
    "launch_us": 1e6,  # each kernel takes a second
    "link_gb_per_s": 1e-9,  # and each byte on the link
    "link_us": 0.0,
}


def staging_device(name: str = "vulkan-staging:0") -> dl.Device:
    """A Vulkan device whose memory the host does not see."""
    return dl.Device.of_backend(name, VulkanBackend(0, zero_copy=False))


@pytest.fixture
def staging() -> Iterator[dl.Device]:
    need("vulkan:0")
    place = staging_device()
    yield place
    gc.collect()
    place._backend.close()


PLACES = [
    "cpu",
    "simulated",
    *(pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")),
]


@pytest.fixture(params=[*PLACES, pytest.param("staging", marks=pytest.mark.vulkan)])
def place(request: pytest.FixtureRequest) -> dl.Device:
    """Each kind of device."""
    if request.param == "staging":
        found: dl.Device = request.getfixturevalue("staging")
        return found
    if request.param == "simulated":
        return simulated_device()
    need(request.param)
    return open_device(request.param)


def numbers(seed: int, n: int = N) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(SECONDS)


class Held:
    """An event of a backend that does not come before :meth:`let_go`."""

    def __init__(self, event: Any) -> None:
        self.let_go = threading.Event()
        self.waiting = threading.Event()
        self._event = event

    def query(self) -> bool:
        return self.let_go.is_set() and bool(self._event.query())

    def synchronize(self, timeout: float | None = None) -> bool:
        self.waiting.set()
        return self.let_go.wait(SECONDS if timeout is None else timeout) and bool(self._event.synchronize())


def hold_next(stream: Any, monkeypatch: pytest.MonkeyPatch) -> list[Held]:
    """Have the next events of a stream be held."""
    held: list[Held] = []
    record = stream.record_event

    def recording() -> Held:
        held.append(Held(record()))
        return held[-1]

    monkeypatch.setattr(stream, "record_event", recording)
    return held


# Downloads


@pytest.mark.parametrize("beside", [False, True])
def test_bytes_come_as_they_were_computed(place: dl.Device, beside: bool) -> None:
    x = dl.from_numpy(numbers(0), device=place)
    y = x * 2 + 1
    download = place.copies.download_later(y.storage, 4 * N, beside=beside)
    np.testing.assert_array_equal(download.wait(SECONDS).view(np.float32), numbers(0) * 2 + 1)
    assert download.query()
    assert download.wait() is download.wait()


def test_what_is_written_afterwards_does_not_disturb_them(place: dl.Device) -> None:
    x = dl.from_numpy(numbers(0).copy(), device=place)
    downloads = []
    for _ in range(5):
        downloads.append(place.copies.download_later(x.storage, 4 * N))
        x += 1.0
    place.fill(x.storage, 0)
    expected = numbers(0)
    for download in downloads:
        np.testing.assert_array_equal(download.wait(SECONDS).view(np.float32), expected)
        expected = expected + np.float32(1)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("start", "nbytes"), [(0, 1000), (4, 7), (8, 992), (996, 4), (999, 1), (5, 3), (12, 0)]
)
def test_any_bytes(place: dl.Device, start: int, nbytes: int, beside: bool) -> None:
    array = np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)
    x = dl.tensor(array, device=place)
    found = place.copies.download_later(x.storage, nbytes, start, beside=beside).wait(SECONDS)
    np.testing.assert_array_equal(found, array[start : start + nbytes])


@pytest.mark.parametrize("beside", [False, True])
def test_the_source_may_be_freed_at_once(place: dl.Device, beside: bool) -> None:
    downloads = []
    for i in range(20):
        x = dl.from_numpy(numbers(i), device=place) + 0.0
        downloads.append(place.copies.download_later(x.storage, 4 * N, beside=beside))
        del x
        dl.full((N,), -1.0, device=place)  # in the memory that came back, perhaps
    for i, download in enumerate(downloads):
        np.testing.assert_array_equal(download.wait(SECONDS).view(np.float32), numbers(i) + 0)


@pytest.mark.vulkan
@pytest.mark.parametrize("beside", [False, True])
def test_staging_memory_is_used_again(
    staging: dl.Device, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    made: list[int] = []
    allocate = staging._backend.allocate

    def counting(nbytes: int, kind: Any = "device") -> Any:
        made.extend([nbytes] * (kind == "host"))
        return allocate(nbytes, kind)

    x = dl.from_numpy(numbers(0), device=staging)
    monkeypatch.setattr(staging._backend, "allocate", counting)
    for _ in range(10):
        kept = staging.copies.download_later(x.storage, 4 * N, beside=beside).wait(SECONDS)
        del kept
    assert len(made) == 1
    first = staging.copies.download_later(x.storage, 4 * N, beside=beside).wait(SECONDS)
    second = staging.copies.download_later(x.storage, 4 * N, beside=beside).wait(SECONDS)
    assert len(made) == 2  # not while somebody still sees it
    np.testing.assert_array_equal(first, second)


@pytest.mark.vulkan
def test_unread_memory_waits_for_its_copy(staging: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = dl.from_numpy(numbers(0), device=staging)
    staging.synchronize()
    held = hold_next(staging._stream, monkeypatch)
    pool = staging._beside.staging
    buffers = []
    take = pool.take

    def noting(nbytes: int) -> Any:
        taken = take(nbytes)
        buffers.append(taken.buffer)
        return taken

    monkeypatch.setattr(pool, "take", noting)
    download = staging.copies.download_later(x.storage, 4 * N)
    del download
    staging.copies.download_later(x.storage, 4 * N)
    assert buffers[0] is not buffers[1]
    for event in held:
        event.let_go.set()
    staging.synchronize()
    staging.copies.download_later(x.storage, 4 * N)
    assert buffers[2] in buffers[:2]


@pytest.mark.vulkan
def test_little_staging_memory_lies_idle(staging: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_pool, "KEPT_BYTES", 3 * staging_pool.GRAIN)
    x = dl.from_numpy(numbers(0), device=staging)
    staging.synchronize()  # buffers of its own uploads go
    before = len(staging._backend.buffers)  # type: ignore[attr-defined]
    downloads = [staging.copies.download_later(x.storage, 4 * N) for _ in range(8)]
    staging.synchronize()
    assert len(staging._backend.buffers) == before + 8  # type: ignore[attr-defined]
    del downloads
    staging.copies.download_later(x.storage, 4 * N).wait(SECONDS)
    assert len(staging._backend.buffers) <= before + 3  # type: ignore[attr-defined]
    staging._beside.staging.clear()
    assert len(staging._backend.buffers) == before  # type: ignore[attr-defined]


@pytest.mark.vulkan
def test_staging_memory_that_is_missing(staging: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies idle is given back before the request fails."""
    x = dl.from_numpy(numbers(0), device=staging)
    staging.copies.download_later(x.storage, 4 * N).wait(SECONDS)
    allocate, left = staging._backend.allocate, [1]

    def refusing(nbytes: int, kind: Any = "device") -> Any:
        if kind == "host" and left and left.pop():
            raise OutOfMemoryError("[test] none left")
        return allocate(nbytes, kind)

    monkeypatch.setattr(staging._backend, "allocate", refusing)
    large = dl.zeros(100_000, device=staging)
    found = staging.copies.download_later(large.storage, 400_000).wait(SECONDS)
    assert not found.any()
    assert not left


@pytest.mark.vulkan
@pytest.mark.parametrize("kind", ["vulkan:0", "staging"])
@pytest.mark.parametrize("beside", [False, True])
def test_others_use_the_device_while_one_waits(
    kind: str, beside: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vulkan:0")
    place = request.getfixturevalue("staging") if kind == "staging" else open_device(kind)
    x = dl.from_numpy(numbers(0), device=place)
    x + 1  # compiles it, which records an event
    own_stream = beside and kind == "staging"
    held = hold_next(place._beside._down.get() if own_stream else place._stream, monkeypatch)
    download = place.copies.download_later(x.storage, 4 * N, beside=beside)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(download.wait, SECONDS)
        assert held[-1].waiting.wait(SECONDS)
        y = in_thread(lambda: x + 1)  # takes the device's lock
        assert not waiting.done()
        held[-1].let_go.set()
        np.testing.assert_array_equal(waiting.result(SECONDS).view(np.float32), numbers(0))
    monkeypatch.undo()
    np.testing.assert_array_equal(y.numpy(), numbers(0) + 1)


@pytest.mark.vulkan
def test_a_download_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    place = open_device("vulkan:0")
    x = dl.from_numpy(numbers(0), device=place)
    held = hold_next(place._stream, monkeypatch)
    download = place.copies.download_later(x.storage, 4 * N)
    message = r"^\[Download\] vulkan:0 has not sent 4000 bytes within 0.01 seconds; wait longer, or go on"
    with pytest.raises(DeviceError, match=message):
        download.wait(0.01)
    assert not download.query()
    held[0].let_go.set()
    np.testing.assert_array_equal(download.wait(SECONDS).view(np.float32), numbers(0))


@pytest.mark.vulkan
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("zero_copy", [False, True])
def test_a_device_that_is_closed_before(beside: bool, zero_copy: bool) -> None:
    need("vulkan:0")
    place = dl.Device.of_backend("vulkan-own:0", VulkanBackend(0, zero_copy=zero_copy))
    x = dl.from_numpy(numbers(0), device=place)
    download = place.copies.download_later(x.storage, 4 * N, beside=beside)
    place._backend.close()
    with pytest.raises(DeviceError, match=r"^\[Download\] vulkan-own:0 was closed before its 4000 bytes"):
        download.wait(SECONDS)


@pytest.mark.parametrize("beside", [False, True])
def test_profiles_show_them(place: dl.Device, beside: bool) -> None:
    x = dl.from_numpy(numbers(0), device=place)
    with dl.profile() as profile:
        found = place.copies.download_later(x.storage, 4 * N, beside=beside).wait(SECONDS)
        storage = place.copies.upload_later(numbers(1))
    np.testing.assert_array_equal(found.view(np.float32), numbers(0))
    events = {event.kind: event for event in profile.events if event.kind in ("upload", "download")}
    simulated = place.simulated is not None
    assert set(events) == (set() if place.is_host and not simulated else {"upload", "download"})
    for event in events.values():
        assert event.nbytes == 4 * N
        assert event.clock == ("virtual" if simulated else "host")
        span = profile.virtual_seconds if simulated else profile.seconds
        assert 0 <= event.start < event.end <= span
    np.testing.assert_array_equal(
        place.copies.download_later(storage, 4 * N).wait().view(np.float32), numbers(1)
    )


# Uploads


def test_an_array_may_change_at_once(place: dl.Device) -> None:
    array, storages = numbers(0), []
    for i in range(20):
        array[:] = numbers(i)
        storages.append(place.copies.upload_later(array))
    for i, storage in enumerate(storages):
        assert storage.nbytes == 4 * N
        out = np.empty(N, np.float32)
        place.download(storage, out)
        np.testing.assert_array_equal(out, numbers(i))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(24)[::-2],
        np.array(2.5, np.float16),
        np.array([True, False, True]),
        np.empty((3, 0), np.float32),
        np.arange(3_000_000, dtype=np.int32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_any_array(place: dl.Device, array: npt.NDArray[Any]) -> None:
    storage = place.copies.upload_later(array)
    out = np.empty(array.shape, array.dtype)
    place.download(storage, out)
    np.testing.assert_array_equal(out, array)


def tensor_of(storage: Any, place: dl.Device, n: int = N) -> dl.Tensor:
    return dl.Tensor(storage, (n,), np.dtype(np.float32), place)


def test_kernels_wait_for_contents(place: dl.Device) -> None:
    x = dl.from_numpy(numbers(0), device=place)
    for i in range(30):
        y = tensor_of(place.copies.upload_later(numbers(i)), place)
        x = x * 0.5 + y
    expected = numbers(0)
    for i in range(30):
        expected = expected * np.float32(0.5) + numbers(i)
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.vulkan
def test_the_main_stream_waits_at_the_first_use_and_not_before(
    staging: dl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []
    wait = staging._stream.wait_event

    def waiting(event: Any) -> None:
        waits.append(event)
        wait(event)

    monkeypatch.setattr(staging._stream, "wait_event", waiting)
    x = dl.from_numpy(numbers(0), device=staging)
    y = tensor_of(staging.copies.upload_later(numbers(1)), staging)
    x = x + 1
    assert not waits
    x = x + y + y
    assert len(waits) == 1
    np.testing.assert_array_equal(x.numpy(), numbers(0) + 1 + numbers(1) + numbers(1))


@pytest.mark.vulkan
def test_large_uploads_do_not_wait_for_earlier_ones(
    staging: dl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = staging._beside._up.get()
    arrays = [numbers(i, 3 * CHUNK // 4) for i in range(3)]
    with monkeypatch.context() as patched:
        held = hold_next(up, patched)
        storages = [staging.copies.upload_later(array) for array in arrays]
        assert len(held) == 3
        assert not any(event.waiting.is_set() for event in held)
    for event in held:
        event.let_go.set()
    up.synchronize()
    for array, storage in zip(arrays, storages, strict=True):
        out = np.empty_like(array)
        storage.pending = None  # what it would wait for is no event of the backend's
        staging.download(storage, out)
        np.testing.assert_array_equal(out, array)


def test_freed_before_it_has_come(place: dl.Device) -> None:
    kept = []
    for i in range(30):
        place.copies.upload_later(numbers(i, 50_000))
        kept.append(tensor_of(place.copies.upload_later(numbers(100 + i)), place))
        tensor_of(place.copies.upload_later(numbers(i)), place) + 1.0
    for i, tensor in enumerate(kept):
        np.testing.assert_array_equal(tensor.numpy(), numbers(100 + i))


@pytest.mark.vulkan
@pytest.mark.parametrize("kind", ["vulkan:0", "staging"])
def test_memory_that_commands_still_use_is_not_written(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vulkan:0")
    place = request.getfixturevalue("staging") if kind == "staging" else open_device(kind)
    held = hold_next(place._stream, monkeypatch)
    storages = [place.copies.upload_later(numbers(i)) for i in range(3)]
    used = {(storage.buffer, storage.span.offset) for storage in storages}
    sums = [tensor_of(storage, place) + 1 for storage in storages]
    del storages
    again = [place.copies.upload_later(numbers(9)) for _ in range(3)]
    assert held
    assert not used & {(storage.buffer, storage.span.offset) for storage in again}
    monkeypatch.undo()
    for event in held:
        event.let_go.set()
    for i, tensor in enumerate(sums):
        np.testing.assert_array_equal(tensor.numpy(), numbers(i) + 1)


@pytest.mark.vulkan
def test_a_copy_beside_begins_behind_what_was_asked_for(
    staging: dl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    down, calls = staging._beside._down.get(), list[tuple[str, Any]]()

    def noting(name: str, call: Callable[[Any], None], command: Any) -> None:
        calls.append((name, command))
        call(command)

    for name in ("wait_event", "copy"):
        monkeypatch.setattr(down, name, functools.partial(noting, name, getattr(down, name)))
    x = dl.from_numpy(numbers(0), device=staging) + 1
    staging.copies.download_later(x.storage, 4 * N, beside=True).wait(SECONDS)
    assert [name for name, _ in calls] == ["wait_event", "copy"]
    assert calls[0][1] == staging.record_event()  # nothing was asked for since


@pytest.mark.vulkan
def test_memory_comes_back(staging: dl.Device) -> None:
    for _ in range(3):
        for i in range(20):
            x = tensor_of(staging.copies.upload_later(numbers(i, 100_000)), staging, 100_000) * 2.0
        np.testing.assert_array_equal(x.numpy(), numbers(19, 100_000) * 2)
        del x
    assert dl.memory.stats(staging).allocated == 0
    staging.pool.trim()
    assert dl.memory.stats(staging).reserved == 0


@pytest.mark.vulkan
def test_guards_of_new_memory_are_whole(staging: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_MEMORY_DEBUG", "1")
    for backend in (open_device("vulkan:0")._backend, staging._backend):
        place = dl.Device.of_backend("guarded", backend)
        x = tensor_of(place.copies.upload_later(numbers(0)), place)
        np.testing.assert_array_equal((x + 1).numpy(), numbers(0) + 1)


@pytest.mark.vulkan
def test_pinned_memory_of_another_device(staging: dl.Device) -> None:
    """It must not be taken for this device's own."""
    other = staging_device("vulkan-staging:1")
    dl.from_numpy(numbers(0), device=staging).numpy()
    (dl.from_numpy(numbers(0), device=staging) + 1).numpy()
    staging._transfers.staged = True  # from here on pinned arrays are copied by the device
    pinned = dl.pin(numbers(1), other)
    np.testing.assert_array_equal(dl.from_numpy(pinned, device=staging).numpy(), numbers(1))
    x = dl.from_numpy(numbers(2), device=other)
    there = other.copies.download_later(x.storage, 4 * N).wait(SECONDS)
    np.testing.assert_array_equal(dl.from_numpy(there.view(np.float32), device=staging).numpy(), numbers(2))
    del pinned, there, x
    other._backend.close()


def test_several_threads(place: dl.Device) -> None:
    def work(seed: int) -> None:
        for i in range(12):
            array = numbers(seed * 100 + i)
            x = tensor_of(place.copies.upload_later(array), place)
            y = x * 2
            first = place.copies.download_later(y.storage, 4 * N, beside=i % 2 == 0)
            y = y + 1
            np.testing.assert_array_equal(first.wait(SECONDS).view(np.float32), array * 2)
            np.testing.assert_array_equal(y.numpy(), array * 2 + 1)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, seed) for seed in range(4)]:
            future.result(SECONDS)


# On the virtual clock


def test_a_simulated_download_takes_its_time() -> None:
    place = simulated_device(**EASY)
    x = dl.zeros(4, device=place)
    y = x + 1  # until 1
    download = place.copies.download_later(y.storage, 16)  # until 17
    y += 1.0  # until 2
    assert clock.now() == 0.0
    assert not download.query()
    with pytest.raises(DeviceError, match="has not sent 16 bytes within 5"):
        download.wait(5.0)
    assert clock.now() == 5.0
    assert download.wait(12.0).view(np.float32).tolist() == [1.0] * 4
    assert clock.now() == 17.0
    assert download.query()
    place.synchronize()
    assert clock.now() == 17.0


def test_a_simulated_upload_takes_its_time() -> None:
    place = simulated_device(**EASY)
    x = dl.zeros(4, device=place)
    y = tensor_of(place.copies.upload_later(np.ones(4, np.float32)), place, 4)  # until 16
    x = x + 1
    assert place.simulated is not None
    assert place.simulated.computed_until == 1.0  # beside the copy
    x = x + y
    assert place.simulated.computed_until == 17.0
    assert clock.now() == 0.0
    assert x.tolist() == [2.0] * 4
    assert clock.now() == 17.0 + 16.0


def test_synchronize_waits_for_copies_that_nobody_uses() -> None:
    place = simulated_device(**EASY)
    place.copies.upload_later(np.ones(4, np.float32))
    place.synchronize()
    assert clock.now() == 16.0


@pytest.mark.parametrize("kind", ["lost", "hang"])
def test_a_simulated_device_fails(kind: Any) -> None:
    place = simulated_device(**EASY, failures=(Failure(kind, "upload"), Failure(kind, "download")))
    x = tensor_of(place.copies.upload_later(np.ones(4, np.float32)), place, 4)
    error = DeviceLostError if kind == "lost" else DeviceError
    for _ in range(2):
        with pytest.raises(error):
            x.storage.settle()
    place = simulated_device(**EASY, failures=(Failure(kind, "download"),))
    x = tensor_of(place.copies.upload_later(np.ones(4, np.float32)), place, 4) + 1  # no failure in this phase
    download = place.copies.download_later(x.storage, 16)
    for _ in range(2):
        with pytest.raises(error):
            download.wait()


def test_a_simulated_device_lacks_memory_for_a_copy() -> None:
    place = simulated_device(**EASY, failures=(Failure("memory", "upload"),))
    with pytest.raises(OutOfMemoryError):
        place.copies.upload_later(np.ones(4, np.float32))
    x = tensor_of(place.copies.upload_later(np.ones(4, np.float32)), place, 4)
    assert x.tolist() == [1.0] * 4
