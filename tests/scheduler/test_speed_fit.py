"""The speeds of a device from the times of a profile."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.runtime.null.backend import NullBackend
from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.runtime.records import device_records, file_cache, speed_records
from dl4all.runtime.work import Speeds
from dl4all.scheduler.cost.cost_model import calibrated, speeds
from dl4all.scheduler.cost.speed_fit import fit, keep, samples
from dl4all.scheduler.device.device import Device

TRUE = Speeds(
    launch=20e-6,
    per_byte=1 / 30e9,
    per_flop_of={"conv.conv2d": 1 / 200e9, "linalg.matmul": 1 / 90e9},
    transfer=50e-6,
    per_byte_up=1 / 6e9,
    per_byte_down=1 / 3e9,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def cpu() -> Device:
    return dl.device("cpu")


def seconds(kind: str, nbytes: int, flops: int) -> float:
    return TRUE.launch + nbytes * TRUE.per_byte + flops * TRUE.per_flop_in(kind)


def ops(count: int, device: str = "cpu", start: float = 0.0) -> Iterator[RecordedEvent]:
    """Ops of three families and many sizes that take what the true speeds say, one after another."""
    rng = np.random.default_rng(0)
    now = start
    for i in range(count):
        kind = ("conv.conv2d", "linalg.matmul", "elementwise")[i % 3]
        nbytes = int(10 ** rng.uniform(3, 7))
        flops = 0 if kind == "elementwise" else int(nbytes * 10 ** rng.uniform(-1, 2.5))
        taken = seconds(kind, nbytes, flops)
        yield RecordedEvent(
            "op", f"op{i}", device, 1, now, now + taken, nbytes=nbytes, flops=flops, kernel_class=kind
        )
        now += 2 * taken


def assert_true(found: Speeds, rel: float) -> None:
    assert found.launch == pytest.approx(TRUE.launch, rel=rel)
    assert found.per_byte == pytest.approx(TRUE.per_byte, rel=rel)
    assert found.per_flop_of == pytest.approx(dict(TRUE.per_flop_of), rel=rel)


def test_the_true_speeds_are_found(cpu: Device) -> None:
    assert_true(fit(list(ops(90)), cpu), 0.01)


def test_calls_that_were_interrupted_have_no_weight(cpu: Device) -> None:
    events = [event for i in range(3) for event in ops(90, start=100.0 * i)]
    for event in events[:90:3]:
        event.end = event.start + 2 * event.seconds
    assert_true(fit(events, cpu), 0.01)


def test_the_sum_is_that_of_the_profile_though_kernels_of_a_class_are_unlike(cpu: Device) -> None:
    events, now = [], 0.0
    for event in ops(90):
        slow = 40 if event.kernel_class == "conv.conv2d" and event.nbytes % 3 == 0 else 1
        taken = slow * event.seconds
        event.start, event.end, now = now, now + taken, now + 2 * taken
        events.append(event)
    found = fit(events, cpu)
    predicted = [
        found.launch + event.nbytes * found.per_byte + event.flops * found.per_flop_in(event.kernel_class)
        for event in events
    ]
    assert sum(predicted) == pytest.approx(sum(event.seconds for event in events), rel=0.02)
    assert found.per_flop_of["linalg.matmul"] == pytest.approx(TRUE.per_flop_of["linalg.matmul"], rel=0.2)


def test_slow_products_with_large_operands_are_no_slow_memory(cpu: Device) -> None:
    """What is not in the profile, such as an optimizer's step, moves bytes at the memory's own speed."""
    events, now = [], 0.0
    for event in ops(90):
        taken = event.seconds + 1e-8 * event.nbytes * (event.kernel_class == "conv.conv2d")
        event.start, event.end, now = now, now + taken, now + 2 * taken
        events.append(event)
    found = fit(events, cpu)
    assert found.launch == pytest.approx(TRUE.launch, rel=0.01)
    assert found.per_byte == pytest.approx(TRUE.per_byte, rel=0.01)
    assert found.per_flop_of["linalg.matmul"] == pytest.approx(TRUE.per_flop_of["linalg.matmul"], rel=0.01)
    assert found.per_flop_of["conv.conv2d"] > 1.1 * TRUE.per_flop_of["conv.conv2d"]


def test_of_the_same_call_the_median_counts(cpu: Device) -> None:
    times = (1e-3, 2e-3, 90e-3)  # a first call that compiles, say
    events = [
        RecordedEvent(
            "op",
            "relu",
            "cpu",
            1,
            float(i),
            i + taken,
            nbytes=400,
            kernel_class="activation",
            shapes=((10, 10),),
        )
        for i, taken in enumerate(times)
    ]
    (sample,) = samples(events, cpu)
    assert sample[:3] == ("activation", 400, 0)
    assert sample.seconds == pytest.approx(2e-3)
    assert sample.calls == 3


def test_what_a_profile_does_not_say_stays_as_it_was(cpu: Device) -> None:
    before = calibrated("cpu", cpu.info)
    found = fit([event for event in ops(90) if event.kernel_class == "elementwise"], cpu)
    assert found.per_byte == pytest.approx(TRUE.per_byte, rel=0.01)
    assert found.per_flop_of == {}
    assert found.per_flop == before.per_flop
    assert (found.transfer, found.per_byte_up) == (before.transfer, before.per_byte_up)


def test_ops_of_one_size_leave_the_ratio_of_causes_alone(cpu: Device) -> None:
    """A launch cannot be told from its bytes; both must stay positive and explain the time together."""
    events = [
        RecordedEvent("op", "add", "cpu", 1, i, i + 1e-3, nbytes=10**6, kernel_class="elementwise")
        for i in range(5)
    ]
    found = fit(events, cpu)
    assert found.launch > 0
    assert found.per_byte > 0
    assert found.launch + 10**6 * found.per_byte == pytest.approx(1e-3, rel=0.01)


def test_copies_have_speeds_of_their_own(cpu: Device) -> None:
    copies = []
    for i, nbytes in enumerate((1000, 10**5, 10**6, 10**7)):
        for kind, per_byte in (("upload", TRUE.per_byte_up), ("download", TRUE.per_byte_down)):
            taken = TRUE.transfer + nbytes * per_byte
            copies.append(RecordedEvent(kind, kind, "cpu", 1, i, i + taken, nbytes=nbytes))  # type: ignore[arg-type]
    found = fit([*ops(30), *copies], cpu)
    assert found.transfer == pytest.approx(TRUE.transfer, rel=0.01)
    assert found.per_byte_up == pytest.approx(TRUE.per_byte_up, rel=0.01)
    assert found.per_byte_down == pytest.approx(TRUE.per_byte_down, rel=0.01)


def test_a_device_that_runs_by_itself_takes_the_longer_of_recording_and_running() -> None:
    null = Device.of_backend("null:0", NullBackend())

    def op(name: str, start: float, recorded: float, *kernels: float) -> list[RecordedEvent]:
        events = [
            RecordedEvent("op", name, "null:0", 1, start, start + recorded, nbytes=8, kernel_class="conv")
        ]
        for taken in kernels:
            events.append(RecordedEvent("kernel", "k", "null:0", 1, start + 5, start + 5 + taken, op=name))
        return events

    events = [
        *op("quick to run", 0.0, 0.25, 0.125),
        *op("slow to run", 1.0, 0.25, 0.5, 0.25),
        *op("waits for the device", 2.0, 9.0, 0.125),
    ]
    assert [sample.seconds for sample in samples(events, null)] == pytest.approx([0.25, 0.75, 0.25])


def test_ops_within_ops_and_on_other_devices_do_not_count(cpu: Device) -> None:
    events = [
        RecordedEvent("op", "outer", "cpu", 1, 0.0, 1.0, nbytes=8, kernel_class="conv"),
        RecordedEvent("op", "inner", "cpu", 1, 0.25, 0.5, nbytes=8, kernel_class="linalg.matmul"),
        RecordedEvent("op", "of another thread", "cpu", 2, 0.25, 0.5, nbytes=8, kernel_class="linalg.matmul"),
        RecordedEvent("op", "elsewhere", "vulkan:0", 1, 2.0, 3.0, nbytes=8, kernel_class="conv"),
    ]
    assert [(sample.kind, sample.seconds) for sample in samples(events, cpu)] == [
        ("conv", 1.0),
        ("linalg.matmul", 0.25),
    ]


def test_a_profile_without_the_device_is_refused(cpu: Device) -> None:
    with pytest.raises(ArgumentError, match=r"\[fit\] nothing in the profile ran on cpu"):
        fit(list(ops(3, "vulkan:0")), cpu)


def test_a_real_profile_says_what_ops_are_made_of(cpu: Device) -> None:
    x, w = dl.rand(3, 5, device="cpu"), dl.rand(7, 5, device="cpu")
    with dl.profile() as p:
        (x @ w.T).relu()
    (matmul, relu) = [event for event in p.events if event.kind == "op"]
    assert (matmul.kernel_class, matmul.nbytes, matmul.flops) == (
        "linalg.matmul",
        4 * (15 + 35 + 21),
        2 * 3 * 5 * 7,
    )
    assert (relu.kernel_class, relu.nbytes, relu.flops) == ("activation", 4 * 42, 0)
    assert fit(p, cpu).per_flop_of.keys() == {"linalg.matmul"}


# Records


def test_kept_speeds_go_before_calibration(cpu: Device) -> None:
    assert speeds(cpu) == calibrated("cpu", cpu.info)
    keep(TRUE, cpu)
    assert speeds(cpu) == TRUE
    assert calibrated("cpu", cpu.info) != TRUE


def test_a_record_is_of_one_driver(cpu: Device) -> None:
    keep(TRUE, cpu)
    assert speed_records.lookup("cpu", cpu.info) == TRUE
    assert speed_records.lookup("cpu", dataclasses.replace(cpu.info, driver_version="next")) is None


@pytest.mark.parametrize(
    "change",
    [
        {"launch": -1.0},
        {"launch": float("nan")},
        {"launch": "fast"},
        {"per_flop_of": [1.0]},
        {"per_flop_of": {"conv": float("inf")}},
        {"unknown": 1.0},
    ],
)
def test_a_record_that_cannot_be_true_does_not_count(
    cpu: Device, own_cache: Path, change: dict[str, Any]
) -> None:
    keep(TRUE, cpu)
    (file,) = (own_cache / speed_records.FOLDER).iterdir()
    content = json.loads(file_cache.read(file) or b"")
    content["speeds"].update(change)
    file_cache.write(file, json.dumps(content).encode())
    assert device_records.read(file, content["of"]) is not None
    assert speed_records.lookup("cpu", cpu.info) is None
    assert speeds(cpu) == calibrated("cpu", cpu.info)
