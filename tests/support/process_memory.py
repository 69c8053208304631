"""A bound on the memory of each test process.

A software driver keeps what it compiled: llvmpipe holds about a megabyte for each pipeline, and gives it back
with the device, not with the pipeline. So in a process that has grown, devices are closed between two tests,
and opened again by the next one that needs them.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dl4all.runtime import registry
from dl4all.scheduler.device import current

MIB = 1 << 20
REOPEN = 650 * MIB
"""Where devices are closed. PyTorch and the collected tests take about 500 MiB of it."""
GROWTH = 150 * MIB
"""How much more than after the last time it must be, as closing does not bring back everything."""
MOST = 3072 * MIB
"""What a process may take. A run in which one took more fails. Launching all shaders on imitated hardware,
late in a run, was seen to reach 2,349 MiB."""

PROCESS = psutil.Process()
peaks: dict[str, tuple[int, str]] = {}
"""The most bytes that each process of this run had, and the test that took them."""
_with_fixtures: set[Path] = set()
"""Files whose fixtures live from one test to another, and may hold a device: a server does."""
_peak = (0, "")
_after_closing = 0


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was collected out of the cycle collector's sight: a collection took half a second for it."""
    _with_fixtures.update(item.path for item in session.items if _of_module(item))
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close what grew, where no fixture of a module holds it."""
    global _peak
    yield
    _peak = max(_peak, (_most_resident(), item.nodeid), key=lambda peak: peak[0])
    if nextitem is None or _resident() < max(REOPEN, _after_closing + GROWTH):
        return
    if item.path != nextitem.path or item.path not in _with_fixtures:
        close_devices()


def _resident() -> int:
    """The bytes of memory that this process has now."""
    return int(PROCESS.memory_info().rss)


def _most_resident() -> int:
    """The most bytes of memory that this process had.

    Not `ru_maxrss`, where there is another way: a process begins with its parent's, which `exec` keeps.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _of_module(item: Any) -> bool:
    return any(d[-1].scope == "module" for d in item._fixtureinfo.name2fixturedefs.values())


def close_devices() -> None:
    """Close all devices but the cpu, and give memory back to the system."""
    global _after_closing
    for name in [name for name in current._devices if name != "cpu"]:
        current._devices.pop(name).synchronize()
    registry.close_all()
    if (torch_devices := sys.modules.get("dl4all.pytorch.device.devices")) is not None:
        torch_devices._opened.clear()
        torch_devices._indices.clear()
    gc.collect()
    gc.freeze()  # modules that came with tests, and what they keep
    ctypes.CDLL(None).malloc_trim(0)
    _after_closing = _resident()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this one, or end the run."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["peak"] = _peak
        return
    peaks["main"] = _peak
    if max(peaks.values())[0] > MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Read what a process of this run told."""
    peaks[node.gateway.id] = tuple(getattr(node, "workeroutput", {}).get("peak", (0, "")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it."""
    for name, (peak, test) in sorted(peaks.items()):
        if peak:
            shown = f"{peak // MIB} MiB (at most {MOST // MIB}) by {test}"
            terminalreporter.write_line(f"peak memory of {name}: {shown}")
