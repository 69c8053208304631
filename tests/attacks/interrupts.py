"""Interrupt training steps in every way, and look whether the devices are as before.

    python -m tests.attacks.interrupts --device vulkan:0 --signals 2000
    python -m tests.attacks.interrupts --device vulkan:0 --device cpu --inject --inject-checks

Each device is attacked in a process of its own, which is started again where it died or said that its device
is lost. One line for each failure, then a summary; the status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
HANG_SECONDS = 60.0
ROUND = 5  # interrupts, after which everything is compared
LOST, FAILED = 3, 4  # statuses of a child that cannot go on
GOOD = ("right", "lost")


def main(arguments: list[str] | None = None) -> int:
    """Attack devices; returns the status."""
    options = _parser().parse_args(arguments)
    if options.child:
        return _child(options)
    total = Counter[str]()
    for device in options.device:
        counts, failures = attack(
            device, signals=options.signals, modes=_modes(options), stride=options.stride,
            parts=options.part, seed=options.seed,
        )  # fmt: skip
        for failure in failures:
            print(failure)
        print(f"{device}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
        total["failures"] += len(failures)
    return 1 if total["failures"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", action="append", required=True, help="or several that share: cpu+cpu#1")
    parser.add_argument("--signals", type=int, default=0, help="how many real interrupts")
    parser.add_argument("--inject", action="store_true", help="raise at each line")
    parser.add_argument("--inject-checks", action="store_true", help="raise wherever signals are delivered")
    parser.add_argument("--stride", type=int, default=1, help="take one of so many points")
    parser.add_argument("--part", action="append", help="folders or files in which to raise", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _modes(options: argparse.Namespace) -> list[str]:
    return ["--inject"] * options.inject + ["--inject-checks"] * options.inject_checks


def attack(
    device: str,
    *,
    signals: int = 0,
    modes: Iterable[str] = (),
    stride: int = 1,
    parts: Iterable[str] | None = None,
    seed: int = 0,
) -> tuple[Counter[str], list[str]]:
    """Attack one device; returns what was counted, and the failures."""
    settings = ["--stride", str(stride), "--seed", str(seed), *(f"--part={part}" for part in parts or ())]
    kinds = ([["--signals", str(signals)]] if signals else []) + [[mode, *settings] for mode in modes]
    counts, failures = Counter[str](), list[str]()
    for kind in kinds:
        first: int | None = 0
        while first is not None:
            first = _start(["--device", device, *kind, f"--first={first}"], counts, failures)
    return counts, failures


def _start(arguments: list[str], counts: Counter[str], failures: list[str]) -> int | None:
    """Run a child; returns the number of the attack to go on with, None at the end."""
    quiet = {f"DL4ALL_{name}": "0" for name in ("CALIBRATE", "TOP", "TUNE")}
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.attacks.interrupts", "--child", *arguments],
        env={**os.environ, **quiet, "DL4ALL_DEVICE": "cpu"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    number, name, ended = 0, "the start", False
    for line in child.stdout.splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        if "at" in entry:
            number, name = entry["number"], entry["at"]
        elif "end" in entry:
            ended = True
        else:
            counts[entry["count"]] += entry.get("times", 1)
            if "why" in entry:
                failures.append(f"{arguments[1]}, {name}: {entry['count']}: {entry['why']}")
    if ended:
        return None
    if child.returncode not in (LOST, FAILED):
        counts["crashes"] += 1
        failures.append(
            f"{arguments[1]}, {name}: the process ended with {child.returncode}:\n{child.stderr[-4000:]}"
        )
        if not number and name == "the start":
            return None
    return number + 1


# In the child


def _say(**entry: Any) -> None:
    print(json.dumps(entry), flush=True)


def _child(options: argparse.Namespace) -> int:
    from tests.attacks import injection, workload

    work = workload.make(options.device[0])
    gc.freeze()
    if options.signals:
        _send_signals(work, options)
    else:
        mode: injection.Mode = "lines" if options.inject else "checks"
        parts = options.part or injection.PARTS
        found = injection.points(lambda: workload.step(work), mode, parts)
        chosen = found[options.seed % options.stride :: options.stride]
        for number, point in enumerate(chosen):
            if number >= options.first:
                _attack_point(work, number, point)
    _say(end=True)
    return 0


def _attack_point(work: Any, number: int, point: Any) -> None:
    from tests.attacks import injection, workload

    _begin(number, str(point))
    workload.keep(work)
    outcome = injection.inject(lambda: workload.step(work), point, KeyboardInterrupt)
    _say(count=outcome.partition(":")[0], **({"why": outcome} if outcome.startswith("became") else {}))
    _judge(work)


def _send_signals(work: Any, options: argparse.Namespace) -> None:
    from tests.attacks import interruption, workload

    ways: list[Callable[[], Any]] = [
        lambda: interruption.timer(KeyboardInterrupt),
        lambda: interruption.timer(interruption.Interrupted),
        interruption.control_c,
        lambda: interruption.asynchronous(interruption.Interrupted),
    ]
    start = time.perf_counter()
    workload.step(work)
    duration = time.perf_counter() - start
    chance = random.Random(options.seed)
    rounds = -(-options.signals // ROUND)
    for number in range(options.first, rounds):
        _begin(number, f"round {number}, seed {options.seed}")
        with ways[number % len(ways)]() as (send, end):
            for _ in range(min(ROUND, options.signals - number * ROUND)):
                workload.keep(work)
                delay = chance.random() * duration * 1.2
                outcome = interruption.attempt(lambda: workload.step(work), delay, send, end)
                _say(count=outcome.partition(":")[0], **({"why": outcome} if outcome.startswith("became") else {}))
        _judge(work)


def _begin(number: int, name: str) -> None:
    _say(at=name, number=number)
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)


def _judge(work: Any) -> None:
    """Compare everything twice: what is wrong once may be wrong for ever."""
    from tests.attacks import workload

    verdict, why = workload.verdict(work)
    if verdict == "right":
        _say(count="right")
    else:
        again, _ = workload.verdict(work)
        _say(count=verdict, again=again, **({} if verdict in GOOD else {"why": f"{why}, then {again}"}))
        if again != "right":
            faulthandler.cancel_dump_traceback_later()
            os._exit(LOST if verdict == "lost" else FAILED)
    verdict, why = workload.verdict(work, workload.leftovers)
    if verdict != "right":
        _say(count="leaks", why=why)
        work.allocated = workload.allocated(work)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    sys.exit(main())
