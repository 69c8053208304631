"""The C library's treatment of the host's memory that nobody uses any more.

glibc gives the end of its heap back to the system as soon as it is free, and the next array has it
fetched again, page by page. A network's step frees and allocates the same megabytes again and again: on the
machine of docs/performance.md, filling two new arrays of 2 MB took 1.6 ms, 0.07 of them for the filling.
So what was freed is kept, up to a limit, as the pools of other devices keep theirs.
"""

from __future__ import annotations

import ctypes
import os
import sys

import psutil

KEPT_BYTES = 2**30  # at the heap's end
HEAP_BYTES = 2**28  # arrays above this are mapped and given back one by one
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed() -> bool:
    """Keep freed memory for what is allocated next; False where there is no glibc or the user set this up."""
    library = _glibc()
    if library is None or any(name in os.environ for name in SETTINGS):
        return False
    thresholds = (M_TRIM_THRESHOLD, KEPT_BYTES), (M_MMAP_THRESHOLD, HEAP_BYTES)
    return all(library.mallopt(which, nbytes) == 1 for which, nbytes in thresholds)


def give_back() -> int:
    """Return what is kept to the system; about so many bytes less belong to the process then."""
    library = _glibc()
    if library is None:
        return 0
    process = psutil.Process()
    before = process.memory_info().rss
    library.malloc_trim(0)
    return max(0, before - process.memory_info().rss)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
