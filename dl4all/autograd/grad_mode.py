"""Whether ops are recorded, in the thread that asks."""

from __future__ import annotations

import contextlib
from typing import Any

from dl4all.ops.core import tape


class set_grad_enabled(contextlib.ContextDecorator):
    """Within the block, or the function it decorates, gradients are on or off.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0], device="cpu").requires_grad_()
        >>> with dl.no_grad():
        ...     (x + x).requires_grad
        False
    """

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._before: list[bool] = []  # a decorated function may call itself

    def _recreate_cm(self) -> set_grad_enabled:
        return type(self)(self._mode) if type(self) is set_grad_enabled else type(self)()  # type: ignore[call-arg]

    def __enter__(self) -> None:
        self._before.append(tape.state.enabled)
        tape.state.enabled = self._mode

    def __exit__(self, *_: Any) -> None:
        tape.state.enabled = self._before.pop()


class no_grad(set_grad_enabled):
    """Nothing is recorded: for inference, and for updating parameters."""

    def __init__(self) -> None:
        super().__init__(False)


class inference_mode(no_grad):
    """The same as :class:`no_grad`: there is nothing else to leave out."""


class enable_grad(set_grad_enabled):
    """Recorded again, within :class:`no_grad`."""

    def __init__(self) -> None:
        super().__init__(True)


def is_grad_enabled() -> bool:
    """Whether ops are recorded at the moment."""
    return tape.state.enabled


class detect_anomaly(contextlib.ContextDecorator):
    """Within, ops note the line that calls them, and a backward that meets nan or inf names op and line.

    Slow: every gradient is read back.

    Example:
        >>> import dl4all as dl
        >>> with dl.autograd.detect_anomaly():
        ...     y = dl.tensor([1.0], device="cpu").requires_grad_() * 2
    """

    def __enter__(self) -> None:
        self._before = tape.state.detect_anomaly
        tape.state.detect_anomaly = True

    def __exit__(self, *_: Any) -> None:
        tape.state.detect_anomaly = self._before
