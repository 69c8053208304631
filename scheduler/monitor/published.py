"""The state of the devices of running processes, read from the files that they write."""

from __future__ import annotations

import json
import math
import os
import platform
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeGuard

import psutil

from dl4all.scheduler.monitor.publisher import clock_offset, folders, is_own

MAX_BYTES = 1 << 20  # of a file
MAX_TEXT = 200  # characters of a name
CLOCK_SECONDS = 2.0  # by which two looks at the time at which a process was made may differ


@dataclass(frozen=True)
class DeviceRates:
    """The work of a process's device in the last second. Memory and copies are in bytes."""

    name: str
    busy: float | None  # share of the time; None if nobody knows
    kernels_per_second: float
    uploaded_per_second: float
    downloaded_per_second: float
    allocated: float
    reserved: float
    memory: float
    queued: float
    virtual: bool
    retired: str


@dataclass(frozen=True)
class ProcessReport:
    """A process that is alive, and its devices."""

    pid: int
    command: str
    age: float  # seconds since the file was written
    devices: tuple[DeviceRates, ...]
    rank: str = ""  # among the processes that compute together, and how many they are


def read() -> list[ProcessReport]:
    """The state of this user's processes on this machine, by their ids. Files of dead ones are removed."""
    found: dict[int, ProcessReport] = {}
    for folder in folders():
        if is_own(folder):
            for report in _reports(folder):
                found.setdefault(report.pid, report)
    return [found[pid] for pid in sorted(found)]


def _reports(folder: Path) -> Iterator[ProcessReport]:
    for file in sorted(folder.glob("*.json")):
        if not (file.stem.isascii() and file.stem.isdigit() and len(file.stem) < 10):
            continue
        facts = _facts(file)
        if facts is None or facts.get("pid") != int(file.stem):
            if not psutil.pid_exists(int(file.stem)):
                _remove(file)
            continue
        if facts.get("host") != platform.node():
            continue  # the folder is shared, and that machine's processes are its own
        found = _process(int(file.stem), facts)
        if found is None:
            _remove(file)
            continue
        report = _report(int(file.stem), *found, facts)
        if report is not None:
            yield report


def _facts(file: Path) -> dict[str, Any] | None:
    """The contents of a file; None if that is not a small JSON object of this user's."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        opened = os.open(file, flags)  # a link is not followed, and a pipe not waited for
        try:
            facts = os.fstat(opened)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_BYTES:
                return None
            found = json.loads(os.read(opened, MAX_BYTES))
        finally:
            os.close(opened)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _process(pid: int, facts: dict[str, Any]) -> tuple[str, float] | None:
    """The command of a process, and the seconds by which the clock was set since it wrote its file.

    None if it is dead, or another one has its id now.
    """
    created, offset = facts.get("created"), facts.get("clock")
    if not _is_number(created):
        return None
    shift = clock_offset() - offset if _is_number(offset) else 0.0
    try:
        process = psutil.Process(pid)
        age = process.create_time() - created
        # Where setting the clock moves the time at which a process was made, it moves all times in the file.
        moved = next((by for by in (0.0, shift) if abs(age - by) <= CLOCK_SECONDS), None)
        if moved is None or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return _text(" ".join(process.cmdline()) or process.name()), moved
    except psutil.Error:
        return None


def _report(pid: int, command: str, moved: float, facts: dict[str, Any]) -> ProcessReport | None:
    written, listed = facts.get("written"), facts.get("devices")
    if not _is_number(written) or not isinstance(listed, list):
        return None
    devices = [_device(entry) for entry in listed]
    if None in devices:
        return None
    age = max(0.0, time.time() - moved - written)
    rank = facts.get("rank")
    shown = _text(rank) if isinstance(rank, str) else ""
    return ProcessReport(pid, command, age, tuple(d for d in devices if d is not None), shown)


def _device(entry: object) -> DeviceRates | None:
    """A device as a file describes it, if every fact is there and can be true."""
    if not isinstance(entry, dict):
        return None
    values: dict[str, Any] = {}
    for field in fields(DeviceRates):
        value = entry.get(field.name)
        if field.name in ("name", "retired"):
            if not isinstance(value, str):
                return None
            value = _text(value)
        elif field.name == "virtual":
            if not isinstance(value, bool):
                return None
        elif not (_is_number(value) and value >= 0) and not (field.name == "busy" and value is None):
            return None
        values[field.name] = value
    return DeviceRates(**values)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63  # a float holds it


def _text(value: str) -> str:
    """At most a line, without what terminals would take for commands."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in value[: MAX_TEXT + 1])
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
        file.with_suffix(".part").unlink(missing_ok=True)
    except OSError:
        return  # it is ignored then
