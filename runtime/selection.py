"""Which driver a GPU uses and which device ``auto`` is: rules over what is here and how fast it measured.

Pure functions, tested as such. The rules, in the order in which they are applied:

1. One GPU that several drivers offer is one device. Its driver is the one that measured faster; until all
   of them are measured, the one that PREFERRED or LAST say something about.
2. Of the backends that drive a device the faster one counts, Kompute on a tie.
3. A device whose results are wrong through every backend and driver is never taken, nor one that compiles
   only: its driver describes hardware that is not here (Mesa's null hardware).
4. The fastest device wins. A real GPU's figure counts twice, because the processor stays free meanwhile.
   A software Vulkan driver has to have measured faster than the CPU it runs on.
5. Until every device that could win by its speed is measured, the kind decides, by KINDS.

Speed is that of a matrix product: the operation that takes most of a network's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records.measurements import Measurement

KINDS = ("discrete", "integrated", "virtual", "other", "cpu", "software")
GPU_ADVANTAGE = 2.0  # other work stays fast while a GPU computes
TIE = 0.05  # measurements differ by more than this from run to run

# By DeviceInfo.driver_id. Drivers in neither table lie between, in the order of the loader.
PREFERRED = {
    "mesa_radv": "AMD supports it in place of its own drivers for Linux",
    "nvidia_proprietary": "the vendor's own, with the more mature compiler",
}
LAST = {
    "mesa_dozen": "it translates to Direct3D 12",
    "mesa_venus": "it passes everything to the host of a virtual machine",
    "moltenvk": "it translates to Metal",
}

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


# Drivers


def gather(found: Sequence[DeviceInfo], lookup: Lookup) -> tuple[DeviceInfo, ...]:
    """Each piece of hardware once, through its best driver; ``others`` has it through the rest."""
    groups: list[list[DeviceInfo]] = []
    for info in found:
        group = next((group for group in groups if same_hardware(group[0], info)), None)
        if group is None:
            groups.append([info])
        else:
            group.append(info)
    merged = []
    for group in groups:
        best, *others = _by_driver(group, lookup) if len(group) > 1 else group
        merged.append(replace(best, others=tuple(others)) if others else best)
    return tuple(merged)


def same_hardware(a: DeviceInfo, b: DeviceInfo) -> bool:
    """Whether two drivers describe one device.

    The PCI address tells, and tells two cards of one model apart. Without one the UUID does, which is the
    same from every driver; but software drivers have made-up ones, and each is a device of its own.
    One driver's devices of one UUID stay apart: whoever wrote it does not know what that is. What compiles
    only is no hardware, whatever its address says.
    """
    if "cpu" in (a.type, b.type) or a.compiles_only or b.compiles_only:
        return False
    if a.pci and b.pci:
        return a.pci == b.pci
    if "software" in (a.type, b.type) or a.driver == b.driver:
        return False
    return bool(a.uuid.strip("0")) and a.uuid == b.uuid


def driver_reason(info: DeviceInfo, lookup: Lookup) -> str:
    """Why a device uses the driver it does; empty if there is no other."""
    if not info.others:
        return ""
    speed, *speeds = (_speed(view, lookup) for view in info.drivers)
    if speed == 0:
        return f"{info.hardware}: what every driver computes is wrong"
    compared = {view: found for view, found in zip(info.others, speeds, strict=True) if found != 0}
    if not compared:
        return f"{info.driver} rather than {_names(info.others)}: what that computes is wrong"
    chosen = f"{info.driver} rather than {_names(compared)}"
    measured = [found for found in compared.values() if found is not None]
    if speed and len(measured) == len(compared) and max(measured) < speed * (1 - TIE):
        return f"{chosen}: the faster, {' against '.join(f'{x:.0f}' for x in (speed, *measured))} GFLOP/s"
    if info.driver_id in PREFERRED:
        return f"{chosen}: {PREFERRED[info.driver_id]}"
    if last := [LAST[view.driver_id] for view in compared if view.driver_id in LAST]:
        return f"{chosen}: {last[0]}"
    return f"{chosen}: the first that the loader gives"


def _by_driver(group: list[DeviceInfo], lookup: Lookup) -> list[DeviceInfo]:
    """The same hardware through each of its drivers, the best one first."""
    speeds = [_speed(info, lookup) for info in group]
    all_measured = None not in speeds
    most = max((speed or 0 for speed in speeds), default=0)

    def rank(pair: tuple[DeviceInfo, float | None]) -> tuple[bool, bool, int, int]:
        info, speed = pair
        slower = all_measured and (speed or 0) < most * (1 - TIE)
        preference = 0 if info.driver_id in PREFERRED else 2 if info.driver_id in LAST else 1
        return speed == 0, slower, preference, info.index

    return [info for info, _ in sorted(zip(group, speeds, strict=True), key=rank)]


def _speed(info: DeviceInfo, lookup: Lookup) -> float | None:
    """GFLOP/s of a device through one driver: None if not measured, 0 if everything it computes is wrong."""
    best = _best_backend(info, lookup)
    return best.gflops if best.usable else 0


def _names(drivers: Iterable[DeviceInfo]) -> str:
    return " and ".join(info.driver for info in drivers)


# Devices


def candidates(devices: Sequence[DeviceInfo], lookup: Lookup) -> list[Candidate]:
    """Each device once, the one to take first."""
    found = [_best_backend(info, lookup) for info in devices]
    by_speed = _by_speed(found)

    def rank(candidate: Candidate) -> tuple[float, float]:
        kind = KINDS.index(candidate.info.type)
        speed = (candidate.gflops or 0.0) * (GPU_ADVANTAGE if candidate.info.is_gpu else 1.0)
        return (-speed, kind) if by_speed else (kind, -speed)

    return sorted(found, key=rank)


def choose(devices: Sequence[DeviceInfo], lookup: Lookup) -> Choice:
    """The first usable candidate; the CPU always is one."""
    ordered = candidates(devices, lookup)
    best = next(c for c in ordered if c.usable)
    others = [c for c in ordered if c is not best]
    left_out = [c.remark for c in others if not c.usable]
    if best.gflops is not None and _by_speed(ordered):
        reasons = [best.remark, *(c.remark for c in others if c.remark)]
    elif best.info.is_gpu:
        reasons = [f"the {best.info.type} GPU is preferred to the CPU", *left_out]
    else:
        reasons = left_out or ["no GPU was found"]
        if any(c.info.type == "software" and c.usable for c in others):
            reasons.append("a software Vulkan driver runs on the same processor, with more overhead")
    return Choice(best.name, "; ".join(reasons))


def explain(devices: Sequence[DeviceInfo], lookup: Lookup) -> list[str]:
    """The choice step by step: the rule that decides, every device in order, and why each driver."""
    ordered = candidates(devices, lookup)
    missing = [c.name for c in ordered if c.usable and c.gflops is None and c.info.type != "software"]
    if missing:
        lines = [f"Not measured: {', '.join(missing)}. So the kind decides: {', '.join(KINDS)}."]
    else:
        lines = [
            "Everything that could win was measured. So the fastest matrix product decides; "
            f"a real GPU's figure counts {GPU_ADVANTAGE:g} times."
        ]
    for number, c in enumerate(ordered, 1):
        remark = c.remark or "not measured"
        lines.append(f"{number}. {c.name}: {c.info.hardware}, {c.info.type}; {remark}")
    return lines + [reason for info in devices if (reason := driver_reason(info, lookup))]


def unmeasured(devices: Sequence[DeviceInfo], lookup: Lookup) -> list[str]:
    """The names that must be measured before speed decides, through every driver and backend.

    None without a real GPU: software drivers lose to the CPU whether they are measured or not, unless
    somebody wants to know and measures them.
    """
    usable = [info for info in devices if not info.compiles_only]
    if not any(info.is_gpu for info in usable):
        return []
    views = [view for info in usable if info.type != "software" for view in info.drivers]
    return [name for view in views for name in view.names if lookup(name, view) is None]


def _by_speed(found: Sequence[Candidate]) -> bool:
    """Whether every device that could win by its speed was measured."""
    return all(c.gflops is not None for c in found if c.usable and c.info.type != "software")


def _best_backend(info: DeviceInfo, lookup: Lookup) -> Candidate:
    if info.compiles_only:
        return Candidate(info.names[0], info, None, False, f"{info.names[0]} is left out: it compiles only")
    measured = dict(_measured(info, lookup))
    right = {name: m.matmul_gflops for name, m in measured.items() if not m.problem}
    wrong = {name: m.problem for name, m in measured.items() if m.problem}
    refused = "; ".join(f"{name} is left out: {problem}" for name, problem in wrong.items())
    if right:
        most = max(right.values())
        tied = [name for name, gflops in right.items() if gflops >= most * (1 - TIE)]
        name = next((n for n in tied if n.startswith("kompute")), tied[0])
        remark = "; ".join(filter(None, [f"{name} measured {right[name]:.0f} GFLOP/s", refused]))
        return Candidate(name, info, right[name], True, remark)
    open_to_doubt = [name for name in info.names if name not in wrong]
    if not open_to_doubt:
        return Candidate(info.names[0], info, None, info.type == "cpu", refused)
    return Candidate(open_to_doubt[0], info, None, True, refused)


def _measured(info: DeviceInfo, lookup: Lookup) -> Iterator[tuple[str, Measurement]]:
    for name in info.names:
        if (found := lookup(name, info)) is not None:
            yield name, found
