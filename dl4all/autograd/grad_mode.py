"""Switches of a thread: whether ops add nodes to the graph, and anomaly detection."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from dl4all.ops.core import tape

F = TypeVar("F", bound=Callable[..., Any])


class _Switch(contextlib.ContextDecorator):
    """Settings of the thread that are others in a ``with`` block or a decorated function."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        # A decorated function may call itself. One that did not end does so with this object.
        self._blocks: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        block = tape.changed(**self._settings)
        self._blocks.append(block)
        block.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._blocks.pop().__exit__(*error)


class set_grad_enabled(_Switch):
    """Turn gradients on or off: in a ``with`` block or a decorated function, or else at once in this thread.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0], device="cpu").requires_grad_()
        >>> with dl.no_grad():
        ...     (x + x).requires_grad
        False
        >>> switch = dl.set_grad_enabled(False)  # at once, and until it is set again
        >>> (x + x).requires_grad
        False
        >>> switch = dl.set_grad_enabled(True)
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(enabled=mode)
        self._mode = mode
        self._before: bool | None = None
        if type(self) is set_grad_enabled:
            self._before, tape.state.enabled = tape.state.enabled, mode

    def __enter__(self) -> None:
        self._take_back()
        super().__enter__()

    def __call__(self, func: F) -> F:
        self._take_back()
        decorated: F = super().__call__(func)
        return decorated

    def _take_back(self) -> None:
        """Leave to the block or the function what the call has set."""
        if self._before is not None:
            tape.state.enabled, self._before = self._before, None

    def _recreate_cm(self) -> set_grad_enabled:
        return type(self)(self._mode) if type(self) is set_grad_enabled else type(self)()  # type: ignore[call-arg]


class no_grad(set_grad_enabled):
    """Turn gradients off, as for inference or for updating parameters.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2, requires_grad=True)
        >>> with dl.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __init__(self) -> None:
        super().__init__(False)


class inference_mode(no_grad):
    """The same as :class:`no_grad`.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2, requires_grad=True)
        >>> with dl.inference_mode():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """


class enable_grad(set_grad_enabled):
    """Turn gradients on, within :class:`no_grad`.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2, requires_grad=True)
        >>> with dl.no_grad(), dl.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """

    def __init__(self) -> None:
        super().__init__(True)


def is_grad_enabled() -> bool:
    """Whether gradients are on in this thread.

    Example:
        >>> import dl4all as dl
        >>> with dl.no_grad():
        ...     dl.is_grad_enabled()
        False
    """
    return tape.state.enabled


class detect_anomaly(_Switch):
    """Let a backward pass that meets nan or inf name the op and the line that called it.

    It is slow: every gradient is read back.

    Example:
        >>> import dl4all as dl
        >>> with dl.autograd.detect_anomaly():
        ...     y = dl.tensor([1.0], device="cpu").requires_grad_() * 2
    """

    def __init__(self) -> None:
        super().__init__(detect_anomaly=True)
