"""What ``dl.profile`` records on each device, and that it records nothing when it is off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DeviceLostError, ShapeError
from dl4all.nn import functional as F
from dl4all.ops.conv import algorithms, im2col
from dl4all.ops.core.kernels.host_kernel import HostPlan
from dl4all.runtime import registry
from dl4all.runtime.profiler import recorder
from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.runtime.vulkan import stream as vulkan_stream
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.timestamps import Timestamps
from dl4all.scheduler.monitor import profile as module
from dl4all.testing.conformance.support.kernels import Kernels, put, write_shaders
from tests.conftest import need


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    """No test leaves a profile behind."""
    assert recorder.active is None
    yield
    left = recorder.active
    recorder.active = None
    assert left is None


def of(p: Any, kind: str) -> list[RecordedEvent]:
    return [event for event in p.events if event.kind == kind]


def counted(function: Any, calls: list[int]) -> Any:
    """The function, counting its calls."""

    def call(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return function(*given, **named)

    return call


def operands(device: str) -> tuple[dl.Tensor, dl.Tensor]:
    return dl.ones(3, 5, device=device), dl.ones(5, 7, device=device)


def test_ops_and_kernels_in_order(device: str) -> None:
    x, w = operands(device)
    with dl.profile() as p:
        y = (x @ w).relu()
        y = y + y
    assert [event.name for event in of(p, "op")] == ["matmul", "relu", "add"]
    kernels = of(p, "kernel")
    assert [event.op for event in kernels] == ["matmul", "relu", "add"]
    assert {event.device for event in p.events} == {device}
    assert {event.thread for event in p.events} == {threading.get_ident()}
    assert [event.shapes for event in kernels] == [((3, 5), (5, 7)), ((3, 7),), ((3, 7), (3, 7))]
    words = (
        ["matmul", "relu", "add"]
        if device == "cpu"
        else ["linalg/gemm", "elementwise/unary (", "elementwise/binary (a + p.alpha * b)"]
    )
    for event, word in zip(kernels, words, strict=True):
        assert event.name.startswith(word)
    assert (y.numpy() == 10).all()


def test_times_lie_in_the_block_and_do_not_overlap(device: str) -> None:
    x = dl.rand(64, 64, device=device)
    with dl.profile() as p:
        for _ in range(50):
            x = (x @ x).relu() * 0.01
    kernels = of(p, "kernel")
    times = [moment for event in kernels for moment in (event.start, event.end)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= p.seconds
    assert 0 < sum(event.seconds for event in kernels) <= p.seconds  # one stream
    expected = "device" if device.startswith("vulkan") else "host"
    assert {event.clock for event in kernels} == {expected}
    for event in of(p, "op"):
        assert 0 <= event.start < event.end <= p.seconds


def test_every_launch_is_counted(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dl.device(device)
    launched: list[int] = []
    net = dl.models.resnet18(10).eval().to(place)
    x = dl.rand(1, 3, 32, 32, device=device)
    if place.is_host:
        monkeypatch.setattr(HostPlan, "run", counted(HostPlan.run, launched))
        for op in dl.ops.REGISTRY.values():
            monkeypatch.setattr(op, "body", counted(op.body, launched))
    else:
        monkeypatch.setattr(place._stream, "dispatch", counted(place._stream.dispatch, launched))
    with dl.profile() as p:
        net(x)
    assert len(of(p, "kernel")) == len(launched) > 60


def test_bytes_and_operations(device: str) -> None:
    x, w = operands(device)
    bias = dl.ones(7, device=device)
    with dl.profile() as p:
        x @ w
        F.linear(x, w.T.contiguous(), bias)
        x.relu()
    flops = {event.name: event.flops for event in of(p, "op")}
    assert flops == {"matmul": 2 * 3 * 5 * 7, "linear": 2 * 3 * 5 * 7, "clone": 0, "relu": 0}
    by_op = {event.op: event for event in of(p, "kernel")}
    assert {name: event.flops for name, event in by_op.items()} == flops
    assert by_op["matmul"].nbytes == 4 * (3 * 5 + 5 * 7 + 3 * 7)
    assert by_op["linear"].nbytes == 4 * (3 * 5 + 5 * 7 + 7 + 3 * 7)


@pytest.mark.parametrize("column_bytes", [2**25, 2**12])
def test_a_convolutions_operations_count_for_its_product(
    device: str, column_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for the unrolling, and once however many pieces it is done in."""
    monkeypatch.setattr(im2col, "COLUMN_BYTES", column_bytes)
    x, w = dl.rand(2, 3, 17, 13, device=device), dl.rand(5, 3, 3, 3, device=device)
    with dl.profile() as p, algorithms.forced("im2col"):
        F.conv2d(x, w, padding=1)
    expected = 2 * (2 * 5 * 17 * 13) * (3 * 3 * 3)
    assert [event.flops for event in of(p, "op")] == [expected]
    kernels = of(p, "kernel")
    assert sum(event.flops for event in kernels) == expected
    if device != "cpu":
        assert len(kernels) >= 2 if column_bytes == 2**25 else len(kernels) > 4
        assert {event.flops for event in kernels if event.name == "conv/im2col"} == {0}


def test_an_op_that_another_one_calls_lies_inside_it(device: str) -> None:
    if device == "cpu":
        pytest.skip("NumPy takes any strides")
    x = dl.rand(2, 6, 5, 3, device=device).transpose(1, 3)
    w = dl.rand(4, 3, 3, 3, device=device)
    with dl.profile() as p, algorithms.forced("im2col"):
        F.conv2d(x, w)
    outer, inner = of(p, "op")
    assert (outer.name, outer.op, inner.name, inner.op) == ("conv2d", "", "clone", "conv2d")
    assert outer.start <= inner.start <= inner.end <= outer.end
    assert [event.op for event in of(p, "kernel")] == ["clone", "conv2d", "conv2d"]


def test_transfers(device: str) -> None:
    array = np.arange(1000, dtype=np.float32)
    with dl.profile() as p:
        x = dl.tensor(array, device=device)
        assert (x.numpy() == array).all()
    expected = [] if device == "cpu" else [("upload", 4000), ("download", 4000)]
    moved = [event for event in p.events if event.kind in ("upload", "download")]
    assert [(event.kind, event.nbytes) for event in moved] == expected
    assert all(0 <= event.start < event.end <= p.seconds for event in moved)


def test_a_download_does_not_include_the_wait_for_what_it_reads(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        pytest.skip("nothing is moved")
    x = dl.rand(256, 256, device=device)
    with dl.profile() as p:
        y = x @ x
        y.numpy()
    (kernel,), (download,) = of(p, "kernel"), of(p, "download")
    assert download.start >= kernel.end


def test_allocations_say_where_the_memory_is_from(device: str) -> None:
    place = dl.Device.of_backend(device, registry.open_device(device))  # whose pool is empty
    with dl.profile() as p:
        kept = dl.empty(1000, device=place)
        del kept
        dl.empty(1000, device=place)
    again, nbytes = ("driver", 4000) if place.is_host else ("pool", 4096)  # the host's memory is not pooled
    assert [(event.name, event.nbytes, event.device) for event in of(p, "allocation")] == [
        ("driver", nbytes, device),
        (again, nbytes, device),
    ]


def test_what_falls_back_to_the_cpu_is_a_kernel_there(device: str) -> None:
    x = dl.tensor([1.0, -2.0], dtype="float64", device=device)
    with dl.profile() as p:
        x.relu()
    (op,), (kernel,) = of(p, "op"), of(p, "kernel")
    assert (op.device, kernel.device, kernel.name, kernel.op) == (device, "cpu", "relu", "relu")
    assert op.start <= kernel.start <= kernel.end <= op.end
    assert kernel.nbytes == 32


def test_nothing_is_recorded_when_it_is_off(device: str) -> None:
    x, w = operands(device)
    with dl.profile() as p:
        x @ w
    count = len(p.events)
    (x @ w).numpy()
    dl.synchronize()
    assert len(p.events) == count


@pytest.mark.vulkan
def test_query_pools_are_made_for_profiles_only(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    write_shaders(tmp_path)
    made: list[int] = []
    monkeypatch.setattr(vulkan_stream, "Timestamps", counted(Timestamps, made))
    backend: Any = VulkanBackend(0)
    try:
        kernels = Kernels(backend, tmp_path)
        x, y = put(backend, np.zeros(64, np.uint32)), put(backend, np.zeros(64, np.uint32))
        for _ in range(100):
            kernels.run("step", x, y, n=64, k=1)
        backend.stream.synchronize()
        assert not made
        for _ in range(200):
            backend.stream.dispatch(kernels.command("step", x, y, n=64, k=1), lambda *_: None)
        assert 0 < len(made) <= len(backend.stream._batches)  # one for each batch, used again
    finally:
        backend.close()


def test_profiles_are_not_nested(device: str) -> None:
    x, w = operands(device)
    with dl.profile() as p:
        with pytest.raises(ArgumentError, match="cannot be nested"), dl.profile():
            pytest.fail("the inner block ran")
        x @ w
    assert [event.name for event in of(p, "op")] == ["matmul"]
    with dl.profile() as q:
        x @ w
    assert len(of(q, "op")) == 1


def test_an_exception_closes_it(device: str) -> None:
    x, w = operands(device)
    p = dl.profile()

    def fail() -> None:
        with p:
            x @ w
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert recorder.active is None
    assert p.seconds > 0
    assert [event.clock != "none" for event in of(p, "kernel")] == [True]


def test_an_op_that_fails_is_recorded_without_operations(device: str) -> None:
    x, _ = operands(device)
    with dl.profile() as p, pytest.raises(ShapeError):
        x @ x
    (event,) = p.events
    assert (event.kind, event.name, event.flops) == ("op", "matmul", 0)
    assert event.end > event.start
    with dl.profile() as p:
        x.relu()
    assert [e.op for e in of(p, "op")] == [""]  # not inside the one that failed


def test_a_lost_device_does_not_hide_the_blocks_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise DeviceLostError("gone")

    def fail() -> None:
        with dl.profile():
            monkeypatch.setattr(module, "synchronize", lost)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    monkeypatch.undo()
    with pytest.raises(DeviceLostError), dl.profile():
        monkeypatch.setattr(module, "synchronize", lost)
    assert recorder.active is None


def test_events_of_other_threads(device: str) -> None:
    names = ["relu", "neg"]
    ready = threading.Barrier(2)
    ids: dict[str, int] = {}

    def work(name: str) -> None:
        x = dl.ones(8, 8, device=device)
        ids[name] = threading.get_ident()
        ready.wait(60)
        for _ in range(20):
            dl.ops.REGISTRY[name](x)
        ready.wait(60)  # a thread that has ended gives its id to the next

    with dl.profile() as p:
        threads = [threading.Thread(target=work, args=[name]) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in names:
        assert {e.thread for e in p.events if name in (e.name, e.op)} == {ids[name]}
        assert sum(e.op == name for e in of(p, "kernel")) == 20
        assert {e.op for e in of(p, "op") if e.thread == ids[name]} == {""}
    assert len(set(ids.values())) == 2


def test_before_the_block_there_is_nothing() -> None:
    p = dl.profile()
    assert p.events == []
    assert p.seconds == 0
    assert "Kernels: 0" in str(p)
