"""Margin losses: of classes, of several labels and of triplets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.activation.smooth import logsigmoid, softplus
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import clamp_min, eq, minimum
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.indexing.gather_scatter import expanded_number, gather, indices_along
from dl4all.ops.indexing.indices import checked_indices, indices_into
from dl4all.ops.indexing.rows import put_rows, select_indices, take_rows
from dl4all.ops.linalg.distances import pairwise_distance
from dl4all.ops.loss.reduction import check_reduction, check_tensors, legacy_reduction, reduced
from dl4all.ops.memory.views import reshape, squeeze, unsqueeze
from dl4all.ops.reduce.sums import mean, sum

# From here on log(1 + exp(x)) equals x, in float64 too.
SOFTPLUS_THRESHOLD = 40.0


@export("F", autocast="float32")
def soft_margin_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """``log(1 + exp(-target * input))``, for targets of 1 and -1.

    Args:
        input: floats of any shape.
        target: 1 and -1, of the same shape.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.soft_margin_loss(dl.tensor([100.0]), dl.tensor([-1.0])).item()
        100.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    check_reduction("soft_margin_loss", reduction)
    check_tensors("soft_margin_loss", input, target)
    return reduced(softplus(-target * input, threshold=SOFTPLUS_THRESHOLD), reduction)


@export("F", autocast="float32")
@reads("target")
def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """The mean over classes of ``max(0, margin - input[right] + input[other]) ** p``.

    Args:
        input: scores of shape (N, C) or (C,).
        target: the right classes, ints of shape (N,) or ().
        p: 1 or 2.
        margin: the least distance of the right class from the others.
        weight: shape (C,), one for losses right class.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each row.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: `p` is neither 1 nor 2, or a target is not a class.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.multi_margin_loss(dl.tensor([[0.5, 1.0]]), dl.tensor([0])).item()
        0.75
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target, weight)
    if p not in (1, 2):
        raise ArgumentError(f"[{name}] p must be 1 or 2, got {p}")
    fits = target.shape == input.shape[:-1] or (len(input.shape) < 2 and target.numel() == 1)
    scores = _scores(name, input, fits, target)
    classes = scores.shape[1]
    right, _ = indices_along(name, scores, 1, reshape(target, -1, 1))
    count = scores.numel()
    right_scores = take_rows(reshape(scores, 1, count, 1), right)
    violations = clamp_min(margin - reshape(right_scores, -1, 1) + scores, 0.0)
    violations = violations if p == 1 else pow(violations, 2)
    if weight is not None:
        classes_of_rows, _ = indices_into(name, target, classes, weight)
        violations = violations * reshape(select_indices(weight, 0, classes_of_rows), -1, 1)
    with tape.gradients(False):
        ones = expanded_number(scores, 1, (len(right), 1))
        is_right = reshape(put_rows(expanded_number(scores, 0, (count, 1)), ones, right), scores.shape)
    losses = sum(where(eq(is_right, 0), violations, 0.0), 1) / classes
    return reduced(reshape(losses, *target.shape), reduction)


def _scores(name: str, input: Array, fits: bool, target: Array) -> Any:
    """The scores as rows (N, C).

    Raises:
        ShapeError: the target does not fit.
    """
    if len(input.shape) > 2 or not fits:
        raise ShapeError(
            f"[{name}] expected scores of shape (N, C) or (C,) and targets that fit, got {input.shape} and "
            f"{target.shape}"
        )
    return input if len(input.shape) == 2 else reshape(input, 1, -1)


@export("F", autocast="float32")
@reads("target")
def multilabel_margin_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """The sum of ``max(0, 1 - input[label] + input[other])`` over labels and other classes, divided by C.

    Args:
        input: scores of shape (N, C) or (C,).
        target: ints of the same shape: the labels, then -1.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each row.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError: the shapes differ.
        ArgumentError: a label is not a class.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.multilabel_margin_loss(dl.tensor([0.5, 1.0]), dl.tensor([0, -1])).item()
        0.75
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    scores = _scores(name, input, target.shape == input.shape, target)
    rows, classes = scores.shape
    if kind_of(target.dtype) not in "iu":
        raise DTypeError(f"[{name}] expected classes as integers, got {target.dtype}; convert with .long()")
    labels = target.on_host().reshape(rows, classes)
    present = np.logical_and.accumulate(labels != -1, 1)
    labels = checked_indices(name, np.where(present, labels, 0), classes)
    is_label = np.zeros((rows, classes), bool)
    row_indices, columns = np.nonzero(present)
    is_label[row_indices, labels[row_indices, columns]] = True
    pairs = present[:, :, None] & ~is_label[:, None, :]  # rows, labels, classes that are no label
    violations = clamp_min(1 - unsqueeze(gather(scores, 1, labels), 2) + unsqueeze(scores, 1), 0.0)
    counts = from_host(type(input).result_class, pairs, input.device, copy=False)
    losses = sum(where(counts, violations, 0.0), (1, 2)) / classes
    return reduced(losses if len(input.shape) == 2 else squeeze(losses, 0), reduction)


@export("F", autocast="float32")
def multilabel_soft_margin_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """The mean over classes of the binary cross entropy of scores.

    Args:
        input: scores of shape (..., C).
        target: from 0 to 1, of the same shape.
        weight: shape (C,), one for each class.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each row.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> x, target = dl.tensor([[100.0, -100.0]]), dl.tensor([[1.0, 1.0]])
        >>> dl.nn.functional.multilabel_soft_margin_loss(x, target).item()
        50.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    name = "multilabel_soft_margin_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target, weight)
    if input.shape != target.shape or not input.shape:
        raise ShapeError(f"[{name}] expected one shape (..., C), got {input.shape} and {target.shape}")
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced(mean(losses if weight is None else losses * weight, -1), reduction)


# Triplets


@export("F", autocast="float32")
def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """Triplet loss: an anchor should be nearer to the positive than to the negative.

    ``max(0, distance(anchor, positive) - distance(anchor, negative) + margin)``.

    Args:
        anchor, positive, negative: vectors along the last axis.
        margin: by how much it should be nearer.
        p, eps: the arguments of the distance, see :func:`pairwise_distance`.
        swap: use the distance from `positive` to `negative` where it is less than that from the anchor.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each triplet.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> a, p, n = dl.tensor([[0.0]]), dl.tensor([[3.0]]), dl.tensor([[-1.0]])
        >>> dl.nn.functional.triplet_margin_loss(a, p, n, eps=0).item()
        3.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda x, y: pairwise_distance(x, y, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


@export("F", autocast="float32")
def triplet_margin_with_distance_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    *,
    distance_function: Callable[[Array, Array], Array] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    """:func:`triplet_margin_loss` with another distance; the default is :func:`pairwise_distance`.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> a, p, n = dl.tensor([[0.0]]), dl.tensor([[3.0]]), dl.tensor([[-1.0]])
        >>> far = lambda x, y: (x - y).abs().sum(-1)
        >>> loss = dl.nn.functional.triplet_margin_with_distance_loss(a, p, n, distance_function=far)
        >>> loss.item()
        3.0
    """
    check_reduction("triplet_margin_loss", reduction)
    check_tensors("triplet_margin_loss", anchor, positive, negative)
    if margin <= 0:
        raise ArgumentError(f"[triplet_margin_loss] expected a margin above 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(clamp_min(near - far + margin, 0.0), reduction)
