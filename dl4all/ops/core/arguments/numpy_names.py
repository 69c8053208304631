"""NumPy's names ``axis`` and ``keepdims``, which functions take for ``dim`` and ``keepdim`` too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

TORCH_NAMES = {"axis": "dim", "keepdims": "keepdim"}
"""PyTorch's name of a parameter for NumPy's."""


def names_for(parameters: Iterable[str]) -> dict[str, str]:
    """The entries of :data:`TORCH_NAMES` for a function that has these parameters.

    >>> names_for(("input", "dim", "descending"))
    {'axis': 'dim'}
    """
    here = set(parameters)
    return {numpy: torch for numpy, torch in TORCH_NAMES.items() if torch in here and numpy not in here}


def renamed(name: str, kwargs: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The keywords of a call under PyTorch's names.

    Raises:
        TypeError: a parameter is given under both names.
    """
    result = {}
    for keyword, value in kwargs.items():
        torch = names.get(keyword, keyword)
        if torch != keyword and torch in kwargs:
            raise TypeError(f"{name}() got {keyword!r} and {torch!r}, which mean the same; give one of them")
        result[torch] = value
    return result


def with_numpy_names(function: F) -> F:
    """The function, which takes NumPy's names of its parameters too; an op does so by itself.

    >>> import dl4all as dl
    >>> with_numpy_names(dl.flatten) is dl.flatten  # it has none of them
    True
    """
    names = names_for(inspect.signature(function).parameters) if inspect.isfunction(function) else {}
    if not names:
        return function

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = renamed(function.__name__, kwargs, names)
        return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]
