"""Snapshots of models, to find out whether anything about one has changed since."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, is_
from typing import Any

from dl4all.nn.module import Module
from dl4all.ops.core.tape import GradMeta
from dl4all.ops.core.tensor_base import TensorBase

CONTAINERS = (dict, list, tuple, set)
LAYOUT = attrgetter("__class__", "storage", "shape", "strides", "offset", "dtype", "grad_meta")


class Snapshot:
    """Attributes, containers and tensors of modules and of all below them as they are now.

    Of tensors it holds memory, layout and whether they want gradients; elements may change.

    >>> import dl4all as dl
    >>> model = dl.nn.Sequential(dl.nn.Linear(2, 2), dl.nn.ReLU())
    >>> snapshot = Snapshot([model])
    >>> with dl.no_grad():
    ...     model[0].weight.fill_(3.0) is model[0].weight, snapshot.holds()
    (True, True)
    >>> model.eval().training, snapshot.holds()
    (False, False)
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        # With their keys and values, which are the same but for dicts.
        self._containers: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = []
        self._tensors: list[tuple[TensorBase, Any, GradMeta | None, bool]] = []
        seen: set[int] = set()
        stack: list[Any] = list(modules)
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, Module):
                value = vars(value)
            if isinstance(value, CONTAINERS):
                keys = tuple(value)
                values = tuple(value.values()) if isinstance(value, dict) else keys
                self._containers.append((value, keys, values))
                stack += values
            elif isinstance(value, TensorBase):
                meta = value.grad_meta
                self._tensors.append((value, LAYOUT(value), meta, meta is not None and meta.requires_grad))

    def holds(self) -> bool:
        """Whether all of it is as it was."""
        for container, keys, values in self._containers:
            if len(container) != len(keys) or not all(map(is_, container, keys)):
                return False
            if keys is not values and not all(map(is_, container.values(), values)):
                return False
        for tensor, layout, meta, wanted in self._tensors:
            if LAYOUT(tensor) != layout or (meta is not None and meta.requires_grad != wanted):
                return False
        return True
