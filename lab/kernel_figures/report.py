"""The figures as tables in Markdown, on the terminal and in docs/gpus.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from lab.kernel_figures.collection import Collection
from lab.kernel_figures.families import FAMILIES
from lab.kernel_figures.figures import Figures
from lab.kernel_figures.records import Shares
from lab.kernel_figures.rules import GOALS, Goal, broken, reached

MARKED = re.compile(r"(<!-- (\w+): written[^>]*-->\n)(?:.*?\n)??(<!-- end -->)", re.S)
"""A part of the page that a command writes."""

WORST = 20
SHOWN_FMAS = 16  # of a round: what has fewer is no loop of arithmetic


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """
    >>> print(table(("a", "b"), [(1, 2)]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def in_order(collections: Iterable[Collection]) -> list[Collection]:
    """Sorted as the families are listed."""
    return sorted(collections, key=lambda made: list(FAMILIES).index(made.family))


def families(collections: Iterable[Collection]) -> str:
    """A line for each family."""
    heads = (
        "family", "GPU", "driver", "shaders compiled", "failed", "kernels in use", "of these spill",
        "use scratch", "fewest waves", "idle lanes", "break a rule",
    )  # fmt: skip
    return table(heads, map(_family, in_order(collections)))


def _family(made: Collection) -> list[object]:
    found = made.kernels.values()
    return [
        made.family,
        FAMILIES[made.family].what,
        made.driver,
        made.compiled,
        len(made.failures),
        len(found),
        sum(bool(figures.spilled or figures.spilled_scalars) for figures in found),
        sum(bool(figures.scratch) for figures in found),
        min((figures.waves for figures in found if figures.waves is not None), default="-"),
        sum(figures.lanes_used < 1 for figures in found),
        len(broken(made)),
    ]


def worst(made: Collection, count: int = WORST) -> str:
    """The kernels that spill most, then those that leave room for the fewest waves."""

    def order(name: str) -> tuple[object, ...]:
        found = made.kernels[name]
        spilled = found.spilled + found.spilled_scalars
        return -spilled, -found.scratch, found.waves or 0, -(found.registers or 0), name

    heads = (
        "used by", "registers", "waves", "spilled", "scratch, bytes", "shared memory, bytes", "lanes used",
        "kernel",
    )  # fmt: skip
    return table(heads, (_worst(made, name) for name in sorted(made.kernels, key=order)[:count]))


def _worst(made: Collection, name: str) -> list[object]:
    found = made.kernels[name]
    return [
        made.used_by[name],
        "-" if found.registers is None else found.registers,
        "-" if found.waves is None else found.waves,
        found.spilled + found.spilled_scalars,
        found.scratch,
        found.lds,
        percent(found.lanes_used),
        f"`{name}`",
    ]


def main_loops(made: Collection) -> str:
    """What main loops do."""
    heads = (
        "used by", "FMAs", "other vector", "LDS reads", "loads", "narrow", "waited", "barriers", "FMA share",
        "LDS bound", "lanes used", "registers", "waves", "kernel",
    )  # fmt: skip
    looping = [name for name, found in made.kernels.items() if found.loop and found.loop.fmas >= SHOWN_FMAS]
    return table(heads, (_main_loop(made, name) for name in looping))


def _main_loop(made: Collection, name: str) -> list[object]:
    found = made.kernels[name]
    loop = found.loop
    assert loop is not None
    return [
        made.used_by[name],
        loop.fmas,
        max(0, loop.vectors - loop.fmas),
        loop.lds_reads,
        loop.loads,
        loop.narrow_loads,
        loop.waited,
        loop.barriers,
        percent(loop.share),
        percent(loop.lds_bound),
        percent(found.lanes_used),
        "-" if found.registers is None else found.registers,
        "-" if found.waves is None else found.waves,
        f"`{name}`",
    ]


def goals(collections: Iterable[Collection], before: Shares) -> str:
    """The FMA share of each goal at first and now, with the waited loads of a round."""
    made = [one for one in in_order(collections) if FAMILIES[one.family].vendor == "amd"]
    heads = ("main loop", "goal", *(f"{one.family}: before, now (waited)" for one in made))

    def cells(goal: Goal) -> list[str]:
        first = before.get(goal.name, {})
        return [_goal(reached(one, goal), first.get(one.family)) for one in made]

    return table(heads, ((goal.name, percent(goal.share), *cells(goal)) for goal in GOALS))


def _goal(found: Figures | None, before: float | None) -> str:
    if found is None or found.loop is None:
        return f"{percent(before)}, -"
    return f"{percent(before)}, **{percent(found.fma_share)}** ({found.loop.waited})"


def shares(collections: Iterable[Collection]) -> Shares:
    """The FMA shares that the goals' main loops have."""
    found: Shares = {}
    for made in collections:
        for goal in GOALS:
            figures = reached(made, goal)
            if figures is not None and figures.fma_share is not None:
                found.setdefault(goal.name, {})[made.family] = round(figures.fma_share, 4)
    return found


LOOPS_SHOWN = ("gemm shared", "gemm plain", "conv implicit_gemm", "conv direct")
"""What uses the kernels whose main loops the page shows, aligned ones first."""


def page_loops(collections: Iterable[Collection]) -> str:
    """For each main loop a cell a family."""
    made = [one for one in in_order(collections) if FAMILIES[one.family].vendor == "amd"]
    users = {
        one.used_by[name]
        for one in made
        for name, found in one.kernels.items()
        if found.loop is not None and one.used_by[name].startswith(LOOPS_SHOWN)
    }
    shown = sorted(user for user in users if "," not in user and "unaligned" not in user)
    return table(
        ("used by", *(one.family for one in made)),
        ((user, *(_cell(one, user) for one in made)) for user in shown),
    )


def _cell(made: Collection, user: str) -> str:
    """FMAs / other vector instructions / LDS reads / loads (waited); share; registers, waves."""
    found = [f for name, f in made.kernels.items() if f.loop is not None and made.used_by[name] == user]
    if not found:
        return "-"
    best = max(found, key=lambda figures: figures.loop.fmas if figures.loop else 0)
    loop = best.loop
    assert loop is not None
    return (
        f"{loop.fmas} / {loop.vectors - loop.fmas} / {loop.lds_reads} / {loop.loads} ({loop.waited}); "
        f"**{percent(best.fma_share)}**; {best.registers}, {best.waves}"
    )


def fill(page: str, parts: Mapping[str, str]) -> str:
    """The page with its marked parts written anew.

    >>> fill("<!-- a: written by x -->\\nold\\n<!-- end -->", {"a": "new"})
    '<!-- a: written by x -->\\nnew\\n<!-- end -->'
    """
    return MARKED.sub(lambda found: f"{found[1]}{parts[found[2]]}\n{found[3]}", page)


def parts(collections: Mapping[str, Collection], before: Shares) -> dict[str, str]:
    """The marked parts of docs/gpus.md."""
    made = in_order(collections.values())
    return {
        "families": families(made),
        "goals": goals(made, before),
        "loops": page_loops(made),
        "worst": worst(collections["navi21"]) if "navi21" in collections else "",
    }
