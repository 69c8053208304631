"""The page of the documentation that shows what the scripts computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.scripts.cases import Case
from benchmarks.scripts.comparison import FIRST, GROWTH, ROUNDING, Comparison

HEAD = """# Public scripts with `import dl4all as torch`

What `python benchmarks/scripts/run.py --write` found on dl4all's `{device}` with PyTorch {torch}: scripts of
public repositories, at the commits that the links show, run with PyTorch and with dl4all. For dl4all nothing
was changed but the imports, `torch` to `dl4all`, mechanically; *lines* counts any others that differ. Data
sets are replaced by small files in the format that a script reads, and `torchvision`, `gymnasium` and what
else is downloaded or shows progress by stand-ins, `benchmarks/scripts/stand_ins`, that both runs use.

PyTorch's random functions were made to give dl4all's random numbers, so that weights, dropout, noise and the
order of the data are the same. *Losses* is how many were compared: those on which `backward` was called, or,
where a script has none, the numbers that it prints; with a `+` the script was stopped and would have gone on.
*First* and *largest* are the relative differences of the first loss and of any. *Rounding* is how far PyTorch
is from itself where random numbers are one unit in the last place off: what rounding alone makes of a script.
Losses are *equal* where the first differs by at most {first:g} and the largest difference is at most
{rounding:g}, or {growth:g} times what rounding makes. *Time* is dl4all's processor time for a step over
PyTorch's, both with one thread: the median, so without what the first steps compile.
"""

NOTES = """
## Notes

"""
OMITTED = """
## Left out

Scripts that were looked at and are not in the table, with the reason:

"""


class Row(NamedTuple):
    """A script and what came of it."""

    case: Case
    comparison: Comparison | None
    lines: int
    stopped: bool
    failure: str


def page(rows: Sequence[Row], omitted: Sequence[tuple[str, str]], device: str, torch: str) -> str:
    """The whole page.

    Args:
        rows: one for each script that was run.
        omitted: scripts that were not run, and why.
        device: dl4all's.
        torch: PyTorch's version.
    """
    head = HEAD.format(device=device, torch=torch, first=FIRST, rounding=ROUNDING, growth=GROWTH)
    equal = sum(row.comparison is not None and row.comparison.equal for row in rows)
    unchanged = sum(row.lines == 0 for row in rows)
    counts = f"\n{equal} of {len(rows)} scripts have equal losses; {unchanged} have no "
    lines = "\n".join(table_lines(rows))
    rest = "".join(f"- {name}: {reason}\n" for name, reason in omitted)
    notes = "".join(f"- {row.case.name} {row.case.note}.\n" for row in rows if row.case.note)
    table = head + counts + "other line changed.\n\n" + lines + "\n"
    return table + (NOTES + notes if notes else "") + OMITTED + rest


def table_lines(rows: Sequence[Row]) -> list[str]:
    """The table in Markdown."""
    result = [
        "| script | lines | losses | first | largest | rounding | equal | time |",
        "| --- | --: | --: | --: | --: | --: | --- | --: |",
    ]
    for row in rows:
        url = f"{row.case.repository.url}/blob/{row.case.repository.commit}/{row.case.script}"
        owner = row.case.repository.name
        result.append(f"| {owner} [{row.case.name}]({url}) | {row.lines} | {_cells(row)} |")
    return result


def _cells(row: Row) -> str:
    found = row.comparison
    if found is None:
        return f" | | | | {row.failure} | "
    steps = f"{found.steps}{'+' if row.stopped else ''}"
    if found.steps != found.torch_steps:
        steps = f"{found.steps} of {found.torch_steps}"
    ratio = "" if found.time_ratio is None else f"{found.time_ratio:.2f}"
    differences = " | ".join(f"{value:.1e}" for value in (found.first, found.largest, found.rounding))
    return f"{steps} | {differences} | {'yes' if found.equal else 'no'} | {ratio}"
