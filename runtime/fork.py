"""State that a forked child may still use of its parent's.

A fork copies the memory of a process, and of its threads the one that forks. A driver has threads, locks and
connections that are not copied: in the child its devices hang, or worse. So there whatever the parent opened
of a driver refuses with :class:`ForkError`, and nothing of it is closed. What lies in host memory goes on,
with locks that nobody holds.

Everybody else learns of a fork here, mostly in the child, from :func:`in_child`: until then it costs nothing.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from dl4all.errors import ForkError

generation = 0
"""The number of forks between this process and one that was started anew."""

refused = False
"""Whether this process was forked from one that had opened a driver's device: it can open none itself."""

excluded = threading.RLock()
"""No process is forked while another thread holds it: for what a child could not go on with, half done, such
as imports and what LLVM does, which have locks of their own. Nobody who holds it may wait for long."""

_used = False  # a driver's device was opened here, or is being opened
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_before: list[Callable[[], None]] = []
_in_parent: list[Callable[[], None]] = []
_in_child: list[Callable[[], None]] = []


def lock() -> threading.Lock:
    """A lock that is free in a forked child, whoever held it in the parent."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """A lock that is free in a forked child, unless the thread that forked holds it."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(function: Callable[[], None]) -> None:
    """Call a function in each forked child, before its program goes on and after locks were freed."""
    _in_child.append(function)


def around(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call a function before each fork, which must not wait long, and another one after it in the parent."""
    _before.append(before)
    _in_parent.append(after)


def open_driver(name: str) -> None:
    """To be called before a device of a driver is opened: children cannot use what comes of it.

    Raises:
        ForkError: this process is such a child.
    """
    global _used
    check(name)
    _used = True


def check(name: str) -> None:
    """
    Raises:
        ForkError: drivers cannot be used in this process.
    """
    if refused:
        raise error(name)


def check_own(made_in: int, name: str) -> None:
    """
    Raises:
        ForkError: what needs threads was made at generation `made_in`, before this process was forked.
    """
    if made_in != generation:
        raise ForkError(
            f"[{name}] it was made before this process was forked, and the threads that serve it stayed "
            'behind; make another one here, or start the process by "spawn"'
        )


def error(name: str) -> ForkError:
    """Why device `name` cannot be used here."""
    return ForkError(
        f"[{name}] this process was forked from one that had opened a GPU or another driver's device, and "
        "drivers do not work across a fork; start processes by "
        '"spawn" (multiprocessing.get_context("spawn")) or "forkserver", open devices in the children only, '
        'or compute on "cpu" here'
    )


class Refusal:
    """Stands in for a part of a device that the parent opened: any use is a :class:`ForkError`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, attribute: str) -> Any:
        raise error(self._name)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise error(self._name)


def keep_for_ever(thing: object) -> None:
    """Never destroy an object, not even when the interpreter ends: its destructor would call a driver."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _call(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _prepare() -> None:
    _call(_before)
    excluded.acquire()


def _go_on() -> None:
    excluded.release()
    _call(_in_parent)


def _begin_child() -> None:
    global generation, refused
    generation += 1
    refused = refused or _used
    for held in list(_locks):
        if not _is_own(held):
            held._at_fork_reinit()  # as the standard library does with its own
    _call(_in_child)


def _go_on_in_child() -> None:
    excluded.release()
    _begin_child()


def _is_own(held: Any) -> bool:
    """Whether the thread that forked holds it, and is going to release it; only an RLock knows."""
    owned = getattr(held, "_is_owned", None)
    return owned is not None and bool(owned())


if hasattr(os, "register_at_fork"):  # not on Windows, where no process is forked
    os.register_at_fork(
        before=_prepare,
        after_in_parent=_go_on,
        after_in_child=_go_on_in_child,
    )
