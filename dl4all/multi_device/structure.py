"""Tensors within tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dl4all.tensor.tensor import Tensor


def map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """The same structure with every tensor replaced.

    >>> import dl4all as dl
    >>> map_tensors({"a": [dl.ones(2), 3]}, lambda tensor: tensor.shape)
    {'a': [(2,), 3]}
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(map_tensors(part, function) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(part, function) for part in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(part, function) for key, part in value.items()}
    return value


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a structure, in the order in which :func:`map_tensors` meets them."""
    return list(_walk(value))


def _walk(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _walk(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _walk(part)
