"""Which device ``auto`` is: a rule over what is here and how fast it measured. Pure, and tested as such.

A real GPU is taken before the CPU unless the CPU measured more than twice as fast; a software
Vulkan driver only where it measured faster than the CPU. Of the backends that drive one device the
faster one counts, Kompute on a tie. What computed wrongly is never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.measurements import Measurement

# Where nothing was measured.
PREFERENCE = ("discrete", "integrated", "virtual", "other", "cpu", "software")
GPU_ADVANTAGE = 2.0  # other work stays fast while a GPU computes
TIE = 0.05  # measurements differ by more than this from run to run

Lookup = Callable[[str, DeviceInfo], Measurement | None]


class Choice(NamedTuple):
    """A device's name and why it was taken."""

    name: str
    reason: str


class Candidate(NamedTuple):
    """A device under the name of its best backend, and what speaks for or against it."""

    name: str
    info: DeviceInfo
    gflops: float | None  # None: not measured
    usable: bool
    remark: str


def candidates(devices: Sequence[DeviceInfo], lookup: Lookup) -> list[Candidate]:
    """Each device once, the one to take first.

    Speeds count once every device that could win by them was measured; until then the kind decides.
    """
    found = [_best_backend(info, lookup) for info in devices]
    by_speed = all(c.gflops is not None for c in found if c.usable and c.info.type != "software")

    def rank(candidate: Candidate) -> tuple[float, float]:
        kind = PREFERENCE.index(candidate.info.type)
        speed = (candidate.gflops or 0.0) * (GPU_ADVANTAGE if candidate.info.is_gpu else 1.0)
        return (-speed, kind) if by_speed else (kind, -speed)

    return sorted(found, key=rank)


def choose(devices: Sequence[DeviceInfo], lookup: Lookup) -> Choice:
    """The first usable candidate; the CPU always is one."""
    ordered = candidates(devices, lookup)
    best = next(c for c in ordered if c.usable)
    others = [c for c in ordered if c is not best]
    if best.gflops is not None:
        reasons = [best.remark, *(c.remark for c in others if c.remark)]
    elif best.info.is_gpu:
        reasons = [f"the {best.info.type} GPU is preferred to the CPU"]
    else:
        left_out = [c.remark for c in others if not c.usable]
        reasons = left_out or ["no GPU was found"]
        if any(c.info.type == "software" and c.usable for c in others):
            reasons.append("a software Vulkan driver runs on the same processor, with more overhead")
    return Choice(best.name, "; ".join(reasons))


def _best_backend(info: DeviceInfo, lookup: Lookup) -> Candidate:
    measured = {name: m for name in info.names if (m := lookup(name, info)) is not None}
    right = {name: m.matmul_gflops for name, m in measured.items() if not m.problem}
    wrong = {name: m.problem for name, m in measured.items() if m.problem}
    if right:
        most = max(right.values())
        tied = [name for name, gflops in right.items() if gflops >= most * (1 - TIE)]
        name = next((n for n in tied if n.startswith("kompute")), tied[0])
        return Candidate(name, info, right[name], True, f"{name} measured {right[name]:.0f} GFLOP/s")
    unmeasured = [name for name in info.names if name not in wrong]
    if not unmeasured:
        name = info.names[0]
        return Candidate(name, info, None, info.type == "cpu", f"{name} is left out: {wrong[name]}")
    return Candidate(unmeasured[0], info, None, True, "")
