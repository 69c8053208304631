"""The trace file of a profile."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import FileFormatError
from dl4all.runtime.profiler.recorder import Event
from dl4all.runtime.profiler.trace import trace


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
        assert entry["ph"] in ("X", "i")
        assert entry["ts"] >= 0
        tracks[names[entry["pid"]], names[entry["pid"], entry["tid"]]].append(entry)
    for entries in tracks.values():
        check_nesting([entry for entry in entries if entry["ph"] == "X"])
    return tracks


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
        assert [e["name"] for e in tracks[device, "transfers"]] == ["upload", "download"]
    assert all(e["args"]["op"] in ("matmul", "relu", "clone") for e in kernels)
    first = next(e for e in ops if e["name"] == "matmul")
    assert first["args"]["flops"] == 2 * 33**3
    assert first["args"]["shapes"] == [[33, 33], [33, 33]]


def test_times_are_microseconds_and_the_longer_span_comes_first() -> None:
    events = [
        Event("op", "inner", "cpu", 7, 0.001, 0.002),
        Event("op", "outer", "cpu", 7, 0.001, 0.0035),
        Event("allocation", "driver", "cpu", 7, 0.003, 0.003, nbytes=5),
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
        Event(kind, kind, place, thread, 0.5, 1.0)
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
        ("vulkan:0", "transfers"),
        ("vulkan:1", "transfers"),
    }


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
