"""A profile in the Trace Event Format, which Perfetto and Chrome's ``about:tracing`` show.

The host is one process, with a track for each thread: its ops, its waits, and what it submitted to streams;
and one for what is on its way to other processes.
Each device is another, with tracks for the tasks of each stream (``queue``), the kernels (``stream``), the
transfers up and down, and the waits of each stream. The CPU has a stream for each thread, because there they
run side by side. Arrows lead from where a task was submitted to where it began, and from the task that an
event stands behind to the wait for it.

What ran on the virtual clock of simulated devices has processes of its own, the host's too, which say so in
their names: nothing relates its times to real ones. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.runtime.profiler.table import in_host_memory

HOST = "host"
VIRTUAL = " (virtual clock)"
RANKS = (
    "thread",
    "ops",
    "network",
    "queue",
    "stream",
    "transfers",
    "waits",
)  # of tracks, by their first word


class Track(NamedTuple):
    """A row that the viewer shows."""

    process: str
    name: str


@dataclass
class Slice:
    """An event on its track. Times are microseconds, rounded, so that what touches still touches."""

    track: Track
    start: float
    end: float
    entry: dict[str, Any]
    arrows: list[dict[str, Any]] = field(default_factory=list)  # their ends where the slice begins


def trace(events: Iterable[RecordedEvent]) -> dict[str, Any]:
    """The object that ``json.dump`` writes to the file."""
    listed = list(events)
    # Other threads may be behind the virtual time at which the profile began, and no time may be below 0.
    first = min([event.start for event in listed if event.clock == "virtual"], default=0.0)
    shifts = {False: 0.0, True: max(0.0, -first)}
    threads: dict[int, int] = {}
    slices, tasks, waits = [], dict[int, Slice](), list[tuple[RecordedEvent, Slice]]()
    submissions = []
    for event in listed:
        shift = shifts[event.clock == "virtual"]
        thread = threads.setdefault(event.thread, len(threads) + 1)
        shown = _slice(event, thread, shift)
        slices.append(shown)
        if event.kind == "task":
            tasks[event.number] = shown
            if event.submitted + shift >= 0:  # not before the profile
                submissions.append((_submission(event, thread, shift), shown))
        elif event.kind == "wait":
            waits.append((event, shown))
    pairs = [(tasks[event.awaits], shown) for event, shown in waits if event.awaits in tasks]
    begins, ends = _connect(submissions, pairs)
    slices += [submission for submission, _ in submissions]
    return {"traceEvents": _sorted(_side_by_side(slices), begins, ends), "displayTimeUnit": "ms"}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _slice(event: RecordedEvent, thread: int, shift: float) -> Slice:
    start, end = _microseconds(event.start + shift), _microseconds(event.end + shift)
    return Slice(_track(event, thread), start, end, _entry(event, start, end))


def _track(event: RecordedEvent, thread: int) -> Track:
    """The process and the track in it that show an event."""
    clock = VIRTUAL if event.clock == "virtual" else ""
    if event.kind == "collective":
        return Track(HOST, "network")
    if event.kind in ("op", "range", "allocation", "fallback") or (event.kind == "wait" and not event.stream):
        return _track_of_thread(event, thread)
    process = event.device + clock
    if event.kind == "task":
        return Track(process, f"queue of {event.stream}")
    if event.kind == "wait":
        return Track(process, f"waits of {event.stream}")
    if event.kind in ("upload", "download"):
        return Track(process, f"transfers {'up' if event.kind == 'upload' else 'down'}")
    side_by_side = in_host_memory(event.device)
    return Track(process, f"stream of thread {thread}" if side_by_side else "stream")


def _track_of_thread(event: RecordedEvent, thread: int) -> Track:
    """Of the host; on the virtual clock there are no ops."""
    if event.clock == "virtual":
        return Track(HOST + VIRTUAL, f"thread {thread}")
    return Track(HOST, f"ops of thread {thread}")


def _entry(event: RecordedEvent, start: float, end: float) -> dict[str, Any]:
    args: dict[str, Any] = {"device": event.device} if event.device else {}
    for name in ("op", "phase", "shapes", "nbytes", "flops", "shader", "reason", "state", "waited"):
        if value := getattr(event, name):
            args[name] = value
    if event.kind == "kernel" or event.clock == "virtual":
        args["clock"] = event.clock
    entry = {"name": event.name, "cat": event.kind, "ts": start, "args": args}
    if event.kind == "allocation":
        return {**entry, "name": f"allocation from the {event.name}", "ph": "i", "s": "t"}
    if event.kind == "fallback":
        entry["name"] = f"{event.name} on the CPU"
    if event.kind == "wait":
        entry["name"] = f"wait for {event.name}"
    return {**entry, "ph": "X", "dur": round(end - start, 3)}


def _submission(event: RecordedEvent, thread: int, shift: float) -> Slice:
    """The moment at which a task was submitted, on the track of the thread that did it."""
    moment = _microseconds(event.submitted + shift)
    entry = {"name": f"submit {event.name}", "cat": "submit", "ts": moment, "ph": "X", "dur": 0.0}
    return Slice(_track_of_thread(event, thread), moment, moment, {**entry, "args": {"device": event.device}})


# Arrows

Pairs = list[tuple[Slice, Slice]]
Ends = list[tuple[Slice, dict[str, Any]]]


def _connect(submissions: Pairs, waits: Pairs) -> tuple[Ends, Ends]:
    """Give the slices their arrows; returns the beginnings and the ends of arrows where slices end."""
    number, begins, ends = 0, Ends(), Ends()
    for submission, task in submissions:
        number += 1
        submission.arrows.append(_arrow("s", number, "submit", submission.start))
        task.arrows.append(_arrow("f", number, "submit", task.start))
    for source, wait in waits:
        if source.track.process.endswith(VIRTUAL) != wait.track.process.endswith(VIRTUAL):
            continue  # their times have nothing to do with each other
        number += 1
        begin = _arrow("s", number, "wait", source.end)
        if source.start == source.end:
            source.arrows.append(begin)
        else:
            begins.append((source, begin))
        ends.append((wait, _arrow("f", number, "wait", wait.end)))
    return begins, ends


def _arrow(kind: str, number: int, category: str, moment: float) -> dict[str, Any]:
    """An end of an arrow, which belongs to the slice that lies around it on its track (``bp``)."""
    entry = {"name": category, "cat": category, "ph": kind, "id": number, "ts": moment}
    return {**entry, "bp": "e"} if kind == "f" else entry


# Tracks and order


def _side_by_side(slices: list[Slice]) -> list[Slice]:
    """Move what overlaps without lying in the other to further tracks: viewers show nested slices only."""
    open_until: dict[Track, list[list[float]]] = {}
    for shown in sorted(slices, key=lambda shown: (shown.start, -shown.end)):
        if shown.entry["ph"] != "X":
            continue
        lanes = open_until.setdefault(shown.track, [])
        lane = next((ends for ends in lanes if _has_room(ends, shown)), None)
        if lane is None:
            lane = []
            lanes.append(lane)
        lane.append(shown.end)
        number = next(i for i, ends in enumerate(lanes, 1) if ends is lane)
        if number > 1:
            shown.track = Track(shown.track.process, f"{shown.track.name} ({number})")
    return slices


def _has_room(ends: list[float], shown: Slice) -> bool:
    """Whether a slice lies behind all those of a track, or within the innermost that is open."""
    while ends and ends[-1] <= shown.start:
        ends.pop()
    return not ends or shown.end <= ends[-1]


def _sorted(slices: list[Slice], begins: Ends, ends: Ends) -> list[dict[str, Any]]:
    """All entries with the numbers of their processes and tracks, whose names come first.

    At one time, arrows that begin where a slice ends come before the slices that begin there, and arrows that
    end come last: viewers give an arrow to the slice that is open when they read it.
    """
    tracks = list(dict.fromkeys(shown.track for shown in slices))
    names = sorted(dict.fromkeys(track.process for track in tracks), key=lambda name: not _is_host(name))
    processes = {name: i for i, name in enumerate(names, 1)}
    tracks.sort(key=lambda track: (processes[track.process], RANKS.index(track.name.split()[0])))
    numbers = {track: {"pid": processes[track.process], "tid": i} for i, track in enumerate(tracks, 1)}
    body = []
    for shown in slices:
        group = [shown.entry, *shown.arrows]
        body.append((shown, [{**numbers[shown.track], **entry} for entry in group]))
    # Viewers nest what begins at one time in the order of the file, so the longer one comes first; and tracks
    # of the host, or a task that begins when it is submitted would come before its arrow.
    body.sort(key=lambda group: (group[0].start, *_order(group[0])))
    entries = [{**numbers[shown.track], **arrow} for shown, arrow in begins]
    entries += [entry for _, group in body for entry in group]
    entries += [{**numbers[shown.track], **arrow} for shown, arrow in ends]
    entries.sort(key=lambda entry: entry["ts"])
    return [*_names(processes, numbers), *entries]


def _order(shown: Slice) -> tuple[bool, float]:
    """Of slices that begin at one time."""
    return not _is_host(shown.track.process), -shown.entry.get("dur", 0.0)


def _is_host(process: str) -> bool:
    return process in (HOST, HOST + VIRTUAL)


def _names(processes: dict[str, int], numbers: dict[Track, dict[str, int]]) -> Iterator[dict[str, Any]]:
    for process, pid in processes.items():
        yield {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}}
    for track, ids in numbers.items():
        yield {"name": "thread_name", "ph": "M", **ids, "args": {"name": track.name}}
