"""Measured rows in a file, so that a few scripts can be measured again and the page keeps the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scripts.cases import CASES, Case
from benchmarks.scripts.comparison import Comparison
from benchmarks.scripts.page import Row


def with_new_rows(path: Path, rows: Sequence[Row], device: str, torch: str) -> list[Row]:
    """Put rows into the file, in place of those of the same scripts.

    Args:
        path: the file; rows in it of another device or version of PyTorch are dropped.
        rows: what was measured now.
        device: dl4all's.
        torch: PyTorch's version.

    Returns:
        All rows in the file, in the order of the cases.
    """
    by_name = {row.case.name: row for row in (*_rows(path, device, torch), *rows)}
    result = [by_name[case.name] for case in CASES if case.name in by_name]
    scripts = {row.case.name: _as_json(row) for row in result}
    text = json.dumps({"device": device, "torch": torch, "scripts": scripts}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
    return result


def _rows(path: Path, device: str, torch: str) -> list[Row]:
    """The rows in a file, but for scripts that are no longer run."""
    if not path.exists():
        return []
    found = json.loads(path.read_text("utf-8"))
    if (found["device"], found["torch"]) != (device, torch):
        return []
    cases = {case.name: case for case in CASES}
    return [_row(cases[name], **row) for name, row in found["scripts"].items() if name in cases]


def _row(case: Case, comparison: dict[str, Any] | None, lines: int, stopped: bool, failure: str) -> Row:
    return Row(case, Comparison(**comparison) if comparison else None, lines, stopped, failure)


def _as_json(row: Row) -> dict[str, Any]:
    """All but the case, which the name says."""
    comparison = None if row.comparison is None else row.comparison._asdict()
    return {
        "comparison": comparison, "lines": row.lines, "stopped": row.stopped, "failure": row.failure,
    }  # fmt: skip
