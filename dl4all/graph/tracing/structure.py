"""Arguments and results of calls as flat lists: nested tuples, lists and dicts with tensors in them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from dl4all.graph.tracing.guards import SIMPLE
from dl4all.ops.core.tensor_base import TensorBase

PLAIN = (int, str, bytes, type(None))
Build = Callable[[Sequence[Any]], Any]


class Opaque(Exception):
    """Something in a structure is neither a tensor nor a container nor a plain value."""


def flatten(value: Any, tensors: list[Any], others: list[Any]) -> Hashable:
    """Append the tensors of a nested structure to `tensors` in order, and unknown objects to `others`.

    Returns:
        What two structures have in common that differ in their tensors only.

    >>> flatten((1, [2.0, "a"]), [], [])
    (<class 'tuple'>, 1, (<class 'list'>, (<class 'float'>, '2.0'), 'a'))
    """
    if isinstance(value, TensorBase):
        tensors.append(value)
        return TensorBase
    if type(value) in PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, SIMPLE):
        return type(value), repr(value)  # 1, 1.0 and True differ, and so do 0.0 and -0.0
    if isinstance(value, (tuple, list)):
        return (type(value), *[flatten(item, tensors, others) for item in value])
    if type(value) is dict and all(isinstance(key, SIMPLE) for key in value):
        return (dict, *[(key, flatten(item, tensors, others)) for key, item in value.items()])
    others.append(value)
    return ("object", id(value))


def rebuilder(value: Any, tensors: list[Any]) -> Build:
    """Append the tensors of a result to a list; the function makes the same result with other tensors.

    Raises:
        Opaque: the result holds something that cannot be made again.
    """
    if isinstance(value, TensorBase):
        position = len(tensors)
        tensors.append(value)
        return lambda new: new[position]
    if isinstance(value, SIMPLE):
        return lambda new: value
    if isinstance(value, (tuple, list)):
        items = [rebuilder(item, tensors) for item in value]
        made = type(value)
        if hasattr(made, "_make"):
            return lambda new: made._make(item(new) for item in items)
        if made in (tuple, list):
            return lambda new: made(item(new) for item in items)
    if type(value) is dict:
        entries = {key: rebuilder(item, tensors) for key, item in value.items()}
        return lambda new: {key: item(new) for key, item in entries.items()}
    raise Opaque(f"returns a {type(value).__name__}")


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """A nested structure with other tensors in the places of its own; unknown objects stay as they are.

    >>> mapped([1, (2.0, {"a": None})], lambda tensor: tensor)
    [1, (2.0, {'a': None})]
    """
    if isinstance(value, TensorBase):
        return function(value)
    if isinstance(value, (tuple, list)):
        items = [mapped(item, function) for item in value]
        make: Any = getattr(type(value), "_make", type(value))
        return make(items)
    if type(value) is dict:
        return {key: mapped(item, function) for key, item in value.items()}
    return value
