"""Activation checkpointing: computes activations again in the backward pass instead of keeping them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from dl4all.errors import GradientError
from dl4all.ops.core import autocast, tape
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.random import generator

DIFFERS = "[checkpoint] the function did not do the same when it ran a second time"

_numbers = itertools.count(1)  # of recomputations


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function(*args)``, and call it again when its gradient is computed.

    Its ops save nothing for their gradients. The first gradient that needs a saved tensor runs the function
    again, with the same random numbers. The function must do the same both times.
    T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.

    Args:
        function: takes `args`; it may use other tensors too, and call :func:`checkpoint` itself.
        args: tensors and other values.

    Returns:
        The function's result.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([2.0], device="cpu").requires_grad_()
        >>> dl.autograd.checkpoint(lambda x: (x * x).relu() * x, x).backward()
        >>> x.grad.tolist()
        [12.0]
    """
    segment = _Segment(function, args)
    with _recompute_hook(segment.drop), generator.noting(segment.draws):
        return function(*args)


class _Segment:
    """A part of the network that can be run again."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self.draws: list[generator.State] = []  # of random numbers
        self._autocast = tape.state.autocast
        self._dropped = 0  # number of tensors
        self._recomputed: dict[int, TensorBase] = {}  # by the order in which they were dropped

    def drop(self, tensor: TensorBase) -> Callable[[], TensorBase] | None:
        """The function that computes a tensor again; None for an argument, which is in memory anyway."""
        if any(tensor is arg for arg in self._args):
            return None
        number = self._dropped
        self._dropped += 1
        return lambda: self._recompute(number)

    def _recompute(self, number: int) -> TensorBase:
        if number not in self._recomputed:
            self._run_again()
        if number not in self._recomputed:
            raise GradientError(DIFFERS)
        return self._recomputed.pop(number)  # with retain_graph it may be computed once more

    def _run_again(self) -> None:
        tensors: list[TensorBase] = []

        def collect(tensor: TensorBase) -> Callable[[], TensorBase] | None:
            detached = tape.alias(tensor)  # a node that held its own result would be a cycle
            if not any(tensor is arg for arg in self._args):
                tensors.append(detached)
            return lambda: detached  # never called: this graph is dropped

        with (
            tape.gradients(True),
            _recompute_hook(collect, next(_numbers)),
            autocast.within(self._autocast),
            generator.repeating(self.draws),
        ):
            try:
                self._function(*self._args)
            except StopIteration:
                raise GradientError(DIFFERS) from None
        self._recomputed = dict(enumerate(tensors))


def _recompute_hook(
    hook: Callable[[TensorBase], Callable[[], TensorBase] | None], recomputation: int = 0
) -> contextlib.AbstractContextManager[None]:
    return tape.changed(recompute_hook=hook, recomputation=recomputation or tape.state.recomputation)
