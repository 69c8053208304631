"""Interrupt training steps in every way, and look whether the devices are as before.

    python -m tests.attacks.interrupts --device vulkan:0 --signals 2000
    python -m tests.attacks.interrupts --device cpu --device cpu+cpu#1 --inject --inject-checks --waits 3

The attacks run in a process of their own, which is started again where it died or said that its device is
lost. One line for each failure, then a summary; the status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).parents[2]
SHOWN = 4000  # characters of what a process wrote before it died
TIMEOUT = 3600.0
STOPPED = 3  # status of a process in which nothing more can be found out

Kind = Literal["signals", "lines", "checks", "waits"]


@dataclasses.dataclass(frozen=True)
class Job:
    """Attacks of one kind on a device, or on several that share their work (``"vulkan:0+cpu"``)."""

    device: str
    kind: Kind
    amount: float = 1
    """How many signals, one point of so many lines or checks, or the seconds of a wait."""
    program: str = "training"
    """One of :data:`tests.attacks.programs.PROGRAMS`."""
    parts: tuple[str, ...] = ()
    """Files or folders in which exceptions are raised, if not in all below the ops."""
    seed: int = 0


@dataclasses.dataclass
class Outcome:
    """What was counted of each job, and every failure."""

    counts: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)

    def total(self, name: str) -> int:
        """Over all jobs."""
        return sum(counts[name] for counts in self.counts.values())

    def __str__(self) -> str:
        return "\n".join(
            f"{job}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            for job, counts in self.counts.items()
        )


def attack(jobs: Sequence[Job]) -> Outcome:
    """Run all jobs."""
    outcome = Outcome()
    at: tuple[int, int] | None = (0, 0)
    while at is not None:
        at = _start(jobs, at, outcome)
    return outcome


def _start(jobs: Sequence[Job], first: tuple[int, int], outcome: Outcome) -> tuple[int, int] | None:
    """Attack in a new process; returns where to go on, None at the end."""
    quiet = {f"DL4ALL_{name}": "0" for name in ("CALIBRATE", "TOP", "TUNE")}
    description = json.dumps({"first": first, "jobs": [dataclasses.asdict(job) for job in jobs]})
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.attacks.attacked", description],
        env={**os.environ, **quiet, "DL4ALL_DEVICE": "cpu"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    job, number, name, ended = first[0], first[1], "the start", False
    for line in child.stdout.splitlines():
        entry: dict[str, Any] = json.loads(line)
        if "name" in entry:
            job, number, name = entry["job"], entry["number"], entry["name"]
        elif "ended" in entry:
            ended = True
        else:
            _counts(outcome, jobs[job])[entry["count"]] += 1
            if entry["why"]:
                outcome.failures.append(f"{_title(jobs[job])}: {name}: {entry['count']}: {entry['why']}")
    if ended:
        return None
    if child.returncode != STOPPED:
        _counts(outcome, jobs[job])["crashes"] += 1
        outcome.failures.append(
            f"{_title(jobs[job])}: {name}: the process ended with {child.returncode}:\n"
            f"{child.stderr[-SHOWN:]}"
        )
    if name != "the start":
        return job, number + 1
    return (job + 1, 0) if job + 1 < len(jobs) else None


def _title(job: Job) -> str:
    return f"{job.device} {job.program} {job.kind}"


def _counts(outcome: Outcome, job: Job) -> Counter[str]:
    return outcome.counts.setdefault(_title(job), Counter())


def main(arguments: Iterable[str] | None = None) -> int:
    """What the command does; returns the status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", action="append", required=True, help="or several that share: cpu+cpu#1")
    parser.add_argument("--program", action="append", help="training, if none is given")
    parser.add_argument("--signals", type=int, default=0, help="how many real interrupts")
    parser.add_argument("--inject", action="store_true", help="raise at each line")
    parser.add_argument("--inject-checks", action="store_true", help="raise wherever signals are delivered")
    parser.add_argument("--stride", type=int, default=1, help="take one of so many points")
    parser.add_argument("--part", action="append", default=[], help="files or folders in which to raise")
    parser.add_argument("--waits", type=float, default=0.0, help="leave waits for work of so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(None if arguments is None else list(arguments))
    amounts: dict[Kind, float] = {
        "signals": options.signals,
        "lines": options.stride if options.inject else 0,
        "checks": options.stride if options.inject_checks else 0,
        "waits": options.waits,
    }
    jobs = [
        Job(device, kind, amount, program, tuple(options.part), options.seed)
        for device in options.device
        for program in options.program or ["training"]
        for kind, amount in amounts.items()
        if amount
    ]
    outcome = attack(jobs)
    for failure in outcome.failures:
        print(failure)
    print(outcome)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
