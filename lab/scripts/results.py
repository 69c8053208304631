"""Measured rows in a file, so that a few scripts can be measured again and the page keeps the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.scripts.cases import CASES, Case
from lab.scripts.comparison import Comparison
from lab.scripts.page import Row


def with_new_rows(path: Path, rows: Sequence[Row], torch: str) -> list[Row]:
    """Put rows into the file, in place of those of the same scripts on the same devices.

    Args:
        path: the file; rows in it of another version of PyTorch are dropped.
        rows: what was measured now.
        torch: PyTorch's version.

    Returns:
        All rows in the file, device by device, in the order of the cases.
    """
    by_name = {(row.device, row.case.name): row for row in (*_rows(path, torch), *rows)}
    devices = sorted({row.device for row in by_name.values()})
    result = [by_name[d, case.name] for d in devices for case in CASES if (d, case.name) in by_name]
    scripts = {
        device: {row.case.name: _as_json(row) for row in result if row.device == device} for device in devices
    }
    text = json.dumps({"torch": torch, "devices": scripts}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
    return result


def _rows(path: Path, torch: str) -> list[Row]:
    """The rows in a file, but for scripts that are no longer run."""
    if not path.exists():
        return []
    found = json.loads(path.read_text("utf-8"))
    if found["torch"] != torch:
        return []
    cases = {case.name: case for case in CASES}
    return [
        _row(cases[name], device, **row)
        for device, scripts in found["devices"].items()
        for name, row in scripts.items()
        if name in cases
    ]


def _row(
    case: Case, device: str, comparison: dict[str, Any] | None, lines: int, stopped: bool, failure: str,
    launches: int = 0,
) -> Row:  # fmt: skip
    made = Comparison(**comparison) if comparison else None
    return Row(case, device, made, lines, stopped, failure, launches)


def _as_json(row: Row) -> dict[str, Any]:
    """All but the case and the device, which their names say."""
    comparison = None if row.comparison is None else row.comparison._asdict()
    return {
        "comparison": comparison, "lines": row.lines, "stopped": row.stopped, "failure": row.failure,
        "launches": row.launches,
    }  # fmt: skip
