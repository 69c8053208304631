"""What the compilers of GPUs make of every kernel, without a GPU.

    python tools/gpu_kernels.py --family navi21 --kernel gemm
    python tools/gpu_kernels.py --family navi21 --kernel "conv direct" --isa build/isa

Each shader is compiled with the constants that ops really use. docs/gpus.md says what the figures mean: they are
bounds, not speeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from tools.kernel_figures import report
from tools.kernel_figures.collection import collect
from tools.kernel_figures.families import FAMILIES, FamilyMissing


@click.command(help=__doc__)
@click.option("--family", "families", multiple=True, type=click.Choice(list(FAMILIES)), help="Only this one.")
@click.option("--kernel", default="", help="Only what has this text in its name or in what uses it.")
@click.option("--isa", type=click.Path(path_type=Path), help="Write the compilers' code to this folder.")
@click.option("--icd", default="", help="The driver's manifest, instead of the one that is installed.")
def main(families: tuple[str, ...], kernel: str, isa: Path | None, icd: str) -> None:
    collections = []
    for family in families or tuple(FAMILIES):
        folder = isa and isa / family
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            collections.append(collect(family, kernel, folder, icd))
        except FamilyMissing as error:
            click.echo(f"{family}: {error}", err=True)
    if not collections:
        raise click.ClickException("no family could be had")
    click.echo(report.summary(collections))
    for made in collections:
        for name, reason in made.failures.items():
            click.echo(f"\n{made.family} failed: {name}: {reason}")
        click.echo(f"\n{made.family}, the worst\n\n{report.worst(made)}")
        click.echo(f"\n{made.family}, main loops\n\n{report.main_loops(made)}")


if __name__ == "__main__":
    main()
