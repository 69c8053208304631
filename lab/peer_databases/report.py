"""The page docs/torch-databases.md: how PyTorch's databases fare with dl4all's own functions."""

from __future__ import annotations

import collections
from typing import Any

import torch

from lab.peer_databases.outcome import STATUSES, brief

Rows = list[dict[str, Any]]

HEAD = """# PyTorch's databases by dl4all's functions

Every sample that PyTorch's own tests have of an op, a module or an optimizer, computed by dl4all's function
of that name and by PyTorch {version} on its CPU (`torch.testing._internal`): values, dtypes and shapes of
results, and the gradients of every operand that has one; as "aliases", which results share memory with an
operand. Written by
`python -m lab.peer_databases --device cpu --device vulkan:0 --write`.

- **equal**: the results are PyTorch's, to the precision that its own tests ask for, or as near as its own to
  what float64 gives, which may be finite where PyTorch's float16 overflows on its way. Of random results
  dtypes and shapes are compared.
- **refused**: dl4all raises an error of `dl4all.errors`, or a TypeError.
- **crashed**: any other error, or the end of the process.
- **wrong**: another result.

Entries without a function in dl4all are not counted; their names stand at the end.

"""


def counted(rows: Rows) -> collections.Counter[str]:
    """Calls by status; an entry whose process ended counts as one."""
    found: collections.Counter[str] = collections.Counter()
    for row in rows:
        found.update(row.get("counts", {row["status"]: 1}))
    return found


def totals(rows: Rows) -> str:
    """Counts in one line, with the share of those that are there."""
    found = counted(rows)
    there = sum(found.values()) - found["missing"]
    share = found["equal"] / there if there else 1.0
    return f"{ {status: found[status] for status in STATUSES} }, {share:.2%} of {there} equal"


def text(found: dict[str, Rows]) -> str:
    """The page.

    Args:
        found: outcomes by database, device and dtype, such as ``ops cpu float32``.
    """
    parts = [HEAD.format(version=torch.__version__.split("+")[0]) + _totals(found)]
    parts += [_table(name, rows) for name, rows in found.items()]
    parts += [_missing(found)]
    return "\n".join(part for part in parts if part)


def _totals(found: dict[str, Rows]) -> str:
    lines = ["| database | device | dtype | entries | equal | refused | crashed | wrong | share |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for name, rows in found.items():
        counts = counted(rows)
        there = [row for row in rows if row["status"] != "missing"]
        total = sum(counts.values()) - counts["missing"]
        numbers = [len(there), *(counts[status] for status in ("equal", "refused", "crashed", "wrong"))]
        cells = [*name.split(), *map(str, numbers), f"{counts['equal'] / max(total, 1):.2%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _table(name: str, rows: Rows) -> str:
    lines = [
        f"## Not equal: {name}\n",
        "| entry | calls | not equal | why | such as |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["name"]):
        reasons: dict[str, list[Any]] = {}
        for why, (count, whats) in row.get("reasons", {f"crashed: {row['why']}": (1, [""])}).items():
            kept = reasons.setdefault(brief(why), [0, whats[0]])
            kept[0] += count
        for why, (count, what) in reasons.items():
            if not why.startswith("missing"):
                cells = (row["name"], str(row["samples"]), str(count), _cell(why), _cell(what[:80]))
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 3 else ""


def _missing(found: dict[str, Rows]) -> str:
    names = sorted({row["name"] for rows in found.values() for row in rows if row["status"] == "missing"})
    return "## Not in dl4all\n\n" + ", ".join(f"`{name}`" for name in names) + "\n" if names else ""


def _cell(value: str) -> str:
    return " ".join(value.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
