"""Methods that change a tensor itself: its shape and strides, or its diagonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from dl4all.errors import GradientError, ShapeError
from dl4all.functions.elementwise.division import RoundingMode, div
from dl4all.functions.shape.rearrange import t
from dl4all.ops.core import tape
from dl4all.ops.core.promotion import check_fits
from dl4all.ops.core.tensor_base import Array, Scalar, Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.indexing.assignment import setitem
from dl4all.ops.indexing.inplace import in_place
from dl4all.ops.memory.views import squeeze, transpose, unsqueeze

T = TypeVar("T", bound="InplaceMethods")

_divide, _divide_rounded = in_place(true_divide), in_place(div)


class InplaceMethods(TensorBase):
    """Views in place (``squeeze_``, ``transpose_``, ...) and ``fill_diagonal_``."""

    __slots__ = ()

    def div_(self: T, other: Array | Scalar, *, rounding_mode: RoundingMode = None) -> T:
        """:func:`dl4all.div`, written into the tensor itself; returns the tensor.

        Raises:
            ArgumentError: there is no such mode.
            ShapeError, DTypeError: the result does not fit the tensor.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([-7, 7]).div_(2, rounding_mode="trunc").tolist()
            [-3, 3]
        """
        if rounding_mode is None:
            return cast(T, _divide(self, other))
        return cast(T, _divide_rounded(self, other, rounding_mode=rounding_mode))

    divide_ = div_

    def squeeze_(self: T, dim: int | Shape | None = None) -> T:
        """:func:`squeeze` of the tensor itself; the elements stay where they are.

        Example:
            >>> import dl4all as dl
            >>> x = dl.zeros(1, 3)
            >>> x.squeeze_().unsqueeze_(1) is x, x.shape
            (True, (3, 1))
        """
        return _become_view(self, squeeze, dim)

    def unsqueeze_(self: T, dim: int) -> T:
        """:func:`unsqueeze` of the tensor itself; the elements stay where they are."""
        return _become_view(self, unsqueeze, dim)

    def transpose_(self: T, dim0: int, dim1: int) -> T:
        """:func:`transpose` of the tensor itself; the elements stay where they are."""
        return _become_view(self, transpose, dim0, dim1)

    swapaxes_ = swapdims_ = transpose_

    def t_(self: T) -> T:
        """:func:`t` of the tensor itself; the elements stay where they are."""
        return _become_view(self, t)

    def fill_diagonal_(self: T, fill_value: Scalar, wrap: bool = False) -> T:
        """Write a number over the main diagonal of a matrix, or of more axes of one size.

        Args:
            fill_value: the number.
            wrap: in a matrix with more rows than columns, begin anew below the diagonal's end.

        Raises:
            ShapeError: there are less than two axes, or more and they differ in size.
            GradientError: the tensor cannot be changed in place.

        Example:
            >>> import dl4all as dl
            >>> dl.zeros(2, 2).fill_diagonal_(5.0).tolist()
            [[5.0, 0.0], [0.0, 5.0]]
        """
        check_fits("fill_diagonal_", fill_value, self.dtype)
        shape = self.shape
        if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
            raise ShapeError(f"[fill_diagonal_] expected a matrix, or axes of one size, got shape {shape}")
        if wrap and len(shape) == 2:
            flat_indices = np.arange(0, shape[0] * shape[1], shape[1] + 1)
            rows, columns = flat_indices // shape[1], flat_indices % shape[1]
            setitem(self, (rows, columns), fill_value)
        else:
            indices = np.arange(min(shape))
            setitem(self, (indices,) * len(shape), fill_value)
        return self


def _become_view(tensor: T, view: Callable[..., Any], *args: Any) -> T:
    """Give a tensor the shape, strides, offset and history of a view of it.

    Raises:
        GradientError: the tensor is a leaf that requires gradients.
    """
    if tensor.grad_meta is not None and tensor.grad_meta.requires_grad and tensor.grad_meta.node is None:
        raise GradientError(
            f"[{view.__name__}_] a leaf that requires gradients cannot be changed in place; take a view of it"
        )
    with tape.gradients(True):  # gradients of the new shape must find their way to the old one
        result = view(tensor, *args)
    tensor.shape, tensor.strides, tensor.offset = result.shape, result.strides, result.offset
    tensor.grad_meta = result.grad_meta
    return tensor
