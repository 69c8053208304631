"""The public names of dl4all, found in its modules, and the page of the reference that has each one."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from dl4all.pytorch.module_aliases import module_name, public_name

ROOTS = ("dl4all",)
"""What is public is what can be reached from here through public names of modules."""

ELSEWHERE = ("dl4all.nn.modules",)
"""Modules whose contents are shown in another one."""

FAMILIES = (
    ("dl4all.tensor.creation", "Creation"),
    ("dl4all.tensor.ranges", "Creation"),
    ("dl4all.tensor.dtypes", "Dtypes"),
    ("dl4all.tensor.random", "Random numbers"),
    ("dl4all.ops.random", "Random numbers and dropout"),
    ("dl4all.ops.random.generator", "Random numbers"),
    ("dl4all.ops.random.distributions", "Random numbers"),
    ("dl4all.ops.activation", "Activations"),
    ("dl4all.ops.reduce.softmax_function", "Activations"),
    ("dl4all.ops.elementwise", "Elementwise mathematics"),
    ("dl4all.ops.elementwise.comparison", "Comparison and logic"),
    ("dl4all.ops.elementwise.logic", "Comparison and logic"),
    ("dl4all.ops.memory", "Shape, order and joining"),
    ("dl4all.ops.indexing.concatenation", "Shape, order and joining"),
    ("dl4all.ops.indexing.repeat_and_flip", "Shape, order and joining"),
    ("dl4all.ops.indexing.padding", "Shape, order and joining"),
    ("dl4all.ops.indexing", "Indexing and scatter"),
    ("dl4all.ops.indexing.triangular", "Linear algebra"),
    ("dl4all.ops.indexing.embeddings", "Embeddings"),
    ("dl4all.ops.sorting", "Sorting, searching and sets"),
    ("dl4all.ops.reduce", "Reductions and scans"),
    ("dl4all.ops.linalg", "Linear algebra"),
    ("dl4all.functions.elementwise", "Elementwise mathematics"),
    ("dl4all.functions.elementwise.activations", "Activations"),
    ("dl4all.functions.elementwise.approximate_equality", "Comparison and logic"),
    ("dl4all.functions.shape", "Shape, order and joining"),
    ("dl4all.functions.shape.sliding_windows", "Convolution"),
    ("dl4all.functions.indexing", "Indexing and scatter"),
    ("dl4all.functions.indexing.embedding_bags", "Embeddings"),
    ("dl4all.functions.sorting", "Sorting, searching and sets"),
    ("dl4all.functions.reduction", "Reductions and scans"),
    ("dl4all.functions.reduction.response_normalization", "Normalization"),
    ("dl4all.functions.statistics", "Reductions and scans"),
    ("dl4all.functions.matrices", "Linear algebra"),
    ("dl4all.functions.vision", "Images"),
    ("dl4all.ops.attention", "Attention"),
    ("dl4all.ops.conv", "Convolution"),
    ("dl4all.ops.pool", "Pooling"),
    ("dl4all.ops.normalization", "Normalization"),
    ("dl4all.ops.loss", "Losses and distances"),
    ("dl4all.ops.linalg.distances", "Losses and distances"),
    ("dl4all.autograd", "Gradients, compilation and profiles"),
    ("dl4all.graph", "Gradients, compilation and profiles"),
    ("dl4all.scheduler.monitor.profile", "Gradients, compilation and profiles"),
    ("dl4all.scheduler.check_mode", "Gradients, compilation and profiles"),
    ("dl4all.runtime.op_regions", "Gradients, compilation and profiles"),
    ("dl4all.runtime", "Devices"),
    ("dl4all.scheduler", "Devices"),
    ("dl4all.calibration", "Devices"),
    ("dl4all.memory", "Devices"),
    ("dl4all.multi_device", "Several devices"),
    ("dl4all.errors", "Errors"),
    ("dl4all.training", "Training"),
    ("numpy", "Dtypes"),
)
"""Where a name is defined, and the page's title; the longest beginning counts."""

FIRST = ("Tensor", "nn", "optim", "data", "training", "io", "models", "autograd", "func", "errors", "memory")
"""Parts of dl4all that most readers look for, in this order; the others follow by name."""

OTHERS = "Others"
SMALL_MODULE, SMALL_FAMILY = 45, 3
"""A module with fewer names has one page; a family with fewer of them is among the others."""


@dataclass(frozen=True)
class Name:
    """A public name: ``space`` is the module or class that has it."""

    space: str
    name: str
    thing: Any

    @property
    def full(self) -> str:
        return f"{self.space}.{self.name}"

    @property
    def module(self) -> str:
        """Where it is defined."""
        kind = self.thing if hasattr(self.thing, "__module__") else type(self.thing)
        return str(getattr(kind, "__module__", None) or type(self.thing).__module__)


@dataclass(frozen=True)
class Page:
    """A page of the reference, with the names on it."""

    file: str
    title: str
    space: str
    names: tuple[Name, ...]


def members(module: ModuleType) -> list[str]:
    """The public names of a module: its ``__all__``, or what it defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and getattr(value, "__module__", "") == module.__name__
            and not isinstance(value, TypeVar)
        ]
    return sorted(set(listed))


def spaces() -> list[ModuleType]:
    """The public modules, in the order in which they are reached."""
    found = [importlib.import_module(root) for root in ROOTS]
    for module in found:
        names = [*members(module), *(name for name in vars(module) if not name.startswith("_"))]
        for name in dict.fromkeys(names):
            value = getattr(module, name, None)
            if not isinstance(value, ModuleType) or space_of(value) != f"{space_of(module)}.{name}":
                continue
            if value not in found and is_public(module, name) and value.__name__ not in ELSEWHERE:
                found.append(value)
    return found


def space_of(module: ModuleType) -> str:
    """The name under which people import a module."""
    return public_name(module.__name__)


def module_of(space: str) -> ModuleType | None:
    """The module that people import under a name; None for a class."""
    return sys.modules.get(module_name(space) or space)


def is_public(module: ModuleType, name: str) -> bool:
    """Whether a submodule is a part of the API: it is listed, or its package lists nothing."""
    return name in getattr(module, "__all__", (name,))


def names_of(module: ModuleType) -> Iterator[Name]:
    for name in members(module):
        thing = getattr(module, name)
        if not isinstance(thing, ModuleType):
            yield Name(space_of(module), name, thing)


def tensor_names() -> Iterator[Name]:
    """Methods, attributes and operators of tensors."""
    tensor = sys.modules["dl4all"].Tensor
    for name in sorted(name for name in set(dir(tensor)) - set(dir(object)) if hasattr(tensor, name)):
        thing = inspect.getattr_static(tensor, name)
        if not name.startswith("_") or (name.startswith("__") and callable(thing)):
            yield Name("dl4all.Tensor", name, thing)


def family(name: Name) -> str:
    """The title of the page on which a name of a large module stands."""
    module = name.module
    fitting = [prefix for prefix, _ in FAMILIES if module == prefix or module.startswith(prefix + ".")]
    if fitting:
        return dict(FAMILIES)[max(fitting, key=len)]
    if module.startswith(name.space + "."):  # nn: a file is a family, and its docstring begins with its title
        return re.split(r"[:,(.]| of |\n", (sys.modules[module].__doc__ or module))[0].strip()
    return OTHERS


def tensor_family(name: Name) -> str:
    if name.name.startswith("__"):
        return "Operators and protocols"
    if name.name.endswith("_"):
        return "Methods in place"
    return "Methods" if callable(name.thing) else "Attributes"


def slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def pages() -> list[Page]:
    """All pages of the reference; each public name is on one of them."""
    names = {space_of(module): list(names_of(module)) for module in spaces()}
    names["dl4all.Tensor"] = list(tensor_names())
    return [page for space in sorted(names, key=place) for page in split(space, names[space])]


def place(space: str) -> tuple[int, str]:
    """Where a module stands among the others."""
    part = space.split(".")[1:2]
    if not part:
        return -1, space
    return (FIRST.index(part[0]) if part[0] in FIRST else len(FIRST)), space


def split(space: str, names: list[Name]) -> list[Page]:
    """The pages of one module, or of the class of tensors."""
    if len(names) < SMALL_MODULE:
        return [Page(space, space, space, tuple(names))] if names else []
    title_of = tensor_family if space == "dl4all.Tensor" else family
    titles = {name.name: title_of(name) for name in names}
    sizes = Counter(titles.values())
    by_title: dict[str, list[Name]] = {}
    for name in names:
        title = titles[name.name]
        by_title.setdefault(title if sizes[title] >= SMALL_FAMILY else OTHERS, []).append(name)
    return [
        Page(f"{space}.{slug(title)}", title, space, tuple(by_title[title]))
        for title in sorted(by_title, key=lambda title: (title == OTHERS, title))
    ]
