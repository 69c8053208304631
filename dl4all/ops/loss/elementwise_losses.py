"""Losses of single elements: L1, L2, Huber, binary cross entropy and Kullback-Leibler divergence."""

from __future__ import annotations

import warnings
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import real
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.loss_terms import binary_error, logistic_error, smooth_error, squared_error
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import exp, log
from dl4all.ops.loss.reduction import REDUCTIONS, check_reduction, check_tensors, legacy_reduction, reduced
from dl4all.ops.reduce.sums import sum

# Losses of differences


@export("F", autocast="float32")
def mse_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Array | None = None,
) -> Array:
    """The mean squared error.

    Args:
        input: floats of any shape.
        target: floats of the same shape.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.
        weight: of the elements, of the input's shape; the mean is weighted too.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.mse_loss(dl.tensor([1.0, 2.0]), dl.tensor([1.0, 4.0])).item()
        2.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    _check_broadcast("mse_loss", input, target, reduction)
    return _weighted_mean(squared_error(input, target), weight, reduction)


@export("F", autocast="float32")
def l1_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Array | None = None,
) -> Array:
    """The mean absolute error.

    Args:
        input, target, reduction, weight: as for :func:`mse_loss`.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.l1_loss(dl.tensor([1.0, 2.0]), dl.tensor([1.0, 4.0])).item()
        1.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    _check_broadcast("l1_loss", input, target, reduction)
    return _weighted_mean(abs(input - target), weight, reduction)


@export("F", autocast="float32")
def smooth_l1_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Array:
    """The absolute error minus ``beta / 2``, and a parabola for errors below `beta` (arXiv:1504.08083).

    Args:
        input, target, reduction: as for :func:`mse_loss`.
        beta: the error at which the parabola ends; 0 gives :func:`l1_loss`.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.smooth_l1_loss(dl.tensor([0.5, 4.0]), dl.zeros(2)).item()
        1.8125
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    _check_broadcast("smooth_l1_loss", input, target, reduction)
    beta = real("smooth_l1_loss", "beta", beta)
    if beta < 0:
        raise ArgumentError(f"[smooth_l1_loss] beta must not be negative, got {beta}")
    losses = smooth_error(input, target, beta=beta) if beta else abs(input - target)
    return reduced(losses, reduction)


@export("F", autocast="float32")
def huber_loss(
    input: Array,
    target: Array,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Array | None = None,
) -> Array:
    """Half the squared error up to `delta`, then linear: `delta` times the smooth L1 loss (Huber, 1964).

    Args:
        input, target, reduction: as for :func:`mse_loss`.
        delta: the error at which the parabola ends.
        weight: of the elements; broadcasts.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.huber_loss(dl.tensor([0.5, 4.0]), dl.zeros(2), delta=2.0).item()
        3.0625
    """
    _check_broadcast("huber_loss", input, target, reduction)
    delta = real("huber_loss", "delta", delta)
    if delta <= 0:
        raise ArgumentError(f"[huber_loss] delta must be positive, got {delta}")
    return reduced(_weighted(smooth_error(input, target, beta=delta) * delta, weight), reduction)


def _weighted_mean(losses: Any, weight: Any, reduction: str) -> Any:
    """The reduced losses, times weights of their shape; their mean is weighted.

    Raises:
        ShapeError: the weights have another shape.
    """
    if weight is None:
        return reduced(losses, reduction)
    if weight.shape != losses.shape:
        raise ShapeError(f"[loss] expected weights of shape {losses.shape}, got {weight.shape}")
    weighted = losses * weight
    return sum(weighted) / sum(weight) if reduction == "mean" else reduced(weighted, reduction)


def _check_broadcast(name: str, input: Any, target: Any, reduction: str) -> None:
    """Raise unless input and target are tensors; warn where they broadcast."""
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    if input.shape != target.shape:
        warnings.warn(
            f"[{name}] the input's shape {input.shape} and the target's {target.shape} differ and are "
            "broadcast, which is seldom meant",
            stacklevel=3,
        )


def _weighted(losses: Any, weight: Any) -> Any:
    return losses if weight is None else losses * weight


# Losses of probabilities


@export("F", autocast="unsafe")
def binary_cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """Binary cross entropy: ``-(target log(input) + (1 - target) log(1 - input))``.

    Args:
        input: probabilities, floats of any shape.
        target: from 0 to 1, of the same shape.
        weight: of the elements; broadcasts.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.binary_cross_entropy(dl.tensor([1.0, 0.0]), dl.tensor([1.0, 1.0])).item()
        50.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    _check_same_shape("binary_cross_entropy", input, target, reduction)
    return reduced(_weighted(binary_error(input, target), weight), reduction)


@export("F", autocast="float32")
def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    """:func:`binary_cross_entropy` of ``sigmoid(input)``, computed without loss of precision.

    Args:
        input: logits, floats of any shape.
        target: from 0 to 1, of the same shape.
        weight: of the elements; broadcasts.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        pos_weight: weight of the positive class; broadcasts.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

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
    reduction = legacy_reduction(reduction, size_average, reduce)
    _check_same_shape("binary_cross_entropy_with_logits", input, target, reduction)
    if pos_weight is None:
        losses = logistic_error(input, target)
    else:
        negative, positive = logistic_error(input, 0.0), logistic_error(input, 1.0)
        losses = (1 - target) * negative + (target * pos_weight) * positive
    return reduced(_weighted(losses, weight), reduction)


@export("F", autocast="float32")
def kl_div(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Array:
    """The Kullback-Leibler divergence of `target` from the probabilities whose logarithms are `input`.

    Args:
        input: logarithms of probabilities, floats of any shape.
        target: probabilities, of the same shape.
        reduction: ``"mean"``, ``"sum"``, ``"none"``, or ``"batchmean"`` for the sum divided by the size of
            the first axis, the mean divergence of a batch.
        log_target: whether the target holds logarithms too.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.kl_div(dl.zeros(2), dl.tensor([0.0, 1.0]), reduction="sum").item()
        0.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    check_reduction("kl_div", reduction, (*REDUCTIONS, "batchmean"))
    check_tensors("kl_div", input, target)
    if log_target:
        losses = exp(target) * (target - input)
    else:  # 0 log 0 is 0, and so is its gradient
        losses = target * log(where(target == 0, 1.0, target)) - target * input
    if reduction == "batchmean":
        return sum(losses) / max(input.shape[0] if input.shape else 1, 1)
    return reduced(losses, reduction)


def _check_same_shape(name: str, input: Any, target: Any, reduction: str) -> None:
    """Raise unless input and target are tensors of one shape."""
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    if input.shape != target.shape:
        raise ShapeError(f"[{name}] expected a target of the input's shape {input.shape}, got {target.shape}")
