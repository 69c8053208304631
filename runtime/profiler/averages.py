"""A profile as PyTorch shows one: a line for each op and each range that the program named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dl4all.errors import ArgumentError
from dl4all.runtime.profiler.recorder import Kind, RecordedEvent
from dl4all.runtime.profiler.table import in_host_memory

ON_HOST: tuple[Kind, ...] = ("op", "range", "upload", "download")
"""Kinds of events that take time of the thread that they happen in."""

STEP = re.compile(r"^ProfilerStep#\d+$")
SORTED_BY = (
    "count", "cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total",
    "self_device_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage",
    "self_device_memory_usage", "flops",
)  # fmt: skip
DEVICES = re.compile(r"cuda|xpu|hpu|mtia|privateuse1")  # what PyTorch calls one in such a name

TIME_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
BYTE_UNITS = {"b": 1, "Kb": 1024, "Mb": 1024**2, "Gb": 1024**3}


@dataclass
class Average:
    """All calls of one op, or all of one range. Times are microseconds, as in PyTorch.

    Time of the CPU is what passed on the thread that called; of the device what its kernels took. ``self_``
    leaves out the ops and ranges within. Memory is what was allocated; what was given back is not deducted.
    """

    key: str
    input_shapes: tuple[tuple[int, ...], ...] = ()
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    flops: int = 0

    @property
    def cpu_time(self) -> float:
        """Microseconds of the CPU in one call, on average."""
        return self.cpu_time_total / max(self.count, 1)

    @property
    def device_time(self) -> float:
        """Microseconds of the device in one call, on average."""
        return self.device_time_total / max(self.count, 1)

    def _add(self, clock: str, amount: float, own: bool) -> None:
        """Count time or bytes, in the attributes whose names have this at their ends."""
        for name in (clock, f"self_{clock}")[: 1 + own]:
            setattr(self, name, getattr(self, name) + amount)


class Averages(list[Average]):
    """The averages of a profile, in the order in which ops and ranges first began."""

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of the CPU in all ops and ranges."""
        return sum(row.self_cpu_time_total for row in self)

    def total_average(self) -> Average:
        """The sum of all rows, with the key ``"Total"``; a total counts each row's own share."""
        total = Average("Total", count=sum(row.count for row in self), flops=sum(row.flops for row in self))
        for clock in ("cpu_time_total", "device_time_total", "cpu_memory_usage", "device_memory_usage"):
            total._add(clock, sum(getattr(row, f"self_{clock}") for row in self), own=True)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The rows as a text.

        Args:
            sort_by: the attribute of a row that the first has most of, such as ``"cpu_time_total"``; where
                PyTorch's name of a device stands in it, as in ``"cuda_time_total"``, ``device`` is meant.
            row_limit: of how many rows; -1 shows all.
            max_src_column_width: accepted for PyTorch's sake, without effect: no stacks are recorded.
            max_name_column_width, max_shapes_column_width: characters after which a text is cut.
            header: a line above the table.
            top_level_events_only: refused if True: rows are sums over all calls, within others or not.
            time_unit: ``"us"``, ``"ms"`` or ``"s"`` for all times; by default each has its own.

        Raises:
            ArgumentError: there is no such `sort_by` or `time_unit`, or `top_level_events_only` is set.
        """
        if top_level_events_only:
            raise ArgumentError(
                "[profiler] top_level_events_only: rows are sums over all calls; name the parts of the "
                "program by record_function, and look at their rows"
            )
        if time_unit is not None and time_unit not in TIME_UNITS:
            raise ArgumentError(f"[profiler] unknown time_unit {time_unit!r}; expected 'us', 'ms' or 's'")
        rows = sorted(self, key=lambda row: -getattr(row, attribute(sort_by))) if sort_by else self
        shown = rows if row_limit < 0 else rows[:row_limit]
        total = self.total_average()
        columns = _columns(shown, total, time_unit, (max_name_column_width, max_shapes_column_width))
        below = [f"Self CPU time total: {_time(total.cpu_time_total, time_unit)}"]
        if total.device_time_total:
            below.append(f"Self device time total: {_time(total.device_time_total, time_unit)}")
        return "\n".join([*([header] if header else []), *_lines(columns), *below])


def attribute(sort_by: str) -> str:
    """The attribute of a row that PyTorch's name in ``sort_by`` means.

    Raises:
        ArgumentError: there is none.

    >>> attribute("self_cuda_time_total")
    'self_device_time_total'
    """
    named = DEVICES.sub("device", sort_by)
    if named not in SORTED_BY:
        raise ArgumentError(f"[profiler] cannot sort by {sort_by!r}; expected one of {', '.join(SORTED_BY)}")
    return named


def averages(events: Iterable[RecordedEvent], *, by_shape: bool = False) -> Averages:
    """The rows of ops and ranges, and of copies between host and device.

    >>> step = RecordedEvent("range", "step", "", 1, 0.0, 3e-3)
    >>> op = RecordedEvent("op", "relu", "gpu", 1, 0.0, 1e-3, parent=step)
    >>> kernel = RecordedEvent("kernel", "unary", "gpu", 1, 5.0, 5.5, parent=op)
    >>> [(row.key, row.self_cpu_time_total, row.device_time_total) for row in averages([step, op, kernel])]
    [('step', 2000.0, 500000.0), ('relu', 1000.0, 500000.0)]
    """
    found: dict[object, Average] = {}

    def row(event: RecordedEvent) -> Average:
        key = "ProfilerStep*" if STEP.match(event.name) else event.name
        shapes = event.shapes if by_shape else ()
        return found.setdefault((key, shapes), Average(key, shapes))

    for event in events:
        if event.kind in ON_HOST:
            own = row(event)
            own.count += 1
            own.flops += event.flops if event.kind == "op" else 0
            own._add("cpu_time_total", event.seconds * 1e6, own=True)
            if event.parent is not None:
                row(event.parent).self_cpu_time_total -= event.seconds * 1e6
        elif event.kind == "kernel" and not in_host_memory(event.device):
            _climb(event, row, "device_time_total", event.seconds * 1e6)
        elif event.kind == "allocation":
            kind = "cpu" if in_host_memory(event.device) else "device"
            _climb(event, row, f"{kind}_memory_usage", event.nbytes)
    return Averages(found.values())


def _climb(event: RecordedEvent, row: Callable[[RecordedEvent], Average], clock: str, amount: float) -> None:
    """Count for the op or range that something happened in, and for all around it."""
    parent, own = event.parent, True
    while parent is not None:
        row(parent)._add(clock, amount, own)
        parent, own = parent.parent, False


# As text

Column = tuple[str, list[str]]


def _columns(rows: list[Average], total: Average, unit: str | None, widths: tuple[int, int]) -> list[Column]:
    """Headings and cells; times of devices, memory, shapes and operations where there are any."""
    columns = [("Name", [_cut(row.key, widths[0]) for row in rows])]
    clocks = ["CPU", "device"] if total.device_time_total else ["CPU"]
    for clock in clocks:
        name = clock.lower()
        for prefix, heading in ((f"self_{name}", f"Self {clock}"), (name, f"{clock} total")):
            times = [getattr(row, f"{prefix}_time_total") for row in rows]
            whole = getattr(total, f"{name}_time_total") or 1.0
            columns.append((f"{heading} %", [f"{time / whole:.2%}" for time in times]))
            columns.append((heading, [_time(time, unit) for time in times]))
        columns.append((f"{clock} time avg", [_time(getattr(row, f"{name}_time"), unit) for row in rows]))
    for clock in ("CPU", "device"):
        name = f"{clock.lower()}_memory_usage"
        if getattr(total, name):
            columns.append((f"{clock} Mem", [_bytes(getattr(row, name)) for row in rows]))
            columns.append((f"Self {clock} Mem", [_bytes(getattr(row, f"self_{name}")) for row in rows]))
    columns.append(("# of Calls", [str(row.count) for row in rows]))
    if any(row.input_shapes for row in rows):
        columns.append(("Input Shapes", [_cut(str(list(row.input_shapes)), widths[1]) for row in rows]))
    if total.flops:
        columns.append(("Total MFLOPs", [f"{row.flops / 1e6:.3f}" if row.flops else "--" for row in rows]))
    return columns


def _lines(columns: list[Column]) -> list[str]:
    widths = [max(len(heading), *map(len, cells), 0) for heading, cells in columns]
    rule = "  ".join("-" * width for width in widths)

    def line(cells: Iterable[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    body = [line(cells) for cells in zip(*(cells for _, cells in columns), strict=True)]
    return [rule, line(heading for heading, _ in columns), rule, *body, rule]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _time(microseconds: float, unit: str | None = None) -> str:
    """
    >>> _time(1500.0), _time(2.5), _time(1500.0, "s")
    ('1.500ms', '2.500us', '0.002s')
    """
    if unit is None:
        unit = "s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us"
    return f"{microseconds / TIME_UNITS[unit]:.3f}{unit}"


def _bytes(number: int) -> str:
    """
    >>> _bytes(512), _bytes(1536)
    ('512 b', '1.50 Kb')
    """
    unit = max((name for name in BYTE_UNITS if number >= BYTE_UNITS[name]), key=BYTE_UNITS.get, default="b")  # type: ignore[arg-type]
    return f"{number} b" if unit == "b" else f"{number / BYTE_UNITS[unit]:.2f} {unit}"
