"""Timing peers in turn, so that all meet the same load of the machine."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.peers.cases import TOLERANCE, Case
from benchmarks.peers.child import Child, PeerError
from benchmarks.peers.environment import InstallError

WARM_UP = (
    3  # tinygrad's TinyJit replays from the third run on; the others compile and fill caches in the first
)
PAUSE = (
    0.05  # seconds between two peers' turns: the waiting threads of an OpenMP or BLAS pool spin for a while
)


class Entrant(NamedTuple):
    """A row of the report: a peer of ``environment.PEERS`` and variables of its process's environment."""

    label: str
    peer: str
    environment: dict[str, str]


def measure(
    entrants: Iterable[Entrant],
    cases: Iterable[Case],
    repeat: int,
    watch: Callable[[Child], tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """Medians over `repeat` runs, as JSON: {"peers": {label: about}, "cases": {case: {label: figures}}}.

    Figures are "seconds" from host array to host array, "resident" seconds without the copies (None where the
    library does not part them), and the "error" of the last answer; or "failed" with the reason. `watch`
    reads two counters of a child; their growth over the timed runs is added as "watched".
    """
    report: dict[str, Any] = {"peers": {}, "cases": {}}
    with contextlib.ExitStack() as stack:
        children: dict[str, Child] = {}
        for entrant in entrants:
            try:
                child = stack.enter_context(Child(entrant.peer, entrant.environment))
            except (InstallError, PeerError) as problem:
                report["peers"][entrant.label] = {"failed": str(problem)}
            else:
                children[entrant.label] = child
                report["peers"][entrant.label] = {"about": child.about, "device": child.device}
        for case in cases:
            report["cases"][case.name] = measure_case(children, case, repeat, watch)
    return report


def measure_case(
    children: dict[str, Child], case: Case, repeat: int, watch: Callable[[Child], tuple[int, int]] | None
) -> dict[str, dict[str, Any]]:
    """The figures of each child on one case. One that fails is left out of the rounds that follow."""
    figures: dict[str, dict[str, Any]] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    before: dict[str, tuple[int, int]] = {}
    for label, child in children.items():
        try:
            child.prepare(case)
            runs[label] = []
        except PeerError as problem:
            figures[label] = {"failed": str(problem)}
    for turn in range(WARM_UP + repeat):
        for label in list(runs):
            if watch and turn == WARM_UP:
                before[label] = watch(children[label])
            try:
                runs[label].append(children[label].ask({"do": "run"}))
            except PeerError as problem:
                figures[label] = {"failed": str(problem)}
                del runs[label]
            time.sleep(PAUSE)
    for label, taken in runs.items():
        figures[label] = summary(children[label], taken[WARM_UP:])
        if watch and "failed" not in figures[label]:
            after = watch(children[label])
            figures[label]["watched"] = tuple(b - a for a, b in zip(before[label], after, strict=True))
    return {label: figures[label] for label in children}


def summary(child: Child, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the runs, if the last one's answer was right."""
    try:
        error = child.ask({"do": "check"})["error"]
    except PeerError as problem:
        return {"failed": str(problem)}
    if not error <= TOLERANCE:  # not a number is wrong too
        return {"failed": f"wrong by {error:.1e} of the largest value, where {TOLERANCE:g} is allowed"}
    parted = all(run["resident"] is not None for run in runs)
    return {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "resident": statistics.median(run["resident"] for run in runs) if parted else None,
        "error": error,
    }
