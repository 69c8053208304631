"""Counters of devices, rates between two looks, and the thread that publishes them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ConfigError
from dl4all.runtime import fork, registry
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.monitor import publisher, statistics
from dl4all.scheduler.monitor.statistics import Meter, Statistics, snapshot, used
from tests.conftest import need

SECONDS = 60.0  # that anything may take


def test_kernels_and_copies_are_counted(device: str) -> None:
    place = dl.device(device)
    x = dl.tensor(np.arange(1, 1001, dtype=np.float32), device=device)
    before = snapshot(place)
    assert (x.relu().neg().numpy() < 0).all()
    dl.tensor(np.arange(1, 501, dtype=np.float32), device=device)
    after = snapshot(place)
    moves = device != "cpu"
    assert after.kernels - before.kernels == 2
    assert after.uploaded - before.uploaded == (2000 if moves else 0)
    assert after.downloaded - before.downloaded == (4000 if moves else 0)
    assert after.elapsed > before.elapsed
    assert after.memory == place.info.memory > 0
    assert (after.virtual, after.retired) == (False, "")


def test_fallbacks_are_no_kernels_of_the_device() -> None:
    need("vulkan:0")
    place = dl.device("vulkan:0")
    x = dl.tensor([1.0, -2.0], dtype="float64", device=place)
    before = snapshot(place)
    x.relu()
    after = snapshot(place)
    assert (after.kernels - before.kernels, after.host_kernels - before.host_kernels) == (0, 1)


def test_memory(device: str) -> None:
    place = dl.Device.of_backend(device, registry.open_device(device))
    kept = dl.ones(1000, device=place)
    now = snapshot(place)
    assert now.allocated >= kept.numel() * 4
    assert now.reserved >= now.allocated
    del kept
    assert snapshot(place).allocated == 0


def test_a_simulated_device_on_its_own_clock() -> None:
    device = simulated_device(gflops=1e-9, gb_per_s=1e30, launch_us=0.0)
    x = dl.ones(2, 3, device=device)
    before = snapshot(device)
    x @ x.T
    after = snapshot(device)
    assert after.virtual
    assert after.kernels - before.kernels == 1
    assert after.busy is not None
    assert before.busy is not None
    assert after.busy - before.busy == pytest.approx(24.0)
    assert after.elapsed - before.elapsed == pytest.approx(24.0)


def test_streams_say_how_long_a_device_was_busy_and_what_waits() -> None:
    place = dl.Device.of_backend("cpu", registry.open_device("cpu"))
    assert snapshot(place).busy is None
    stream = dl.Stream(place)
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(SECONDS)

    stream.submit(work)
    stream.submit(dl.ones, 3)
    assert begun.wait(SECONDS)
    first, second = snapshot(place), snapshot(place)
    assert first.queued == 2
    assert first.busy is not None
    assert second.busy is not None
    assert 0 < first.busy < second.busy  # the task that runs counts already
    release.set()
    assert stream.synchronize(SECONDS)
    assert place in used()


def test_a_retired_device_says_why() -> None:
    group = dl.DeviceGroup(["cpu", simulated_device()])
    device = group.devices[1]
    assert snapshot(device).retired == ""
    group.retire(device, "it was lost")
    assert snapshot(device).retired == "it was lost"
    assert snapshot(group.devices[0]).retired == ""
    assert device in used()


def test_a_kernel_of_the_cpu_is_in_flight_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "enabled", False)  # the body computes
    place = dl.Device.of_backend("cpu", registry.open_device("cpu"))
    x = dl.tensor([-1.0, 2.0], device=place)
    seen: list[bool | None] = []
    relu = dl.ops.REGISTRY["relu"]
    body = relu.body

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(place.in_flight())
        if len(seen) == 2:
            raise KeyError
        return body(*given, **named)

    monkeypatch.setattr(relu, "body", watched)
    x.relu()
    assert (seen, place.in_flight()) == ([True], False)
    with pytest.raises(KeyError):
        x.relu()
    assert place.in_flight() is False


@pytest.mark.vulkan
def test_work_of_a_vulkan_device_is_in_flight_until_its_timeline_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("vulkan:0")
    place = dl.device("vulkan:0")
    dl.ones(3, device=place).relu().numpy()
    place.synchronize()
    assert place.in_flight() is False
    stream: Any = place._stream
    timeline = stream._timeline
    monkeypatch.setattr(timeline, "_value", timeline.submitted + 1)  # one that has not come
    assert place.in_flight() is True


def test_a_backend_that_does_not_tell() -> None:
    assert dl.device("null:0").in_flight() is None


def made(**facts: Any) -> Statistics:
    numbers: dict[str, Any] = dict.fromkeys(Statistics.__dataclass_fields__, 0)
    return Statistics(**{**numbers, "device": "cpu", "virtual": False, "retired": "", **facts})


def rates_of(monkeypatch: pytest.MonkeyPatch, *snapshots: Statistics) -> dict[str, Any]:
    """What a meter says at the last of several looks."""
    device, meter = dl.device("cpu"), Meter()
    answers = iter(snapshots)
    monkeypatch.setattr(statistics, "snapshot", lambda _: next(answers))
    found = [meter.rates(device) for _ in snapshots]
    return found[-1]


def test_rates_are_of_the_time_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(elapsed=10.0, busy=4.0, kernels=100, uploaded=1000, downloaded=10, allocated=5)
    later = made(
        elapsed=12.0, busy=5.0, kernels=400, uploaded=1600, downloaded=10, allocated=7, reserved=8, memory=9,
        queued=3, virtual=True, retired="lost",
    )  # fmt: skip
    assert rates_of(monkeypatch, first, later) == {
        "name": "cpu", "busy": 0.5, "kernels_per_second": 150.0, "uploaded_per_second": 300.0,
        "downloaded_per_second": 0.0, "allocated": 7, "reserved": 8, "memory": 9, "queued": 3,
        "virtual": True, "retired": "lost",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "later", "busy"),
    [
        (made(elapsed=0.0, busy=0.0), made(elapsed=1.0, busy=3.0), 1.0),  # three streams at once
        (made(elapsed=0.0, busy=5.0), made(elapsed=1.0, busy=1.0), 0.0),  # a stream was closed
        (made(elapsed=1.0, busy=1.0), made(elapsed=1.0, busy=1.0), 0.0),  # a virtual clock that stands still
        (made(elapsed=0.0, busy=None), made(elapsed=2.0, busy=1.0), 0.5),  # the first stream
        (made(elapsed=0.0, busy=None), made(elapsed=2.0, busy=None), None),
    ],
)
def test_shares(first: Statistics, later: Statistics, busy: float | None, monkeypatch: Any) -> None:
    assert rates_of(monkeypatch, first, later)["busy"] == busy


def test_what_can_only_be_sampled_is(monkeypatch: pytest.MonkeyPatch) -> None:
    place = dl.Device.of_backend("cpu", registry.open_device("cpu"))
    simulated = simulated_device()
    answers = iter([True, False, False, True, True])
    monkeypatch.setattr(place, "in_flight", lambda: next(answers))
    meter = Meter()
    meter.rates(simulated)
    assert [meter.sample([place, simulated]) for _ in range(4)] == [True] * 4
    assert meter.rates(place)["busy"] == 0.5
    assert meter.sample([place])
    assert meter.rates(place)["busy"] == 1.0  # since the last time
    assert not meter.sample([simulated])
    assert not meter.sample([dl.device("null:0")])


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of this process, which publishes until the test ends."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DL4ALL_TOP", "")
    monkeypatch.setattr(publisher, "SAMPLE", 0.01)
    monkeypatch.setattr(publisher, "PERIOD", 0.02)
    yield tmp_path / "dl4all" / f"{os.getpid()}.json"
    publisher.stop()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "dl4all top"]


def wait_for(condition: Any) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_one_thread_publishes_until_it_is_stopped(published: Path) -> None:
    assert threads() == []
    stream = dl.Stream("cpu")
    publisher.start()
    dl.DeviceGroup(["cpu"])
    assert threads() == ["dl4all top"]
    wait_for(published.exists)
    first = json.loads(published.read_text("utf-8"))
    assert first["pid"] == os.getpid()
    assert "cpu" in [device["name"] for device in first["devices"]]
    wait_for(lambda: json.loads(published.read_text("utf-8"))["written"] > first["written"])
    publisher.stop()
    assert threads() == []
    assert list(published.parent.iterdir()) == []
    publisher.start()
    assert threads() == ["dl4all top"]
    del stream


def test_training_is_published(published: Path) -> None:
    net = dl.nn.Linear(2, 1).to("cpu")
    optimizer = dl.optim.SGD(net.parameters(), lr=0.1)
    trainer = dl.Trainer(net, dl.nn.functional.mse_loss, optimizer, device="cpu", progress=False)
    trainer.fit([(dl.ones(4, 2), dl.ones(4, 1))], epochs=1)
    assert threads() == ["dl4all top"]


def test_a_failure_does_not_end_the_thread(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    real = statistics.used

    def broken() -> list[dl.Device]:
        if failed.is_set():
            return real()
        failed.set()
        raise RuntimeError

    monkeypatch.setattr(statistics, "used", broken)
    publisher.start()
    assert failed.wait(SECONDS)
    wait_for(published.exists)


@pytest.mark.parametrize("used", [False, True])
def test_a_process_that_was_forked_publishes_for_itself(
    used: bool, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its parent had used a driver, whose threads' memory a thread of its own would take."""
    monkeypatch.setattr(fork, "_used", used)
    publisher.start()
    wait_for(published.exists)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12 on: this process has threads
        child = os.fork()
    if child == 0:
        signal.alarm(int(SECONDS))
        publisher.stop()  # not the parent's
        publisher.start()
        os._exit(len(threads()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if used else 1)
    assert published.exists()


@pytest.mark.parametrize("value", ["2", "yes", " 1"])
def test_other_words_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_TOP", value)
    with pytest.raises(ConfigError, match=rf"^DL4ALL_TOP must be 0, 1 or empty, not '{value}'$"):
        publisher.start()
