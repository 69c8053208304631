"""The page docs/torch-ops.md: how every entry of PyTorch's databases fares on ``dlall``."""

from __future__ import annotations

import collections
import re
from typing import Any

import torch

from lab.torch_databases.outcome import STATUSES

HEAD = """# PyTorch's own databases on `dlall`

Every op, module and optimizer that PyTorch's own tests know, and what becomes of it on dl4all's
[device of PyTorch](pytorch.md): computed by dl4all's kernels, or on the CPU with dl4all moving the data.

"""

MEANING = """
- **native**: all samples were right and none of them needed the CPU.
- **right**: all samples were right, with the CPU computing what dl4all has no kernels for.
- **refused**: right as well, but something ran on the CPU; *why* names the first such op of PyTorch.
- **sparse**: needs sparse tensors, which `dlall` has none of: a `DeviceError` says so.
- **error**, **wrong**, **crashed**: the CPU computes it, `dlall` raises an error, gives another result, or
  ends the process.

The column *also* names what differs without being wrong: *variants* that run on the CPU, such as `out=` of
another dtype; results whose *strides* are not the CPU's, though their elements are; and operands that
`dlall` *accepts* where PyTorch raises an error.

Written by `python lab/torch_ops.py --write` from PyTorch {version}'s test databases
(`torch.testing._internal`), with {dtype} samples on dl4all's device `{device}`. An op is computed with all of
its samples, forward and backward, and forward again with operands that are transposed, that are views with
gaps and an offset, in place, and into `out=` tensors that fit, have gaps, no elements or another dtype.
Dtypes, shapes, values, and which results are views must be as on PyTorch's CPU; random results must follow
their seed and have the same first two moments.
"""

Rows = list[dict[str, Any]]


def text(found: dict[str, Rows], device: str, dtype: str) -> str:
    """The page.

    Args:
        found: outcomes by database and mode, such as ``ops native``.
        device, dtype: that they are of.
    """
    meaning = MEANING.format(version=torch.__version__, dtype=dtype, device=device)
    parts = [HEAD + _totals(found) + meaning]
    for database in ("ops", "modules", "optimizers"):
        native, fallback = found.get(f"{database} native", []), found.get(f"{database} fallback", [])
        parts.append(_table(database, native, {row["name"]: row for row in fallback}))
    parts.append(_reasons(found.get("ops native", [])))
    return "\n".join(parts)


def _totals(found: dict[str, Rows]) -> str:
    lines = [
        "| database | | right | refused | sparse | error | wrong | crashed |",
        "|---|---|---|---|---|---|---|---|",
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
        "| entry | samples | native only | with fallback | why | also |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["name"]):
        other = fallback.get(row["name"])
        helped = "" if other is None else "right" if other["status"] == "native" else other["status"]
        why = row["why"] or (other or {}).get("why", "")
        samples = max(row["samples"], (other or {}).get("samples", 0))
        notes = "; ".join(f"{kind}: {_brief(kind, note)}" for kind, note in sorted(row["notes"].items()))
        cells = (row["name"], str(samples), row["status"], helped, _cell(why), _cell(notes))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _brief(kind: str, note: str) -> str:
    """A note without the sample."""
    if kind == "strides" and note.startswith("("):
        layout = re.search(r"\((transposed|offset) ", note)
        return layout[1] if layout else "of the samples themselves"
    if kind == "strides":
        return note.split(":")[0]
    return re.split(r" \(?[(\[]", note)[0]


def _cell(value: str) -> str:
    short = " ".join(value.split())
    short = short if len(short) <= 110 else short[:107] + "..."
    return short.replace("|", "\\|").replace("<", "&lt;")


def _reasons(rows: Rows) -> str:
    """The ATen ops that entries were refused for, the most frequent first."""
    counts = collections.Counter(row["why"].split(": ")[0] for row in rows if row["status"] == "refused")
    lines = ["## What entries were refused for\n", "| op | entries |", "|---|---|"]
    lines += [f"| {op} | {count} |" for op, count in counts.most_common()]
    return "\n".join(lines) + "\n"
