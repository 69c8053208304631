"""Tensors, and arrays, within tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dl4all.tensor.tensor import Tensor


def map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """The same structure with every tensor replaced.

    >>> import dl4all as dl
    >>> map_tensors({"a": [dl.ones(2), 3]}, lambda tensor: tensor.shape)
    {'a': [(2,), 3]}
    """
    return map_leaves(value, function, (Tensor,))


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a structure, in the order in which :func:`map_tensors` meets them."""
    return leaves_of(value, (Tensor,))


def map_leaves(value: Any, function: Callable[[Any], Any], kinds: tuple[type, ...]) -> Any:
    """The same structure with everything of these types replaced.

    >>> map_leaves(("a", [2, 3.0]), str, (int, float))
    ('a', ['2', '3.0'])
    """
    if isinstance(value, kinds):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(map_leaves(part, function, kinds) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_leaves(part, function, kinds) for part in value)
    if isinstance(value, Mapping):
        return {key: map_leaves(part, function, kinds) for key, part in value.items()}
    return value


def leaves_of(value: Any, kinds: tuple[type, ...]) -> list[Any]:
    """The leaves of a structure of these types, in the order in which :func:`map_leaves` meets them."""
    leaves, stack = [], [value]
    while stack:
        part = stack.pop()
        if isinstance(part, kinds):
            leaves.append(part)
        elif isinstance(part, (tuple, list)):
            stack += part[::-1]
        elif isinstance(part, Mapping):
            stack += [*part.values()][::-1]
    return leaves
