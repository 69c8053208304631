"""Settings of a thread that hold within ``with`` blocks, and are put back whatever exception comes.

An exception of a signal handler may come as a block's end is entered, before it puts anything back. The
blocks here are generators: the interpreter closes one that is garbage, and so its end runs then. By that time
blocks around it may have ended, or others have begun; so each puts back only what it and blocks within it
have set.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Scope:
    """A block that has begun: what held before it, and the block around it."""

    __slots__ = ("before", "outer")

    def __init__(self, before: Any, outer: Scope | None) -> None:
        self.before = before
        self.outer = outer


class ScopedSetting(threading.local, Generic[T]):
    """A value of each thread."""

    def __init__(self, value: T) -> None:
        self.value = value
        self.scope: Scope | None = None


@contextlib.contextmanager
def assigned(setting: ScopedSetting[T], value: T) -> Iterator[None]:
    """Within the ``with`` block, a setting has another value in this thread.

    >>> indent = ScopedSetting(0)
    >>> with assigned(indent, 4):
    ...     indent.value
    4
    >>> indent.value
    0
    """
    present = setting.__dict__  # this thread's, though another one may come to close the generator
    own = Scope(present["value"], present["scope"])
    try:
        present["scope"], present["value"] = own, value
        yield
    finally:  # without a call: nothing can interrupt it
        scope: Scope | None = present["scope"]
        while scope is not None and scope is not own:
            scope = scope.outer
        if scope is own:
            present["value"], present["scope"] = own.before, own.outer


class Undo(AbstractContextManager[None]):
    """Remembers a variable of a module, and puts it back when its ``with`` block ends; without one, never.

    >>> names = {"mode": "warn"}
    >>> undo = Undo(names, "mode")
    >>> names["mode"] = "error"
    >>> with undo:
    ...     names["mode"]
    'error'
    >>> names["mode"]
    'warn'
    """

    def __init__(self, names: dict[str, Any], name: str) -> None:
        self._block = _until_the_end(names, name, names[name])

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(self, *error: object) -> None:
        self._block.__exit__(None, None, None)


@contextlib.contextmanager
def _until_the_end(names: dict[str, Any], name: str, former: Any) -> Iterator[None]:
    try:
        yield
    finally:
        names[name] = former
