"""Negative log-likelihoods: of normal and Poisson distributions, and of sequences without an alignment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.composite.binary import logaddexp
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import clamp_min, eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.transcendental import exp, log, square
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.indexing.indices import NDArray, checked_indices, integer_indices
from dl4all.ops.indexing.padding import pad
from dl4all.ops.loss.losses import check_reduction, check_tensors, reduced
from dl4all.ops.memory.views import expand, select, squeeze, unsqueeze
from dl4all.ops.reduce.sums import mean


@export("F")
@reads("var")
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, *, reduction: str = "mean"
) -> Any:
    """How improbable targets are under normal distributions: ``(log(var) + (input - target)**2 / var) / 2``.

    Args:
        input: the means, floats.
        target: of a shape that broadcasts with them.
        var: the variances: a number, or a tensor of the input's shape, without its last axis or with size
            1 there.
        full: whether ``log(2 pi) / 2`` is added.
        eps: the least variance that is taken; its gradient is that of an unlimited one.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.

    Raises:
        ShapeError: the variances do not fit.
        ArgumentError: one is negative, or there is no such reduction.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, 2.0])
        >>> dl.nn.functional.gaussian_nll_loss(x, x + 2, dl.ones(2)).item()
        2.0
    """
    name = "gaussian_nll_loss"
    check_reduction(name, reduction)
    check_tensors(name, input, target)
    if not isinstance(var, TensorBase):
        var = from_host(type(input).result_class, np.full((), var, input.dtype), input.device, copy=False)
        var = expand(var, input.shape)
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = unsqueeze(var, -1)
        elif var.shape != (*input.shape[:-1], 1):
            raise ShapeError(f"[{name}] variances of shape {var.shape} do not fit shape {input.shape}")
    if (var.on_host() < 0).any():
        raise ArgumentError(f"[{name}] a variance is negative")
    with tape.gradients(False):
        lifted = clamp_min(var, eps) - var
    taken = var + lifted
    each = (log(taken) + square(input - target) / taken) * 0.5
    return reduced(each + 0.5 * math.log(2 * math.pi) if full else each, reduction)


@export("F")
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """How improbable counts are under Poisson distributions, but for a term that only the counts decide.

    Args:
        input: the expected counts, or their logarithms.
        target: the counts.
        log_input: whether the input is logarithms.
        full: whether that term is added, by Stirling's approximation, for counts above 1.
        eps: added to expected counts before their logarithm is taken.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.

    Raises:
        ArgumentError: there is no such reduction.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.poisson_nll_loss(dl.tensor([0.0]), dl.tensor([3.0])).item()
        1.0
    """
    check_reduction("poisson_nll_loss", reduction)
    check_tensors("poisson_nll_loss", input, target)
    each = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        many = target > 1
        count = where(many, target, 1.0)
        stirling = count * log(count) - count + 0.5 * log(count * (2 * math.pi))
        each = each + where(many, stirling, 0.0)
    return reduced(each, reduction)


@export("F")
@reads("targets", "input_lengths", "target_lengths")
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """How improbable a sequence of labels is, whenever each of them comes and however long it lasts.

    Graves et al., 2006. The recursion over time is made of ops, so that it is differentiable twice.

    Args:
        log_probs: logarithms of probabilities, of shape (T, N, C) or (T, C).
        targets: the labels, ints: of shape (N, S), or one behind the other in one axis.
        input_lengths: how many times of each sequence count, ints of shape (N,).
        target_lengths: how many labels each has.
        blank: the class that stands for no label.
        reduction: ``"mean"`` divides each loss by the number of labels first; ``"sum"``; or ``"none"``.
        zero_infinity: 0 in the place of infinite losses, of sequences too short for their labels.

    Returns:
        A 0-d tensor; with ``"none"`` shape (N,).

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: a label is not a class, or a length out of range.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.nn.functional.log_softmax(dl.zeros(2, 1, 2), -1)
        >>> loss = dl.nn.functional.ctc_loss(scores, dl.tensor([[1]]), [2], [1])
        >>> round(loss.item(), 4)  # three of four paths
        0.2877
    """
    name = "ctc_loss"
    check_reduction(name, reduction)
    check_tensors(name, log_probs)
    single = len(log_probs.shape) == 2
    scores = unsqueeze(log_probs, 1) if single else log_probs
    if len(scores.shape) != 3:
        raise ShapeError(f"[{name}] expected log_probs of shape (T, N, C), got {log_probs.shape}")
    times, count, classes = scores.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"[{name}] blank {blank} is not one of {classes} classes")
    lasting, lengths = (
        integer_indices(name, given).reshape(-1).astype(np.int64) for given in (input_lengths, target_lengths)
    )
    if lasting.shape != (count,) or lengths.shape != (count,):
        raise ShapeError(f"[{name}] expected a length for each of {count} sequences")
    if (lasting > times).any() or (lasting < 0).any():
        raise ArgumentError(f"[{name}] input_lengths must lie between 0 and {times}, got {lasting.tolist()}")
    labels = checked_indices(name, _labels(name, targets, lengths), classes)
    each = _paths(scores, labels, lasting, lengths, blank)
    if zero_infinity:
        each = where(eq(each, math.inf), 0.0, each)
    if reduction == "mean":
        long = np.maximum(lengths, 1).astype(log_probs.dtype)
        return mean(each / _there(log_probs, long))
    return reduced(squeeze(each, 0) if single else each, reduction)


def _there(like: Any, array: NDArray) -> Any:
    return from_host(type(like).result_class, np.ascontiguousarray(array), like.device, copy=False)


def _labels(name: str, targets: Any, lengths: NDArray) -> NDArray:
    """One sequence a line, with 0 behind its end.

    Raises:
        ShapeError: there are less labels than the lengths say.
    """
    given = integer_indices(name, targets)
    longest = int(lengths.max(initial=0))
    found = np.zeros((len(lengths), longest), np.int64)
    lines = given.ndim == 2
    if (lines and (len(given) != len(lengths) or given.shape[1] < longest)) or (
        not lines and given.size < lengths.sum()
    ):
        raise ShapeError(f"[{name}] targets of shape {given.shape} do not fit lengths {lengths.tolist()}")
    start = 0
    for line, length in enumerate(lengths):
        found[line, :length] = given[line, :length] if lines else given[start : start + length]
        start += int(length)
    return found


def _paths(scores: Any, labels: NDArray, lasting: NDArray, lengths: NDArray, blank: int) -> Any:
    """The negative logarithm of the sum of the probabilities of all paths, for each sequence."""
    times, count, _ = scores.shape
    states = np.full((count, 2 * labels.shape[1] + 1), blank)
    states[:, 1::2] = labels
    size = states.shape[1]
    said = gather(scores, 2, np.broadcast_to(states, (times, *states.shape)))
    # From a label the next one is reached without a blank between them, unless it is the same.
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    skip, first = _there(scores, skips), _there(scores, np.arange(size)[None] < 2)
    found = where(first, select(said, 0, 0), -math.inf)
    for time in range(1, times):
        before = pad(found, (2, 0), value=-math.inf)
        one, two = before[:, 1 : size + 1], where(skip, before[:, :size], -math.inf)
        then = logaddexp(logaddexp(found, one), two) + select(said, 0, time)
        found = where(_there(scores, (time < lasting)[:, None]), then, found)
    ends = np.stack([2 * lengths, np.maximum(2 * lengths - 1, 0)], 1)
    last = gather(found, 1, ends)
    label = where(_there(scores, lengths > 0), select(last, 1, 1), -math.inf)
    return -logaddexp(select(last, 1, 0), label)
