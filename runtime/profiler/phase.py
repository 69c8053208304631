"""The phase of a training step that a thread works on, for profiles and for failures of simulated devices."""

from __future__ import annotations

import contextlib

from dl4all.runtime.scopes import ScopedSetting, assigned

_phase = ScopedSetting("")


def current() -> str:
    """The innermost phase that this thread is in; empty outside."""
    return _phase.value


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Within the ``with`` block, this thread works on that phase.

    >>> with phase("forward"):
    ...     current()
    'forward'
    """
    return assigned(_phase, name)


def default_phase(name: str) -> contextlib.AbstractContextManager[None]:
    """:func:`phase` where this thread is in none yet.

    >>> with phase("forward"), default_phase("upload"):
    ...     current()
    'forward'
    """
    return contextlib.nullcontext() if _phase.value else phase(name)
