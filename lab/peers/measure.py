"""Timing peers in turn, so that all meet the same load of the machine."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lab.peers.cases import TOLERANCE, Case
from lab.peers.child import Child, PeerError
from lab.peers.environment import InstallError

WARM_UP = (
    3  # tinygrad's TinyJit replays from the third run on; the others compile and fill caches in the first
)
PAUSE = (
    0.05  # seconds between two peers' turns: the waiting threads of an OpenMP or BLAS pool spin for a while
)

Report = dict[str, Any]
Watch = Callable[[Child], tuple[int, int]]


class Limits(NamedTuple):
    """Seconds after which a slow peer holds up the others no longer."""

    answer: float = 30.0  # to prepare a case, which compiles, or to run it once; then the peer is left out
    runs: float = 10.0  # all runs of a case; then it is given no more, but at least two


LIMITS = Limits()


class Entrant(NamedTuple):
    """A row of the report: a peer of ``environment.PEERS`` and variables of its process's environment."""

    label: str
    peer: str
    environment: dict[str, str]


def silent(report: Report) -> None:
    """Tell nobody."""


def measure(
    entrants: Iterable[Entrant],
    cases: Iterable[Case],
    repeat: int,
    *,
    limits: Limits = LIMITS,
    watch: Watch | None = None,
    tell: Callable[[Report], object] = silent,
) -> Report:
    """Medians over `repeat` runs, as JSON: {"peers": {label: about}, "cases": {case: {label: figures}}}.

    Figures are "seconds" from host array to host array, those of the "fastest" run, "resident" seconds
    without the copies (None where the library does not part them), how many "runs" they are of, and the
    "error" of the last answer; or "failed" with the reason. `watch` reads two counters of a child; their
    growth over the timed runs is added as "watched". `tell` gets the report whenever there is more in it:
    a peer or a case.
    """
    report: Report = {"peers": {}, "cases": {}}
    with contextlib.ExitStack() as stack:
        children: dict[str, Child] = {}
        for entrant in entrants:
            try:
                child = stack.enter_context(Child(entrant.peer, entrant.environment, limits.answer))
            except (InstallError, PeerError) as problem:
                report["peers"][entrant.label] = {"failed": str(problem)}
            else:
                children[entrant.label] = child
                report["peers"][entrant.label] = {"about": child.about, "device": child.device}
            tell(report)
        for case in cases:
            report["cases"][case.name] = measure_case(children, case, repeat, limits, watch)
            tell(report)
    return report


def measure_case(
    children: dict[str, Child], case: Case, repeat: int, limits: Limits, watch: Watch | None
) -> dict[str, Report]:
    """The figures of each child on one case. Rounds go on without one that fails or is slow."""
    figures: dict[str, Report] = {}
    runs: dict[str, list[Report]] = {}
    before: dict[str, tuple[int, int]] = {}
    for label, child in children.items():
        try:
            child.prepare(case)
            runs[label] = []
        except PeerError as problem:
            figures[label] = {"failed": str(problem)}
    spent = dict.fromkeys(runs, 0.0)
    for turn in range(WARM_UP + repeat):
        for label in [label for label in runs if turn < 2 or spent[label] < limits.runs]:
            if watch and turn <= WARM_UP:
                before[label] = watch(children[label])
            start = time.perf_counter()
            try:
                runs[label].append(children[label].ask({"do": "run"}))
            except PeerError as problem:
                figures[label] = {"failed": str(problem)}
                del runs[label]
            spent[label] += time.perf_counter() - start
            time.sleep(PAUSE)
    after = {label: watch(children[label]) for label in runs} if watch else {}
    for label, taken in runs.items():
        figures[label] = summary(children[label], taken[WARM_UP:] or taken[1:])
        if watch and "failed" not in figures[label]:
            pairs = zip(before[label], after[label], strict=True)
            figures[label]["watched"] = tuple(late - early for early, late in pairs)
    return {label: figures[label] for label in children}


def summary(child: Child, runs: list[Report]) -> Report:
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
        "fastest": min(run["seconds"] for run in runs),
        "resident": statistics.median(run["resident"] for run in runs) if parted else None,
        "runs": len(runs),
        "error": error,
    }
