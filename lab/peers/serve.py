"""A peer's side of the conversation: one JSON object a line on stdin, one on stdout.

    {"do": "prepare", "case": {...}}  ->  {}
    {"do": "run"}                     ->  {"seconds": s, "resident": s or null}
    {"do": "check"}                   ->  {"error": relative difference of the last run's answer}

Before the first question comes {"about": versions, "device": name}; a question that fails is answered with
{"failed": reason}; the end of stdin ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lab.peers.cases import Array, Case, case_from, error, inputs

DEVICE_VARIABLE = "DL4ALL_PEERS_DEVICE"


class Steps(NamedTuple):
    """A case made ready, its weights on the device. Each step returns when the device is done with it."""

    upload: Callable[[], Any]
    compute: Callable[[Any], Any]
    download: Callable[[Any], Array]
    separate: bool = True  # False where the library copies within `compute`


def wanted_device(names: list[str]) -> str:
    """The one of a library's Vulkan devices that all peers are to use: the one named in the environment."""
    wanted = os.environ.get(DEVICE_VARIABLE)
    found = [name for name in names if wanted is None or wanted in name]
    if not found:
        raise RuntimeError(
            f"expected the Vulkan device {wanted!r}, came {names}; all peers must use the same one"
        )
    return found[0]


def serve(about: str, device: str, prepare: Callable[[Case, Array, Array], Steps]) -> None:
    """Answer until stdin ends. `prepare` gets a case and its x and w."""
    converse(about, device, Session(prepare).answer)


def converse(about: str, device: str, answer: Callable[[dict[str, Any]], dict[str, object]]) -> None:
    """Answer questions of any kind until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print must not come between the answers

    def say(answer: dict[str, object]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say({"about": about, "device": device})
    for line in sys.stdin:
        try:
            say(answer(json.loads(line)))
        except Exception as problem:  # noqa: BLE001  any failure of a foreign library is a row of the table
            say({"failed": f"{type(problem).__name__}: {problem}"})


class Session:
    """The case that was prepared last, and the answer of its last run."""

    def __init__(self, prepare: Callable[[Case, Array, Array], Steps]) -> None:
        self.prepare = prepare

    def answer(self, question: dict[str, Any]) -> dict[str, object]:
        match question["do"]:
            case "prepare":
                self.case = case_from(question["case"])
                self.steps = self.prepare(self.case, *inputs(self.case))
                return {}
            case "run":
                return self.run()
            case "check":
                return {"error": error(self.case, self.result)}
        raise ValueError(f"expected prepare, run or check, came {question['do']!r}")

    def run(self) -> dict[str, object]:
        steps = self.steps
        start = time.perf_counter()
        given = steps.upload()
        uploaded = time.perf_counter()
        computed = steps.compute(given)
        done = time.perf_counter()
        self.result = np.asarray(steps.download(computed))
        end = time.perf_counter()
        return {"seconds": end - start, "resident": done - uploaded if steps.separate else None}
