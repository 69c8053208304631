"""Tensors that a module keeps: parameters, which it learns, and buffers."""

from __future__ import annotations

from typing import Any

from dl4all.ops.core.dtypes import FLOATING
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module learns: part of its ``state_dict``, and a leaf that gets gradients.

    Args:
        data: the initial values; the memory is shared. None for a tensor without elements.
        requires_grad: whether it is learned.

    Example:
        >>> import dl4all as dl
        >>> scale = dl.nn.Parameter(dl.ones(3))
        >>> scale.requires_grad, scale.shape
        (True, (3,))
    """

    __slots__ = ()

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        source = empty((0,), device="cpu") if data is None else data
        super().__init__(
            source.storage, source.shape, source.dtype, source.device, source.strides, source.offset
        )
        if requires_grad and source.dtype in FLOATING:
            self.requires_grad_()


class Buffer(Tensor):
    """A tensor that a module keeps and does not learn; assigning it is ``register_buffer``.

    Args:
        data: the values; the memory is shared.
        persistent: whether it is part of the ``state_dict``.

    Example:
        >>> import dl4all as dl
        >>> class Mean(dl.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.mean = dl.nn.Buffer(dl.zeros(3))
        >>> list(Mean().state_dict())
        ['mean']
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        source = empty((0,), device="cpu") if data is None else data
        super().__init__(
            source.storage, source.shape, source.dtype, source.device, source.strides, source.offset
        )
        self.persistent = persistent


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet: a lazy module's, before it has seen an input.

    It has no elements. :meth:`dl4all.nn.Module.to` moves and converts it.

    Args:
        requires_grad: whether it is learned.
        device, dtype: those that the parameter will have.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.nn.parameter.UninitializedParameter(device="cpu")
        >>> weight.materialize((2, 3))
        >>> type(weight).__name__, weight.shape
        ('Parameter', (2, 3))
    """

    __slots__ = ()

    def __init__(
        self, requires_grad: bool = True, device: str | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        super().__init__(empty((0,), dtype=dtype or "float32", device=device or "cpu"), requires_grad)

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Take a shape, with undefined elements; the object becomes a :class:`Parameter`."""
        _materialize(self, shape, Parameter)


class UninitializedBuffer(Tensor):
    """A buffer whose shape is not known yet; see :class:`UninitializedParameter`.

    Example:
        >>> import dl4all as dl
        >>> isinstance(dl.nn.LazyBatchNorm1d().running_mean, dl.nn.UninitializedBuffer)
        True
    """

    __slots__ = ()

    def __init__(
        self, requires_grad: bool = False, device: str | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        source = empty((0,), dtype=dtype or "float32", device=device or "cpu")
        super().__init__(source.storage, source.shape, source.dtype, source.device)

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Take a shape, with undefined elements; the object becomes a tensor."""
        _materialize(self, shape, Tensor)


def is_lazy(value: object) -> bool:
    """Whether it is a parameter or a buffer whose shape is not known yet.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.parameter.is_lazy(dl.nn.LazyLinear(3).weight)
        True
    """
    return isinstance(value, (UninitializedParameter, UninitializedBuffer))


def _materialize(tensor: Any, shape: tuple[int, ...], becomes: type[Tensor]) -> None:
    """Give a tensor its shape and its class; whoever holds the object, such as an optimizer, sees both."""
    made = empty(shape, dtype=tensor.dtype, device=tensor.device)
    tensor.__class__ = becomes
    tensor.storage, tensor.shape, tensor.strides, tensor.offset = made.storage, made.shape, made.strides, 0
