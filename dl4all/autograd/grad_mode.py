"""Switches of a thread: whether ops add nodes to the graph, and anomaly detection."""

from __future__ import annotations

import contextlib
from typing import Any

from dl4all.ops.core import tape


class set_grad_enabled(contextlib.ContextDecorator):
    """Turn gradients on or off in a ``with`` block or a decorated function.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0], device="cpu").requires_grad_()
        >>> with dl.no_grad():
        ...     (x + x).requires_grad
        False
    """

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._previous: list[bool] = []  # a decorated function may call itself

    def _recreate_cm(self) -> set_grad_enabled:
        return type(self)(self._mode) if type(self) is set_grad_enabled else type(self)()  # type: ignore[call-arg]

    def __enter__(self) -> None:
        self._previous.append(tape.state.enabled)
        tape.state.enabled = self._mode

    def __exit__(self, *_: Any) -> None:
        tape.state.enabled = self._previous.pop()


class no_grad(set_grad_enabled):
    """Turn gradients off, as for inference or for updating parameters."""

    def __init__(self) -> None:
        super().__init__(False)


class inference_mode(no_grad):
    """The same as :class:`no_grad`."""


class enable_grad(set_grad_enabled):
    """Turn gradients on, within :class:`no_grad`."""

    def __init__(self) -> None:
        super().__init__(True)


def is_grad_enabled() -> bool:
    """Whether gradients are on in this thread."""
    return tape.state.enabled


class detect_anomaly(contextlib.ContextDecorator):
    """Let a backward pass that meets nan or inf name the op and the line that called it.

    It is slow: every gradient is read back.

    Example:
        >>> import dl4all as dl
        >>> with dl.autograd.detect_anomaly():
        ...     y = dl.tensor([1.0], device="cpu").requires_grad_() * 2
    """

    def __enter__(self) -> None:
        self._previous = tape.state.detect_anomaly
        tape.state.detect_anomaly = True

    def __exit__(self, *_: Any) -> None:
        tape.state.detect_anomaly = self._previous
