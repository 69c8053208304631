"""Tells ``dl4all top`` what this process's devices do: a small file, written anew each second by a thread."""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

import psutil

from dl4all import config
from dl4all.runtime import fork
from dl4all.runtime.records import file_cache
from dl4all.scheduler.device import current
from dl4all.scheduler.monitor import statistics

PERIOD = 1.0  # seconds between two files
SAMPLE = 0.2  # seconds between two looks at devices that do not say how long they were busy
JOIN_SECONDS = 1.0  # that the thread has to end when the process does

log = logging.getLogger("dl4all")

rank = ""
"""The rank of this process among those that compute together, and how many they are, such as ``1/4``."""


def folders() -> list[Path]:
    """The folders for files, the best first: this user's runtime folder lies in memory."""
    found = []
    if chosen := os.environ.get("XDG_RUNTIME_DIR"):
        found.append(Path(chosen))
    if hasattr(os, "getuid"):
        found.append(Path(f"/run/user/{os.getuid()}"))
    usual = [folder / "dl4all" for folder in dict.fromkeys(found) if is_own(folder)]
    return [*usual, file_cache.folder() / "top"]


def clock_offset() -> float:
    """By how many seconds the time of day is ahead of a clock that nobody sets: it changes when it is set."""
    return time.time() - time.monotonic()


def is_own(folder: Path) -> bool:
    """Whether a folder is there and this user's: nobody else may decide what is shown, or where it is put."""
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return folder.is_dir() and not folder.is_symlink() and facts.st_uid == getattr(os, "getuid", lambda: 0)()


def _make(folder: Path) -> bool:
    """Make a folder that only this user can read; returns whether it is there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return is_own(folder) and os.access(folder, os.W_OK)


class _Publisher(threading.Thread):
    """Writes this process's file until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(name="dl4all top", daemon=True)
        self.pid = os.getpid()
        self._stopped: SimpleQueue[None] = SimpleQueue()  # has something in it when the thread is to end
        self._file: Path | None = None
        self._meter = statistics.Meter()
        self._sampled, self._due = True, 0.0

    def run(self) -> None:
        while not self._told_to_end():
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # whatever it is, the program that is watched goes on
                log.debug("[top] this process cannot be watched: %s", error)

    def _told_to_end(self) -> bool:
        """Wait until it is time to look again, or to end."""
        try:
            self._stopped.get(timeout=SAMPLE if self._sampled else PERIOD)
        except Empty:
            return False
        return True

    def _look(self) -> None:
        """See what the devices do, and write it when it is time. Keeps no device alive between two looks."""
        devices = statistics.used()
        self._sampled = self._meter.sample(devices)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + PERIOD
            self._write([self._meter.rates(device) for device in devices])

    def _write(self, devices: list[dict[str, object]]) -> None:
        """Put the file there. Who reads it meanwhile sees the old one or the new one."""
        facts = {
            "pid": self.pid,
            "created": psutil.Process().create_time(),  # on Linux it follows the clock when that is set
            "host": platform.node(),
            "written": time.time(),
            "clock": clock_offset(),
            "rank": rank,
            "devices": devices,
        }
        if self._file is None:
            self._file = next(filter(_make, folders())) / f"{self.pid}.json"
        part = self._file.with_suffix(".part")
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # at half the cost of Path's
        try:
            os.write(opened, json.dumps(facts).encode("utf-8"))
        finally:
            os.close(opened)
        part.replace(self._file)

    def stop(self) -> None:
        """Take the file away, and let the thread end."""
        self._stopped.put(None)
        self.join(JOIN_SECONDS)
        if self._file is not None:
            self._file.unlink(missing_ok=True)


_running: _Publisher | None = None
_lock = fork.lock()


def start() -> None:
    """Let ``dl4all top`` see this process, unless DL4ALL_TOP=0. Calls after the first one do nothing.

    Nor do calls in a child of a process that had opened a driver: the memory of the driver's threads, which
    the child does not have, becomes a new thread's, and when the child ends the driver waits for them there.

    Raises:
        ConfigError: DL4ALL_TOP holds something else than 0 or 1.
    """
    global _running
    if fork.refused or _is_running() or config.top_setting() == "never":
        return
    with _lock:
        if not _is_running():
            _running = _Publisher()
            _running.start()
            # Exit functions run last in, first out: this one before devices are closed, as they were opened.
            atexit.register(stop)


def _is_running() -> bool:
    """A process that was forked has no thread."""
    return _running is not None and _running.pid == os.getpid()


def stop() -> None:
    """Take this process's file away."""
    global _running
    publisher, _running = _running, None
    if publisher is not None and publisher.pid == os.getpid():
        publisher.stop()


def _device_opened() -> None:
    if config.top_setting() == "always":
        start()


current.when_opened = _device_opened
