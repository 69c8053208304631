"""Which backends the suite runs on, and how each is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from dl4all.runtime import plugins
from dl4all.runtime.protocols import Backend


@dataclass(frozen=True)
class Way:
    """A way to open a backend, with the name that the tests get from it."""

    name: str
    open: Callable[[], Backend]
    marks: tuple[pytest.MarkDecorator, ...] = ()


WAYS = pytest.StashKey[Sequence[Way]]()
"""A ``conftest.py`` may put its own ways into ``config.stash``; they run where no ``--backend`` is given."""


def ways_of(config: pytest.Config) -> Sequence[Way]:
    """The backends that the command line asks for, or the ``conftest.py`` that runs the suite.

    Raises:
        pytest.UsageError: neither does, or there is no such backend.
    """
    names: list[str] = config.getoption("dl4all_backends", default=None) or []
    if names:
        return [named(name) for name in dict.fromkeys(names)]
    if WAYS in config.stash:
        return config.stash[WAYS]
    raise pytest.UsageError(f"say which backend to test: --backend=NAME, one of {_known()}")


def named(name: str) -> Way:
    """``mine`` or ``mine:1``, as the registry finds it, but opened apart from the registry's devices.

    Raises:
        pytest.UsageError: there is no such backend, or it cannot be used; the message says why.
    """
    backend, colon, digits = name.partition(":")
    if colon and not (digits.isascii() and digits.isdigit()):
        raise pytest.UsageError(f"--backend={name}: write NAME or NAME:INDEX")
    found = plugins.load()
    if backend in found.refused:
        raise pytest.UsageError(f"--backend={name}: {found.refused[backend]}")
    if backend not in found.sources:
        raise pytest.UsageError(f"--backend={name}: there is no such backend; there are {_known()}")
    source, index = found.sources[backend], int(digits or 0)
    return Way(f"{backend}:{index}", lambda: source.open(index))


def _known() -> str:
    return ", ".join(plugins.load().sources)
