"""A space of candidates whose times are told, so that no test of tuning looks at real ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.autotune import TuningSpace, Work, choose
from dl4all.ops.core.tensor_base import TensorBase, from_host

RIGHT = np.array([1.0, -2.0, 4.0], np.float32)
SECONDS = 1000.0


class Bench:
    """A space whose candidates cost what they are told to, on a clock that only they move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.device = dl.device("cpu")
        self.folder = folder
        self.now = 0.0
        self.cost = {"usual": 1.0, "other": 2.0, "third": 3.0}
        self.does: dict[str, Callable[[Any], None]] = {}
        self.ran: list[str] = []
        self.asked = 0
        self.refuses: set[str] = set()
        self.space = self.make()
        monkeypatch.setattr(autotune, "clock", lambda: self.now)
        monkeypatch.setattr(autotune, "sample", self.sample)

    def make(self, version: int = 1, **more: str) -> TuningSpace[int, str]:
        return TuningSpace(
            "test",
            {name: name for name in self.cost} | more,
            key=lambda q: (q.bit_length(),),
            rule=self.rule,
            fits=lambda device, candidate, key: candidate not in self.refuses,
            prepare=self.prepare,
            version=version,
        )

    def rule(self, info: Any, key: Any) -> tuple[str, ...]:
        self.asked += 1
        return "usual", "other"

    def prepare(self, device: dl.Device, problem: int) -> Work[str]:
        out: TensorBase = from_host(TensorBase, np.zeros(3, np.float32), device, copy=True)
        return Work(functools.partial(self.run, out), out)

    def run(self, out: TensorBase, candidate: str) -> None:
        self.ran.append(candidate)
        self.now += self.cost[candidate]
        result = out.on_host()
        result[:] = RIGHT
        self.does.get(candidate, lambda result: None)(result)

    def sample(self, work: Any, times: int, device: dl.Device) -> float:
        begun = self.now
        work()
        return self.now - begun

    def again(self) -> None:
        """As another process would find things."""
        self.device.tables.pop("tuning", None)
        self.ran.clear()

    def choose(self, problem: int = 5) -> str:
        return choose(self.space, self.device, problem)

    def tune(self, problem: int = 5, seconds: float = SECONDS) -> autotune.Outcome:
        return autotune.tune(self.space, self.device, problem, seconds)

    @property
    def results(self) -> list[Path]:
        return list(self.folder.glob("tuning/*/test/*.json"))


def lucky(bench: Bench) -> None:
    bench.cost["third"] = 0.5
    assert bench.tune().chosen == "third"
    bench.again()
