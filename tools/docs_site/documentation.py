"""What is written about a public name, where ever that is: in a docstring, below a constant, in NumPy."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
from enum import Enum
from pathlib import Path

import numpy as np

from dl4all.ops.core.dtypes import FLOATING, KINDS, finfo
from tools.docs_site.names import Name, module_of


def documentation(name: Name) -> str:
    """A docstring, the text below a constant, or for a dtype what NumPy knows of it."""
    thing = name.thing
    if isinstance(thing, np.dtype):
        return dtype_text(name)
    if thing is None or isinstance(thing, (float, Enum)):
        return value_text(name)
    if callable(thing) or inspect.isdatadescriptor(thing) or isinstance(thing, functools.cached_property):
        text = inspect.getdoc(thing) or ""
        return text or (f"Python's own ``{name.module}.{name.name}``." if is_of_python(name) else "")
    return constant_text(name)


def dtype_text(name: Name) -> str:
    dtype = name.thing
    if dtype in FLOATING:
        information = finfo(dtype)
        span = f"to {float(information.max):.4g}, with {information.precision} decimal digits"
    elif dtype.kind in "iu":
        whole = np.iinfo(dtype)
        span = f"from {whole.min} to {whole.max}"
    else:
        span = "``True`` and ``False``" if dtype.kind == "b" else "pairs of floats"
    if dtype not in KINDS:
        return (
            f"The dtype ``{dtype}``, by name only: no tensor has it, and every use is refused.\n\n"
            f"Example:\n    >>> import dl4all as dl\n    >>> dl.{name.name}\n    {dtype!r}"
        )
    return (
        f"The dtype ``{dtype}``, {span}; {dtype.itemsize} byte{'s' * (dtype.itemsize > 1)} an element.\n\n"
        "Example:\n    >>> import dl4all as dl\n"
        f"    >>> dl.zeros(2, dtype=dl.{name.name}).dtype\n    {dtype!r}"
    )


def value_text(name: Name) -> str:
    """The text of a number, of None, or of a member of an enumeration."""
    thing = name.thing
    if thing is None:
        return (
            "None: as an index it adds an axis of size 1.\n\n"
            "Example:\n    >>> import dl4all as dl\n"
            f"    >>> dl.ones(2)[dl.{name.name}].shape\n    (1, 2)"
        )
    about = inspect.getdoc(type(thing)) if isinstance(thing, Enum) else "The number."
    return f"{about}\n\nExample:\n    >>> import dl4all as dl\n    >>> dl.{name.name}\n    {thing!r}"


def constant_text(name: Name) -> str:
    """The string below the assignment, in the module that has the constant or in the one it comes from."""
    space = module_of(name.space)
    if space is None:  # an attribute of a class
        return ""
    sources = [space, *(m for key, m in sorted(sys.modules.items()) if key.startswith(f"{space.__name__}."))]
    for module in sources:
        if getattr(module, name.name, None) is name.thing and getattr(module, "__file__", None):
            found = strings_below(Path(str(module.__file__))).get(name.name)
            if found:
                return found
    kind = type(name.thing)
    return (inspect.getdoc(kind) or "") if kind.__module__.startswith("dl4all.") else ""


@functools.cache
def strings_below(path: Path) -> dict[str, str]:
    body = ast.parse(path.read_text("utf-8")).body
    found: dict[str, str] = {}
    for statement, text in itertools.pairwise(body):
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        if (
            isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found |= {
                target.id: inspect.cleandoc(text.value.value)
                for target in targets
                if isinstance(target, ast.Name)
            }
    return found


ABOUT = re.compile(r":(?:func|class):`~?([\w.]+)`")
"""The function that an in-place variant is a variant of."""


def is_of_python(name: Name) -> bool:
    """Whether it is a thing of Python's own, such as ``multiprocessing.Queue``, under a name of PyTorch's."""
    return callable(name.thing) and name.module.partition(".")[0] not in ("dl4all", "numpy")


def has_example(name: Name) -> bool:
    """Whether there is one, here or at the function that the text begins with: ``abs_`` with ``abs``."""
    text = documentation(name)
    if ">>>" in text or is_of_python(name):
        return True
    about = ABOUT.match(text)
    spaces = [sys.modules[space] for space in ("dl4all", "dl4all.nn.functional", "dl4all.ops")]
    functions = [getattr(space, about[1].rpartition(".")[2], None) for space in spaces] if about else []
    return any(">>>" in (inspect.getdoc(function) or "") for function in functions if function is not None)
