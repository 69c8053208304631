"""The figures as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tools.kernel_figures.collection import Collection
from tools.kernel_figures.families import FAMILIES
from tools.kernel_figures.figures import Figures


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """
    >>> print(table(("a", "b"), [(1, 2)]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def summary(collections: Iterable[Collection]) -> str:
    """A line for each family."""
    heads = ("family", "GPU", "driver", "compiled", "failed", "used", "spill", "scratch", "fewest waves",
             "workgroups with idle lanes")  # fmt: skip
    return table(heads, map(_summary_row, collections))


def _summary_row(made: Collection) -> list[object]:
    used = made.used().values()
    waves = [found.waves for found in used if found.waves is not None]
    return [
        made.family, FAMILIES[made.family].what, made.driver, len(made.kernels), len(made.failures), len(used),
        sum(bool(found.spilled or found.spilled_scalars) for found in used),
        sum(bool(found.scratch) for found in used),
        min(waves, default="-"),
        sum(found.lanes_used < 1 for found in used),
    ]  # fmt: skip


def worst(made: Collection, count: int = 20) -> str:
    """The kernels that spill most, then those that leave room for the fewest waves."""

    def badness(item: tuple[str, Figures]) -> tuple[int, int, int]:
        found = item[1]
        return -(found.spilled + found.spilled_scalars), -found.scratch, found.waves or 0

    rows = sorted(made.used().items(), key=badness)[:count]
    heads = ("used by", "registers", "waves", "spilled", "scratch bytes", "LDS bytes", "lanes used", "kernel")
    return table(heads, (
        (made.used_by[name], found.registers, found.waves, found.spilled + found.spilled_scalars, found.scratch,
         found.lds, f"{found.lanes_used:.0%}", f"`{name}`")
        for name, found in rows
    ))  # fmt: skip


def main_loops(made: Collection) -> str:
    """What the main loops of products and convolutions do."""
    heads = ("used by", "FMAs", "other vector", "LDS reads", "loads", "narrow", "waited", "barriers", "FMA share",
             "LDS bound", "lanes used", "registers", "waves", "kernel")  # fmt: skip
    return table(heads, (
        loop_row(made.used_by[name], name, found) for name, found in made.used().items() if found.loop is not None
    ))  # fmt: skip


def loop_row(used_by: str, name: str, found: Figures) -> list[object]:
    loop = found.loop
    assert loop is not None
    bound = loop.lds_bound
    return [
        used_by, loop.fmas, max(0, loop.vectors - loop.fmas), loop.lds_reads, loop.loads, loop.narrow_loads,
        loop.waited, loop.barriers, f"**{loop.share:.0%}**", "-" if bound is None else f"{bound:.0%}",
        f"{found.lanes_used:.0%}", found.registers, found.waves, f"`{name}`",
    ]  # fmt: skip
