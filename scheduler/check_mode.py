"""Checks that make faults of a program easier to find, and cost time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import get_args

from dl4all import config
from dl4all.config import CheckMode
from dl4all.errors import ArgumentError
from dl4all.runtime.scopes import Undo
from dl4all.scheduler import listeners

_checks: CheckMode | None = None  # what the settings say, until they are looked at or debug() is called


def debug(*, checks: CheckMode) -> AbstractContextManager[None]:
    """Say when ops that take indices on a device check them, in all threads, or in a ``with`` block.

    Args:
        checks: ``"deferred"``: the kernels check them, and an error is raised where the program next waits
            for the device; it names the op and the line that called it. ``"immediate"``: each op waits for
            its indices and raises at once. ``DL4ALL_CHECKS`` or ``checks`` in ``dl4all.toml`` says what it
            is at first; otherwise it is ``"deferred"``. Indices on the CPU are always checked at once.

    Returns:
        A context manager that puts the former setting back when its block ends.

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> with dl.debug(checks="immediate"):
        ...     row = dl.ones(2, 3)[dl.tensor([1])]
    """
    if checks not in get_args(CheckMode):
        modes = " or ".join(get_args(CheckMode))
        raise ArgumentError(f"[debug] checks must be {modes}, got {checks!r}")
    global _checks
    undo = Undo(globals(), "_checks")
    _checks = checks
    return undo


def checks_at_once() -> bool:
    """Whether ops wait for their indices to check them.

    Raises:
        ConfigError: the setting is unusable.
    """
    global _checks
    listeners.unplanned()
    if _checks is None:
        _checks = config.checks_setting()
    return _checks == "immediate"
