"""Writing to tensors: ``copy_``, ``fill_``, ``zero_`` and ``tensor[key] = value``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import DTypeError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.mixed_devices import mixed_devices, on_one_device
from dl4all.ops.core.checks import broadcasts_to
from dl4all.ops.core.dtypes import KINDS_OF_NUMBERS, converted, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import KERNEL_REFUSALS, NUMBERS, primitives
from dl4all.ops.core.tensor_base import Array, Scalar, Shape, TensorBase, from_host, host_array
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.kernels import broadcast_view
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.advanced_indexing import AdvancedIndex, getitem, is_basic, parse_key
from dl4all.ops.indexing.concatenation import prepend_axes
from dl4all.ops.indexing.indices import Indices, NDArray, flat_indices, untracked_view
from dl4all.ops.indexing.inplace import begin_change, finish_change, finish_history, with_history
from dl4all.ops.indexing.rows import put_rows, write_rows
from dl4all.ops.memory.copy import copy_into, element_of, fill_with, fresh_copy
from dl4all.ops.memory.views import in_shape, permute, reshape
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device

T = TypeVar("T", bound=TensorBase)

FEW_ELEMENTS = 1 << 12
"""Of a tensor whose parts NumPy writes."""


@export("Tensor")
def copy_(input: T, src: Array | Scalar, non_blocking: bool = False) -> T:
    """Copy the elements of `src`, broadcast and converted, into the tensor; returns it.

    Args:
        input: the tensor that changes.
        src: a tensor on any device, or a number.
        non_blocking: has no effect; commands never block.

    Raises:
        ShapeError: `src` does not broadcast to the tensor's shape.
        GradientError: the tensor cannot be changed in place.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2, 2).copy_(dl.tensor([1, 2])).tolist()
        [[1.0, 2.0], [1.0, 2.0]]
    """
    if not isinstance(src, TensorBase):
        return fill_(input, src)
    _check_broadcast("copy_", src.shape, input.shape)
    recording = begin_change("copy_", input, src)
    copy_into(input, src)
    finish_change(input, recording)
    if recording:
        shape, dtype, device = src.shape, src.dtype, src.device
        input.grad_meta = None
        tape.add_node(
            "copy_",
            [src],
            [input],
            lambda grads, saved, needs: [_fit_gradient(grads[0], shape, dtype, device)],
        )
        finish_history(input)
    return input


def _check_broadcast(name: str, shape: Shape, target: Shape) -> None:
    """
    Raises:
        ShapeError
    """
    if not broadcasts_to(shape, target):
        raise ShapeError(f"[{name}] shape {shape} does not broadcast to {target}")


def _fit_gradient(gradient: Any, shape: Shape, dtype: np.dtype[Any], device: Device) -> Any:
    """The gradient of a source that was broadcast, converted and moved to another device."""
    if gradient.shape != shape:
        gradient = primitives.sum_to(gradient, shape)
    if gradient.dtype != dtype:
        gradient = primitives.cast(gradient, dtype.name)
    return gradient if gradient.device is device else gradient.to(device)


@export("Tensor")
def fill_(input: T, value: Array | Scalar) -> T:
    """Set all elements to one number; returns the tensor.

    Raises:
        DTypeError: the value is no number.
        ArgumentError: it does not fit into the tensor's integer dtype.
        GradientError: the tensor cannot be changed in place.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2).fill_(3).tolist()
        [3.0, 3.0]
    """
    if isinstance(value, TensorBase):
        if value.shape:
            raise ShapeError(f"[fill_] expected a number or a tensor of shape (), got {value.shape}")
        return copy_(input, value)
    if not isinstance(value, NUMBERS):
        raise DTypeError(f"[fill_] expected a number, got {type(value).__name__}")
    recording = begin_change("fill_", input)
    fill_with(input, value)
    finish_change(input, recording)
    if recording:
        input.grad_meta = None  # the result does not depend on the old elements
        finish_history(input)
    return input


@export("Tensor")
def zero_(input: T) -> T:
    """Set all elements to zero; returns the tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.ones(2).zero_().tolist()
        [0.0, 0.0]
    """
    return fill_(input, 0)


@export()
def setitem(input: TensorBase, key: object, value: Array | NDArray | Scalar | Sequence[object]) -> None:
    """Write a number or a tensor, broadcast and converted, to the elements that a key selects.

    Args:
        input: the tensor that changes.
        key: ints, slices, None, ``...``, and ints or bools in tensors, arrays or lists, as for reading.
        value: a number, a tensor, or an argument of :func:`dl4all.tensor`.

    Raises:
        ArgumentError: the key does not fit.
        ShapeError: the value does not broadcast to what the key selects.
        GradientError: the tensor cannot be changed in place.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(2, 3)
        >>> x[:, 1] = dl.tensor([5.0, 6.0])
        >>> x[0, [0, 2]] = 1
        >>> x.tolist()
        [[1.0, 5.0, 1.0], [0.0, 6.0, 0.0]]
    """
    if not isinstance(value, (TensorBase, *NUMBERS)):
        array = np.asarray(value)
        if kind_of(array.dtype) not in KINDS_OF_NUMBERS:
            raise DTypeError(f"[setitem] expected numbers, got elements of dtype {array.dtype}")
        value = from_host(type(input).result_class, converted(array, input.dtype), input.device, copy=True)
    recording = begin_change("setitem", input, value)
    if not recording and input.device.is_host and is_basic(key) and _write_few(input, key, value):
        finish_change(input, recording)
        return
    if not isinstance(value, TensorBase):
        element = np.asarray(value)
        if not recording and is_basic(key):
            fill_with(untracked_view(input, key), element)
            finish_change(input, recording)
            return
        with np.errstate(all="ignore"):
            value = from_host(
                type(input).result_class, converted(element, input.dtype), input.device, copy=False
            )
    before = with_history(input)
    _write_key(input, key, value)
    finish_change(input, recording)
    if recording:
        shape, dtype, device = value.shape, value.dtype, value.device
        input.grad_meta = None
        tape.add_node(
            "setitem",
            [before, value],
            [input],
            lambda grads, saved, needs: [
                _zeroed(grads[0], key) if needs[0] else None,
                _fit_gradient(prepend_axes(getitem(grads[0], key), len(shape)), shape, dtype, device)
                if needs[1]
                else None,
            ],
            single_use=not is_basic(key),
        )
        finish_history(input)


def set_rows(input: TensorBase, rows: Indices | TensorBase, value: TensorBase) -> None:
    """Write rows of a matrix that has no history, in place.

    Args:
        input: (size, inner), contiguous.
        rows: row numbers; as :class:`Indices` they are checked already, and each is there once.
        value: (rows, inner), of the same dtype.

    Raises:
        ArgumentError: a row is not there.
    """
    if isinstance(rows, Indices):
        fits = input.device.is_host or input.device.memory.binds(input.storage, value.storage)
        if fits and not begin_change("setitem", input, value):
            try:
                write_rows(input, value, rows)
            except KERNEL_REFUSALS:
                pass  # nothing was written
            else:
                finish_change(input, False)
                return
        rows = rows.on(input)
    setitem(input, rows, value)


def _write_few(input: TensorBase, key: Any, value: Any) -> bool:
    """Write to a part of a small tensor of the CPU with NumPy, which takes less time than to find a kernel.

    Returns:
        False, before anything was written, for other tensors and values, and where single steps are followed.
    """
    if (
        math.prod(input.shape) > FEW_ELEMENTS
        or listeners.followed()
        or input.device.simulated is not None
        or isinstance(input, BatchedTensorBase)
    ):
        return False
    if isinstance(value, TensorBase):
        if isinstance(value, BatchedTensorBase) or value.device is not input.device:
            return False
        array = host_array(value)
    else:
        array = element_of(value, input.dtype)
    if array.dtype != input.dtype:
        with np.errstate(all="ignore"):
            array = converted(array, input.dtype)
    part = host_array(untracked_view(input, key))
    shape = _without_leading_ones(array.shape, part.ndim)
    _check_broadcast("setitem", shape, part.shape)
    part[...] = array
    return True


def _zeroed(gradient: Any, key: Any) -> Any:
    """A gradient with zeros where other elements were written."""
    result = fresh_copy(gradient)
    zero = from_host(type(gradient).result_class, np.zeros((), gradient.dtype), gradient.device, copy=False)
    _write_key(result, key, zero)
    tape.add_node(
        "without",
        [gradient],
        [result],
        lambda grads, saved, needs: [_zeroed(grads[0], key)],
        single_use=not is_basic(key),
    )
    return result


def _write_key(target: TensorBase, key: Any, value: Any) -> None:
    """Write a tensor to the elements that a key selects; nothing is recorded."""
    if is_basic(key):
        view = untracked_view(target, key)
        shape = _without_leading_ones(value.shape, len(view.shape))
        _check_broadcast("setitem", shape, view.shape)
        copy_into(view, reshape(tape.alias(value), shape))
    elif _is_mask_of(key, target) and not value.shape:
        with tape.gradients(False):
            mask = in_shape(key, *key.shape, *(1,) * (len(target.shape) - len(key.shape)))
            number: Any = tape.alias(value)
            number = _beside(target, number)
            if number.dtype != target.dtype:
                number = primitives.cast(number, target.dtype.name)
            copy_into(target, where(mask, number, tape.alias(target)))
    else:
        index = parse_key(key, target.shape)
        _write_advanced(untracked_view(target, index.view_key), index, value)


def _beside(target: TensorBase, value: Any) -> Any:
    """A value on the device of what it is written to.

    Raises:
        MixedDevices: it is elsewhere, and is neither a scalar of the CPU nor data that may come along.
    """
    if value.device is target.device:
        return value
    kept, moved = on_one_device("setitem", [target, value], scalars=True)
    if kept is not target:
        raise mixed_devices("setitem", target, value)
    return moved


def _is_mask_of(key: Any, target: TensorBase) -> bool:
    """Whether a key is a tensor of bools for the first axes of another one, and both are on one device."""
    return (
        isinstance(key, TensorBase)
        and key.dtype == np.bool_
        and key.device is target.device
        and key.shape == target.shape[: len(key.shape)]
        and not isinstance(key, BatchedTensorBase)
        and not isinstance(target, BatchedTensorBase)
    )


def _without_leading_ones(shape: Shape, ndim: int) -> Shape:
    """The shape without axes of size 1 in front, as far as it has more axes than `ndim`."""
    while len(shape) > ndim and shape[0] == 1:
        shape = shape[1:]
    return shape


def _write_advanced(view: TensorBase, index: AdvancedIndex, value: Any) -> None:
    """Write a tensor to the elements of a view that index arrays select.

    The indexed axes are permuted to the front and flattened, so that rows are written.
    """
    sizes = [view.shape[axis] for axis in index.axes]
    flat, indexed = flat_indices("index", index.arrays, sizes, view)
    other_axes = [axis for axis in range(len(view.shape)) if axis not in index.axes]
    front = index.axes[0] if index.adjacent() else 0  # axes of the selection before those of the indices
    others = tuple(view.shape[axis] for axis in other_axes)
    selected = (*others[:front], *indexed, *others[front:])
    shape = _without_leading_ones(value.shape, len(selected))
    _check_broadcast("setitem", shape, selected)
    if 0 in selected:
        return
    value = _beside(view, value)
    source = broadcast_view(reshape(tape.alias(value), shape), selected)
    order = (*range(front, front + len(indexed)), *range(front), *range(front + len(indexed), len(selected)))
    permuted = view.strided_view(
        tuple(view.shape[axis] for axis in (*index.axes, *other_axes)),
        tuple(view.strides[axis] for axis in (*index.axes, *other_axes)),
        view.offset,
    )
    outer, inner = math.prod(sizes), math.prod(others)
    with tape.gradients(False):
        if source.dtype != view.dtype:
            source = primitives.cast(source, view.dtype.name)
        rows = reshape(permute(source, *order), len(flat), inner)
        if rows.storage is view.storage:
            rows = fresh_copy(rows)
        in_place = permuted.is_contiguous() and not (
            isinstance(view, BatchedTensorBase) or isinstance(rows, BatchedTensorBase)
        )
        if view.device.is_host:
            by_kernel = in_place and flat.stays_on(view) is not None and view.device.simulated is None
        else:
            by_kernel = in_place and view.device.memory.binds(rows.storage, permuted.storage)
        if by_kernel:
            target = permuted.strided_view((outer, inner), (inner, 1), permuted.offset)
            try:
                write_rows(target, rows, flat if view.device.is_host else flat.last_occurrences(outer))
            except KERNEL_REFUSALS:
                pass  # nothing was written; put_rows computes on the host, and counts that
            else:
                return
        replaced = put_rows(reshape(permuted, outer, inner), rows, flat)
        copy_into(permuted, reshape(replaced, permuted.shape))
