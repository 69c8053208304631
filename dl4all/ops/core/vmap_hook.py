"""The interface between ops and ``vmap``: all that ops know of tensors that stand for several samples.

Within ``vmap`` a function sees batched tensors, which have the shape of one sample and hold all samples. They
are implemented in :mod:`dl4all.ops.vmap.batched_tensor`, which builds on the ops. :meth:`Op.__call__`, the
functions that allocate and copy in :mod:`dl4all.ops.memory.copy`, and :func:`dl4all.ops.core.tape.add_node`
treat them apart, so that most ops need not.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dl4all.ops.core.tensor_base import Shape, TensorBase

P = ParamSpec("P")
R = TypeVar("R")

_level_numbers = itertools.count()

NODE = "vmap"
"""The name of the nodes by which gradients come into a level and out of it."""

batching: dict[int, int] = {}
"""By thread, how many functions of ``vmap`` and backward passes through such are under way. Where there are
none, no operand is batched: tensors of a level do not leave its function, but for its graph."""


class Batching:
    """A ``with`` block in which this thread meets batched tensors, from :meth:`begin` on."""

    __slots__ = ("_before", "_thread")

    def __enter__(self) -> Batching:
        self._thread = threading.get_ident()
        self._before = batching.get(self._thread, 0)
        return self

    def begin(self) -> None:
        batching[self._thread] = self._before + 1

    def __exit__(self, *_: object) -> None:
        if self._before:
            batching[self._thread] = self._before
        else:
            batching.pop(self._thread, None)


def is_batching() -> bool:
    """Whether this thread may meet batched tensors."""
    return threading.get_ident() in batching if batching else False


class Level:
    """One call of a function that ``vmap`` made."""

    __slots__ = ("count", "number", "open")

    def __init__(self, count: int) -> None:
        self.count = count  # of samples
        self.number = next(_level_numbers)  # inner levels have higher numbers
        self.open = True  # its function has not returned


class BatchedTensorBase(TensorBase):
    """The attributes of a batched tensor that ops may use."""

    __slots__ = ()

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """Run an op that has this tensor among its operands."""
        raise NotImplementedError

    def call_per_sample(self, function: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Call a function that reads this tensor on the host once for each sample."""
        raise NotImplementedError

    def allocate_samples(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """Memory for a tensor of this shape in each sample."""
        raise NotImplementedError

    def all_samples(self) -> TensorBase:
        """All samples as one tensor on the same memory."""
        raise NotImplementedError

    def samples_for(self, target: TensorBase) -> TensorBase:
        """All samples as one tensor that broadcasts to all samples of a target, which it is copied into.

        Raises:
            ArgumentError: see :meth:`check_target`.
        """
        raise NotImplementedError

    def sum_over_samples(self) -> Any:
        """The sum of all samples."""
        raise NotImplementedError

    def match_levels(self, tensors: Iterable[Any]) -> list[Any]:
        """The tensors, each in at least the levels of this one; what was shared appears in each sample."""
        raise NotImplementedError

    def match_inputs(self, inputs: Iterable[Any]) -> list[Any]:
        """The inputs of a node that has this tensor as output: those that want a gradient in its levels."""
        raise NotImplementedError

    def check_target(self, name: str, target: TensorBase) -> None:
        """
        Raises:
            ArgumentError: this tensor is to be written into a target that samples with other values share.
        """
        raise NotImplementedError


def all_samples(tensor: TensorBase) -> TensorBase:
    """The tensor, or all samples of a batched one."""
    return tensor.all_samples() if isinstance(tensor, BatchedTensorBase) else tensor


def reads(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare which operands a function reads on the host.

    Where one of them is batched, the function is called once for each sample.

    >>> @reads("input")
    ... def largest(input):
    ...     return float(input.numpy().max())
    >>> import dl4all as dl
    >>> largest(dl.tensor([1.0, 3.0]))
    3.0
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        parameters = list(inspect.signature(function).parameters)
        positions = [(parameters.index(name), name) for name in names]

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            if batching:
                for position, name in positions:
                    operand = args[position] if position < len(args) else kwargs.get(name)
                    tensor = _find_batched(operand)
                    if tensor is not None:
                        return tensor.call_per_sample(function, args, kwargs)
            return function(*args, **kwargs)

        return wrapper

    return declare


def _find_batched(operand: Any) -> BatchedTensorBase | None:
    """The operand if it is batched, or the first batched tensor in a list or tuple."""
    if isinstance(operand, (tuple, list)):
        return next((tensor for item in operand if (tensor := _find_batched(item)) is not None), None)
    return operand if isinstance(operand, BatchedTensorBase) else None
