"""The phase of a training step that a thread works on, for profiles and for failures of simulated devices."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Phase(threading.local):
    name = ""


_phase = _Phase()


def current() -> str:
    """The innermost phase that this thread is in; empty outside."""
    return _phase.name


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Within the ``with`` block, this thread works on that phase.

    >>> with phase("forward"):
    ...     current()
    'forward'
    """
    before, _phase.name = _phase.name, name
    try:
        yield
    finally:
        _phase.name = before


def default_phase(name: str) -> contextlib.AbstractContextManager[None]:
    """:func:`phase` where this thread is in none yet.

    >>> with phase("forward"), default_phase("upload"):
    ...     current()
    'forward'
    """
    return contextlib.nullcontext() if _phase.name else phase(name)
