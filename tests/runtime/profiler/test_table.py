"""The table of a profile."""

from __future__ import annotations

from typing import Any

import pytest
from rich.table import Table

import dl4all as dl
from dl4all.runtime.profiler.recorder import RecordedEvent, short_name
from dl4all.runtime.profiler.table import notes, rows
from dl4all.runtime.spirv import Shader


def kernel(name: str, start: float, end: float, device: str = "vulkan:0", **facts: Any) -> RecordedEvent:
    facts = {"clock": "device"} | facts
    return RecordedEvent("kernel", name, device, 1, start, end, **facts)


EVENTS = [
    RecordedEvent("op", "relu", "vulkan:0", 1, 0.0, 9.0),
    kernel("a [red]", 0.0, 1.0, op="relu", nbytes=10**9),
    kernel("b", 1.0, 4.0, op="matmul", nbytes=3 * 10**9, flops=6 * 10**9),
    kernel("a [red]", 4.0, 5.0, op="neg", nbytes=10**9),
    kernel("b", 5.0, 6.0, device="kompute:0", clock="host"),
    kernel("b", 1.0, 1.0, device="vulkan:1", clock="none"),
    RecordedEvent("upload", "upload", "vulkan:0", 1, 6.0, 6.5, nbytes=10**9),
    RecordedEvent("upload", "upload", "vulkan:0", 1, 7.0, 7.5, nbytes=10**9),
    RecordedEvent("allocation", "pool", "vulkan:0", 1, 7.0, 7.0, nbytes=3000),
    RecordedEvent("allocation", "driver", "vulkan:0", 1, 7.0, 7.0, nbytes=1000),
]


def test_rows_add_up_and_the_slowest_is_first() -> None:
    found = [(r.kernel, r.device, r.calls, r.seconds, r.nbytes, r.flops) for r in rows(EVENTS)]
    assert found == [
        ("b", "vulkan:0", 1, 3.0, 3 * 10**9, 6 * 10**9),
        ("a [red]", "vulkan:0", 2, 2.0, 2 * 10**9, 0),
        ("b", "kompute:0", 1, 1.0, 0, 0),
        ("b", "vulkan:1", 1, 0.0, 0, 0),
    ]
    assert rows(EVENTS)[1].ops == {"relu", "neg"}


def test_variants_that_are_shown_alike_have_rows_of_their_own() -> None:
    assert len(rows([kernel("a", 0, 1, shader="x"), kernel("a", 1, 2, shader="y")])) == 2


def shown(events: list[RecordedEvent], seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "200")
    p = dl.profile()
    monkeypatch.setattr(type(p), "events", events)
    p.seconds = seconds
    return str(p).splitlines()


def test_the_printed_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(EVENTS, 10.0, monkeypatch)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert cells == [
        ["b", "matmul", "vulkan:0", "1", "3000.00", "3000.000", "50.0%", "1.0", "2.0"],
        ["a [red]", "neg, relu", "vulkan:0", "2", "2000.00", "1000.000", "33.3%", "1.0", "-"],
        ["b", "", "kompute:0", "1", "1000.00", "1000.000", "16.7%", "-", "-"],
        ["b", "", "vulkan:1", "1", "-", "-", "-", "-", "-"],
    ]
    assert lines[-len(notes(EVENTS, 10.0)) :] == notes(EVENTS, 10.0)
    assert all(line == line.rstrip() for line in lines)


def test_the_notes() -> None:
    assert notes(EVENTS, 10.0) == [
        "Kernels: 5, 6000.00 ms; the profile: 10000.00 ms.",
        "Uploads: 2, 2000.000 MB in 1000.00 ms, 2.0 GB/s.",
        "Allocations: 2, 0.004 MB; 1 of them, 0.001 MB, from a driver, the others from a pool.",
        "Times on kompute:0 are the host's around each submission, which was waited for.",
        "Some kernels on vulkan:1 were not timed.",
        "vulkan:0: busy 50.0%, transfers 10.0%, waiting 0.0% of 10000.00 ms; 3 kernels.",
        "kompute:0: busy 10.0%, transfers 0.0%, waiting 0.0% of 10000.00 ms; 1 kernels.",
        "vulkan:1: busy 0.0%, transfers 0.0%, waiting 0.0% of 10000.00 ms; 1 kernels.",
    ]
    assert notes([kernel("relu", 0, 1, device="cpu", clock="host")], 2.0) == [
        "Kernels: 1, 1000.00 ms; the profile: 2000.00 ms."
    ]


def test_virtual_and_real_times_are_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        kernel("a", 0.0, 1.0),
        kernel("b", 0.0, 3.0, device="simulated:0", clock="virtual"),
        kernel("c", 3.0, 4.0, device="simulated:0", clock="virtual"),
        RecordedEvent("download", "download", "simulated:0", 1, 4.0, 5.0, nbytes=10**9, clock="virtual"),
    ]
    assert notes(events, 10.0, 8.0) == [
        "Kernels: 1, 1000.00 ms; the profile: 10000.00 ms.",
        "Virtual time: Kernels: 2, 4000.00 ms; the profile: 8000.00 ms.",
        "Virtual time: Downloads: 1, 1000.000 MB in 1000.00 ms, 1.0 GB/s.",
        "vulkan:0: busy 10.0%, transfers 0.0%, waiting 0.0% of 10000.00 ms; 1 kernels.",
        "simulated:0: busy 50.0%, transfers 12.5%, waiting 0.0% of 8000.00 ms of virtual time; 2 kernels.",
    ]
    lines = shown(events, 10.0, monkeypatch)
    shares = [line.split("│")[7].strip() for line in lines if line.startswith("│")]
    assert shares == ["75.0%", "100.0%", "25.0%"]


def test_a_real_profile(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    x = dl.rand(32, 32, device=device)
    with dl.profile() as p:
        (x @ x).relu()
    assert isinstance(p.table(), Table)
    text = str(p)
    for word in ("matmul", "relu", device, "Kernels: 2", "Allocations: "):
        if word != "Allocations: " or device != "cpu":
            assert word in text
    assert ("are the host's" in text) == device.startswith("kompute")


@pytest.mark.parametrize(
    ("path", "defines", "name"),
    [
        ("pool/max_pool2d.comp", (), "pool/max_pool2d"),
        ("a.comp", (("BIAS", "1"), ("TM", "8"), ("VEC", "0"), ("PARAMS", "")), "a BIAS TM=8"),
        ("a.comp", (("OP(a,b)", "(a + b)"), ("RANK", "4")), "a (a + b) RANK=4"),
        ("a.comp", (("OP(x)", "x" * 41),), "a " + "x" * 37 + "..."),
        ("a.comp", (("OP(x)", "x" * 40),), "a " + "x" * 40),
    ],
)
def test_short_names(path: str, defines: tuple[tuple[str, str], ...], name: str) -> None:
    assert short_name(Shader(path, defines)) == name
