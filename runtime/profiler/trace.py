"""A profile in the Trace Event Format, which Perfetto and Chrome's ``about:tracing`` show.

The host is one process, with a track of ops for each thread. Each device is another, with a track
for its stream and one for its transfers; the CPU has a stream for each thread, because there they
run side by side. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dl4all.runtime.profiler.recorder import Event

HOST = "host"


def trace(events: Iterable[Event]) -> dict[str, Any]:
    """What ``json.dump`` writes to the file."""
    tracks: dict[tuple[str, str], tuple[int, int]] = {}
    processes: dict[str, int] = {}
    threads: dict[int, int] = {}
    body: list[dict[str, Any]] = []
    for event in events:
        thread = threads.setdefault(event.thread, len(threads) + 1)
        process, track = _track(event, thread)
        if (process, track) not in tracks:
            pid = processes.setdefault(process, len(processes) + 1)
            tracks[process, track] = pid, len(tracks) + 1
        pid, tid = tracks[process, track]
        body.append({"pid": pid, "tid": tid, **_entry(event)})
    # Viewers nest what begins at one time in the order of the file, so the longer one comes first.
    body.sort(key=lambda entry: (entry["ts"], -entry.get("dur", 0.0)))
    return {"traceEvents": [*_names(processes, tracks), *body], "displayTimeUnit": "ms"}


def _track(event: Event, thread: int) -> tuple[str, str]:
    """The process and the track in it that show an event."""
    if event.kind in ("op", "allocation", "fallback"):
        return HOST, f"ops of thread {thread}"
    if event.kind in ("upload", "download"):
        return event.device, "transfers"
    return event.device, f"stream of thread {thread}" if event.device == "cpu" else "stream"


def _entry(event: Event) -> dict[str, Any]:
    start = round(event.start * 1e6, 3)
    args: dict[str, Any] = {"device": event.device}
    for name in ("op", "shapes", "nbytes", "flops", "shader", "reason"):
        if value := getattr(event, name):
            args[name] = value
    if event.kind == "kernel":
        args["clock"] = event.clock
    entry = {"name": event.name, "cat": event.kind, "ts": start, "args": args}
    if event.kind == "allocation":
        return {**entry, "name": f"allocation from the {event.name}", "ph": "i", "s": "t"}
    if event.kind == "fallback":
        entry["name"] = f"{event.name} on the CPU"
    # From rounded ends: what touches still touches, and what lies inside still does.
    return {**entry, "ph": "X", "dur": round(round(event.end * 1e6, 3) - start, 3)}


def _names(
    processes: dict[str, int], tracks: dict[tuple[str, str], tuple[int, int]]
) -> Iterable[dict[str, Any]]:
    for process, pid in processes.items():
        yield {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}}
    for (_, track), (pid, tid) in tracks.items():
        yield {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": track}}
