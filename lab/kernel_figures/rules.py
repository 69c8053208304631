"""What is asked of kernels: rules for all, goals for the main loops, and that nothing becomes worse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab.kernel_figures.collection import Collection
from lab.kernel_figures.families import FAMILIES
from lab.kernel_figures.figures import Figures

SHARE_TOLERANCE = 0.02  # of an FMA share, between two versions of a kernel
SIZE_TOLERANCE = 0.1  # of a kernel's instructions
PRODUCTS = ("linalg/", "conv/", "attention/flash")  # whose kernels need many registers
# What FMAs hold up; all other kernels wait for memory.
ARITHMETIC = ("linalg/", "conv/", "attention/", "rnn/")
STAGED_FMAS = 64  # of a round, from which on a loop that reads shared memory is a staged product

# Mesa's first versions for RDNA 3 give a kernel half of its registers: not to be judged by.
UNFINISHED = {"navi31": ("Mesa 22.",)}


@dataclass(frozen=True)
class Goal:
    """The FMA share that a main loop is to reach, of all lanes. ``used_by`` is who uses the kernel first."""

    name: str
    used_by: str
    share: float


GOALS = (
    Goal("tile 128x128", "gemm shared 128x128 NN", 0.92),
    Goal("tile 64x64", "gemm shared 64x64 NN", 0.88),
    Goal("tile 32x32", "gemm shared 32x32 NN", 0.75),
    Goal("implicit 3x3", "conv implicit_gemm 3x3 forward", 0.80),
    Goal("implicit 1x1", "conv implicit_gemm 1x1 forward", 0.85),
    Goal("direct 3x3", "conv direct 3x3 forward", 0.85),
    Goal("direct 3x3, filters' gradient", "conv direct 3x3 weight_gradient", 0.70),
)


def reached(made: Collection, goal: Goal) -> Figures | None:
    """The figures of a goal's kernel; None where nothing of that name has a main loop."""
    found = [
        figures
        for name, figures in made.kernels.items()
        if figures.loop is not None and made.used_by[name] == goal.used_by
    ]
    return max(found, key=lambda figures: figures.loop.fmas if figures.loop else 0, default=None)


def broken(made: Collection) -> dict[str, list[str]]:
    """For each kernel the rules that it breaks."""
    if made.driver.startswith(UNFINISHED.get(made.family, ("no driver",))):
        return {}
    return {
        name: rules
        for name, found in made.kernels.items()
        if (rules := list(_broken(made.family, name, found)))
    }


def _broken(family: str, name: str, found: Figures) -> Iterator[str]:
    if found.spilled or found.spilled_scalars:
        yield "no spilled registers"
    if found.scratch:
        yield "no scratch memory"
    for_products, for_others = FAMILIES[family].least_waves
    least = for_products if name.startswith(PRODUCTS) else for_others
    if found.waves is not None and found.waves < least:
        yield f"{least} waves a SIMD"
    if found.lanes_used < 1:
        yield "workgroups of whole waves"
    loop = found.loop
    if loop is not None and loop.fmas >= STAGED_FMAS and loop.lds_reads and loop.waited:
        yield "no waited loads beside shared memory"


@dataclass(frozen=True)
class Change:
    """A figure that is not what it was."""

    kernel: str
    used_by: str
    what: str
    before: float
    now: float
    worse: bool

    def __str__(self) -> str:
        mark = "worse" if self.worse else "other" if self.what == "instructions" else "better"
        return f"{mark}: {self.what} {self.before:g} -> {self.now:g}, {self.used_by}: {self.kernel}"


def changes(before: Collection, now: Collection) -> list[Change]:
    """What changed in the kernels that both have, the worse ones first."""
    found = [
        Change(name, now.used_by[name], *rest)
        for name, figures in now.kernels.items()
        if name in before.kernels
        for rest in _changes(before.kernels[name], figures, loops=name.startswith(ARITHMETIC))
    ]
    return sorted(found, key=lambda change: (not change.worse, change.kernel))


def _changes(before: Figures, now: Figures, *, loops: bool) -> Iterator[tuple[str, float, float, bool]]:
    for what in ("spilled", "spilled_scalars", "scratch"):
        old, new = getattr(before, what), getattr(now, what)
        if old != new:
            yield what.replace("_", " "), old, new, new > old
    if before.waves is not None and now.waves is not None and before.waves != now.waves:
        yield "waves", before.waves, now.waves, now.waves < before.waves
    if before.lanes_used != now.lanes_used:
        yield "lanes used", before.lanes_used, now.lanes_used, now.lanes_used < before.lanes_used
    if loops and before.loop is not None and now.loop is not None:
        old, new = before.loop.share, now.loop.share
        if abs(old - new) > SHARE_TOLERANCE:
            yield "FMA share", round(old, 2), round(new, 2), new < old
        if before.loop.waited != now.loop.waited:
            yield "waited loads", before.loop.waited, now.loop.waited, now.loop.waited > before.loop.waited
    if before.instructions is not None and now.instructions is not None:
        grown = now.instructions - before.instructions
        if abs(grown) > SIZE_TOLERANCE * before.instructions:
            yield "instructions", before.instructions, now.instructions, False


def problems(before: Collection | None, now: Collection) -> list[str]:
    """The reasons for which a check fails: what does not compile or was not written down, rules that were not
    broken before, and what became worse.

    Figures move with the driver: beside those of another version, only what does not compile counts.
    """
    found = [f"does not compile: {name}: {reason}" for name, reason in now.failures.items()]
    if before is not None and before.driver != now.driver:
        return found
    known = {} if before is None else broken(before)
    for name, rules in broken(now).items():
        new = [rule for rule in rules if rule not in known.get(name, ())]
        found += [f"breaks the rule of {rule}: {now.used_by[name]}: {name}" for rule in new]
    if before is not None:
        found += [
            f"has no committed figures: {now.used_by[name]}: {name}"
            for name in now.kernels
            if name not in before.kernels
        ]
        found += [str(change) for change in changes(before, now) if change.worse]
    return found
