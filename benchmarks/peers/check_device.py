"""Who really did the work: a library that falls back to the processor does not obey llvmpipe's variables.

Mesa's software driver takes its number of threads from LP_NUM_THREADS, and nothing else reads it. A peer's
time should fall with a second thread if the driver runs it, and stay if the library itself does. Linux also
says how much processor time each thread of a process took, and the driver's threads have its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import Case
from benchmarks.peers.child import Child
from benchmarks.peers.measure import Entrant, measure

THREADS = ("1", "2")


def check_device(
    peers: Iterable[str], cases: Iterable[Case], repeat: int, environment: dict[str, str]
) -> dict[str, Any]:
    """A report as `measure`'s whose figures are "ratio" and "driver_share" (None where it cannot be read)."""
    names = list(peers)
    entrants = [
        Entrant(f"{name} {threads}", name, {**environment, "LP_NUM_THREADS": threads})
        for name in names
        for threads in THREADS
    ]
    found = measure(entrants, cases, repeat, watch=thread_ticks)
    return {
        "peers": {
            name: worse(*(found["peers"][f"{name} {threads}"] for threads in THREADS)) for name in names
        },
        "cases": {
            case: {
                name: compared(*(row[f"{name} {threads}"] for threads in THREADS))
                for name in names
                if all(f"{name} {threads}" in row for threads in THREADS)
            }
            for case, row in found["cases"].items()
        },
    }


def worse(few: dict[str, Any], many: dict[str, Any]) -> dict[str, Any]:
    return few if "failed" in few else many


def compared(few: dict[str, Any], many: dict[str, Any]) -> dict[str, Any]:
    """The ratio of the times on the device, and the driver's share of the processor time of both."""
    if "failed" in few or "failed" in many:
        return {"failed": worse(few, many)["failed"]}
    key = "seconds" if few["resident"] is None else "resident"
    driver, others = (few["watched"][i] + many["watched"][i] for i in (0, 1))
    ticks = driver + others
    return {"ratio": few[key] / many[key], "driver_share": driver / ticks if ticks else None}


def thread_ticks(child: Child) -> tuple[int, int]:
    """Clock ticks of a peer's threads: those of llvmpipe, and the others. Zeros without Linux."""
    ticks = [0, 0]
    for task in Path(f"/proc/{child.process.pid}/task").glob("*/stat"):
        name, _, fields = task.read_text().partition("(")[2].rpartition(")")
        user, system = fields.split()[11:13]
        ticks[not name.startswith("llvmpipe")] += int(user) + int(system)
    return ticks[0], ticks[1]
