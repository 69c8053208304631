"""Functions that read elements on the host, and so cannot take all samples of ``vmap`` at once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.profiler import recorder

P = ParamSpec("P")
R = TypeVar("R")


def reads(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare which operands a function reads: where one differs from sample to sample, it runs for each.

    >>> @reads("input")
    ... def largest(input):
    ...     return float(input.numpy().max())
    >>> import dl4all as dl
    >>> largest(dl.tensor([1.0, 3.0]))
    3.0
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        order = list(inspect.signature(function).parameters)
        places = [(order.index(name), name) for name in names]

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if recorder.watching:
                for place, name in places:
                    differs = _in_samples(args[place] if place < len(args) else kwargs.get(name))
                    if differs is not None:
                        found: R = differs.one_by_one(function, args, kwargs)
                        return found
            return function(*args, **kwargs)

        return called

    return declare


def _in_samples(value: Any) -> Any:
    """A tensor that differs from sample to sample, if it is one or has one."""
    if isinstance(value, TensorBase):
        return value if value.levels else None
    if isinstance(value, (tuple, list)):
        return next((found for v in value if (found := _in_samples(v)) is not None), None)
    return None
