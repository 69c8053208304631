"""Losses with margins: of classes, of several labels, of an anchor and what is like and unlike it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.activation.smooth import logsigmoid, softplus
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import clamp_min, minimum
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.indexing.gather_scatter import gather, index_select
from dl4all.ops.indexing.indices import checked_indices
from dl4all.ops.linalg.contractions import pairwise_distance
from dl4all.ops.loss.losses import check_reduction, check_tensors, reduced
from dl4all.ops.memory.views import reshape, squeeze, unsqueeze
from dl4all.ops.reduce.sums import mean, sum

FAR = 40.0  # from here on, log(1 + exp(x)) is x in float64 too


@export("F")
def soft_margin_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """``log(1 + exp(-target * input))``, for targets of 1 and -1.

    Args:
        input: floats of any shape.
        target: 1 and -1, of the same shape.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.soft_margin_loss(dl.tensor([100.0]), dl.tensor([-1.0])).item()
        100.0
    """
    check_reduction("soft_margin_loss", reduction)
    check_tensors("soft_margin_loss", input, target)
    return reduced(softplus(-target * input, threshold=FAR), reduction)


@export("F")
@reads("target")
def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    *,
    reduction: str = "mean",
) -> Any:
    """The mean over classes of ``max(0, margin - input[right] + input[other]) ** p``.

    Args:
        input: scores of shape (N, C) or (C,).
        target: the right classes, ints of shape (N,) or ().
        p: 1 or 2.
        margin: by how much the right class should be ahead.
        weight: shape (C,), of the right classes.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each line.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: `p` is neither 1 nor 2, or a target is not a class.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.multi_margin_loss(dl.tensor([[0.5, 1.0]]), dl.tensor([0])).item()
        0.75
    """
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target, weight)
    if p not in (1, 2):
        raise ArgumentError(f"[{name}] p must be 1 or 2, got {p}")
    scores = _scores(name, input, target.shape == input.shape[:-1], target)
    classes = scores.shape[1]
    right = checked_indices(name, target, classes).reshape(-1, 1)
    lack = clamp_min(margin - gather(scores, 1, right) + scores, 0.0)
    lack = lack if p == 1 else pow(lack, 2)
    if weight is not None:
        lack = lack * unsqueeze(index_select(weight, 0, right.reshape(-1)), 1)
    others = from_host(type(input).result_class, np.arange(classes) != right, input.device, copy=False)
    each = sum(where(others, lack, 0.0), 1) / classes
    return reduced(reshape(each, *input.shape[:-1]), reduction)


def _scores(name: str, input: Any, fits: bool, target: Any) -> Any:
    """As lines.

    Raises:
        ShapeError: the target does not fit.
    """
    if len(input.shape) not in (1, 2) or not fits:
        raise ShapeError(
            f"[{name}] expected scores of shape (N, C) or (C,) and targets that fit, got {input.shape} and "
            f"{target.shape}"
        )
    return input if len(input.shape) == 2 else unsqueeze(input, 0)


@export("F")
@reads("target")
def multilabel_margin_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """How far labels are from being 1 ahead of all classes that are none: sums, divided by the classes.

    Args:
        input: scores of shape (N, C) or (C,).
        target: of the same shape, ints: the labels, and -1 behind the last.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each line.

    Raises:
        ShapeError: the shapes differ.
        ArgumentError: a label is not a class.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.multilabel_margin_loss(dl.tensor([0.5, 1.0]), dl.tensor([0, -1])).item()
        0.75
    """
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    scores = _scores(name, input, target.shape == input.shape, target)
    lines, classes = scores.shape
    labels = target.on_host().reshape(lines, classes)
    present = np.logical_and.accumulate(labels != -1, 1)
    labels = checked_indices(name, np.where(present, labels, 0), classes)
    is_label = np.zeros((lines, classes), bool)
    rows, columns = np.nonzero(present)
    is_label[rows, labels[rows, columns]] = True
    counts = present[:, :, None] & ~is_label[:, None, :]  # lines, labels, classes that are none
    behind = clamp_min(1 - unsqueeze(gather(scores, 1, labels), 2) + unsqueeze(scores, 1), 0.0)
    chosen = from_host(type(input).result_class, counts, input.device, copy=False)
    each = sum(where(chosen, behind, 0.0), (1, 2)) / classes
    return reduced(each if len(input.shape) == 2 else squeeze(each, 0), reduction)


@export("F")
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean"
) -> Any:
    """The mean over classes of the binary cross entropy of scores.

    Args:
        input: scores of shape (..., C).
        target: from 0 to 1, of the same shape.
        weight: shape (C,), of the classes.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each line.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> x, target = dl.tensor([[100.0, -100.0]]), dl.tensor([[1.0, 1.0]])
        >>> dl.nn.functional.multilabel_soft_margin_loss(x, target).item()
        50.0
    """
    name = "multilabel_soft_margin_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target, weight)
    if input.shape != target.shape or not input.shape:
        raise ShapeError(f"[{name}] expected one shape (..., C), got {input.shape} and {target.shape}")
    each = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced(mean(each if weight is None else each * weight, -1), reduction)


# Triplets


@export("F")
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Any:
    """How much nearer an anchor should be to what is like it than to what is not.

    ``max(0, distance(anchor, positive) - distance(anchor, negative) + margin)``.

    Args:
        anchor, positive, negative: vectors along the last axis.
        margin: by how much nearer.
        p, eps: of the distance, see :func:`pairwise_distance`.
        swap: take the distance of `positive` from `negative` where it is smaller than the anchor's.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each triplet.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> a, p, n = dl.tensor([[0.0]]), dl.tensor([[3.0]]), dl.tensor([[-1.0]])
        >>> dl.nn.functional.triplet_margin_loss(a, p, n, eps=0).item()
        3.0
    """
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda x, y: pairwise_distance(x, y, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


@export("F")
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """:func:`triplet_margin_loss` with a distance of one's own; :func:`pairwise_distance` by default.

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
