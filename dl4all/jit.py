"""What code asks ``torch.jit`` that also runs without it; ``dl.compile`` takes the place of scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["Final", "annotate", "export", "ignore", "is_scripting", "is_tracing", "unused"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def is_scripting() -> bool:
    """False: nothing is compiled from its source text.

    Example:
        >>> import dl4all as dl
        >>> dl.jit.is_scripting()
        False
    """
    return False


def is_tracing() -> bool:
    """False: ``dl.compile`` records calls, and code need not ask.

    Example:
        >>> import dl4all as dl
        >>> dl.jit.is_tracing()
        False
    """
    return False


def _assert(condition: Any, message: str) -> None:
    """``assert``, as code calls it that is written for PyTorch's compilers.

    Example:
        >>> import dl4all as dl
        >>> dl._assert(dl.ones(2, 3).dim() == 2, "expected a matrix")

    Raises:
        AssertionError: the condition is false.
    """
    assert condition, message


def export(fn: F) -> F:
    """The function itself.

    Example:
        >>> import dl4all as dl

    Example:
        >>> import dl4all as dl
        >>> def double(x):
        ...     return x * 2
        >>> double(3)
        6
    """
    return fn


def unused(fn: F) -> F:
    """The function itself.

    Example:
        >>> import dl4all as dl

    Example:
        >>> import dl4all as dl
        >>> def double(x):
        ...     return x * 2
        >>> double(3)
        6
    """
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; ``@ignore`` and ``@ignore(drop=True)``.

    Example:
        >>> import dl4all as dl

    Example:
        >>> import dl4all as dl
        >>> def double(x):
        ...     return x * 2
        >>> double(3)
        6
    """
    return drop if callable(drop) else lambda fn: fn


def annotate(the_type: Any, the_value: T) -> T:
    """The value itself.

    Example:
        >>> import dl4all as dl
        >>> dl.jit.annotate(list[int], [1, 2])
        [1, 2]
    """
    return the_value
