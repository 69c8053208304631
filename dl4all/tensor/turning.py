"""Methods that change how a tensor shows its memory, and that make or convert tensors after others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import DTypeError, GradientError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.checks import broadcasts_to
from dl4all.ops.core.tensor_base import DTYPES, TensorBase, from_host
from dl4all.ops.reduce.sums import sum_to
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device


def changed(view: Callable[..., Any]) -> Callable[..., Any]:
    """The method that has a tensor show its memory as a view of it would.

    >>> import dl4all as dl
    >>> x = dl.zeros(1, 3)
    >>> x.squeeze_().unsqueeze_(1) is x, x.shape
    (True, (3, 1))
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.grad_meta is not None and self.grad_meta.requires_grad and self.grad_meta.node is None:
            raise GradientError(
                f"[{view.__name__}_] a leaf that requires gradients cannot be changed in place; "
                "take a view of it"
            )
        with tape.gradients(True):  # so that what is gathered for the new shape finds its way to the old one
            seen = view(self, *args, **kwargs)
        self.shape, self.strides, self.offset = seen.shape, seen.strides, seen.offset
        self.grad_meta = seen.grad_meta
        return self

    method.__name__ = method.__qualname__ = f"{view.__name__}_"
    method.__doc__ = f":func:`{view.__name__}`, of the tensor itself; the elements stay where they are."
    return method


def type_as(self: Any, other: TensorBase) -> Any:
    """The elements as the dtype of another tensor."""
    return self.to(other.dtype)


def new_tensor(
    self: Any,
    data: Any,
    dtype: npt.DTypeLike = None,
    device: str | Device | None = None,
    requires_grad: bool = False,
) -> Any:
    """A tensor with a copy of `data`, by default of this one's dtype and device.

    Raises:
        DTypeError: the data are no numbers, or tensors cannot have the dtype.
    """
    array = data.on_host() if isinstance(data, TensorBase) else np.asarray(data)
    kind = np.dtype(self.dtype if dtype is None else dtype)
    if array.dtype.kind not in "biuf" or kind not in DTYPES:
        raise DTypeError(f"[new_tensor] expected numbers of one of {', '.join(map(str, DTYPES))}")
    made = from_host(type(self).result_class, array.astype(kind), _place(self, device), copy=True)
    return made.requires_grad_() if requires_grad else made


def _place(self: TensorBase, wanted: str | Device | None) -> Device:
    return self.device if wanted is None else device(wanted)


def sum_to_size(self: Any, *size: Any) -> Any:
    """The sums over the axes along which a tensor of another shape would be repeated to become this one.

    Raises:
        ShapeError: it does not broadcast to this one's shape.
    """
    shape = strides.sizes("sum_to_size", size)
    if not broadcasts_to(shape, self.shape):
        raise ShapeError(f"[sum_to_size] shape {shape} does not broadcast to {self.shape}")
    return sum_to(self, shape)
