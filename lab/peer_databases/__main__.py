"""PyTorch's databases of ops, modules and optimizers, computed by dl4all's own functions.

    python -m lab.peer_databases --entries "nn.functional.*"
    python -m lab.peer_databases --device vulkan:0 --database ops --dtype int64
    python -m lab.peer_databases --json rows.json
    python -m lab.peer_databases --device cpu --device vulkan:0 --write
    python -m lab.peer_databases --rows rows.json --write

Each sample is equal to PyTorch's, refused, wrong, or broken by an error that nobody raised on purpose.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from lab.peer_databases import report
from lab.torch_databases import runs
from lab.torch_databases.runs import ROOT, Run

PAGE = ROOT / "docs" / "torch-databases.md"
CHILD = "lab.peer_databases.child"
DTYPES = {
    "ops": ("float32", "float16", "bfloat16", "int64", "bool"),
    "modules": ("float32",),
    "optimizers": ("float32",),
    "aliases": ("float32",),
}
"""Which dtypes each database has samples of."""


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option(
    "--database", "databases", multiple=True, type=click.Choice(list(DTYPES)), help="Only this one."
)
@click.option("--device", "devices", multiple=True, help="Of dl4all; cpu is the default.")
@click.option("--dtype", "dtypes", multiple=True, help="Only samples of this one.")
@click.option(
    "--entries", "pattern", default=".*", help="Only those whose whole name this expression matches."
)
@click.option("--plain", is_flag=True, help="Leave out methods, in place and out=.")
@click.option("--examples", is_flag=True, help="Print the first samples of each reason.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the outcomes to this file.")
@click.option("--write", is_flag=True, help="Write docs/torch-databases.md.")
@click.option(
    "--rows",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Take outcomes from this file of --json, and run nothing.",
)
def main(
    databases: tuple[str, ...],
    devices: tuple[str, ...],
    dtypes: tuple[str, ...],
    pattern: str,
    plain: bool,
    examples: bool,
    file: Path | None,
    write: bool,
    files: tuple[Path, ...],
) -> None:
    if write and (pattern != ".*" or databases or dtypes or plain):
        raise click.UsageError("--write takes everything: leave the other options out")
    found: dict[str, list[dict[str, Any]]] = {}
    for earlier in files:
        found |= json.loads(earlier.read_text("utf-8"))
    for device in () if files else devices or ("cpu",):
        for database in databases or tuple(DTYPES):
            for dtype in dtypes or DTYPES[database]:
                run = Run(database, device, dtype, variants=not plain, child=CHILD)
                chosen = [name for name in runs.names(run) if re.fullmatch(pattern, name)]
                rows = runs.check(run, chosen, lambda row: _show(row, examples))
                found[f"{database} {device} {dtype}"] = rows
                click.echo(f"{database}, {device}, {dtype}: {report.totals(rows)}")
    if file:
        file.write_text(json.dumps(found, indent=1), "utf-8")
    if write:
        PAGE.write_text(report.text(found), "utf-8")
    sys.exit(any(row["status"] in ("wrong", "crashed") for rows in found.values() for row in rows))


def _show(row: dict[str, Any], examples: bool) -> None:
    for why, (count, whats) in row.get("reasons", {"crashed: " + row["why"]: (1, [])}).items():
        if not why.startswith("missing"):
            click.echo(f"{row['name']:40} {count:4} {why[:300]}")
            for what in whats if examples else ():
                click.echo(f"{'':45} {what[:400]}")


if __name__ == "__main__":
    main()
