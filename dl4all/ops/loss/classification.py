"""Losses by class: cross entropy and negative log-likelihood."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOATS, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import KERNEL_REFUSALS
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.comparison import eq, ge
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing import device_indices
from dl4all.ops.indexing.indices import Indices, integer_indices
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.loss import one_pass
from dl4all.ops.loss.cross_entropy_ops import cross_entropy_each, nll_each
from dl4all.ops.loss.reduction import check_reduction, check_tensors, legacy_reduction, reduced
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import reshape, unsqueeze
from dl4all.ops.reduce.softmax_function import log_softmax
from dl4all.ops.reduce.sums import sum
from dl4all.ops.vmap.batched_tensor import levels_of, unwrap, wrap
from dl4all.scheduler import listeners


@export("F", autocast="float32")
def cross_entropy(
    input: Array,
    target: Array | npt.ArrayLike,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Cross entropy: the negative logarithm of the softmax of scores, at the right classes.

    Args:
        input: scores, floats of shape (C,), (N, C) or (N, C, d1, ...).
        target: the right classes, ints of the input's shape without C; or floats of the input's shape, the
            probability of each class.
        weight: shape (C,), one for each class; the mean is weighted too.
        ignore_index: targets of this value are ignored.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each target.
        label_smoothing: from 0 to 1, the share of each target that is spread evenly over all classes.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape without C.

    Raises:
        ShapeError, DTypeError
        ArgumentError: a target is not a class, or an argument is out of range.

    Example:
        >>> import dl4all as dl
        >>> scores, classes = dl.tensor([[1000.0, 0.0], [1000.0, 0.0]]), dl.tensor([0, 1])
        >>> dl.nn.functional.cross_entropy(scores, classes, reduction="none").tolist()
        [0.0, 1000.0]
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    name = "cross_entropy"
    check_reduction(name, reduction)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"[{name}] label_smoothing must lie between 0 and 1, got {label_smoothing}")
    classes, shape = _check_scores(name, input, weight)
    if isinstance(target, TensorBase) and kind_of(target.dtype) == "f":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    if _in_vmap(input, target, weight):
        scores = log_softmax(input, _class_axis(input))
        return _loss_in_vmap(name, scores, target, weight, ignore_index, reduction, label_smoothing)
    if reduction != "none" and one_pass.in_one_pass(input, target, weight):
        _check_target_shape(name, np.shape(target), shape)
        if listeners.captured():  # a graph checks them each time
            target = class_indices(name, target, shape, input, classes, ignore_index).on(input)
            ignore_index = -1
        checked = partial(_indices_of, name, shape, classes, ignore_index)
        return one_pass.cross_entropy_loss(
            input,
            target,
            weight,
            ignore_index,
            reduction == "mean",
            label_smoothing,
            three_axes(input.shape),
            checked,
        )
    indices = class_indices(name, target, shape, input, classes, ignore_index)
    rows = reshape(input, *three_axes(input.shape))
    losses = cross_entropy_each(rows, weight, target=indices, label_smoothing=label_smoothing)
    return _reduced_by_class(reshape(losses, shape), weight, indices, reduction)


@export("F", autocast="float32")
def nll_loss(
    input: Array,
    target: Array | npt.ArrayLike,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """The negative log-likelihood: the negative of the log-probabilities at the right classes.

    Args:
        input: log-probabilities, floats of shape (C,), (N, C) or (N, C, d1, ...), as from ``log_softmax``.
        target: the right classes, ints of the input's shape without C.
        weight: shape (C,), one for each class; the mean is weighted too.
        ignore_index: targets of this value are ignored.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each target.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape without C.

    Raises:
        ShapeError, DTypeError
        ArgumentError: a target is not a class.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.nll_loss(dl.tensor([[-1.0, -3.0]]), dl.tensor([1])).item()
        3.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    check_reduction("nll_loss", reduction)
    classes, shape = _check_scores("nll_loss", input, weight)
    if _in_vmap(input, target, weight):
        return _loss_in_vmap("nll_loss", input, target, weight, ignore_index, reduction, 0.0)
    indices = class_indices("nll_loss", target, shape, input, classes, ignore_index)
    losses = nll_each(reshape(input, *three_axes(input.shape)), weight, target=indices)
    return _reduced_by_class(reshape(losses, shape), weight, indices, reduction)


def _check_scores(name: str, input: Array, weight: Any) -> tuple[int, Shape]:
    """The number of classes, and the shape of targets.

    Raises:
        ShapeError, DTypeError
    """
    if not isinstance(input, TensorBase):
        raise DTypeError(f"[{name}] expected a tensor, got {type(input).__name__}; use dl.tensor(...)")
    check_tensors(name, weight)
    check_float(name, input, weight)
    if not input.shape:
        raise ShapeError(f"[{name}] expected an input of shape (C,) or (N, C, ...), got ()")
    axis = _class_axis(input)
    classes = input.shape[axis]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"[{name}] weight must have shape ({classes},), got {weight.shape}")
    return classes, input.shape[:axis] + input.shape[axis + 1 :]


def three_axes(shape: Shape) -> Shape:
    """The shape as (N, C, inner)."""
    return (1, shape[0], 1) if len(shape) == 1 else (shape[0], shape[1], math.prod(shape[2:]))


def _class_axis(input: Array) -> int:
    return 1 if len(input.shape) > 1 else 0


def class_indices(
    name: str, target: Array, shape: Shape, input: Array, classes: int, ignore_index: int
) -> Indices:
    """The class of each target, -1 for ignored ones.

    Raises:
        ShapeError
        ArgumentError: a target is not a class; on a device, at the next wait.
    """
    if device_indices.stays(target, input):
        _check_target_shape(name, target.shape, shape)
        error = partial(_not_a_class, name, classes, ignore_index)
        tensor = device_indices.checked(target, classes, error, ignored=ignore_index)
        if tensor is not None:
            return Indices.of_checked(tensor)
    array = integer_indices(name, target)
    _check_target_shape(name, array.shape, shape)
    if array.size and array.min() >= 0 and array.max() < classes and not 0 <= ignore_index < classes:
        return Indices(array)
    return Indices(np.where(_ignored(name, array, classes, ignore_index), -1, array))


def _indices_of(name: str, shape: Shape, classes: int, ignore_index: int, target: TensorBase) -> Indices:
    """As :func:`class_indices`, for scores on the targets' device."""
    return class_indices(name, target, shape, target, classes, ignore_index)


def _check_target_shape(name: str, shape: Shape, expected: Shape) -> None:
    """
    Raises:
        ShapeError
    """
    if shape != expected:
        raise ShapeError(f"[{name}] expected targets of shape {expected}, got {shape}")


def _not_a_class(name: str, classes: int, ignore_index: int, target: int) -> ArgumentError:
    return ArgumentError(
        f"[{name}] target {target} is not one of {classes} classes, which count from 0; "
        f"targets of ignore_index={ignore_index} are left out"
    )


def _ignored(name: str, array: Any, classes: int, ignore_index: int) -> Any:
    """Which targets are ignored.

    Raises:
        ArgumentError: another target is not a class.
    """
    ignored = array == ignore_index
    invalid = array[~ignored & ((array < 0) | (array >= classes))]
    if invalid.size:
        raise _not_a_class(name, classes, ignore_index, invalid.reshape(-1)[0])
    return ignored


def _in_vmap(*operands: Any) -> bool:
    """Whether an operand differs between the samples of a ``vmap``."""
    return any(isinstance(o, BatchedTensorBase) for o in operands)


def _loss_in_vmap(
    name: str, scores: Any, target: Array, weight: Any, ignore_index: int, reduction: str, smoothing: float
) -> Any:
    """The loss within ``vmap``, where targets are compared with each class."""
    axis, ndim = _class_axis(scores), len(scores.shape)
    classes, shape = scores.shape[axis], scores.shape[:axis] + scores.shape[axis + 1 :]
    if not isinstance(target, TensorBase):
        target = from_host(type(scores).result_class, np.asarray(target), scores.device, copy=True)
    if target.shape != shape:
        raise ShapeError(f"[{name}] expected targets of shape {shape}, got {target.shape}")
    levels = levels_of([target])
    whole = unwrap(target, levels)  # of all samples
    indices = class_indices(name, whole, whole.shape, whole, classes, ignore_index).on(whole)
    target = wrap(reshape(indices, whole.shape), levels)
    class_shape = tuple(-1 if i == axis else 1 for i in range(ndim))
    class_numbers = from_host(type(scores).result_class, np.arange(classes), scores.device, copy=False)
    is_target = eq(unsqueeze(target, axis), reshape(class_numbers, class_shape))
    expected = cast(is_target, scores.dtype.name)
    weights = expected if weight is None else expected * reshape(weight, class_shape)
    if smoothing:
        expected = expected * (1 - smoothing) + smoothing / classes
    if weight is not None:
        expected = expected * reshape(weight, class_shape)
    counts = ge(target, 0)  # those that are not ignored
    losses = where(counts, -sum(where(eq(expected, 0), 0.0, scores * expected), axis), 0.0)
    if reduction != "mean":
        return reduced(losses, reduction)
    return sum(losses) / sum(where(unsqueeze(counts, axis), weights, 0.0))


def _reduced_by_class(losses: Any, weight: Any, classes: Indices, reduction: str) -> Any:
    """Reduces the losses of targets; the mean is divided by the weights of their classes."""
    if reduction != "mean":
        return reduced(losses, reduction)
    if weight is None and classes.stays_on(losses) is None and 0 < len(classes) == _count(classes):
        return reduced(losses, reduction)
    total = sum(losses)
    divisor = total_weight(classes, weight, total)
    if isinstance(divisor, int) or total.dtype == divisor.dtype:
        return total / divisor
    return cast(cast(total, "float32") / divisor, total.dtype.name)


def total_weight(classes: Indices, weight: Any, like: Any) -> Any:
    """The sum of the weights of the targets that count, or their number.

    Returns:
        A number, or a tensor of shape () where a device finds it: a number of targets is a float32 one.
    """
    if weight is not None:
        return sum(take_rows(reshape(weight.detach(), 1, -1, 1), classes))
    count = _count_on_device(classes, like)
    return _count(classes) if count is None else count


def _count(classes: Indices) -> int:
    """The number of targets that count."""
    return int(np.count_nonzero(classes.array >= 0))


def _count_on_device(classes: Indices, like: Any) -> Any:
    """The number of targets that count, as a float32 of shape (); None where the host is to count them."""
    tensor = classes.stays_on(like)
    if tensor is None or like.dtype not in FLOATS:
        return None
    try:
        return device_indices.count_selected(tensor)
    except KERNEL_REFUSALS:
        return None


def _soft_cross_entropy(
    input: Array, target: Array, weight: Any, reduction: str, label_smoothing: float
) -> Any:
    """Cross entropy with targets that are probabilities."""
    check_float("cross_entropy", input, target)
    if input.shape != target.shape:
        raise ShapeError(
            f"[cross_entropy] probabilities must have the input's shape {input.shape}, got {target.shape}"
        )
    axis = _class_axis(input)
    classes = input.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    terms = log_softmax(input, axis) * target
    if weight is not None:
        terms = terms * reshape(weight, *(-1 if i == axis else 1 for i in range(len(input.shape))))
    losses = -sum(terms, axis)
    if reduction == "mean":
        return sum(losses) / (input.numel() // max(classes, 1))
    return reduced(losses, reduction)
