"""``torch.utils.checkpoint``: activations are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

from dl4all import autograd
from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.ops.core import limits

__all__ = ["checkpoint", "checkpoint_sequential", "noop_context_fn"]

Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]


def noop_context_fn() -> Contexts:
    """Two context managers that do nothing: the default of :func:`checkpoint`.

    Example:
        >>> len(noop_context_fn())
        2
    """
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function(*args, **kwargs)``, and call it again when its gradient is computed.

    Its ops save nothing for their gradients, and it gets the same random numbers both times:
    :func:`dl4all.autograd.checkpoint` with PyTorch's arguments.

    Args:
        function: a module or function; it must do the same both times.
        args: tensors and other values.
        use_reentrant: accepted; there is one way, which gives what PyTorch's two give where both work.
        context_fn: returns two context managers, for the first call and for the second.
        determinism_check: accepted; a function that does not do the same raises a GradientError.
        debug: accepted.
        early_stop: accepted.
        preserve_rng_state: only True.
        kwargs: further arguments of the function.

    Returns:
        The function's result.

    Raises:
        ArgumentError: `preserve_rng_state` is False.
        GradientError: in the backward pass: the function did not do the same.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.utils.checkpoint import checkpoint
        >>> x = dl.tensor([2.0], device="cpu", requires_grad=True)
        >>> checkpoint(lambda x: (x * x).relu() * x, x, use_reentrant=False).backward()
        >>> x.grad.tolist()
        [12.0]
    """
    if not preserve_rng_state:
        raise ArgumentError("[checkpoint] preserve_rng_state must be True: the second call repeats the first")
    contexts = iter(context_fn())
    later: list[contextlib.AbstractContextManager[Any]] = []

    def run(*operands: Any) -> Any:
        if not later:
            with next(contexts):
                later.append(next(contexts))
                return function(*operands, **kwargs)
        with later[0]:
            return function(*operands, **kwargs)

    return autograd.checkpoint(run, *args)


def checkpoint_sequential(
    functions: Module | Iterable[Callable[[Any], Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Call functions one after the other in segments, each of which is a :func:`checkpoint` but the last.

    Args:
        functions: an ``nn.Sequential``, or functions of one argument.
        segments: how many there are, from 1 to the number of functions.
        input: what the first function gets.
        use_reentrant: accepted.
        preserve_rng_state: only True.

    Returns:
        The last function's result.

    Raises:
        ArgumentError: `segments` is out of range, or `preserve_rng_state` is False.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.utils.checkpoint import checkpoint_sequential
        >>> model = dl.nn.Sequential(dl.nn.Linear(3, 5), dl.nn.ReLU(), dl.nn.Linear(5, 2))
        >>> checkpoint_sequential(model, 2, dl.rand(7, 3), use_reentrant=False).shape
        (7, 2)
    """
    steps: list[Any] = list(functions.children()) if isinstance(functions, Module) else list(functions)
    count = limits.integer("checkpoint_sequential", "segments", segments, 1, max(1, len(steps)))
    size = len(steps) // count
    for start in range(0, size * (count - 1), size):
        run = functools.partial(_run, steps[start : start + size])
        input = checkpoint(run, input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    return _run(steps[size * (count - 1) :], input)


def _run(steps: list[Callable[[Any], Any]], value: Any) -> Any:
    for step in steps:
        value = step(value)
    return value
