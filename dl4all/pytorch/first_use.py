"""The loading of the library at the first use of a name, and not when ``dl4all`` is imported.

The modules build on each other's declarations: they are loaded together and in one order, that of
:mod:`dl4all.public`, whichever of them is asked for first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from dl4all.pytorch.module_aliases import ExistingModule

PUBLIC = "dl4all.public"
LIGHT = frozenset(
    f"dl4all.{name}"
    for name in (
        "__main__", "cli", "cli.run", "config", "errors", "pytorch", "pytorch.first_use",
        "pytorch.module_aliases", "pytorch.names", "pytorch.names.version",
    )
)  # fmt: skip
"""Modules that need nothing of the others: the command's help and version, and errors."""

_loading = 0
"""The thread that loads everything at present."""
_loaded = False


def attribute(name: str) -> Any:
    """The ``__getattr__`` of ``dl4all`` until the first name is asked for."""
    if _is_public(name) and _loading != threading.get_ident():  # which imports the module of this name next
        load()
        return getattr(sys.modules["dl4all"], name)
    raise AttributeError(f"module 'dl4all' has no attribute {name!r}")


def _is_public(name: str) -> bool:
    """Whether a name is no special one, as ``inspect`` asks of any module."""
    return not name.startswith("__") or name in ("__all__", "__version__")


def names() -> list[str]:
    """The ``__dir__`` of ``dl4all`` until the first name is asked for."""
    load()
    return sorted(vars(sys.modules["dl4all"]))


def load() -> None:
    """Load everything, once, and give ``dl4all`` its names."""
    global _loading, _loaded
    _loading = _loading or threading.get_ident()
    module = import_module(PUBLIC)  # waits for another thread that is at it
    if getattr(module.__spec__, "_initializing", False):
        return  # that one waits for this one in turn, and goes on
    public = vars(module)
    own = vars(sys.modules["dl4all"])
    own.update({name: value for name, value in public.items() if _is_public(name)})
    own.pop("__dir__", None)  # names that are missing answer by another __getattr__ from here on
    _loading, _loaded = 0, True


class Package(ModuleType):
    """The type of ``dl4all`` where the first import was of a module in it.

    Python then binds that module to its name, which may be a function's, too: ``dl4all.tensor``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        present = vars(self).get(name)
        if not isinstance(value, ModuleType) or present is None or isinstance(present, ModuleType):
            super().__setattr__(name, value)


class FirstUseFinder:
    """A finder of ``sys.meta_path`` that has everything loaded before the first module that needs it."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _loaded or not fullname.startswith("dl4all.") or fullname in LIGHT:
            return None
        if _loading == threading.get_ident():
            return None
        load()
        sys.modules["dl4all"].__class__ = Package
        found = sys.modules.get(fullname)
        return None if found is None else ModuleSpec(fullname, ExistingModule(fullname))


def install() -> None:
    """Let modules be found by :class:`FirstUseFinder` first."""
    if FirstUseFinder not in sys.meta_path:
        sys.meta_path.insert(0, FirstUseFinder)
