"""Answers to names of PyTorch's that dl4all does not have: another way, or why they are missing."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, NoReturn

from dl4all.pytorch.missing.table import INSTEAD, MISSING, REASONS

IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def answer(space: str, name: str) -> str | None:
    """The answer for a name of a module or class of PyTorch's; None for a name that PyTorch does not have.

    >>> answer("torch.jit", "trace")
    'not in dl4all: use dl.compile(model)'
    """
    instead = INSTEAD.get(space, {}).get(name)
    if instead is not None:
        return f"not in dl4all: use {instead}"
    for reason, names in MISSING.get(space, {}).items():
        if f" {name} " in f" {names} ":
            return REASONS[reason].format(name=name)
    return None


def refuse(space: str, name: str) -> NoReturn:
    """
    Raises:
        AttributeError: always; with the answer, or with Python's words and suggestion for other names.
        ImportError: in its place, with the answer, where ``from dl4all import name`` asks.
    """
    where = space.replace("torch", "dl4all", 1)
    text = None if name.startswith("_") else answer(space, name)
    if text is None:
        # With the module Python suggests a similar name.
        raise AttributeError(f"{where!r} has no attribute {name!r}", name=name, obj=sys.modules.get(where))
    if _imports(sys._getframe(2)):
        # Python would drop an AttributeError here, with the answer, for an ImportError of its own.
        raise ImportError(f"cannot import name {name!r} from {where!r}: {text}", name=where)
    # With no object, Python suggests no similar name.
    raise AttributeError(f"{where}.{name}: {text}", name=name, obj=None)


def _imports(frame: FrameType) -> bool:
    """Whether a frame is at the step of ``from module import name`` that takes the name."""
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == IMPORT_FROM


class MissingName:
    """An attribute of a class that is not there, and answers.

    A ``__getattr__`` in its place would be paid for by every attribute of every instance.
    """

    __slots__ = ("name", "space")

    def __init__(self, space: str, name: str) -> None:
        self.space, self.name = space, name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        refuse(self.space, self.name)


def _add_missing(cls: type, space: str) -> None:
    """Let the names of a class of PyTorch's answer that `cls` does not have."""
    listed = (word for words in MISSING[space].values() for word in words.split())
    for name in (*listed, *INSTEAD.get(space, {})):
        if not hasattr(cls, name):
            setattr(cls, name, MissingName(space, name))


def _answering(space: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: for names that it does not have."""

    def __getattr__(name: str) -> NoReturn:
        refuse(space, name)

    return __getattr__


def answer_everywhere(tensor: type) -> None:
    """Let the names that are missing answer: of modules, of the class of tensors, and of modules to import.

    Modules get a ``__getattr__`` here: of one in their source, type checkers would take every name.
    """
    if MissingModules not in sys.meta_path:  # where dl4all is imported anew
        sys.meta_path.append(MissingModules)
    for space in {*MISSING, *INSTEAD}:
        if space == "torch.Tensor":
            _add_missing(tensor, space)
        else:
            vars(import_module(space.replace("torch", "dl4all", 1)))["__getattr__"] = _answering(space)


class MissingModules:
    """The last finder of ``sys.meta_path``: ``import dl4all.fx`` has the answer of ``dl4all.fx``."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """
        Raises:
            ModuleNotFoundError: it is a module of PyTorch's that dl4all does not have.
        """
        parent, _, name = fullname.rpartition(".")
        if parent.partition(".")[0] == "dl4all" and not name.startswith("_"):
            text = answer(parent.replace("dl4all", "torch", 1), name)
            if text is not None:
                # With its name `from dl4all import fx` goes on to the module's own answer.
                raise ModuleNotFoundError(f"No module named {fullname!r}: {text}", name=fullname)
        return None
