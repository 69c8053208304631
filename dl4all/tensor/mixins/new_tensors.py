"""Tensors of a tensor's own dtype and device: the methods ``new_*``, ``bernoulli`` and ``multinomial``."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.dtypes import KINDS, KINDS_OF_NUMBERS, checked_dtype, converted, kind_of
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.tensor_base import DTypeLike, Scalar, Shape, Size, TensorBase
from dl4all.ops.memory import transfer
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.random.distributions import bernoulli_
from dl4all.ops.random.generator import Generator
from dl4all.scheduler.device.current import device as open_device
from dl4all.tensor import host_random
from dl4all.tensor.arguments import ArrayLike, DeviceLike, checked_shape

T = TypeVar("T", bound="NewTensors")


class NewTensors(TensorBase):
    """Methods that make a new tensor like this one."""

    __slots__ = ()

    def new(self: T, *sizes_or_data: int | Shape | ArrayLike, device: DeviceLike | None = None) -> T:
        """A tensor of this one's dtype and device, as scripts of before 2018 make it.

        Args:
            sizes_or_data: sizes, for undefined contents, none for a tensor without elements; or nested
                lists of numbers, an array or a tensor, for a copy of it.
            device: by default this one's.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1, 2])
            >>> tuple(x.new(2, 3).shape), x.new([4, 5]).tolist()
            ((2, 3), [4, 5])
        """
        if len(sizes_or_data) == 1 and not isinstance(sizes_or_data[0], (int, np.integer, Size)):
            return self.new_tensor(sizes_or_data[0], device=device)
        return self.new_empty(*(sizes_or_data or (0,)), device=device)  # type: ignore[arg-type]

    def new_empty(
        self: T,
        *shape: int | Shape,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        size: Shape | None = None,
    ) -> T:
        """A tensor of another shape with undefined contents; by default of this one's dtype and device.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).new_empty((3, 4)).shape
            (3, 4)
        """
        wanted = checked_shape("new_empty", shape, size)
        return _with_grad(_new(self, "new_empty", wanted, dtype, device), requires_grad)

    def new_zeros(
        self: T,
        *shape: int | Shape,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        size: Shape | None = None,
    ) -> T:
        """A tensor of zeros of another shape; by default of this one's dtype and device.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([5]).new_zeros(2).tolist()
            [0, 0]
        """
        wanted = checked_shape("new_zeros", shape, size)
        return _with_grad(_new(self, "new_zeros", wanted, dtype, device, 0), requires_grad)

    def new_ones(
        self: T,
        *shape: int | Shape,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        size: Shape | None = None,
    ) -> T:
        """A tensor of ones of another shape; by default of this one's dtype and device.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([5]).new_ones(2).tolist()
            [1, 1]
        """
        wanted = checked_shape("new_ones", shape, size)
        return _with_grad(_new(self, "new_ones", wanted, dtype, device, 1), requires_grad)

    def new_full(
        self: T,
        size: Shape,
        fill_value: Scalar,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> T:
        """A tensor of another shape filled with one value; by default of this one's dtype and device.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).new_full((2,), 7.0).tolist()
            [7.0, 7.0]
        """
        wanted = checked_shape("new_full", (size,))
        return _with_grad(_new(self, "new_full", wanted, dtype, device, fill_value), requires_grad)

    def new_tensor(
        self: T,
        data: ArrayLike,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> T:
        """A tensor with a copy of `data`; by default of this one's dtype and device.

        Raises:
            DTypeError: the data are no numbers, or tensors cannot have the dtype.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).new_tensor([1, 2]).tolist()
            [1.0, 2.0]
        """
        array = transfer.download(data) if isinstance(data, TensorBase) else np.asarray(data)
        result_dtype = self.dtype if dtype is None else checked_dtype("tensor", dtype)
        if kind_of(array.dtype) not in KINDS_OF_NUMBERS:
            raise DTypeError(f"[new_tensor] expected numbers of one of {', '.join(map(str, KINDS))}")
        target = self.device if device is None else open_device(device)
        elements = converted(array, result_dtype)
        result: T = transfer.upload(type(self).result_class, elements, target, copy=True)
        return _with_grad(_placed_as(self, result, device), requires_grad)

    def bernoulli(self: T, p: float | None = None, *, generator: Generator | None = None) -> T:
        """Ones and zeros; each element, or `p`, is the probability of a one: :func:`dl4all.bernoulli`.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([0.0, 1.0]).bernoulli().tolist()
            [0.0, 1.0]
        """
        result: T = new_like(self, self.shape)
        return bernoulli_(result, self if p is None else p, generator=generator)

    def multinomial(
        self: T, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
    ) -> T:
        """Indices along the last axis, drawn with the elements as weights: :func:`dl4all.multinomial`.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([0.0, 1.0]).multinomial(1).tolist()
            [1]
        """
        indices = host_random.weighted_indices(self, num_samples, replacement, generator)
        result: T = transfer.upload(type(self).result_class, indices, self.device, copy=False)
        return result


def _new(
    tensor: T,
    name: str,
    shape: Shape,
    dtype: DTypeLike,
    device: DeviceLike | None,
    value: Scalar | None = None,
) -> T:
    """A tensor for the methods ``new_*``: filled with a value, or with undefined contents."""
    result_dtype = tensor.dtype if dtype is None else checked_dtype("tensor", dtype)
    target = tensor.device if device is None else open_device(device)
    result: T
    if target is tensor.device:
        result = new_like(tensor, shape, result_dtype)
    else:
        result = empty_tensor(type(tensor).result_class, shape, result_dtype, target)
    if value is not None:
        fill_with(result, value, name)
    return _placed_as(tensor, result, device)


def _placed_as(tensor: TensorBase, result: T, device: DeviceLike | None) -> T:
    """A new tensor on the device that was given, or else on that of a tensor and for the same reason."""
    if device is None:
        result.storage.named_cpu = tensor.storage.named_cpu
    else:
        named_cpu.note(result, device)
    return result


def _with_grad(tensor: T, requires_grad: bool) -> T:
    return tensor.requires_grad_() if requires_grad else tensor  # type: ignore[attr-defined]
