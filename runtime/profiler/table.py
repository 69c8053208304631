"""A profile as a table of kernels, with the transfers and allocations below it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from dl4all.runtime.profiler import utilisation
from dl4all.runtime.profiler.recorder import Kind, RecordedEvent

HEADINGS = ("calls", "total ms", "mean ms", "share", "GB/s", "GFLOP/s")


@dataclass
class TableRow:
    """All calls of one kernel on one device. What nobody measured counts as 0 seconds."""

    kernel: str
    device: str
    virtual: bool = False  # the seconds are those of the virtual clock
    ops: set[str] = field(default_factory=set)
    calls: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    flops: int = 0


def rows(events: Iterable[RecordedEvent]) -> list[TableRow]:
    """The kernels among `events`, the one that took longest first."""
    found: dict[tuple[str, str], TableRow] = {}
    for event in events:
        if event.kind != "kernel":
            continue
        # The name shown may be shortened; kernels that differ in anything have rows of their own.
        key = (event.device, event.shader or event.name)
        row = found.setdefault(key, TableRow(event.name, event.device, event.clock == "virtual"))
        row.ops.add(event.op)
        row.calls += 1
        row.seconds += event.seconds
        row.nbytes += event.nbytes
        row.flops += event.flops
    return sorted(found.values(), key=lambda row: -row.seconds)


def table(events: list[RecordedEvent], seconds: float, virtual_seconds: float = 0.0) -> Table:
    """The table that ``print`` shows of a profile that took `seconds`, and so many on the virtual clock.

    A kernel's share is that of the time of all kernels on its clock.
    """
    below = notes(events, seconds, virtual_seconds)
    shown = Table(caption="\n".join(below), caption_justify="left")
    for heading in ("kernel", "op", "device"):
        shown.add_column(heading, overflow="fold")
    for heading in HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    listed = rows(events)
    total = {
        virtual: sum(row.seconds for row in listed if row.virtual == virtual) for virtual in (False, True)
    }
    for row in listed:
        shown.add_row(
            Text(row.kernel),  # not markup, whatever an expression holds
            ", ".join(sorted(filter(None, row.ops))),
            row.device,
            str(row.calls),
            f"{row.seconds * 1e3:.2f}" if row.seconds else "-",
            f"{row.seconds / row.calls * 1e3:.3f}" if row.seconds else "-",
            f"{row.seconds / total[row.virtual]:.1%}" if row.seconds else "-",
            rate(row.nbytes, row.seconds),
            rate(row.flops, row.seconds),
        )
    return shown


def rate(amount: int, seconds: float) -> str:
    """Billions a second.

    >>> rate(3_000_000_000, 2.0), rate(0, 2.0), rate(1, 0.0)
    ('1.5', '-', '-')
    """
    return f"{amount / seconds / 1e9:.1f}" if amount and seconds else "-"


def notes(events: list[RecordedEvent], seconds: float, virtual_seconds: float = 0.0) -> list[str]:
    """Remarks beside the rows. Work on the virtual clock has lines of its own."""
    virtual = [event for event in events if event.clock == "virtual"]
    real = [event for event in events if event.clock != "virtual"]
    lines = _notes_of_clock(real, seconds)
    if virtual:
        lines += [f"Virtual time: {line}" for line in _notes_of_clock(virtual, virtual_seconds)]
    lines += _other_notes(real)
    used = utilisation.utilisation(events, seconds, virtual_seconds)
    return [*lines, *utilisation.lines(used)] if len(used) > 1 else lines


def _notes_of_clock(events: list[RecordedEvent], seconds: float) -> list[str]:
    """Kernels and transfers."""
    busy = sum(event.seconds for event in events if event.kind == "kernel")
    lines = [
        f"Kernels: {_count(events, 'kernel')}, {busy * 1e3:.2f} ms; the profile: {seconds * 1e3:.2f} ms."
    ]
    for kind in ("upload", "download"):
        if count := _count(events, kind):
            taken = sum(event.seconds for event in events if event.kind == kind)
            nbytes = _bytes(events, kind)
            lines.append(
                f"{kind.capitalize()}s: {count}, {nbytes / 1e6:.3f} MB in {taken * 1e3:.2f} ms, "
                f"{rate(nbytes, taken)} GB/s."
            )
    return lines


def _other_notes(events: list[RecordedEvent]) -> list[str]:
    """Allocations, and what is not known exactly."""
    lines = []
    kernels = [event for event in events if event.kind == "kernel"]
    if count := _count(events, "allocation"):
        new = [event.nbytes for event in events if event.kind == "allocation" and event.name == "driver"]
        lines.append(
            f"Allocations: {count}, {_bytes(events, 'allocation') / 1e6:.3f} MB; "
            f"{len(new)} of them, {sum(new) / 1e6:.3f} MB, from a driver, the others from a pool."
        )
    collectives = [event for event in events if event.kind == "collective"]
    for name in dict.fromkeys(event.name for event in collectives):
        found = [event for event in collectives if event.name == name]
        lines.append(
            f"{name} between processes: {len(found)}, {sum(e.nbytes for e in found) / 1e6:.3f} MB, "
            f"{sum(e.seconds for e in found) * 1e3:.2f} ms on their way, "
            f"{sum(e.waited for e in found) * 1e3:.2f} ms of them waited for."
        )
    if count := _count(events, "fallback"):
        fallbacks = [event for event in events if event.kind == "fallback"]
        causes = dict.fromkeys(f"{e.name} on {e.device} ({e.reason})" for e in fallbacks)
        lines.append(
            f"On the CPU for want of a kernel: {count}, {_bytes(events, 'fallback') / 1e6:.3f} MB moved, "
            f"{sum(e.seconds for e in fallbacks) * 1e3:.2f} ms: {', '.join(causes)}."
        )
    waited = sorted({e.device for e in kernels if e.clock == "host" and not in_host_memory(e.device)})
    if waited:
        lines.append(
            f"Times on {', '.join(waited)} are the host's around each submission, which was waited for."
        )
    unknown = sorted({e.device for e in kernels if e.clock == "none"})
    if unknown:
        lines.append(f"Some kernels on {', '.join(unknown)} were not timed.")
    return lines


def in_host_memory(device: str) -> bool:
    """Whether a device's kernels are NumPy bodies, which run where they are called.

    >>> in_host_memory("cpu#1"), in_host_memory("vulkan:0")
    (True, False)
    """
    return device.partition("#")[0] == "cpu"


def _count(events: list[RecordedEvent], kind: Kind) -> int:
    return sum(event.kind == kind for event in events)


def _bytes(events: list[RecordedEvent], kind: Kind) -> int:
    return sum(event.nbytes for event in events if event.kind == kind)
