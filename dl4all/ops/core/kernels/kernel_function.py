"""Functions that launch kernels and are no ops: those who listen hear of each by a name, as of ops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dl4all.scheduler import listeners

P = ParamSpec("P")
T = TypeVar("T")


def kernel_function(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare a function as one: its operands are what comes by position, the result is a tensor or None.

    None says that no kernel computes it.
    """

    def declare(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not (listeners.active and listeners.followed()):
                return function(*args, **kwargs)
            compute = functools.partial(function, *args, **kwargs)
            result: T = listeners.kernel_function(name, args, kwargs, compute)
            return result

        return call

    return declare
