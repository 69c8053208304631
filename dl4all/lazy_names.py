"""Names of a package whose modules are loaded when they are first used."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
                f"[{extra}] {error.name} is not installed: {install_command(extra)}"
            ) from None
        found = module if name == modules[name] else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return getattr_


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra by their own names: an index may not have dl4all.

    Example:
        >>> install_command("tensorboard")
        "pip install 'tensorboard>=2.16'"
    """
    import shlex  # neither with each import of the library
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("dl4all") or []
    except PackageNotFoundError:  # imported from a folder
        return f"pip install '.[{extra}]' in a clone of dl4all"
    return " ".join(("pip install", *map(shlex.quote, dict.fromkeys(_requirements(lines, extra)))))


def _requirements(lines: Sequence[str], extra: str) -> Iterator[str]:
    """The requirements of an extra, and of those that it names, without their markers."""
    for line in lines:
        requirement, _, marker = line.partition(";")
        if not re.search(rf"extra == ['\"]{extra}['\"]", marker):
            continue
        own = re.match(r"dl4all\[([\w,-]+)\]", requirement.strip())
        if own is None:
            yield requirement.strip()
        else:
            for other in own[1].split(","):
                yield from _requirements(lines, other)
