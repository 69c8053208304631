"""Events: across devices, at the right point, with timeouts and times."""

from __future__ import annotations

import threading
import time

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, CancelledError
from dl4all.runtime.simulated import clock
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.event import Event
from dl4all.scheduler.streams.stream import Stream
from tests.conftest import need

pytestmark = pytest.mark.usefixtures("deadline")


def test_an_event_that_was_never_recorded_has_come() -> None:
    event, stream = Event(), Stream("cpu")
    assert event.query()
    assert event.synchronize(0.0)
    stream.wait_event(event)
    assert stream.submit(lambda: 1).result(30) == 1


def test_an_event_comes_behind_what_was_submitted_and_before_what_follows(device: str) -> None:
    stream, opened = Stream(device), threading.Event()
    task = stream.submit(lambda: (opened.wait(30), dl.ones(3).sum())[1])
    event = stream.record_event()
    after = stream.submit(opened.clear)
    assert not event.query()
    assert not event.synchronize(0.01)
    opened.set()
    assert event.synchronize(30)
    assert event.query()
    assert task.done()
    assert task.result().item() == 3.0
    after.result(30)


@pytest.mark.vulkan
def test_a_chain_across_devices() -> None:
    """Each stream waits for the one before; nothing else orders them."""
    need("vulkan:0")
    devices: list[str | Device] = ["cpu", "vulkan:0", "cpu#1", simulated_device(), "vulkan:0#1", "cpu"]
    streams = [Stream(device) for device in devices]
    values = [dl.zeros(2, device="cpu")]
    for stream in streams * 3:
        stream.submit(lambda stream=stream: values.append(values[-1].to(stream.device) * 2 + 1))
        event = Event()
        event.record(stream)
        for other in streams:
            if other is not stream:
                event.wait(other)
    for stream in streams:
        assert stream.synchronize(30)
    assert values[-1].tolist() == [2.0**18 - 1] * 2
    assert values[-1].device == dl.device("cpu")


def test_wait_stream_orders_two_streams() -> None:
    for _ in range(50):
        first, second = Stream("cpu"), Stream("cpu#1")
        order: list[str] = []
        first.submit(time.sleep, 0.001)
        first.submit(order.append, "first")
        second.wait_stream(first)
        second.submit(order.append, "second")
        assert second.synchronize(30)
        assert order == ["first", "second"]


def test_a_wait_is_for_the_point_that_was_recorded_then() -> None:
    """Recording the event again moves it for those who wait later only."""
    first, second = Stream("cpu"), Stream("cpu#1")
    opened = threading.Event()
    busy = threading.Event()
    held = second.submit(busy.wait, 30)
    event = first.record_event()
    second.wait_event(event)
    got = second.submit(lambda: "came")
    first.submit(opened.wait, 30)
    event.record(first)
    busy.set()
    assert held.result(30)
    assert got.result(30) == "came"
    assert not event.synchronize(0.01)
    opened.set()
    assert event.synchronize(30)


def test_an_event_of_a_closed_stream_does_not_come() -> None:
    stream, opened = Stream("cpu"), threading.Event()
    stream.submit(opened.wait, 30)
    event = stream.record_event()
    stream.close()
    with pytest.raises(CancelledError):
        event.synchronize(30)
    with pytest.raises(CancelledError):
        event.query()
    opened.set()


# Times


def test_elapsed_time_is_in_milliseconds(device: str) -> None:
    stream = Stream(device)
    begin, end = Event(enable_timing=True), Event(enable_timing=True)
    begin.record(stream)
    sleep = stream.submit(time.sleep, 0.02)
    task = stream.submit(lambda: dl.ones(100, 100) @ dl.ones(100, 100))
    end.record(stream)
    elapsed = begin.elapsed_time(end)
    assert elapsed >= (task.ended - sleep.begun) * 1e3 >= 20.0
    assert end.elapsed_time(begin) == -elapsed


def test_elapsed_time_is_exact_on_the_virtual_clock() -> None:
    device = simulated_device(
        gflops=1.0, gb_per_s=1e9, launch_us=0.0, link_gb_per_s=float("inf"), link_us=0.0
    )
    stream = Stream(device)
    begin, end = Event(enable_timing=True), Event(enable_timing=True)
    x = dl.ones(100, 100).to(device)
    stream.record_event(begin)
    stream.submit(lambda: x @ x)
    stream.record_event(end)
    assert device.simulated is not None
    assert end.synchronize()
    assert begin.elapsed_time(end) == pytest.approx(device.simulated.busy * 1e3, rel=1e-12)
    assert device.simulated.busy > 0


def test_elapsed_time_needs_two_timed_events_of_one_clock() -> None:
    real, virtual = Stream("cpu"), Stream(simulated_device())
    timed, plain, other = Event(enable_timing=True), Event(), Event(enable_timing=True)
    real.record_event(timed)
    real.record_event(plain)
    virtual.record_event(other)
    for pair in ((timed, plain), (plain, timed), (timed, Event(enable_timing=True))):
        with pytest.raises(ArgumentError, match="enable_timing=True"):
            pair[0].elapsed_time(pair[1])
    with pytest.raises(ArgumentError, match="virtual clock"):
        timed.elapsed_time(other)


def test_a_virtual_event_comes_when_its_device_is_there() -> None:
    device = simulated_device(gflops=1.0, gb_per_s=1e9, launch_us=0.0)
    assert device.simulated is not None
    stream = Stream(device)
    stream.submit(device.simulated.launch, "", 0.0, 3e9)
    event = stream.record_event()
    assert not event.synchronize(2.0)
    assert clock.now() == 2.0
    assert event.synchronize(2.0)
    assert clock.now() == 3.0
    clock.set_to(0.0)
    assert event.query()
    assert clock.now() == 3.0  # it is known to have come, so it is as late as that


@pytest.mark.vulkan
def test_a_timed_event_comes_behind_what_its_device_computes() -> None:
    """Not when the host has asked for it: slow work lies in front."""
    need("vulkan:0")
    x = dl.rand(1500, 1500, device="vulkan:0")

    def products() -> list[dl.Tensor]:
        return [x @ x]

    stream, begin, end = Stream("vulkan:0"), Event(enable_timing=True), Event(enable_timing=True)
    stream.submit(products).result()[-1].numpy()
    begun = time.perf_counter()
    products()[-1].numpy()
    alone = (time.perf_counter() - begun) * 1e3
    begin.record(stream)
    kept = stream.submit(products)
    end.record(stream)
    assert begin.elapsed_time(end) > alone / 4
    kept.result()[-1].numpy()
