"""Who really did the work: a library that falls back to the processor does not obey llvmpipe's variables.

Mesa's software driver takes its number of threads from LP_NUM_THREADS, and nothing else reads it. A peer's
time should fall with a second thread if the driver runs it, and stay if the library itself does. Linux also
says how much processor time each thread of a process took. The driver starts as many threads that draw, which
have its name, as threads that compute, which have none of their own and come right after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lab.peers.cases import Case
from lab.peers.child import Child
from lab.peers.measure import LIMITS, Entrant, Limits, Report, measure, silent

THREADS = ("1", "2")


def check_device(
    peers: Iterable[str],
    cases: Iterable[Case],
    repeat: int,
    environment: dict[str, str],
    *,
    limits: Limits = LIMITS,
    tell: Callable[[Report], object] = silent,
) -> Report:
    """A report as `measure`'s whose figures are "ratio" and "driver_share" (None where it cannot be read)."""
    entrants = [
        Entrant(f"{name} {threads}", name, {**environment, "LP_NUM_THREADS": threads})
        for name in peers
        for threads in THREADS
    ]
    found = measure(
        entrants,
        cases,
        repeat,
        limits=limits,
        watch=thread_ticks,
        tell=lambda found: tell(by_peer(found)),
    )
    return by_peer(found)


def by_peer(found: Report) -> Report:
    """What was measured of each peer with few and with many threads, compared."""

    def pairs(row: Report) -> dict[str, tuple[Report, Report]]:
        few, many = THREADS
        names = [label.removesuffix(f" {many}") for label in row if label.endswith(f" {many}")]
        return {name: (row[f"{name} {few}"], row[f"{name} {many}"]) for name in names}

    return {
        "peers": {name: worse(*pair) for name, pair in pairs(found["peers"]).items()},
        "cases": {
            case: {name: compared(*pair) for name, pair in pairs(row).items()}
            for case, row in found["cases"].items()
        },
    }


def worse(few: Report, many: Report) -> Report:
    return few if "failed" in few else many


def compared(few: Report, many: Report) -> Report:
    """The ratio of the times on the device, and the driver's share of the processor time of both."""
    if "failed" in few or "failed" in many:
        return {"failed": worse(few, many)["failed"]}
    key = "seconds" if few["resident"] is None else "resident"
    driver, others = (few["watched"][i] + many["watched"][i] for i in (0, 1))
    ticks = driver + others
    return {
        "ratio": few[key] / many[key],
        "driver_share": driver / ticks if ticks else None,
        "runs": min(few["runs"], many["runs"]),
    }


def thread_ticks(child: Child) -> tuple[int, int]:
    """Clock ticks of a peer's threads: those of llvmpipe, and the others. Zeros without Linux."""
    tasks = sorted(Path(f"/proc/{child.process.pid}/task").glob("*/stat"), key=lambda t: int(t.parent.name))
    return shared_out([ticks_of(task.read_text()) for task in tasks])


def shared_out(threads: list[tuple[str, int]]) -> tuple[int, int]:
    """The ticks of llvmpipe and of the others, out of the names and ticks of threads in their order."""
    ticks, named, behind = [0, 0], 0, 0
    for name, spent in threads:
        if name.startswith("llvmpipe"):
            named, behind = named + 1, 0
        elif behind < named:
            behind += 1
        else:
            named = behind = 0
        ticks[not named] += spent
    return ticks[0], ticks[1]


def ticks_of(stat: str) -> tuple[str, int]:
    """The name of a thread, and its clock ticks."""
    name, _, fields = stat.partition("(")[2].rpartition(")")
    user, system = fields.split()[11:13]
    return name, int(user) + int(system)
