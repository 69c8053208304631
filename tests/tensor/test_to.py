"""``Tensor.to`` between devices: at once, and without a wait."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory import transfer
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import BETWEEN_BYTES
from dl4all.runtime.simulated.description import Failure
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.download import Download
from tests.conftest import need

SECONDS = 60.0  # that a thread may take
EASY: dict[str, Any] = {
    "gflops": float("inf"),
    "gb_per_s": float("inf"),
    "launch_us": 1e6,  # each kernel takes a second
    "link_gb_per_s": 1e-9,  # and each byte on the link
    "link_us": 0.0,
}


@pytest.fixture(scope="module")
def staging() -> Iterator[dl.Device]:
    """A Vulkan device whose memory the host does not see."""
    need("vulkan:0")
    place = dl.Device.of_backend("vulkan-staging:0", VulkanBackend(0, zero_copy=False))
    yield place
    gc.collect()
    place._backend.close()


GPUS = ("vulkan:0", "vulkan:0#1", "staging", "kompute:0")
KINDS = [*("cpu", "cpu#1", "simulated"), *(pytest.param(name, marks=pytest.mark.vulkan) for name in GPUS)]


def opened(kind: str, request: pytest.FixtureRequest) -> dl.Device:
    if kind == "staging":
        found: dl.Device = request.getfixturevalue("staging")
        return found
    if kind == "simulated":
        return simulated_device()
    need(kind.split("#")[0])
    return dl.device(kind)


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest) -> dl.Device:
    return opened(request.param, request)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest) -> dl.Device:
    return opened(request.param, request)


def numbers(seed: int = 0, n: int = 1000) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


VIEWS: dict[str, Callable[[dl.Tensor], dl.Tensor]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.reshape(20, 50).T,
    "row": lambda x: x.reshape(20, 50)[3],
    "column": lambda x: x.reshape(20, 50)[:, 7],
    "every other": lambda x: x[::2],
    "expanded": lambda x: x[5:6].expand(4),
    "element": lambda x: x[17],
    "empty": lambda x: x[3:3],
}


@pytest.mark.parametrize("non_blocking", [False, True])
def test_elements_arrive(source: dl.Device, target: dl.Device, non_blocking: bool) -> None:
    array = numbers()
    x = dl.tensor(array, device=source)
    for view in VIEWS.values():
        expected = view(dl.tensor(array, device="cpu"))
        moved = view(x).to(target, non_blocking=non_blocking)
        assert (moved.device, moved.shape, moved.dtype) == (target, expected.shape, expected.dtype)
        np.testing.assert_array_equal((moved + 1).numpy(), expected.numpy() + 1)
        np.testing.assert_array_equal(moved.numpy(), expected.numpy())


@pytest.mark.parametrize("non_blocking", [False, True])
def test_the_source_may_be_changed_at_once(source: dl.Device, target: dl.Device, non_blocking: bool) -> None:
    x = dl.tensor(numbers(), device=source)
    moved = []
    for _ in range(5):
        moved.append(x.to(target, non_blocking=non_blocking, copy=True))
        x += 1.0
    expected = numbers()
    for tensor in moved:
        np.testing.assert_array_equal(tensor.numpy(), expected)
        expected = expected + np.float32(1)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "int64"])
def test_small_and_large_elements(source: dl.Device, target: dl.Device, dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, 37).astype(dtype)
    x = dl.tensor(array, device=source)
    for part in (x, x[1:], x[5:6]):
        moved = part.to(target, non_blocking=True)
        np.testing.assert_array_equal(moved.numpy(), part.numpy())


def test_the_dtype_changes_on_the_source(source: dl.Device, target: dl.Device) -> None:
    x = dl.tensor([0.0, 1.5, -2.5], device=source)
    moved = x.to(target, "int32", non_blocking=True)
    assert moved.dtype == np.int32
    assert moved.tolist() == [0, 1, -2]


def test_gradients_come_back(source: dl.Device, target: dl.Device) -> None:
    x = dl.tensor(numbers(), device=source).requires_grad_()
    y = dl.tensor(numbers(1), device=target)
    (x.to(target, non_blocking=True) * y).sum().backward()
    assert x.grad.device is source
    np.testing.assert_array_equal(x.grad.numpy(), numbers(1))


@pytest.mark.vulkan
def test_a_chain_of_devices(staging: dl.Device) -> None:
    need("vulkan:0")
    need("kompute:0")
    x = dl.tensor(numbers(), device="cpu")
    expected = numbers()
    places: list[str | dl.Device] = ["vulkan:0", staging, "cpu", staging, "vulkan:0#1", "kompute:0", "cpu"]
    for i, place in enumerate(places):
        x = x.to(place, non_blocking=True)
        if i % 2:
            x += 1.0
            expected = expected + np.float32(1)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.vulkan
def test_many_at_once_in_little_memory(staging: dl.Device) -> None:
    """Tensors are dropped on both sides before they have come."""
    for i in range(40):
        x = dl.tensor(numbers(i, 50_000), device=staging) * 2.0
        x.to("cpu", non_blocking=True)
        x.to("vulkan:0", non_blocking=True)
        kept = x.to("vulkan:0", non_blocking=True).to(staging, non_blocking=True).to("cpu", non_blocking=True)
        del x
        np.testing.assert_array_equal(kept.numpy(), numbers(i, 50_000) * 2)


# What is waited for


class Gate:
    """Keeps the thread that brings a device's copies busy until it is opened."""

    def __init__(self, place: dl.Device) -> None:
        self.open = threading.Event()
        transfer._stream_from(place).submit(self.open.wait, SECONDS)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "staging")])
def origin(request: pytest.FixtureRequest) -> dl.Device:
    return opened(request.param, request)


@pytest.fixture(params=["cpu", "vulkan:0#1", "staging", "kompute:0"])
def elsewhere(request: pytest.FixtureRequest, origin: dl.Device) -> dl.Device:
    if request.param == "staging" and origin is request.getfixturevalue("staging"):
        return opened("vulkan:0#1", request)
    return opened(request.param, request)


USES: dict[str, Callable[[dl.Tensor], Any]] = {
    "numpy": lambda x: x.numpy().copy(),
    "an op": lambda x: (x * 1).numpy(),
    "a view": lambda x: (x[:] * 1).numpy(),
    "in place": lambda x: x.mul_(1).numpy().copy(),
    "copied into": lambda x: dl.zeros(1000, device=x.device).copy_(x).numpy().copy(),
    "moved on": lambda x: x.to("cpu#1").numpy(),
    "moved on later": lambda x: x.to("cpu#1", non_blocking=True).numpy(),
    "an item": lambda x: np.array([x[i].item() for i in range(0, 1000, 333)]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_it_returns_before_and_uses_wait(
    origin: dl.Device, elsewhere: dl.Device, use: Callable[[dl.Tensor], Any]
) -> None:
    x = dl.tensor(numbers(), device=origin)
    gate = Gate(origin)
    moved = x.to(elsewhere, non_blocking=True)
    del x
    began = threading.Event()

    def using() -> Any:
        began.set()
        return use(moved)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(using)
        assert began.wait(SECONDS)
        (dl.ones(3, device=elsewhere) + 1).numpy()  # others go on
        assert not found.done()
        gate.open.set()
        result = found.result(SECONDS)
    expected = numbers() if result.size > 10 else numbers()[::333]
    np.testing.assert_array_equal(result, expected)


def test_overwriting_waits_too(origin: dl.Device, elsewhere: dl.Device) -> None:
    """Or the contents would come over what was written."""
    x = dl.tensor(numbers(), device=origin)
    gate = Gate(origin)
    moved = x.to(elsewhere, non_blocking=True)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(moved.fill_, 3.0)
        assert not writing.done()
        gate.open.set()
        writing.result(SECONDS)
    np.testing.assert_array_equal(moved.numpy(), np.full(1000, 3, np.float32))


def test_synchronize_waits(origin: dl.Device, elsewhere: dl.Device) -> None:
    x = dl.tensor(numbers(), device=origin)
    for waiting in (origin, elsewhere):
        gate = Gate(origin)
        moved = x.to(elsewhere, non_blocking=True)
        task = moved.storage.pending.args[0]  # type: ignore[union-attr]
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(waiting.synchronize)
            assert not task.done()
            assert not done.done()
            gate.open.set()
            done.result(SECONDS)
        assert task.done()


def test_errors_come_to_whoever_uses_it(
    origin: dl.Device, elsewhere: dl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(download: Download, timeout: float | None = None) -> Any:
        raise DeviceLostError("[test] it is gone")

    x = dl.tensor(numbers(), device=origin)
    with monkeypatch.context() as patched:
        patched.setattr(Download, "wait", lose)
        moved = x.to(elsewhere, non_blocking=True)
        for use in USES.values():
            with pytest.raises(DeviceLostError, match="it is gone"):
                use(moved)
        with pytest.raises(DeviceLostError, match="it is gone"):
            moved.fill_(0.0)
        elsewhere.synchronize()
    np.testing.assert_array_equal((x + 1).numpy(), numbers() + 1)
    np.testing.assert_array_equal(x.to(elsewhere, non_blocking=True).numpy(), numbers())


def test_memory_does_not_wait_for_the_cycle_collector(origin: dl.Device, elsewhere: dl.Device) -> None:
    gc.collect()
    gc.disable()
    try:
        x = dl.tensor(numbers(), device=origin)
        moved = x.to(elsewhere, non_blocking=True)
        sources, storages = weakref.ref(x.storage), weakref.ref(moved.storage)
        del x
        assert sources() is None
        task = moved.storage.pending.args[0]  # type: ignore[union-attr]
        assert task.wait(SECONDS)
        moved.numpy()
        moved.detach()
        del moved, task
        transfer._stream_from(origin).synchronize()  # its thread has let the last task go
        for place in (origin, elsewhere):
            place.copies.forget()
        assert storages() is None
    finally:
        gc.enable()


def test_no_array_lies_in_between(origin: dl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one device sends is copied once, to where it belongs."""
    x = dl.tensor(numbers(), device=origin)
    with monkeypatch.context() as patched:
        patched.setattr(TensorBase, "on_host", lambda tensor: pytest.fail("an array"))
        moved = [x.to(place) for place in ("cpu", "vulkan:0#1")]
    for tensor in moved:
        np.testing.assert_array_equal(tensor.numpy(), numbers())


def test_streams_that_were_closed_are_made_anew(origin: dl.Device) -> None:
    """As all are when the devices are closed, which may be opened again."""
    x = dl.tensor(numbers(), device=origin)
    for _ in range(2):
        np.testing.assert_array_equal(x.to("cpu", non_blocking=True).numpy(), numbers())
        transfer._streams[origin.name].close()


def has_no_link(device: dl.Device) -> bool:
    """Whether its copies are the host's own."""
    return device.is_host and device.simulated is None


def test_profiles_show_copies(source: dl.Device, target: dl.Device) -> None:
    x = dl.tensor(numbers(), device=source)
    with dl.profile() as profile:
        moved = x.to(target, non_blocking=True, copy=True)
    np.testing.assert_array_equal(moved.numpy(), numbers())
    found = [(event.kind, event.device) for event in profile.events if event.kind in ("upload", "download")]
    expected = [] if has_no_link(source) or source is target else [("download", str(source))]
    expected += [] if has_no_link(target) or source is target else [("upload", str(target))]
    assert found == expected


def test_threads_move_at_the_same_time(origin: dl.Device, elsewhere: dl.Device) -> None:
    def work(seed: int) -> None:
        for i in range(10):
            x = dl.tensor(numbers(100 * seed + i), device=origin) * 2.0
            y = x.to(elsewhere, non_blocking=True) + 1.0
            np.testing.assert_array_equal(
                y.to(origin, non_blocking=True).numpy(), numbers(100 * seed + i) * 2 + 1
            )

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, seed) for seed in range(4)]:
            future.result(SECONDS)


# On the virtual clock


def kernels_until(place: dl.Device) -> float:
    assert place.simulated is not None
    return place.simulated.computed_until


@pytest.mark.parametrize("non_blocking", [False, True])
def test_uploads_run_beside_kernels(non_blocking: bool) -> None:
    place = simulated_device(**EASY)
    x = dl.zeros(4, device=place)
    y = dl.ones(4, device="cpu").to(place, non_blocking=non_blocking)  # until 16
    for _ in range(3):
        x = x + 1
    assert kernels_until(place) == 3.0
    x = x + y
    assert kernels_until(place) == 17.0
    x = x + y
    assert kernels_until(place) == 18.0
    assert clock.now() == 0.0
    assert x.tolist() == [5.0] * 4
    assert clock.now() == 18.0 + 16.0


def test_uploads_come_one_after_the_other() -> None:
    place = simulated_device(**EASY)
    array = np.ones(BETWEEN_BYTES // 2, np.float32)  # twice as large as what goes between packets
    first, second = (dl.from_numpy(array, device=place) for _ in range(2))
    small = dl.ones(4, device="cpu").to(place)
    assert (small + 1).tolist() == [2.0] * 4
    assert kernels_until(place) == 17.0
    x = first + 1
    assert kernels_until(place) == array.nbytes + 1.0
    y = second + x
    assert kernels_until(place) == 2 * array.nbytes + 1.0
    assert y[:2].tolist() == [3.0] * 2


def test_a_download_is_waited_for_where_it_is_used() -> None:
    place = simulated_device(**EASY)
    x = dl.zeros(4, device=place) + 1  # until 1
    there = x.to("cpu", non_blocking=True)  # until 17
    x = x + 1
    assert clock.now() == 0.0
    assert kernels_until(place) == 2.0
    y = there * 2
    assert clock.now() == 17.0
    assert y.tolist() == [2.0] * 4
    x.to("cpu")
    assert clock.now() == 17.0 + 16.0


def test_every_thread_waits_for_a_download() -> None:
    """On its own clock, whichever comes first."""
    place = simulated_device(**EASY)
    there = (dl.zeros(4, device=place) + 1).to("cpu", non_blocking=True)

    def used() -> tuple[Any, float]:
        clock.set_to(0.0)
        return there.sum().item(), clock.now()

    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            assert pool.submit(used).result(SECONDS) == (4.0, 17.0)
    assert clock.now() == 0.0
    assert there.sum().item() == 4.0
    assert clock.now() == 17.0


@pytest.mark.parametrize("non_blocking", [False, True])
def test_from_one_simulated_device_to_another(non_blocking: bool) -> None:
    first, second = simulated_device(**EASY), simulated_device(**EASY)
    x = dl.zeros(4, device=first) + 1  # until 1
    moved = x.to(second, non_blocking=non_blocking)  # until 17, then 33
    assert clock.now() == (0.0 if non_blocking else 17.0)
    y = dl.zeros(4, device=second) + moved
    assert kernels_until(second) == 34.0
    assert y.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: np.asarray(x),
        lambda x: repr(x),
        lambda x: x.cpu(),
        lambda x: dl.zeros(4, device="cpu").copy_(x),
        lambda x: [x[i].item() for i in range(4)],
    ],
)
def test_reading_takes_its_time(read: Callable[[dl.Tensor], Any]) -> None:
    place = simulated_device(**EASY)
    x = dl.zeros(4, device=place) + 1
    read(x)
    assert clock.now() == 17.0


@pytest.mark.parametrize(
    "make",
    [
        lambda place: dl.from_numpy(np.zeros(4, np.float32), device=place),
        lambda place: dl.tensor([0.0] * 4, device=place),
        lambda place: dl.zeros(4, device="cpu").to(place),
        lambda place: dl.zeros(1, device=place).new_tensor([0.0] * 4),
    ],
)
def test_making_takes_its_time(make: Callable[[dl.Device], dl.Tensor]) -> None:
    place = simulated_device(**EASY)
    make(place).storage.settle()
    assert kernels_until(place) == 16.0


def test_ops_take_none_of_it() -> None:
    """Their NumPy bodies stand for kernels, and what they read does not go over the link."""
    place = simulated_device(**EASY)
    x = dl.ones(6, 6, device=place)
    y = ((x @ x).softmax(-1) + x[dl.tensor([1, 0], device="cpu")].sum()).relu()
    y += 1.0
    assert clock.now() == 0.0
    assert kernels_until(place) < 20.0
    assert place.simulated is not None
    assert place.simulated.copied_until == 0.0


def test_moving_a_network_takes_its_time() -> None:
    place = simulated_device(**EASY)
    with dl.device("cpu"):
        model = dl.nn.Linear(3, 2).to(place)  # six floats, and two, which go between packets
    weight, bias = model.parameters()
    bias + 0.0
    assert kernels_until(place) == 8.0 + 1.0
    weight + 0.0
    assert kernels_until(place) == 24.0 + 1.0


def test_memory_of_simulated_devices_is_their_own() -> None:
    place = simulated_device()
    array = numbers()
    x = dl.from_numpy(array, device=place)
    array[:] = 0
    x.numpy()[:] = 1
    np.testing.assert_array_equal(x.numpy(), numbers())


@pytest.mark.parametrize("kind", ["lost", "hang"])
def test_failures_on_the_way(kind: Any) -> None:
    error = DeviceLostError if kind == "lost" else DeviceError
    x = dl.ones(4, device="cpu")
    with pytest.raises(error):
        x.to(simulated_device(**EASY, failures=(Failure(kind, "upload"),)))
    moved = x.to(simulated_device(**EASY, failures=(Failure(kind, "upload"),)), non_blocking=True)
    for _ in range(2):
        with pytest.raises(error):
            moved + 1
    place = simulated_device(**EASY, failures=(Failure(kind, "download"),))
    x = x.to(place) + 1
    for target in ("cpu", simulated_device(**EASY)):
        there = x.to(target, non_blocking=True)
        for _ in range(2):
            with pytest.raises(error):
                there + 1
    with pytest.raises(error):
        x.cpu()


def test_a_lack_of_memory_is_told_at_once() -> None:
    place = simulated_device(**EASY, memory=8)
    with pytest.raises(OutOfMemoryError):
        dl.ones(4, device="cpu").to(place, non_blocking=True)
    assert dl.ones(2, device="cpu").to(place, non_blocking=True).tolist() == [1.0, 1.0]
