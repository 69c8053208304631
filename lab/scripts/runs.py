"""Run a script with PyTorch and with dl4all, each in a process and a working copy of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lab.scripts.cases import Case
from lab.scripts.repositories import other_changes, python_files, replace_imports

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 900
"""Seconds for one run."""
TORCH, SAME, DL4ALL = ("torch", "own"), ("torch", "dl4all"), ("dl4all", "own")
"""A framework, and where its random numbers come from: its own functions, or dl4all's."""


class Run(NamedTuple):
    """What one run of a script has written down."""

    end: str
    losses: list[float]
    seconds: list[float]
    items: list[float]
    total: float
    launches: int
    """Of kernels on the device that new tensors go to; 0 on the CPU."""
    output: str


def nudged(seed: int) -> tuple[str, str]:
    """PyTorch with dl4all's random numbers, one unit in the last place off."""
    return "torch", str(seed)


def prepared(case: Case, framework: str, work: Path, mirror: Path | None, device: str = "cpu") -> Path:
    """A fresh working copy of a case's repository with its data; the imports name the framework."""
    original = work / "original" / case.repository.name.replace("/", "+")
    original.parent.mkdir(parents=True, exist_ok=True)
    python_files(case.repository, original, mirror)
    copy = work / framework / case.name.replace(": ", "-").replace(" ", "_")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    if framework == "dl4all":
        replace_imports(copy, device if case.names_device else "cpu")
        _edit(copy / case.script, case.edits_on(device))
    if case.files is not None:
        case.files(_working_directory(case, copy))
    return copy


def changed_lines(case: Case, work: Path, device: str = "cpu") -> int:
    """How many lines of the copy that runs with dl4all differ, imports and devices' names not counted."""
    original = work / "original" / case.repository.name.replace("/", "+")
    copy = work / "dl4all" / case.name.replace(": ", "-").replace(" ", "_")
    return other_changes(original, copy, device if case.names_device else "cpu")


def run(case: Case, kind: tuple[str, str], work: Path, mirror: Path | None, device: str = "cpu") -> Run:
    """Run a case from its beginning.

    Args:
        case: the script.
        kind: the framework, and where its random numbers come from; such as :data:`DL4ALL`.
        work: the folder of the working copies.
        mirror: where bare repositories lie.
        device: of dl4all.
    """
    framework, numbers = kind
    copy = prepared(case, framework, work, mirror, device)
    directory = _working_directory(case, copy)
    default = device if framework == "dl4all" and not case.names_device else "cpu"
    report = directory / "report.json"
    command = (sys.executable, str(HERE / "child.py"), framework, numbers, str(case.steps_on(device)),
               str(report), str(copy / case.script), *case.arguments_on(device))  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=directory, env=_environment(framework, copy, case, default), timeout=LIMIT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Run(f"more than {LIMIT} s", [], [], [], 0.0, 0, "")
    if not report.exists():
        return Run("no report", [], [], [], 0.0, 0, done.stdout)
    return Run(**json.loads(report.read_text()), output=done.stdout)


def _edit(script: Path, edits: Sequence[tuple[str, str]]) -> None:
    text = script.read_bytes()
    for old, new in edits:
        text = text.replace(old.encode(), new.encode())
    script.write_bytes(text)


def _working_directory(case: Case, copy: Path) -> Path:
    return (copy / case.script).parent if case.folder is None else copy / case.folder


def _environment(framework: str, copy: Path, case: Case, device: str) -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **os.environ, **threads,
        "PYTHONPATH": os.pathsep.join((str(HERE / "stand_ins"), str(ROOT), str(copy))),
        "PATH": os.pathsep.join((str(HERE / "stand_ins" / "bin"), os.environ.get("PATH", os.defpath))),
        "DL4ALL_DEVICE": device,
        "SCRIPT_FRAMEWORK": framework,
        "SCRIPT_PICTURES": str(case.pictures),
        "MPLBACKEND": "agg",
    }  # fmt: skip
