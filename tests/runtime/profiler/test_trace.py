"""The trace file of a profile."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import FileFormatError
from dl4all.runtime.profiler.phase import phase
from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.runtime.profiler.trace import trace
from dl4all.scheduler.cost.simulation import simulated_device


def read(file: Path) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    found: dict[str, Any] = json.loads(file.read_text("utf-8"), parse_constant=refuse)
    return found


def check(entries: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What every trace must be; returns its entries by the names of process and track."""
    names: dict[Any, str] = {}
    for entry in entries:
        if entry["ph"] == "M":
            key = entry["pid"] if entry["name"] == "process_name" else (entry["pid"], entry["tid"])
            assert key not in names
            names[key] = entry["args"]["name"]
    body = [entry for entry in entries if entry["ph"] != "M"]
    assert [entry["ts"] for entry in body] == sorted(entry["ts"] for entry in body)
    tracks = defaultdict(list)
    for entry in body:
        assert entry["ph"] in ("X", "i", "s", "f")
        assert 0 <= entry["ts"] < float("inf")
        tracks[names[entry["pid"]], names[entry["pid"], entry["tid"]]].append(entry)
    for entries in tracks.values():
        check_nesting([entry for entry in entries if entry["ph"] == "X"])
        check_arrows_touch_slices(entries)
    check_arrows([entry for entry in body if entry["ph"] in "sf"])
    return tracks


def check_arrows_touch_slices(entries: list[dict[str, Any]]) -> None:
    """An end of an arrow belongs to the slice around it; where none is, viewers do not show the arrow."""
    slices = [entry for entry in entries if entry["ph"] == "X"]
    for entry in entries:
        if entry["ph"] in "sf":
            assert any(s["ts"] <= entry["ts"] <= round(s["ts"] + s["dur"], 3) for s in slices)


def check_arrows(entries: list[dict[str, Any]]) -> None:
    """Each has one beginning and then one end, which say that they belong together."""
    begun: dict[Any, dict[str, Any]] = {}
    for entry in entries:
        if entry["ph"] == "s":
            assert entry["id"] not in begun
            begun[entry["id"]] = entry
        else:
            start = begun[entry["id"]]
            assert (start["name"], start["cat"]) == (entry["name"], entry["cat"])
            assert start["ts"] <= entry["ts"]
            assert entry["bp"] == "e"
    assert sorted(begun) == sorted(entry["id"] for entry in entries if entry["ph"] == "f")


def check_nesting(entries: list[dict[str, Any]]) -> None:
    """Two spans of one track lie one after the other, or one in the other, which then comes first."""
    open_until: list[float] = []
    for entry in entries:
        assert entry["dur"] >= 0
        while open_until and open_until[-1] <= entry["ts"]:
            open_until.pop()
        end = round(entry["ts"] + entry["dur"], 3)  # viewers count whole nanoseconds
        assert not open_until or end <= open_until[-1]
        open_until.append(end)


def test_a_real_profile(device: str, tmp_path: Path) -> None:
    x = dl.rand(33, 33, device=device)

    def work() -> None:
        for _ in range(10):
            (x.T @ x).relu()

    with dl.profile() as p:
        other = threading.Thread(target=work)
        other.start()
        work()
        dl.tensor([1.0, 2.0], device=device).numpy()
        other.join()
    p.save(tmp_path / "trace.json")
    tracks = check(read(tmp_path / "trace.json")["traceEvents"])

    processes = {process for process, _ in tracks}
    assert processes == {"host", device}
    threads = [entries for (process, _), entries in tracks.items() if process == "host"]
    assert len(threads) == 2
    ops = [e for entries in threads for e in entries if e["cat"] == "op"]
    kernels = [e for entries in tracks.values() for e in entries if e["cat"] == "kernel"]
    assert (
        sorted(e["name"] for e in ops if e["name"] in ("matmul", "relu")) == ["matmul"] * 20 + ["relu"] * 20
    )
    assert len(kernels) == sum(e.kind == "kernel" for e in p.events)
    streams = [track for process, track in tracks if process == device and track.startswith("stream")]
    assert len(streams) == (2 if device == "cpu" else 1)
    if device != "cpu":
        assert [e["name"] for e in tracks[device, "transfers up"]] == ["upload"]
        assert [e["name"] for e in tracks[device, "transfers down"]] == ["download"]
    assert all(e["args"]["op"] in ("matmul", "relu", "clone") for e in kernels)
    first = next(e for e in ops if e["name"] == "matmul")
    assert first["args"]["flops"] == 2 * 33**3
    assert first["args"]["shapes"] == [[33, 33], [33, 33]]


def test_one_trace_over_several_devices(device: str, tmp_path: Path) -> None:
    """Queues, kernels, waits and transfers of a device and of a simulated one, with arrows between them."""
    simulated = simulated_device()
    first, second = dl.Stream(device, name="first"), dl.Stream(simulated, name="second")
    x = dl.rand(8, 8, device=device)

    def work() -> None:
        with phase("forward"):
            assert np.isfinite((x @ x).numpy()).all()

    with dl.profile() as p:
        tasks = [first.submit(work, name="step")]
        second.wait_stream(first)
        tasks.append(second.submit(lambda: dl.ones(8, 8, device=simulated).relu(), name="behind"))
        for task in tasks:
            task.result(60.0)
        assert second.synchronize(60.0)
    p.save(tmp_path / "trace.json")
    entries = read(tmp_path / "trace.json")["traceEvents"]
    tracks = check(entries)
    virtual = f"{simulated} (virtual clock)"
    assert {(device, "queue of first"), (virtual, "queue of second"), (virtual, "stream")} <= tracks.keys()
    assert next(e["args"]["name"] for e in entries if e["name"] == "process_name") == "host"
    names = [e["name"] for e in tracks[device, "queue of first"] if e["ph"] == "X"]
    assert names == ["step", "record_event"]
    (kernel,) = [
        e for es in tracks.values() for e in es if e["cat"] == "kernel" and e["args"]["op"] == "matmul"
    ]
    assert kernel["args"]["phase"] == "forward"
    assert ("transfers down" in [track for process, track in tracks if process == device]) == (
        device != "cpu"
    )
    assert [e["name"] for e in tracks[virtual, "stream"]][-1] == "relu"
    submitted = [
        e["name"]
        for e in tracks["host (virtual clock)", "thread 1"]
        if e["cat"] == "submit" and e["ph"] == "X"
    ]
    assert submitted[:2] == ["submit wait_event", "submit behind"]


def test_times_are_microseconds_and_the_longer_span_comes_first() -> None:
    events = [
        RecordedEvent("op", "inner", "cpu", 7, 0.001, 0.002),
        RecordedEvent("op", "outer", "cpu", 7, 0.001, 0.0035),
        RecordedEvent("allocation", "driver", "cpu", 7, 0.003, 0.003, nbytes=5),
    ]
    found = trace(events)
    tracks = check(found["traceEvents"])
    entries = tracks["host", "ops of thread 1"]
    assert [(e["name"], e["ts"], e.get("dur")) for e in entries] == [
        ("outer", 1000.0, 2500.0),
        ("inner", 1000.0, 1000.0),
        ("allocation from the driver", 3000.0, None),
    ]


def test_devices_and_transfers_have_tracks_of_their_own() -> None:
    kinds: list[Any] = ["op", "kernel", "upload", "download"]
    events = [
        RecordedEvent(kind, kind, place, thread, 0.5, 1.0)
        for kind in kinds
        for place in ("vulkan:0", "vulkan:1")
        for thread in (11, 12)
    ]
    for i, event in enumerate(events):
        event.start, event.end = i * 1.0, i + 0.5
    assert check(trace(events)["traceEvents"]).keys() == {
        ("host", "ops of thread 1"),
        ("host", "ops of thread 2"),
        ("vulkan:0", "stream"),
        ("vulkan:1", "stream"),
        ("vulkan:0", "transfers up"),
        ("vulkan:1", "transfers up"),
        ("vulkan:0", "transfers down"),
        ("vulkan:1", "transfers down"),
    }


def test_the_cpu_opened_again_has_a_stream_for_each_thread() -> None:
    events = [RecordedEvent("kernel", "relu", "cpu#1", thread, 0.0, 1.0) for thread in (11, 12)]
    assert check(trace(events)["traceEvents"]).keys() == {
        ("cpu#1", "stream of thread 1"),
        ("cpu#1", "stream of thread 2"),
    }


def test_what_overlaps_lies_on_two_tracks() -> None:
    times = [(0.0, 2.0), (1.0, 3.0), (1.5, 2.0), (2.0, 4.0)]
    events = [RecordedEvent("upload", str(i), "vulkan:0", 1, *time) for i, time in enumerate(times)]
    tracks = check(trace(events)["traceEvents"])
    shown = {track: [entry["name"] for entry in entries] for (_, track), entries in tracks.items()}
    assert shown == {"transfers up": ["0", "2", "3"], "transfers up (2)": ["1"]}


def test_arrows_lead_from_submissions_to_tasks_and_from_events_to_waits() -> None:
    events = [
        RecordedEvent("task", "record_event", "vulkan:0", 7, 1.0, 1.5, stream="one", number=4, submitted=0.5),
        RecordedEvent("task", "step", "cpu", 7, 2.0, 3.0, stream="two", number=5, submitted=-1.0),
        RecordedEvent("wait", "event", "cpu", 9, 2.0, 2.5, stream="two", awaits=4),
        RecordedEvent("wait", "step", "", 7, 2.5, 3.25, awaits=5),
        RecordedEvent("wait", "event", "cpu", 9, 4.0, 4.5, stream="two", awaits=3),  # of before the profile
    ]
    tracks = check(trace(events)["traceEvents"])
    ends: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for place, entries in tracks.items():
        for e in entries:
            if e["ph"] in "sf":
                ends[e["cat"], e["id"]].append((e["ph"], *place, e["ts"]))
    arrows = sorted([cat, *sorted(pair, reverse=True)] for (cat, _), pair in ends.items())
    assert arrows == [
        ["submit", ("s", "host", "ops of thread 1", 5e5), ("f", "vulkan:0", "queue of one", 1e6)],
        ["wait", ("s", "cpu", "queue of two", 3e6), ("f", "host", "ops of thread 1", 3.25e6)],
        ["wait", ("s", "vulkan:0", "queue of one", 1.5e6), ("f", "cpu", "waits of two", 2.5e6)],
    ]
    names = [e["name"] for e in tracks["host", "ops of thread 1"] if e["ph"] == "X"]
    assert names == ["submit record_event", "wait for step"]


def test_virtual_times_have_processes_of_their_own() -> None:
    events = [
        RecordedEvent("op", "relu", "simulated:0", 7, 0.25, 0.5),
        RecordedEvent("kernel", "relu", "simulated:0", 7, -2.0, -1.0, clock="virtual"),
        RecordedEvent("upload", "upload", "simulated:0", 7, 0.0, 0.5, clock="virtual"),
        RecordedEvent(
            "task", "step", "simulated:0", 7, 1.0, 2.0, stream="s", number=1, submitted=0.5, clock="virtual"
        ),
        RecordedEvent("wait", "step", "", 7, 0.5, 2.0, awaits=1, clock="virtual"),
        RecordedEvent("wait", "step", "cpu", 8, 0.5, 2.0, stream="t", awaits=1),
    ]
    tracks = check(trace(events)["traceEvents"])
    starts = {place: [e["ts"] for e in entries if e["ph"] == "X"] for place, entries in tracks.items()}
    device = "simulated:0 (virtual clock)"
    assert starts == {
        ("host", "ops of thread 1"): [0.25e6],
        (device, "stream"): [0.0],  # all virtual times are shifted, and no other one
        (device, "transfers up"): [2e6],
        (device, "queue of s"): [3e6],
        ("host (virtual clock)", "thread 1"): [2.5e6, 2.5e6],
        ("cpu", "waits of t"): [0.5e6],
    }
    assert {
        e["args"]["clock"] for (p, _), es in tracks.items() for e in es if p == device and e["ph"] == "X"
    } == {"virtual"}
    # The wait of a stream on the real clock for a task on the virtual one has no arrow.
    assert [e["ph"] for e in tracks["cpu", "waits of t"]] == ["X"]


def test_the_check_of_arrows_can_fail() -> None:
    start, end = {"ph": "s", "id": 1, "ts": 1.0}, {"ph": "f", "id": 1, "ts": 2.0, "bp": "e"}
    named = [{**entry, "name": "wait", "cat": "wait"} for entry in (start, end)]
    check_arrows(named)
    for wrong in (named[:1], [*named, named[0]], [named[0], {**named[1], "ts": 0.5}]):
        with pytest.raises(AssertionError):
            check_arrows(wrong)
    around = {"ph": "X", "ts": 0.0, "dur": 1.0}
    check_arrows_touch_slices([around, start])
    with pytest.raises(AssertionError):
        check_arrows_touch_slices([around, end])


def test_the_check_of_nesting_can_fail() -> None:
    overlapping = [{"ts": 0.0, "dur": 2.0}, {"ts": 1.0, "dur": 2.0}]
    with pytest.raises(AssertionError):
        check_nesting(overlapping)
    check_nesting([{"ts": 0.0, "dur": 2.0}, {"ts": 1.0, "dur": 1.0}, {"ts": 2.0, "dur": 9.0}])
    check_nesting([{"ts": 0.1, "dur": 0.2}, {"ts": 0.3, "dur": 1.0}])  # 0.1 + 0.2 > 0.3


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    p = dl.profile()
    with pytest.raises(FileFormatError, match="cannot be written"):
        p.save(tmp_path)
