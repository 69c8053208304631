"""Names of a package whose modules are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from dl4all.errors import BackendMissingError


def lazy_names(package: str, modules: Mapping[str, str], extra: str = "") -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: its ``__name__``.
        modules: the module within it by each name; that of its own name is the name itself.
        extra: of the distribution, which has the packages that the modules need.

    Example:
        >>> lazy_names("dl4all.onnx", {"load": "module"})("load").__name__
        'load'
    """

    def getattr_(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{modules[name]}")
        except ImportError as error:
            if not extra or str(error.name).startswith("dl4all"):
                raise
            raise BackendMissingError(
                f"[{extra}] {error.name} is not installed: pip install 'dl4all[{extra}]'"
            ) from None
        found = module if name == modules[name] else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return getattr_
