"""The figures of all pipelines of a family, from a child process that the driver may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from lab.kernel_figures.families import FAMILIES, FamilyMissing, environments
from lab.kernel_figures.figures import Figures, from_row
from lab.kernel_figures.pipelines import DECLARED

ROOT = Path(__file__).absolute().parents[2]
MOST_CRASHES = 20  # after which a driver is given up
MOST_SECONDS = 600.0  # for a kernel; the first one comes after all shaders were compiled to SPIR-V


@dataclass
class Collection:
    """One family's figures.

    ``kernels`` are what a device of this family may run, by the pipelines' names, ``used_by`` what uses each.
    ``compiled`` counts all shaders that the driver took, ``failures`` say why it did not take the others.
    """

    family: str
    driver: str = ""
    hardware: str = ""
    kernels: dict[str, Figures] = field(default_factory=dict)
    used_by: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    compiled: int = 0
    seconds: float = 0.0


def collect(family: str, text: str = "", folder: Path | None = None, icd: str = "") -> Collection:
    """Compile what has `text` in its name or use, and write the code to `folder`.

    Args:
        family: one of ``FAMILIES``.
        text: all has the empty one in it.
        folder: made if it is not there; None for no code.
        icd: the driver's manifest, instead of the one that is installed.

    Raises:
        FamilyMissing: no driver here describes the family.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for variables in environments(FAMILIES[family], icd):
        made = Collection(family)
        begun = time.perf_counter()
        reason = _fill(made, {**os.environ, **variables, "PYTHONPATH": str(ROOT)}, text, folder)
        made.seconds = time.perf_counter() - begun
        if made.hardware:
            return made
        reasons.append(reason)
    raise FamilyMissing(f"{family} cannot be had from the driver that is installed: {reasons[0]}")


def _fill(made: Collection, environment: dict[str, str], text: str, folder: Path | None) -> str:
    """Run children until one comes to the end; returns why the last one did not."""
    seen: dict[str, str] = {}  # what uses each pipeline that was begun
    for _ in range(MOST_CRASHES):
        request = {
            "family": made.family,
            "text": text,
            "skipped": sorted(seen),
            "folder": None if folder is None else str(folder.absolute()),
        }
        command = [sys.executable, "-m", "lab.kernel_figures.child", json.dumps(request)]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            begun = ""
            hung = _kill_later(child)
            for line in child.stdout:
                hung.cancel()
                begun = read_line(made, seen, json.loads(line), begun)
                hung = _kill_later(child)
            words = child.stderr.read().strip().splitlines()
            hung.cancel()
        if not child.returncode:
            return ""
        if not begun:
            reason = words[-1] if words else f"the process ended with {child.returncode}"
            if made.hardware:
                made.failures["the process that compiles"] = reason
            return reason
        made.failures[begun] = f"the driver ended the process with {child.returncode}"
    return f"the driver ended {MOST_CRASHES} processes"


def _kill_later(child: subprocess.Popen[str]) -> threading.Timer:
    """End a child that says nothing for too long: its driver hangs at the pipeline that was begun."""
    timer = threading.Timer(MOST_SECONDS, child.kill)
    timer.daemon = True
    timer.start()
    return timer


def read_line(made: Collection, seen: dict[str, str], said: dict[str, object], begun: str) -> str:
    """Take in a line of a child; returns the pipeline that it is compiling."""
    if "hardware" in said:
        made.driver, made.hardware = str(said["driver"]), str(said["hardware"])
    elif "begun" in said:
        begun = str(said["begun"])
        seen[begun] = str(said["used_by"])
    elif "failed" in said:
        made.failures[begun], begun = str(said["failed"]), ""
    else:
        row = said["figures"]
        assert isinstance(row, list)
        made.compiled += 1
        if seen[begun] != DECLARED:
            made.kernels[begun], made.used_by[begun] = from_row(row), seen[begun]
        begun = ""
    return begun
