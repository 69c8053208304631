"""Names of ``torch.fx`` for code that also runs without it; ``dl.compile`` records calls."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["wrap"]

T = TypeVar("T")


def wrap(fn_or_name: T) -> T:
    """The function or name itself: nothing is traced symbolically.

    Example:
        >>> import dl4all as dl
        >>> @dl.fx.wrap
        ... def double(x):
        ...     return x * 2
        >>> double(3)
        6
    """
    return fn_or_name
