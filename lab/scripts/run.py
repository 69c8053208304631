"""Public PyTorch scripts, run with PyTorch and with ``dl4all`` in its place.

    python lab/scripts/run.py                          # get the scripts from GitHub and run all
    python lab/scripts/run.py --script mnist --script vae --device vulkan:0
    python lab/scripts/run.py --script lab/themes --device vulkan:0       # those of this repository
    python lab/scripts/run.py --device cpu --device vulkan:0 --write     # docs/torch-scripts.md

``--write`` keeps the rows of scripts that were not run now; docs/measured/scripts.json has them.

Each is run with PyTorch as it is, for its times; with PyTorch and dl4all's random numbers, for its losses;
and with dl4all on each device. Where losses differ, PyTorch is run again, once or more, with numbers that are
one unit in the last place off, which shows what rounding makes of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab.scripts.cases import CASES, OMITTED, Case  # noqa: E402
from lab.scripts.comparison import MOST_NUDGES, Comparison, compare  # noqa: E402
from lab.scripts.page import Row, page, table_lines  # noqa: E402
from lab.scripts.results import with_new_rows  # noqa: E402
from lab.scripts.runs import DL4ALL, SAME, TORCH, Run, changed_lines, nudged, run  # noqa: E402

PAGE = ROOT / "docs" / "torch-scripts.md"
MEASURED = ROOT / "docs" / "measured" / "scripts.json"
ENDS = ("finished", "stopped")


@click.command()
@click.option("--script", "names", multiple=True,
              help="Part of a script's name, or of its repository's; all by default.")  # fmt: skip
@click.option("--device", "devices", multiple=True, default=("cpu",), show_default=True,
              help="dl4all's device, or several.")  # fmt: skip
@click.option("--mirror", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Bare repositories, owner+name/repo or owner+name.git, instead of GitHub.")  # fmt: skip
@click.option("--work", type=click.Path(file_okay=False, path_type=Path), help="Where copies are kept.")
@click.option("--write", is_flag=True, help="Write docs/torch-scripts.md.")
@click.option("--verbose", is_flag=True, help="Show the end of a failed script's output.")
def main(
    names: tuple[str, ...], devices: tuple[str, ...], mirror: Path | None, work: Path | None, write: bool,
    verbose: bool,
) -> None:  # fmt: skip
    """Run public scripts with PyTorch and with dl4all, and compare their losses."""
    cases = [
        case for case in CASES if not names or any(n in case.name or n in case.repository.name for n in names)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (work or Path(temporary)).resolve()
        rows = []
        for case in cases:
            new, output = measured(case, folder, mirror, devices)
            rows += new
            for row in new:
                line = table_lines([row])[-1]
                line = line.replace(case.repository.commit, "...") if case.repository.commit else line
                click.echo(f"{row.device} {line}")
            if output and verbose:
                click.echo(output[-3000:], err=True)
    if write:
        shown = with_new_rows(MEASURED, rows, version("torch"))
        PAGE.write_text(page(shown, OMITTED, version("torch")), encoding="utf-8")
    unequal = [
        f"{row.case.name} on {row.device}"
        for row in rows
        if row.comparison is None or not row.comparison.equal
    ]
    if unequal:
        sys.exit(f"not equal: {', '.join(unequal)}")


def measured(
    case: Case, work: Path, mirror: Path | None, devices: Sequence[str] = ("cpu",)
) -> tuple[list[Row], str]:
    """Run a case in each way; the row of each device, and the output of a run that failed."""
    baseline: list[Run] = []
    for kind in (TORCH, SAME):
        result = run(case, kind, work, mirror)
        if result.end not in ENDS:
            failure = f"torch: {_last_line(result)}"
            return [Row(case, device, None, 0, False, failure) for device in devices], result.output
        baseline.append(result)
    timed, torch = baseline
    nudges: list[Run] = []
    ours, lines = {}, {}
    for device in devices:
        ours[device] = run(case, DL4ALL, work, mirror, device)
        lines[device] = changed_lines(case, work, device)

    def comparisons() -> dict[str, Comparison]:
        return {
            device: compare(
                found, torch, nudges, timed if device == "cpu" and case.timed else None, case.steps_on(device)
            )
            for device, found in ours.items()
            if found.end in ENDS
        }

    found = comparisons()
    while len(nudges) < MOST_NUDGES and any(one.may_be_rounding and not one.equal for one in found.values()):
        nudges.append(run(case, nudged(len(nudges)), work, mirror))
        found = comparisons()
    rows = [
        Row(case, device, found.get(device), lines[device], result.end == "stopped",
            "" if device in found else f"dl4all: {_last_line(result)}", result.launches)
        for device, result in ours.items()
    ]  # fmt: skip
    return rows, "\n".join(result.output for result in ours.values() if result.end not in ENDS)


def _last_line(run: Run) -> str:
    return run.end.strip().splitlines()[-1].replace("|", "\\|")


if __name__ == "__main__":
    main()
