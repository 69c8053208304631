"""A line on the terminal while something is compiled for long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rich.console import Console
from rich.errors import LiveError

from dl4all.runtime.records.compile_times import PATIENCE_SECONDS


@contextlib.contextmanager
def shown_when_long(text: str) -> Iterator[None]:
    """Within the ``with`` block, show a text and a spinner on standard error once a second has passed.

    Nothing is shown where standard error is no terminal, or shows a progress bar already.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status, lock, ended = console.status(text), threading.Lock(), threading.Event()

    def start() -> None:
        with lock, contextlib.suppress(LiveError):
            if not ended.is_set():
                status.start()

    timer = threading.Timer(PATIENCE_SECONDS, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            ended.set()
            status.stop()
