"""The process that is attacked. It is given jobs, and writes a line of JSON for each thing that it finds."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.attacks import injection, interruption, waits, workload
from tests.attacks.interrupts import STOPPED, Job

HANG_SECONDS = 15.0
ROUND = 5  # signals, after which everything is compared
RUNS = 3  # that are timed
LATE = 1.2  # of the time of a step, at which the last signals come
LONG = 1.0  # seconds: only in waits for more work than that is the time to leave them looked at
SOON = 0.2  # seconds

WAYS: tuple[Callable[[], Any], ...] = (
    lambda: interruption.timer(KeyboardInterrupt),
    lambda: interruption.timer(interruption.Interrupted),
    interruption.control_c,
    lambda: interruption.asynchronous(interruption.Interrupted),
)


def main(description: str) -> None:
    """Run the jobs from the given attack on."""
    given = json.loads(description)
    first_job, first = given["first"]
    sys.unraisablehook = _unraisable
    for number, fields in enumerate(given["jobs"]):
        if number >= first_job:
            job = Job(**{**fields, "parts": tuple(fields["parts"])})
            _run(job, number, first if number == first_job else 0)
    _say(ended=True)


def _say(**entry: Any) -> None:
    print(json.dumps(entry), flush=True)


def _count(name: str, why: str = "") -> None:
    """One more of something; a failure if it says why."""
    _say(count=name, why=why)


def _unraisable(found: Any) -> None:
    """An exception that nobody gets: an interrupt without effect."""
    _count("ignored", f"{found.exc_value!r} in {found.object!r}: {found.err_msg}")


def _begin(job: int, number: int, name: str) -> None:
    _say(job=job, number=number, name=name)
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)


_workloads: dict[tuple[str, str], workload.Workload] = {}


def _run(job: Job, index: int, first: int) -> None:
    if job.kind == "waits":
        for number, (name, wait) in enumerate(waits.WAITS.items()):
            if number >= first:
                _begin(index, number, name)
                _leave(wait, job)
                faulthandler.cancel_dump_traceback_later()
        return
    made = _workloads.get((job.device, job.program))
    if made is None:
        made = _workloads[job.device, job.program] = workload.make(job.device, job.program)
    work = made
    workload.rest(work)  # other programs may have come since
    gc.freeze()
    if job.kind == "signals":
        _send_signals(work, job, index, first)
        return
    parts = job.parts or injection.PARTS
    found = injection.points(work.run, job.kind, parts)
    for number, point in enumerate(found[job.seed % int(job.amount) :: int(job.amount)]):
        if number >= first:
            _begin(index, number, str(point))
            workload.keep(work)
            _interrupted(injection.inject(work.run, point, KeyboardInterrupt))
            _judge(work)


def _leave(wait: waits.Wait, job: Job) -> None:
    try:
        seconds = wait(job.device, job.amount)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        _count("broken", f"{type(error).__name__}: {error}")
        return
    if job.amount > LONG and seconds > SOON:
        _count("late", f"left after {seconds:.3f} s")
    else:
        _count("left")


def _send_signals(work: workload.Workload, job: Job, index: int, first: int) -> None:
    durations = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work.run()
        durations.append(time.perf_counter() - start)
    duration = min(durations)
    total = int(job.amount)
    for number in range(first, -(-total // ROUND)):
        _begin(index, number, f"round {number}")
        chance = random.Random(f"{job.seed} {number}")
        with WAYS[number % len(WAYS)]() as (send, end):
            for _ in range(min(ROUND, total - number * ROUND)):
                workload.keep(work)
                delay = chance.random() * duration * LATE
                _interrupted(interruption.attempt(work.run, delay, send, end))
        _judge(work)


def _interrupted(outcome: str) -> None:
    name, _, other = outcome.partition(":")
    _count(name, other)


def _judge(work: workload.Workload) -> None:
    """Compare everything, and once more where something is wrong: it may be so for ever."""
    verdict, why = workload.verdict(work)
    if verdict == "right":
        _count("right")
    else:
        again, _ = workload.verdict(work)
        _count(verdict, "" if verdict == "lost" else f"{why}, then {again}")
        if again != "right":
            os._exit(STOPPED)
    verdict, why = workload.verdict(work, workload.leftovers)
    if verdict != "right":
        _count("leaks", str(why))
        workload.rest(work)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1])
