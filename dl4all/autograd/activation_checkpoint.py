"""Less memory for more work: forget what a part of the network computed, and compute it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from dl4all.errors import GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.random import generator


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, which runs a second time when its gradient is computed.

    What its ops would keep for their gradients is forgotten; the first gradient that asks for a part of it
    has everything computed again, with the same random numbers. The function must do the same both times.
    T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.

    Args:
        function: takes `args`; it may use other tensors too, and call :func:`checkpoint` itself.
        args: tensors, and anything else.

    Returns:
        What the function returns.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([2.0], device="cpu").requires_grad_()
        >>> dl.autograd.checkpoint(lambda x: (x * x).relu() * x, x).backward()
        >>> x.grad.tolist()
        [12.0]
    """
    part = _Part(function, args)
    with _forgetting(part.forget):
        return function(*args)


class _Part:
    """A part of the network that can be run again."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self._random = generator.default_generator().get_state()
        self._forgotten = 0  # tensors
        self._again: dict[int, TensorBase] = {}  # by the order in which they were forgotten

    def forget(self, tensor: TensorBase) -> Callable[[], TensorBase] | None:
        if any(tensor is arg for arg in self._args):
            return None  # it is kept anyway
        number = self._forgotten
        self._forgotten += 1
        return lambda: self._remember(number)

    def _remember(self, number: int) -> TensorBase:
        if number not in self._again:
            self._run_again()
        if number not in self._again:
            raise GradientError("[checkpoint] the function did not do the same when it ran a second time")
        return self._again.pop(number)  # with retain_graph it may be asked for, and made, once more

    def _run_again(self) -> None:
        found: list[TensorBase] = []

        def collect(tensor: TensorBase) -> Callable[[], TensorBase] | None:
            again = tape.alias(tensor)  # without a history: a node that held its own result would be a cycle
            if not any(tensor is arg for arg in self._args):
                found.append(again)
            return lambda: again  # nobody asks: this graph is dropped

        with tape.gradients(True), _forgetting(collect), generator.replayed(self._random):
            self._function(*self._args)
        self._again = dict(enumerate(found))


@contextlib.contextmanager
def _forgetting(forget: Callable[[TensorBase], Callable[[], TensorBase] | None]) -> Iterator[None]:
    before, tape.state.recompute_hook = tape.state.recompute_hook, forget
    try:
        yield
    finally:
        tape.state.recompute_hook = before
