"""Losses, with PyTorch's names: how far what a network says is from what it should."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.elementwise.comparison import eq, ne
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.loss_terms import binary_error, logistic_error, smooth_error, squared_error
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import exp, log
from dl4all.ops.indexing.indices import Indices, integer_indices
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.loss.cross_entropy_loss import cross_entropy_each, nll_each
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import reshape, unsqueeze
from dl4all.ops.reduce.softmax_function import log_softmax
from dl4all.ops.reduce.sums import mean, sum
from dl4all.ops.vmap.batched_tensor import levels_of, whole

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(name: str, reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """
    Raises:
        ArgumentError: there is no such reduction.
    """
    if reduction not in allowed:
        raise ArgumentError(f"[{name}] reduction must be one of {', '.join(allowed)}, got {reduction!r}")


def reduced(each: Any, reduction: str) -> Any:
    """The losses of elements as one, or as they are."""
    return each if reduction == "none" else mean(each) if reduction == "mean" else sum(each)


def check_tensors(name: str, *operands: Any) -> None:
    """
    Raises:
        DTypeError: an operand is neither a tensor nor None.
    """
    for operand in operands:
        if operand is not None and not isinstance(operand, TensorBase):
            raise DTypeError(
                f"[{name}] expected a tensor, got {type(operand).__name__}; make one with dl.tensor(...)"
            )


# Classes


@export("F")
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """How improbable the right classes are: the negative logarithm of the softmax of scores.

    Args:
        input: floats of shape (C,), (N, C) or (N, C, d1, ...), scores of any size.
        target: the classes, ints of the input's shape without C; or floats of the input's shape, the
            probability that each class should have.
        weight: shape (C,), of the classes; the mean is weighted too.
        ignore_index: targets of this value do not count.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each target.
        label_smoothing: from 0 to 1, how much of each target is spread evenly over all classes.

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
    name = "cross_entropy"
    check_reduction(name, reduction)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"[{name}] label_smoothing must lie between 0 and 1, got {label_smoothing}")
    classes, shape = _check_scores(name, input, weight)
    if isinstance(target, TensorBase) and target.dtype.kind == "f":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    if _in_samples(input, target, weight):
        scores = log_softmax(input, _class_axis(input))
        return _compared(name, scores, target, weight, ignore_index, reduction, label_smoothing)
    places = _places(name, target, shape, classes, ignore_index)
    rows = reshape(input, *_three_axes(input.shape))
    each = cross_entropy_each(rows, weight, target=places, label_smoothing=label_smoothing)
    return _of_classes(reshape(each, shape), weight, places, reduction)


@export("F")
def nll_loss(
    input: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """The negative log-likelihood of the right classes, from logarithms of probabilities.

    Args:
        input: floats of shape (C,), (N, C) or (N, C, d1, ...), as ``log_softmax`` gives them.
        target: the classes, ints of the input's shape without C.
        weight: shape (C,), of the classes; the mean is weighted too.
        ignore_index: targets of this value do not count.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each target.

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
    check_reduction("nll_loss", reduction)
    classes, shape = _check_scores("nll_loss", input, weight)
    if _in_samples(input, target, weight):
        return _compared("nll_loss", input, target, weight, ignore_index, reduction, 0.0)
    places = _places("nll_loss", target, shape, classes, ignore_index)
    each = nll_each(reshape(input, *_three_axes(input.shape)), weight, target=places)
    return _of_classes(reshape(each, shape), weight, places, reduction)


def _check_scores(name: str, input: Any, weight: Any) -> tuple[int, Shape]:
    """How many classes there are, and the shape that targets have."""
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


def _three_axes(shape: Shape) -> Shape:
    return (1, shape[0], 1) if len(shape) == 1 else (shape[0], shape[1], math.prod(shape[2:]))


def _class_axis(input: Any) -> int:
    return 1 if len(input.shape) > 1 else 0


def _places(name: str, target: Any, shape: Shape, classes: int, ignore_index: int) -> Indices:
    """The targets, -1 for those that do not count."""
    array = integer_indices(name, target)
    if array.shape != shape:
        raise ShapeError(f"[{name}] expected targets of shape {shape}, got {array.shape}")
    return Indices(np.where(_ignored(name, array, classes, ignore_index), -1, array))


def _ignored(name: str, array: Any, classes: int, ignore_index: int) -> Any:
    """Which targets do not count.

    Raises:
        ArgumentError: one is no class.
    """
    ignored = array == ignore_index
    wrong = array[~ignored & ((array < 0) | (array >= classes))]
    if wrong.size:
        raise ArgumentError(
            f"[{name}] target {wrong.reshape(-1)[0]} is not one of {classes} classes, which count from 0; "
            f"targets of ignore_index={ignore_index} are left out"
        )
    return ignored


def _in_samples(*operands: Any) -> bool:
    return any(isinstance(o, TensorBase) and o.levels for o in operands)


def _compared(
    name: str, scores: Any, target: Any, weight: Any, ignore_index: int, reduction: str, smoothing: float
) -> Any:
    """The loss within ``vmap``: each class is compared with the target, which no op reads on the host."""
    axis, ndim = _class_axis(scores), len(scores.shape)
    classes, shape = scores.shape[axis], scores.shape[:axis] + scores.shape[axis + 1 :]
    if not isinstance(target, TensorBase):
        target = from_host(type(scores).result_class, np.asarray(target), scores.device, copy=True)
    if target.shape != shape:
        raise ShapeError(f"[{name}] expected targets of shape {shape}, got {target.shape}")
    _ignored(name, integer_indices(name, whole(target, levels_of([target]))), classes, ignore_index)
    along = tuple(-1 if i == axis else 1 for i in range(ndim))
    numbers = from_host(type(scores).result_class, np.arange(classes), scores.device, copy=False)
    own = eq(unsqueeze(target, axis), reshape(numbers, along))
    asked = cast(own, scores.dtype.name)
    weights = asked if weight is None else asked * reshape(weight, along)
    if smoothing:
        asked = asked * (1 - smoothing) + smoothing / classes
    if weight is not None:
        asked = asked * reshape(weight, along)
    counts = ne(target, ignore_index)
    each = where(counts, -sum(where(eq(asked, 0), 0.0, scores * asked), axis), 0.0)
    if reduction != "mean":
        return reduced(each, reduction)
    return sum(each) / sum(where(unsqueeze(counts, axis), weights, 0.0))


def _of_classes(each: Any, weight: Any, places: Indices, reduction: str) -> Any:
    if reduction != "mean":
        return reduced(each, reduction)
    if weight is None:
        return sum(each) / int(np.count_nonzero(places.array >= 0))
    return sum(each) / sum(take_rows(reshape(weight.detach(), 1, -1, 1), places))


def _soft_cross_entropy(input: Any, target: Any, weight: Any, reduction: str, label_smoothing: float) -> Any:
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
    each = -sum(terms, axis)
    if reduction == "mean":
        return sum(each) / (input.numel() // max(classes, 1))
    return reduced(each, reduction)


# Distances


@export("F")
def mse_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The mean squared error.

    Args:
        input: floats of any shape.
        target: floats of the same shape.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.mse_loss(dl.tensor([1.0, 2.0]), dl.tensor([1.0, 4.0])).item()
        2.0
    """
    _check_pair("mse_loss", input, target, reduction)
    return reduced(squared_error(input, target), reduction)


@export("F")
def l1_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The mean absolute error.

    Args:
        input, target, reduction: as for :func:`mse_loss`.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.l1_loss(dl.tensor([1.0, 2.0]), dl.tensor([1.0, 4.0])).item()
        1.0
    """
    _check_pair("l1_loss", input, target, reduction)
    return reduced(abs(input - target), reduction)


@export("F")
def smooth_l1_loss(input: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> Any:
    """The absolute error less ``beta / 2``, and below `beta` a parabola that fits (arXiv:1504.08083).

    Args:
        input, target, reduction: as for :func:`mse_loss`.
        beta: where the parabola ends; 0 makes it :func:`l1_loss`.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.smooth_l1_loss(dl.tensor([0.5, 4.0]), dl.zeros(2)).item()
        1.8125
    """
    _check_pair("smooth_l1_loss", input, target, reduction)
    if beta < 0:
        raise ArgumentError(f"[smooth_l1_loss] beta must not be negative, got {beta}")
    each = smooth_error(input, target, beta=float(beta)) if beta else abs(input - target)
    return reduced(each, reduction)


@export("F")
def huber_loss(
    input: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    """Half the squared error, from `delta` on the straight line that fits: `delta` times the smooth L1 loss.

    Args:
        input, target, reduction: as for :func:`mse_loss`.
        delta: where the parabola ends.
        weight: of the elements.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.huber_loss(dl.tensor([0.5, 4.0]), dl.zeros(2), delta=2.0).item()
        3.0625
    """
    _check_pair("huber_loss", input, target, reduction)
    if delta <= 0:
        raise ArgumentError(f"[huber_loss] delta must be positive, got {delta}")
    return reduced(_weighted(smooth_error(input, target, beta=float(delta)) * delta, weight), reduction)


def _check_pair(name: str, input: Any, target: Any, reduction: str) -> None:
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    if input.shape != target.shape:
        warnings.warn(
            f"[{name}] the input's shape {input.shape} and the target's {target.shape} differ and are "
            "broadcast, which is seldom meant",
            stacklevel=3,
        )


def _weighted(each: Any, weight: Any) -> Any:
    return each if weight is None else each * weight


# Probabilities


@export("F")
def binary_cross_entropy(input: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """How improbable the right answers are: ``-(target log(input) + (1 - target) log(1 - input))``.

    Args:
        input: probabilities, floats of any shape.
        target: from 0 to 1, of the same shape.
        weight: of the elements; broadcasts.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.binary_cross_entropy(dl.tensor([1.0, 0.0]), dl.tensor([1.0, 1.0])).item()
        50.0
    """
    _check_same("binary_cross_entropy", input, target, reduction)
    return reduced(_weighted(binary_error(input, target), weight), reduction)


@export("F")
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """:func:`binary_cross_entropy` of ``sigmoid(input)``, without the loss of digits on the way.

    Args:
        input: floats of any shape and size.
        target: from 0 to 1, of the same shape.
        weight: of the elements; broadcasts.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        pos_weight: of the targets' share of 1; broadcasts.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([10000.0, -10000.0])
        >>> dl.nn.functional.binary_cross_entropy_with_logits(x, dl.tensor([1.0, 1.0])).item()
        5000.0
    """
    _check_same("binary_cross_entropy_with_logits", input, target, reduction)
    if pos_weight is None:
        each = logistic_error(input, target)
    else:
        each = (1 - target) * input + (target * (pos_weight - 1) + 1) * logistic_error(input, 1.0)
    return reduced(_weighted(each, weight), reduction)


@export("F")
def kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Any:
    """The Kullback-Leibler divergence of probabilities `target` from those whose logarithms are `input`.

    Args:
        input: logarithms of probabilities, floats of any shape.
        target: probabilities, of the same shape.
        reduction: ``"mean"``, ``"sum"``, ``"batchmean"`` for the sum divided by the first axis's size,
            which is the divergence's mean, or ``"none"``.
        log_target: whether the target is given as logarithms too.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.kl_div(dl.zeros(2), dl.tensor([0.0, 1.0]), reduction="sum").item()
        0.0
    """
    check_reduction("kl_div", reduction, (*REDUCTIONS, "batchmean"))
    check_tensors("kl_div", input, target)
    if log_target:
        each = exp(target) * (target - input)
    else:  # 0 log 0 is 0, and so is its gradient
        each = target * log(where(target == 0, 1.0, target)) - target * input
    if reduction == "batchmean":
        return sum(each) / max(input.shape[0] if input.shape else 1, 1)
    return reduced(each, reduction)


def _check_same(name: str, input: Any, target: Any, reduction: str) -> None:
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    if input.shape != target.shape:
        raise ShapeError(f"[{name}] expected a target of the input's shape {input.shape}, got {target.shape}")
