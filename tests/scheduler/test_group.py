"""Groups of devices: which there are, which are left, and their streams."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DeviceError, UnknownDeviceError
from dl4all.runtime import registry
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.streams.group import TIMEOUT, DeviceGroup

pytestmark = pytest.mark.usefixtures("deadline")


def test_a_group_lists_its_devices_in_order() -> None:
    extra = simulated_device()
    group = DeviceGroup(["cpu#1", "cpu", extra])
    assert [str(device) for device in group] == ["cpu#1", "cpu", str(extra)]
    assert (len(group), group.primary, group.timeout) == (3, dl.device("cpu#1"), TIMEOUT)
    assert dl.device("cpu") in group
    assert dl.device("cpu#2") not in group
    assert repr(group) == f"DeviceGroup(['cpu#1', 'cpu', '{extra}'])"


def test_all_means_every_device_once() -> None:
    group = DeviceGroup("all")
    assert group.primary == dl.device(registry.resolve("auto"))
    assert {d.info.hardware for d in group} == {info.hardware for info in registry.usable()}
    assert len(group) == len(registry.usable())


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([], "expected at least one device, got none"),
        (["cpu", "cpu"], "cpu is named twice; name it cpu#1 to open it once more"),
        ("cpu", r"expected a list of devices or 'all', got 'cpu'; use \['cpu'\]"),
    ],
)
def test_groups_that_are_none(devices: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[DeviceGroup\] {message}"):
        DeviceGroup(devices)


def test_other_arguments_that_no_group_can_have() -> None:
    with pytest.raises(ArgumentError, match="timeout must be more than 0 seconds, got 0"):
        DeviceGroup(["cpu"], timeout=0)
    with pytest.raises(UnknownDeviceError):
        DeviceGroup(["cpu", "nowhere:0"])


def test_a_device_has_one_stream() -> None:
    with DeviceGroup(["cpu", "cpu#1"]) as group:
        with ThreadPoolExecutor(8) as pool:
            streams = set(pool.map(lambda _: group.stream(group.primary), range(50)))
        assert len(streams) == 1
        stream = streams.pop()
        assert stream is not group.stream(group.devices[1])
        assert stream.submit(lambda: str(dl.ones(1).device)).result(30) == "cpu"
    assert stream.join(30)
    with pytest.raises(ArgumentError, match=r"\[DeviceGroup\] cpu#2 is not one of cpu, cpu#1"):
        group.stream(dl.device("cpu#2"))


def test_a_retired_device_is_not_used_any_more(caplog: pytest.LogCaptureFixture) -> None:
    group = DeviceGroup(["cpu", "cpu#1", "cpu#2"])
    first, second, third = group.devices
    stream, opened, reached = group.stream(first), threading.Event(), threading.Event()

    def run() -> bool:
        reached.set()
        return opened.wait(30)

    running, waiting = stream.submit(run), stream.submit(int)
    assert reached.wait(30)
    with caplog.at_level(logging.WARNING, "dl4all"), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: group.retire(first, f"reason {n}"), range(4)))  # said and done once
    assert len(caplog.messages) == 1
    assert "cpu is retired (reason" in caplog.messages[0]
    assert "cpu#1, cpu#2 goes on" in caplog.messages[0]
    assert waiting.state == "cancelled"
    assert group.alive == (second, third)
    assert group.primary is second
    assert first not in group
    with pytest.raises(DeviceError, match=r"\[DeviceGroup\] cpu is retired \(reason"):
        group.stream(first)
    opened.set()
    assert running.result(30)
    assert stream.join(30)


def test_a_group_without_a_device_says_why() -> None:
    group = DeviceGroup(["cpu", "cpu#1"])
    for device in group.devices:
        group.retire(device, f"{device} broke")
    assert not len(group)
    with pytest.raises(DeviceError, match=r"no device is left \(cpu: cpu broke; cpu#1: cpu#1 broke\)"):
        _ = group.primary
    with pytest.raises(ArgumentError, match="not one of"):
        group.retire(dl.device("cpu#2"), "unknown")


def test_closing_leaves_the_devices_open() -> None:
    group = DeviceGroup(["cpu"])
    stream = group.stream(group.primary)
    stream.submit(int).result(30)
    group.close()
    assert stream.join(30)
    assert group.stream(group.primary).submit(lambda: dl.ones(2).sum().item()).result(30) == 2.0
