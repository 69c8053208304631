"""What a profile records of streams and of simulated devices: tasks, waits, times on the virtual clock."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.runtime.profiler.phase import phase
from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device

SECONDS = 60.0  # that anything may take


def of(p: Any, kind: str) -> list[RecordedEvent]:
    return [event for event in p.events if event.kind == kind]


def simple() -> dl.Device:
    """A device that computes one operation a second, in no time for anything else."""
    return simulated_device(gflops=1e-9, gb_per_s=1e30, launch_us=0.0, link_gb_per_s=1e-9, link_us=0.0)


def test_a_task_and_the_host_that_waits_for_it() -> None:
    with dl.profile() as p:
        stream = dl.Stream("cpu", name="mine")
        release = threading.Event()
        with phase("forward"):
            task = stream.submit(release.wait, SECONDS, name="step")
        threading.Timer(0.01, release.set).start()
        assert task.result(SECONDS)
    (event,) = of(p, "task")
    assert (event.name, event.device, event.stream, event.phase, event.state) == (
        "step", "cpu", "mine", "forward", "finished",
    )  # fmt: skip
    assert event.thread == threading.get_ident()
    assert event.number == task.number
    assert 0 <= event.submitted <= event.start < event.end <= p.seconds
    assert event.seconds == pytest.approx(task.ended - task.begun)
    (wait,) = of(p, "wait")
    assert (wait.name, wait.stream, wait.awaits, wait.clock) == ("step", "", task.number, "host")
    assert 0 < wait.start < event.end <= wait.end <= p.seconds


def test_one_stream_that_waits_for_another() -> None:
    first, second = dl.Stream("cpu", name="first"), dl.Stream("cpu#1", name="second")
    release = threading.Event()
    with dl.profile() as p:
        first.submit(release.wait, SECONDS, name="long")
        point = first.record_event()
        second.wait_event(point)
        after = second.submit(dl.ones, 3, name="after")
        release.set()
        assert after.wait(SECONDS)
    waits = [event for event in of(p, "wait") if event.stream]
    assert [(e.device, e.stream, e.awaits) for e in waits] == [("cpu#1", "second", point.task.number)]  # type: ignore[union-attr]
    tasks = {event.name: event for event in of(p, "task")}
    assert tasks.keys() == {"long", "record_event", "wait_event", "after"}
    assert tasks["long"].end <= waits[0].end <= tasks["after"].start
    assert p.utilisation()["cpu#1"].waiting > 0
    assert {e.device for e in of(p, "kernel")} <= {"cpu#1"}


def test_kernels_name_the_device_that_they_ran_for() -> None:
    x = dl.tensor([-1.0, 2.0], device="cpu#1")
    with dl.profile() as p, phase("forward"):
        x.relu()
    assert [(e.device, e.phase) for e in of(p, "kernel")] == [("cpu#1", "forward")]


def test_a_task_that_fails_says_so() -> None:
    stream = dl.Stream("cpu")
    with dl.profile() as p:
        task = stream.submit(lambda: 1 / 0)
        task.wait(SECONDS)
    (event,) = of(p, "task")
    assert event.state == "failed"
    assert event.end > event.start


def test_a_task_that_outlives_the_profile() -> None:
    release = threading.Event()
    begun = threading.Event()

    def work() -> None:
        begun.set()
        release.wait(SECONDS)

    stream = dl.Stream("cpu")
    with dl.profile() as p:
        task = stream.submit(work)
        assert begun.wait(SECONDS)
    left = time.perf_counter()
    release.set()
    assert task.wait(SECONDS)
    (event,) = of(p, "task")
    assert p.origin + event.end > left  # seconds of the block count from before the events' zero


@pytest.mark.parametrize("computes", [True, False])
def test_kernels_of_a_simulated_device_are_on_the_virtual_clock(computes: bool) -> None:
    device = simulated_device(gflops=1e-9, gb_per_s=1e30, launch_us=0.0, computes=computes)
    x = dl.ones(2, 3, device=device)
    device.synchronize()
    dl.synchronize()  # copies of others may have come later, and a profile waits for all
    before = clock.now()
    with dl.profile() as p:
        with phase("forward"):
            x @ x.T
        device.synchronize()
    (kernel,) = of(p, "kernel")  # and not the NumPy body too
    assert (kernel.name, kernel.op, kernel.device, kernel.clock, kernel.phase) == (
        "matmul", "matmul", str(device), "virtual", "forward",
    )  # fmt: skip
    assert (kernel.start, kernel.end) == pytest.approx((0.0, 24.0))
    assert kernel.flops == 24
    (wait,) = of(p, "wait")
    assert (wait.device, wait.clock, wait.stream) == (str(device), "virtual", "")
    assert (wait.start, wait.end) == pytest.approx((0.0, 24.0))
    assert clock.now() == pytest.approx(before + 24.0)
    use = p.utilisation()[str(device)]
    assert use.busy == pytest.approx(1.0)
    assert (use.virtual, use.kernels) == (True, 1)
    assert p.virtual_seconds == pytest.approx(24.0)
    assert p.seconds < 24.0


def test_copies_of_a_simulated_device() -> None:
    backend = simple().simulated
    assert backend is not None
    clock.set_to(100.0)
    with dl.profile() as p:
        backend.upload(300_000)
        backend.upload(200_000)
        backend.upload(10)
        backend.download(400_000)
    assert [(e.kind, e.start, e.end, e.nbytes, e.clock) for e in p.events] == [
        ("upload", 0.0, 300_000.0, 300_000, "virtual"),
        ("upload", 300_000.0, 500_000.0, 200_000, "virtual"),
        ("upload", 0.0, 10.0, 10, "virtual"),  # between the packets of the others
        ("download", 0.0, 400_000.0, 400_000, "virtual"),
    ]
    assert backend.moved == {"upload": 500_010, "download": 400_000}


def test_streams_of_two_simulated_devices(tmp_path: Path) -> None:
    """The second one waits for the first, on the virtual clock, and the trace shows all of it."""
    one, two = simple(), simple()
    x = {device: dl.ones(2, 2, device=device) for device in (one, two)}
    first, second = dl.Stream(one, name="first"), dl.Stream(two, name="second")
    for device in (one, two):
        device.synchronize()
    start = max(clock.now(), *(d.simulated.computed_until for d in (one, two) if d.simulated))
    clock.set_to(start)

    def product(device: dl.Device) -> None:
        x[device] @ x[device]
        device.synchronize()

    with dl.profile() as p:
        first.submit(product, one, name="ahead")
        second.wait_stream(first)
        assert second.submit(product, two, name="behind").wait(SECONDS)
    tasks = {event.name: (event.start, event.end) for event in of(p, "task")}
    assert tasks["ahead"] == (0.0, 16.0)
    assert tasks["behind"] == (16.0, 32.0)
    waits = {event.stream: (event.start, event.end) for event in of(p, "wait")}
    assert waits == {"second": (0.0, 16.0), "": (0.0, 32.0)}
    use = p.utilisation()
    assert [(u.busy, u.waiting) for u in (use[str(one)], use[str(two)])] == [(0.5, 0.0), (0.5, 0.5)]
    shown = " ".join(str(p).split())  # a long name of a device wraps the line
    assert f"{two}: busy 50.0%, transfers 0.0%, waiting 50.0% of 32000.00 ms of virtual time" in shown

    p.save(tmp_path / "trace.json")
    entries = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in entries if e["name"] == "process_name"}
    assert {"host", "host (virtual clock)", f"{one} (virtual clock)"} <= set(names.values())
    arrows = [
        (e["ph"], names[e["pid"]], e["ts"]) for e in entries if e.get("cat") == "wait" and e["ph"] in "sf"
    ]
    assert ("s", f"{one} (virtual clock)", 16e6) in arrows
    assert ("f", f"{two} (virtual clock)", 16e6) in arrows


def test_a_device_that_hangs_leaves_a_profile_that_can_be_saved(tmp_path: Path) -> None:
    device = simulated_device(failures=(Failure("hang", "forward"),))
    x = dl.ones(2, 2, device=device)

    def work() -> None:
        with phase("forward"):
            x @ x

    stream = dl.Stream(device)
    with dl.profile() as p:
        task = stream.submit(work)
        assert not task.wait(5.0)
    (event,) = of(p, "task")
    assert event.state == "hung"
    assert event.end == event.start
    (wait,) = of(p, "wait")
    assert wait.seconds == 5.0
    p.save(tmp_path / "trace.json")
    json.loads((tmp_path / "trace.json").read_text("utf-8"), parse_constant=lambda word: pytest.fail(word))


def test_nothing_is_recorded_when_it_is_off() -> None:
    stream = dl.Stream("cpu")
    with dl.profile() as p:
        stream.submit(dl.ones, 3).result(SECONDS)
    count = len(p.events)
    task = stream.submit(dl.ones, 3)
    task.result(SECONDS)
    stream.synchronize(SECONDS)
    assert task.note_end is None
    assert len(p.events) == count > 0
