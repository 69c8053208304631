"""The threads of a DataLoader: waiting for those that nobody waits for."""

from __future__ import annotations

import threading

from dl4all.data.prefetch import Worker


def join(*, hung: int = 0) -> None:
    """Wait for all threads of loaders, and fail if more stay than those that hang."""
    workers = [thread for thread in threading.enumerate() if isinstance(thread, Worker)]
    for thread in workers:
        thread.join(0.5 if hung else 30)
    assert sum(thread.is_alive() for thread in workers) <= hung
