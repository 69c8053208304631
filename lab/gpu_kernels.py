"""What the compilers of GPUs make of every kernel, without a GPU.

    python lab/gpu_kernels.py --family navi21 --kernel gemm
    python lab/gpu_kernels.py --family navi21 --kernel "conv direct" --isa build/isa
    python lab/gpu_kernels.py --check
    python lab/gpu_kernels.py --write

Each shader is compiled with the constants that ops really use. docs/gpus.md says what the figures mean: they
are bounds, not speeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from lab.kernel_figures import records, report, rules
from lab.kernel_figures.collection import ROOT, Collection, collect
from lab.kernel_figures.families import FAMILIES, FamilyMissing

PAGE = ROOT / "docs" / "gpus.md"
CHECKED = ("navi21", "polaris10")
"""The families of a check: an RDNA, and the GCN that has the fewest instructions to add addresses with."""


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--family", "chosen", multiple=True, type=click.Choice(list(FAMILIES)), help="Only this one.")
@click.option("--kernel", default="", help="Only what has this text in its name, or in that of what uses it.")
@click.option("--isa", type=click.Path(path_type=Path), help="Write the compilers' code to this folder.")
@click.option("--icd", default="", help="The driver's manifest, instead of the one that is installed.")
@click.option("--all", "every", is_flag=True, help="With --check: every family that can be had.")
@click.option("--check", is_flag=True, help="Fail if anything breaks a rule or is worse than the committed.")
@click.option("--write", is_flag=True, help="Write the committed figures, and the tables of docs/gpus.md.")
def main(
    chosen: tuple[str, ...], kernel: str, isa: Path | None, icd: str, every: bool, check: bool, write: bool
) -> None:
    if write and kernel:
        raise click.UsageError("--write takes all kernels: leave --kernel out")
    made = []
    for family in chosen or (CHECKED if check and not every else tuple(FAMILIES)):
        try:
            made.append(collect(family, kernel, isa and isa / family, icd))
        except FamilyMissing as error:
            click.echo(f"{family} is left out: {error}", err=True)
    if not made and check and not chosen:
        click.echo("nothing was checked: no family could be had")
        return
    if not made:
        raise click.ClickException("no family could be had")
    committed, before = records.read()
    click.echo(report.families(made))
    click.echo("\n" + ", ".join(f"{one.family} took {one.seconds:.0f} s" for one in made))
    if not check:
        _show(made, before)
    bad = [_compare(committed.get(one.family), one) for one in made]
    if write:
        _write({**committed, **{one.family: one for one in made}}, before)
    if check and any(bad):
        raise click.ClickException("see above; where it is meant, write the figures anew with --write")


def _show(made: list[Collection], before: records.Shares) -> None:
    for one in made:
        click.echo(f"\n{one.family}, the worst\n\n{report.worst(one)}")
        click.echo(f"\n{one.family}, main loops\n\n{report.main_loops(one)}")
    click.echo(f"\nGoals\n\n{report.goals(made, before)}")


def _compare(committed: Collection | None, now: Collection) -> bool:
    """Print what changed, and return whether a check is to fail for it."""
    click.echo(f"\n{now.family}, since the committed figures")
    if committed is None:
        click.echo("nothing is committed for this family")
    elif committed.driver != now.driver:
        click.echo(f"not compared: they are from {committed.driver}, these from {now.driver}")
    else:
        new = sum(name not in committed.kernels for name in now.kernels)
        click.echo(f"{new} kernels are new")
        for change in rules.changes(committed, now):
            click.echo(change)
    found = rules.problems(committed, now)
    for problem in found:
        click.echo(f"PROBLEM {problem}")
    return bool(found)


def _write(collections: dict[str, Collection], before: records.Shares) -> None:
    now = report.shares(collections.values())
    for goal, families in now.items():
        for family, share in families.items():
            before.setdefault(goal, {}).setdefault(family, share)
    records.write(collections.values(), before)
    PAGE.write_text(report.fill(PAGE.read_text("utf-8"), report.parts(collections, before)), "utf-8")


if __name__ == "__main__":
    main()
