"""PyTorch's databases of ops, modules and optimizers on ``dlall``, compared with the CPU.

    python lab/torch_ops.py --ops "nn.functional.*"
    python lab/torch_ops.py --device vulkan:0 --mode fallback
    python lab/torch_ops.py --database modules --database optimizers
    python lab/torch_ops.py --write

Each entry is native, refused (it would run on the CPU), an error, wrong, or ended its process.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from lab.torch_databases import page, runs
from lab.torch_databases.runs import ROOT, Run

PAGE = ROOT / "docs" / "torch-ops.md"
DATABASES = ("ops", "modules", "optimizers")


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--database", "databases", multiple=True, type=click.Choice(DATABASES), help="Only this one.")
@click.option("--device", default="cpu", help="The dl4all device that dlall:0 is.")
@click.option("--dtype", default="float32", help="Of the samples of ops and modules.")
@click.option(
    "--mode", default="native", type=click.Choice(["native", "fallback"]), help="With the CPU's help?"
)
@click.option("--ops", "pattern", default=".*", help="Only entries whose whole name this expression matches.")
@click.option("--plain", is_flag=True, help="Leave out other layouts, in place and out=.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the outcomes to this file.")
@click.option("--write", is_flag=True, help="Run all with and without fallback, and write docs/torch-ops.md.")
def main(
    databases: tuple[str, ...],
    device: str,
    dtype: str,
    mode: str,
    pattern: str,
    plain: bool,
    file: Path | None,
    write: bool,
) -> None:
    if write and (pattern != ".*" or databases or plain):
        raise click.UsageError("--write takes everything: leave the other options out")
    modes = ("native", "fallback") if write else (mode,)
    found: dict[str, list[dict[str, Any]]] = {}
    for database in databases or DATABASES:
        for one in modes:
            run = Run(database, device, dtype, one, variants=not plain)
            chosen = [name for name in runs.names(run) if re.fullmatch(pattern, name)]
            rows = runs.check(run, chosen, _show)
            found[f"{database} {one}"] = rows
            totals = collections.Counter(row["status"] for row in rows)
            click.echo(f"{database}, {one}, {device}, {dtype}: {dict(totals)}")
    if file:
        file.write_text(json.dumps(found, indent=1), "utf-8")
    if write:
        PAGE.write_text(page.text(found, device, dtype), "utf-8")
    bad = [row for rows in found.values() for row in rows if row["status"] in ("wrong", "crashed")]
    sys.exit(bool(bad))


def _show(row: dict[str, Any]) -> None:
    if row["status"] != "native":
        click.echo(f"{row['status']:8} {row['name']:44} {row['why'][:300]}")
    for kind, text in row["notes"].items():
        click.echo(f"  {kind:12} {row['name']:40} {text[:200]}")


if __name__ == "__main__":
    main()
