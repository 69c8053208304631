"""The figures of all pipelines of a family, from a child process that the driver may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.kernel_figures.families import FAMILIES, FamilyMissing, environments
from tools.kernel_figures.figures import Figures, from_row
from tools.kernel_figures.pipelines import DECLARED

ROOT = Path(__file__).absolute().parents[2]
MOST_CRASHES = 20  # after which a driver is given up


@dataclass
class Collection:
    """One family's figures by the pipelines' names, what uses each, and why some have none."""

    family: str
    driver: str = ""
    hardware: str = ""
    kernels: dict[str, Figures] = field(default_factory=dict)
    used_by: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def used(self) -> dict[str, Figures]:
        """The figures of what a device of this family may run."""
        return {name: found for name, found in self.kernels.items() if self.used_by[name] != DECLARED}


def collect(family: str, text: str = "", folder: Path | None = None, icd: str = "") -> Collection:
    """Compile what has `text` in its name or use, and write the code to `folder`.

    Raises:
        FamilyMissing: no driver here describes the family.
    """
    reasons = []
    for variables in environments(FAMILIES[family], icd):
        made = Collection(family)
        begun = time.perf_counter()
        reason = _fill(made, {**os.environ, **variables, "PYTHONPATH": str(ROOT)}, text, folder)
        made.seconds = time.perf_counter() - begun
        if made.hardware:
            return made
        reasons.append(reason)
    raise FamilyMissing(f"{family} cannot be had from the driver that is installed: {reasons[-1]}")


def _fill(made: Collection, environment: dict[str, str], text: str, folder: Path | None) -> str:
    """Run children until one comes to the end; returns the last words of the last one."""
    for _ in range(MOST_CRASHES):
        skipped = sorted(made.used_by)
        request = {"family": made.family, "text": text, "skipped": skipped, "folder": folder and str(folder)}
        command = [sys.executable, "-m", "tools.kernel_figures.child", json.dumps(request)]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            last = ""
            for line in child.stdout:
                last = _read(made, json.loads(line), last)
            words = child.stderr.read().strip().splitlines()
        if not child.returncode:
            return ""
        if not last:
            return words[-1] if words else f"the process ended with {child.returncode}"
        made.failures[last] = f"the driver ended the process with {child.returncode}"
    return f"the driver ended {MOST_CRASHES} processes"


def _read(made: Collection, said: dict[str, object], last: str) -> str:
    """Take a line of a child in; returns the pipeline that it is compiling."""
    if "hardware" in said:
        made.driver, made.hardware = str(said["driver"]), str(said["hardware"])
    elif "begun" in said:
        last = str(said["begun"])
        made.used_by[last] = str(said["used_by"])
    elif "failed" in said:
        made.failures[last], last = str(said["failed"]), ""
    else:
        row = said["figures"]
        assert isinstance(row, list)
        made.kernels[last], last = from_row(row), ""
    return last
