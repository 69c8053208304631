"""Which ATen ops a program uses on ``dlall``: native or fallen back, how often, and the time in each.

:func:`start` puts a clock around every kernel. Each call then waits for the device, so that its time is its
own; a program takes longer while it is watched.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

from rich.table import Table

from dl4all.pytorch.device.dispatch import fallback
from dl4all.pytorch.device.dispatch.registration import KERNELS, LIBRARY
from dl4all.scheduler.device.current import synchronize


@dataclasses.dataclass
class ReportRow:
    """The calls of one op; those of kernels that call others are counted with all that they call."""

    op: str
    native: int
    fallen_back: int
    seconds: float
    reason: str
    """Why it fell back the first time; empty if it never did."""


@dataclasses.dataclass
class _Calls:
    calls: int = 0
    seconds: float = 0.0


_calls: dict[str, _Calls] = {}


def start() -> None:
    """Watch all kernels from now on."""
    _calls.clear()
    fallback.COUNTS.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch's, that kernels are replaced
        for name, kernel in KERNELS.items():
            LIBRARY.impl(name, _clocked(name, kernel), "PrivateUse1", allow_override=True)


def _clocked(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def watched(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = kernel(*args, **kwargs)
        synchronize()
        row = _calls.setdefault(f"aten::{name}", _Calls())
        row.calls += 1
        row.seconds += time.perf_counter() - start
        return result

    return watched


def rows() -> list[ReportRow]:
    """The ops that were used, the one that took longest first."""
    found = []
    for name in _calls.keys() | fallback.COUNTS.keys():
        calls, fallen = _calls.get(name, _Calls()), fallback.COUNTS.get(name, fallback.Count())
        native = max(calls.calls - fallen.calls, 0)
        found.append(ReportRow(name, native, fallen.calls, max(calls.seconds, fallen.seconds), fallen.reason))
    return sorted(found, key=lambda row: -row.seconds)


def table() -> Table:
    """The rows for ``rich``."""
    shown = Table()
    shown.add_column("op", overflow="fold")
    for heading in ("native", "on the CPU", "ms"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("why on the CPU", overflow="fold")
    for row in rows():
        name = row.op.removeprefix("aten::")
        milliseconds = f"{row.seconds * 1e3:.2f}"
        shown.add_row(name, str(row.native), str(row.fallen_back), milliseconds, row.reason)
    return shown
