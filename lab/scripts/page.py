"""The page of the documentation that shows what the scripts computed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import NamedTuple

from lab.scripts.cases import THEMES, Case
from lab.scripts.comparison import FIRST, GROWTH, MOST_NUDGES, ROUNDING, Comparison

HEAD = """# Public scripts with `import dl4all as torch`

What `python lab/scripts/run.py --device cpu --device vulkan:0 --write` found with PyTorch {torch}:
scripts of public repositories, at the commits that the links show, and 24 of this repository in the manner of
theirs, *themes*, run with PyTorch and with dl4all. For dl4all nothing was changed but the imports, `torch` to
`dl4all`, mechanically. Themes run as they are on `DL4ALL_DEVICE`; *kernels* counts what that device ran. The
others were measured before `cuda` named the accelerator and data of the CPU came along to it: on `vulkan:0`
the name `cpu` that a script gives its device was replaced, and in some a line or two about data, which
*lines* counts. Data sets are replaced by small files in the format that a script reads, and
`torchvision`, `gymnasium` and what else is downloaded, draws or shows progress by stand-ins,
`lab/scripts/stand_ins`, that both runs use.

PyTorch's random functions were made to give dl4all's random numbers, so that weights, dropout, noise and the
order of the data are the same. *Losses* is how many were compared: those on which `backward` was called, or,
where a script has none, the numbers that it prints; with a `+` the script was stopped and would have gone on.
*First* and *largest* are the relative differences of the first loss and of any. Losses are *equal* where the
first differs by at most {first:g} and the largest difference is at most {rounding:g}, or {growth:g} times
what rounding alone makes of a script. That *rounding*, measured where the difference is larger, is how far
PyTorch is from itself where random numbers are one unit in the last place off, in one such run or, where that
one does not explain the difference, in up to {nudges}. *Time* is dl4all's processor time for a step over
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
    """A script and what came of it on a device."""

    case: Case
    device: str
    comparison: Comparison | None
    lines: int
    stopped: bool
    failure: str
    launches: int = 0
    """Of kernels on the device; 0 on the CPU."""


def page(rows: Sequence[Row], omitted: Sequence[tuple[str, str]], torch: str) -> str:
    """The whole page.

    Args:
        rows: one for each script and device that it was run on.
        omitted: scripts that were not run, and why.
        torch: PyTorch's version.
    """
    head = HEAD.format(torch=torch, first=FIRST, rounding=ROUNDING, growth=GROWTH, nudges=MOST_NUDGES)
    devices = dict.fromkeys(row.device for row in rows)
    tables = "".join(
        _section(
            f"{device}{title}",
            [row for row in rows if row.device == device and (row.case.repository is THEMES) == own],
        )
        for device in devices
        for own, title in ((False, ""), (True, ", themes"))
    )
    rest = "".join(f"- {name}: {reason}\n" for name, reason in omitted)
    noted = {row.case.name: row.case.note for row in rows if row.case.note}
    notes = "".join(f"- {name} {note}.\n" for name, note in noted.items())
    return head + tables + (NOTES + notes if notes else "") + OMITTED + rest


def _section(title: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    equal = sum(row.comparison is not None and row.comparison.equal for row in rows)
    unchanged = sum(row.lines == 0 for row in rows)
    counts = f"{equal} of {len(rows)} scripts have equal losses; {unchanged} have no other line changed."
    if ratios := [r.comparison.time_ratio for r in rows if r.comparison and r.comparison.time_ratio]:
        counts += f" The geometric mean of the times is {geometric_mean(ratios):.2f}."
    return "\n".join((f"\n## {title}\n", counts, "", *table_lines(rows), ""))


def table_lines(rows: Sequence[Row]) -> list[str]:
    """The table in Markdown; it shows times where any were compared."""
    timed = any(row.comparison is not None and row.comparison.time_ratio is not None for row in rows)
    launched = any(row.launches for row in rows)
    result = [
        "| script | lines | losses | first | largest | rounding | equal |"
        + " time |" * timed
        + " kernels |" * launched,
        "| --- | --: | --: | --: | --: | --: | --- |" + " --: |" * (timed + launched),
    ]
    for row in rows:
        shown = row.case.repository.shown(row.case.name, row.case.script)
        cells = _cells(row)[: None if timed else -1]
        cells += (str(row.launches or ""),) * launched
        result.append(" | ".join((f"| {shown}", str(row.lines), *cells)) + " |")
    return result


def _cells(row: Row) -> tuple[str, ...]:
    found = row.comparison
    if found is None:
        return "", "", "", "", row.failure, ""
    steps = f"{found.steps}{'+' if row.stopped else ''}"
    if found.steps != found.torch_steps:
        steps = f"{found.steps} of {found.torch_steps}"
    ratio = "" if found.time_ratio is None else f"{found.time_ratio:.2f}"
    first, largest, rounding = (
        "" if value is None else f"{value:.1e}" for value in (found.first, found.largest, found.rounding)
    )
    return steps, first, largest, rounding, "yes" if found.equal else "no", ratio
