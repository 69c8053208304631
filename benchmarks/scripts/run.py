"""Public PyTorch scripts, run with PyTorch and with ``dl4all`` in its place.

    python benchmarks/scripts/run.py                          # get the scripts from GitHub and run all
    python benchmarks/scripts/run.py --script mnist --script vae --device vulkan:0
    python benchmarks/scripts/run.py --write                  # and write docs/torch-scripts.md

``--write`` keeps the rows of scripts that were not run now; docs/measured/scripts.json has them.

Each is run four times: with PyTorch as it is, for its times; with PyTorch and dl4all's random numbers, for
its losses; the same with numbers that are one unit in the last place off, which shows what rounding makes
of them; and with dl4all.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.scripts.cases import CASES, OMITTED, Case  # noqa: E402
from benchmarks.scripts.comparison import compare  # noqa: E402
from benchmarks.scripts.page import Row, page, table_lines  # noqa: E402
from benchmarks.scripts.results import with_new_rows  # noqa: E402
from benchmarks.scripts.runs import DL4ALL, NUDGED, SAME, TORCH, Run, changed_lines, run  # noqa: E402

PAGE = ROOT / "docs" / "torch-scripts.md"
MEASURED = ROOT / "docs" / "measured" / "scripts.json"
ENDS = ("finished", "stopped")


@click.command()
@click.option("--script", "names", multiple=True, help="Part of a script's name; all scripts by default.")
@click.option("--device", default="cpu", show_default=True, help="dl4all's device.")
@click.option("--mirror", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Bare repositories, owner+name/repo or owner+name.git, instead of GitHub.")  # fmt: skip
@click.option("--work", type=click.Path(file_okay=False, path_type=Path), help="Where copies are kept.")
@click.option("--write", is_flag=True, help="Write docs/torch-scripts.md.")
@click.option("--verbose", is_flag=True, help="Show the end of a failed script's output.")
def main(
    names: tuple[str, ...], device: str, mirror: Path | None, work: Path | None, write: bool, verbose: bool
) -> None:
    """Run public scripts with PyTorch and with dl4all, and compare their losses."""
    cases = [case for case in CASES if not names or any(name in case.name for name in names)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (work or Path(temporary)).resolve()
        rows = []
        for case in cases:
            row, output = measured(case, folder, mirror, device)
            rows.append(row)
            click.echo(table_lines([row])[-1].replace(case.repository.commit, "..."))
            if row.failure and verbose:
                click.echo(output[-3000:], err=True)
    if write:
        shown = with_new_rows(MEASURED, rows, device, version("torch"))
        PAGE.write_text(page(shown, OMITTED, device, version("torch")), encoding="utf-8")
    unequal = [row.case.name for row in rows if row.comparison is None or not row.comparison.equal]
    if unequal:
        sys.exit(f"not equal: {', '.join(unequal)}")


def measured(case: Case, work: Path, mirror: Path | None, device: str) -> tuple[Row, str]:
    """Run a case in each way; the row, and the output of a run that failed."""
    results: list[Run] = []
    for kind in (TORCH, SAME, NUDGED, DL4ALL):
        result = run(case, kind, work, mirror, device)
        if result.end not in ENDS:
            lines = changed_lines(case, work) if kind == DL4ALL else 0
            last = result.end.strip().splitlines()[-1].replace("|", "\\|")
            return Row(case, None, lines, False, f"{kind[0]}: {last}"), result.output
        results.append(result)
    timed, torch, nudged, ours = results
    stopped = ours.end == "stopped"
    return Row(case, compare(ours, torch, nudged, timed), changed_lines(case, work), stopped, ""), ""


if __name__ == "__main__":
    main()
