"""One trace of the profiles of several processes, whose clocks differ."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from dl4all.distributed.membership import group_of
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.runtime.profiler.trace import VIRTUAL, trace
from dl4all.scheduler.monitor.profile import Profile, write_trace

NAME = "save_trace"

ROUNDS = 20
"""The messages to each process and back, of which the quickest tells how its clock differs."""

PROCESSES = 1000
"""The numbers for the processes of one rank in a trace."""


def save_trace(profile: Profile, path: str | os.PathLike[str], group: ProcessGroup | None = None) -> None:
    """Write one trace of the profiles that the processes of a group have made, by the first one's clock.

    All of them call this; the first one writes a file that https://ui.perfetto.dev and Chrome's
    ``about:tracing`` open, compressed where its name ends in ``.gz``. What the processes sent each other is
    on the track ``network`` of each host. Clocks are compared by the quickest of some messages there and
    back, and differ by half of its time at most (Cristian, "Probabilistic clock synchronization", 1989).

    Raises:
        DistError: there is no group.
        DistNetworkError: a process has ended, or does not come in time.
        FileFormatError: the file cannot be written.

    Example:
        >>> import dl4all as dl, tempfile
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> with dl.profile() as profile:
        ...     y = dl.rand(3, device="cpu").exp()
        >>> dl.distributed.save_trace(profile, tempfile.mkdtemp() + "/trace.json.gz")
        >>> dl.distributed.destroy_process_group()
    """
    own = group_of(NAME, group)
    offsets = _clock_offsets(own)
    parts = own.gather_objects(NAME, (profile.origin, trace(profile.events)["traceEvents"]))

    def write() -> None:
        begun = parts[0][0]
        shifts = [(origin - offset - begun) * 1e6 for (origin, _), offset in zip(parts, offsets, strict=True)]
        entries = merged([entries for _, entries in parts], shifts)
        write_trace({"traceEvents": entries, "displayTimeUnit": "ms"}, path)

    own.by_first(NAME, write)


def merged(parts: Iterable[list[dict[str, Any]]], shifts: Iterable[float]) -> list[dict[str, Any]]:
    """The entries of several traces in one, by names and times that do not clash.

    Args:
        parts: the entries of each rank.
        shifts: microseconds that its times lie behind those of the first.
    """
    names: list[dict[str, Any]] = []
    body: list[dict[str, Any]] = []
    for rank, (entries, shift) in enumerate(zip(parts, shifts, strict=True)):
        virtual = set()
        for entry in entries:
            entry = {**entry, "pid": rank * PROCESSES + entry["pid"]}
            if entry["ph"] == "M":
                if entry["name"] == "process_name":
                    if entry["args"]["name"].endswith(VIRTUAL):
                        virtual.add(entry["pid"])
                    entry["args"] = {"name": f"rank {rank}: {entry['args']['name']}"}
                    order = {"name": "process_sort_index", "args": {"sort_index": entry["pid"]}}
                    names.append({"ph": "M", "pid": entry["pid"], **order})
                names.append(entry)
                continue
            if "id" in entry:  # of an arrow
                entry["id"] = f"{rank}.{entry['id']}"
            if entry["pid"] not in virtual:
                entry["ts"] = round(entry["ts"] + shift, 3)
            body.append(entry)
    first = min((entry["ts"] for entry in body), default=0.0)
    if first < 0:  # of a process that began before the first one
        for entry in body:
            entry["ts"] = round(entry["ts"] - first, 3)
    body.sort(key=lambda entry: entry["ts"])
    return [*names, *body]


def _clock_offsets(group: ProcessGroup) -> list[float]:
    """The seconds by which each process's ``time.perf_counter()`` is ahead of the first one's, there."""
    offsets = [0.0] * group.size()
    asked, told = np.zeros(1), np.zeros(1)

    def send(array: Any, rank: int) -> None:
        group.begin(NAME, lambda: group.transport.send(array, rank, 0)).wait()

    def receive(array: Any, rank: int) -> None:
        group.begin(NAME, lambda: group.transport.receive(array, rank, 0)).wait()

    for rank in range(1, group.size()):
        least = math.inf
        for _ in range(ROUNDS):
            if group.rank() == 0:
                begun = time.perf_counter()
                send(asked, rank)
                receive(told, rank)
                ended = time.perf_counter()
                if ended - begun < least:
                    least, offsets[rank] = ended - begun, float(told[0]) - (begun + ended) / 2
            elif group.rank() == rank:
                receive(asked, 0)
                told[0] = time.perf_counter()
                send(told, 0)
    return offsets
