"""The older name of tensors that take part in differentiation, which all tensors do by now."""

from __future__ import annotations

import warnings
from typing import Any

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.tensor_base import TensorBase


class _AnyTensor(type):
    """The class of :class:`Variable`, of which every tensor is an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TensorBase)


class Variable(metaclass=_AnyTensor):
    """A tensor on the memory of another one, without its history; scripts of before 2018 call it.

    Args:
        data: a tensor.
        requires_grad: whether gradients are computed for the result, which is a leaf.
        volatile: has no effect; use ``dl.no_grad()``.

    Raises:
        DTypeError: `data` is no tensor.
        ArgumentError: both `requires_grad` and `volatile` are given.

    Example:
        >>> import dl4all as dl
        >>> x = dl.autograd.Variable(dl.ones(2), requires_grad=True)
        >>> type(x).__name__, x.requires_grad, isinstance(dl.ones(2), dl.autograd.Variable)
        ('Tensor', True, True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if not isinstance(data, TensorBase):
            raise DTypeError(f"[Variable] expected a tensor, got {type(data).__name__}; use dl.tensor")
        if volatile:
            if requires_grad:
                raise ArgumentError("[Variable] volatile and requires_grad exclude each other")
            warnings.warn("[Variable] volatile has no effect; use dl.no_grad()", UserWarning, stacklevel=2)
        result: Any = data
        return result.detach().requires_grad_(requires_grad)
