"""One trace of several processes: what they send each other is there once for each, at the same times."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.distributed.merged_trace import merged
from tests.distributed.processes import run_commands

SCRIPT = """
import os, sys, time
rank = int(os.environ["RANK"])
clock = time.perf_counter
time.perf_counter = lambda: clock() + 1000.0 * rank  # as on another host
import dl4all as dl

dl.distributed.init_process_group(timeout=60)
dl.manual_seed(0)
net = dl.nn.parallel.DistributedDataParallel(dl.nn.Linear(300, 200).to("cpu"))
x = dl.rand(8, 300, device="cpu")
net(x).sum().backward()
if rank:
    time.sleep(0.2)  # its profile begins later, and the first one's waits for it
with dl.profile() as profile:
    for _ in range(3):
        time.sleep(0.02 * (rank + 1))
        net(x).sum().backward()
dl.distributed.save_trace(profile, "trace.json.gz")
if rank == 0:
    print(profile)
try:
    dl.distributed.save_trace(profile, "nowhere/trace.json")
except dl.errors.FileFormatError as error:
    print("refused", error)
"""


def test_processes_with_other_clocks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    first, second = run_commands(2, [sys.executable, str(script)], tmp_path)
    assert (first.status, second.status) == (0, 0), first.output + second.output
    for one in (first, second):
        assert "refused nowhere/trace.json: cannot be written" in one.output
    assert "all_reduce between processes: 3" in first.output, first.output
    entries = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in entries if e["name"] == "process_name"}
    assert {"rank 0: host", "rank 0: cpu", "rank 1: host", "rank 1: cpu"} == set(names.values())
    times = [entry["ts"] for entry in entries if entry["ph"] != "M"]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] < 60e6
    sums: dict[str, list[dict[str, Any]]] = {"rank 0: host": [], "rank 1: host": []}
    for entry in entries:
        if entry.get("cat") == "collective" and entry["name"] == "all_reduce":
            sums[names[entry["pid"]]].append(entry)
    here, there = sums.values()
    assert len(here) == len(there) == 3
    for ours, theirs in zip(here, there, strict=True):  # each begins before the other ends
        begun, ended = max(ours["ts"], theirs["ts"]), [e["ts"] + e["dur"] for e in (ours, theirs)]
        assert begun < min(ended)
        assert ours["args"]["nbytes"] == 4 * (300 * 200 + 200 + 2)
    arrows = [entry["id"] for entry in entries if entry["ph"] in "sf"]
    assert len(arrows) == 2 * len(set(arrows))


def test_entries_of_ranks_do_not_clash() -> None:
    name: dict[str, Any] = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "host"}}
    virtual = {**name, "pid": 2, "args": {"name": "host (virtual clock)"}}
    slices: list[dict[str, Any]] = [
        {"ph": "X", "pid": pid, "tid": 1, "ts": 5.0, "dur": 1.0, "name": "a"} for pid in (1, 2)
    ]
    arrow: dict[str, Any] = {"ph": "s", "pid": 1, "tid": 1, "ts": 5.0, "id": 7, "name": "submit"}
    found = merged([[name, virtual, *slices, arrow]] * 2, [0.0, -25.0])
    assert [(e["pid"], e["ts"]) for e in found if e["ph"] == "X"] == [(1001, 0), (1, 25), (2, 25), (1002, 25)]
    assert {e["id"] for e in found if e["ph"] == "s"} == {"0.7", "1.7"}
    assert [e["args"]["name"] for e in found if e["name"] == "process_name"] == [
        *("rank 0: host", "rank 0: host (virtual clock)"),
        *("rank 1: host", "rank 1: host (virtual clock)"),
    ]


def test_without_a_group() -> None:
    with dl.profile() as profile:
        pass
    with pytest.raises(dl.errors.DistError, match="there is no group of processes"):
        dl.distributed.save_trace(profile, "trace.json")
