"""The page docs/torch-ops.md: how every entry of PyTorch's databases fares on ``dlall``."""

from __future__ import annotations

import collections
from typing import Any

import torch

from tools.torch_databases.outcome import STATUSES

HEAD = """# PyTorch's own databases on `dlall`

Written by `python tools/torch_ops.py --write` from PyTorch {version}'s test databases
(`torch.testing._internal`): {dtype} samples on the device `{device}` beside PyTorch's CPU. An op is
computed with all of its samples, forward and backward, and forward again with operands that are
transposed, that are views with gaps and an offset, in place, and into `out=` tensors that fit, have gaps,
no elements or another dtype. Compared are dtypes, shapes, values, and which results are views; random
results by their seed and their first two moments.

- **native**: all but the variants ran on the device. The column *variants* names what of these did not.
- **refused**: something ran on the CPU, which docs/pytorch.md explains. *Why* names the first such op.
- **error**: the CPU computes it, `dlall` raises an error, also with the fallback.
- **wrong** or **crashed**: as they say.
"""

Rows = list[dict[str, Any]]


def text(found: dict[str, Rows], device: str, dtype: str) -> str:
    """The page.

    Args:
        found: outcomes by database and mode, such as ``ops native``.
        device, dtype: that they are of.
    """
    parts = [HEAD.format(version=torch.__version__, dtype=dtype, device=device), _totals(found)]
    for database in ("ops", "modules", "optimizers"):
        native, fallback = found.get(f"{database} native", []), found.get(f"{database} fallback", [])
        parts.append(_table(database, native, {row["name"]: row for row in fallback}))
    parts.append(_reasons(found.get("ops native", [])))
    return "\n".join(parts)


def _totals(found: dict[str, Rows]) -> str:
    lines = [
        "| database | | right | refused | error | wrong | crashed |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        totals = collections.Counter(row["status"] for row in rows)
        counts = " | ".join(str(totals[status]) for status in STATUSES)
        database, mode = name.split()
        lines.append(f"| {database} | {'native only' if mode == 'native' else 'with fallback'} | {counts} |")
    return "\n".join(lines) + "\n"


def _table(database: str, rows: Rows, fallback: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"## {database.capitalize()}\n",
        "| entry | samples | native only | with fallback | why | variants |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["name"]):
        other = fallback.get(row["name"])
        helped = "" if other is None else "right" if other["status"] == "native" else other["status"]
        why = row["why"] or (other or {}).get("why", "")
        notes = "; ".join(f"{kind}: {note}" for kind, note in sorted(row["notes"].items()))
        cells = (row["name"], str(row["samples"]), row["status"], helped, _cell(why), _cell(notes))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: str) -> str:
    short = " ".join(value.split())
    short = short if len(short) <= 160 else short[:157] + "..."
    return short.replace("|", "\\|").replace("<", "&lt;")


def _reasons(rows: Rows) -> str:
    """The ATen ops that entries were refused for, the most frequent first."""
    counts = collections.Counter(row["why"].split(": ")[0] for row in rows if row["status"] == "refused")
    lines = ["## What entries were refused for\n", "| op | entries |", "|---|---|"]
    lines += [f"| {op} | {count} |" for op, count in counts.most_common()]
    return "\n".join(lines) + "\n"
