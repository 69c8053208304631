"""A line on the terminal when kernels are compiled for longer than a moment: a first step takes its time."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

PATIENCE_SECONDS = 1.0

_seconds: defaultdict[str, float] = defaultdict(float)
_told: set[str] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def compiling(device: str) -> Iterator[None]:
    """Within the ``with`` block a kernel of a device is compiled, or loaded.

    When all that a process has compiled for the device has taken a second, one line on standard error says
    so, if that is a terminal.
    """
    begun = time.perf_counter()
    try:
        yield
    finally:
        with _lock:
            _seconds[device] += time.perf_counter() - begun
            tells = _seconds[device] >= PATIENCE_SECONDS and device not in _told
            if tells:
                _told.add(device)
        if tells and sys.stderr is not None and sys.stderr.isatty():
            print(f"[{device}] compiling kernels, which later runs find in the cache", file=sys.stderr)
