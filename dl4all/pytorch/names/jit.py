"""Names of ``torch.jit`` for code that also runs without it; ``dl.compile`` takes the place of scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from dl4all.nn.module import Module as ScriptModule

__all__ = [
    "Final",
    "ScriptModule",
    "annotate",
    "export",
    "ignore",
    "is_scripting",
    "is_tracing",
    "script",
    "script_if_tracing",
    "script_method",
    "unused",
]

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


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """The function or module itself: nothing is compiled from its source text, and it has no ``save``.

    Args:
        obj: a function, a class or a module.
        args, kwargs: as PyTorch's; they have no effect.

    Example:
        >>> import dl4all as dl
        >>> @dl.jit.script
        ... def double(x):
        ...     return x * 2
        >>> double(3)
        6
    """
    return obj


def script_method(fn: F) -> F:
    """The method itself.

    Example:
        >>> import dl4all as dl
        >>> class Double(dl.jit.ScriptModule):
        ...     @dl.jit.script_method
        ...     def forward(self, x):
        ...         return x * 2
        >>> Double()(3)
        6
    """
    return fn


def script_if_tracing(fn: F) -> F:
    """The function itself.

    Example:
        >>> import dl4all as dl
        >>> dl.jit.script_if_tracing(abs)(-3)
        3
    """
    return fn


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
