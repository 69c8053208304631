"""Connectionist temporal classification (CTC)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.elementwise.binary import logaddexp
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import clamp, eq, gt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.transcendental import exp
from dl4all.ops.indexing.concatenation import stack, unbind
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.indexing.indices import NDArray, checked_indices, integer_indices
from dl4all.ops.indexing.padding import pad
from dl4all.ops.loss.reduction import check_reduction, check_tensors, reduced
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.parts import select
from dl4all.ops.memory.views import squeeze, unsqueeze
from dl4all.ops.reduce.softmax_dtypes import logsumexp
from dl4all.ops.reduce.sums import mean, sum

HALF = 2  # bytes of an element, which holds no such number
SMALL = 2**15
"""Elements of a step from each state to each, up to which more of them cost less than more ops do."""
IMPOSSIBLE = -1e30
"""The logarithm of the probability of a path that there is not: of infinities alone a sum has no gradient."""


@export("F", autocast="float32")
@reads("targets", "input_lengths", "target_lengths")
def ctc_loss(
    log_probs: Array,
    targets: Array | npt.ArrayLike,
    input_lengths: Array | npt.ArrayLike,
    target_lengths: Array | npt.ArrayLike,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Array:
    """Connectionist temporal classification: the negative log-likelihood of labels over all alignments.

    Graves et al., "Connectionist Temporal Classification" (ICML 2006), section 4.1. The recursion over time
    is made of ops, so that it is differentiable twice. As in PyTorch, the gradient of `log_probs` is that of
    scores before a log_softmax: of log-probabilities it differs by what log_softmax removes.

    Args:
        log_probs: log-probabilities, of shape (T, N, C) or (T, C).
        targets: the labels, ints: of shape (N, S), or concatenated in one axis.
        input_lengths: the number of time steps of each sequence, ints of shape (N,).
        target_lengths: the number of labels of each sequence.
        blank: the class for no label.
        reduction: ``"mean"``, of losses divided by their number of labels, ``"sum"`` or ``"none"``.
        zero_infinity: replace infinite losses, of sequences too short for their labels, by 0.

    Returns:
        A 0-d tensor; with ``"none"`` shape (N,).

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: a label is not a class, or a length is out of range.

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
    steps, lengths = (
        integer_indices(name, values).reshape(-1).astype(np.int64)
        for values in (input_lengths, target_lengths)
    )
    if steps.shape != (count,) or lengths.shape != (count,):
        raise ShapeError(f"[{name}] expected a length for each of {count} sequences")
    if (steps > times).any() or (steps < 0).any():
        raise ArgumentError(f"[{name}] input_lengths must lie between 0 and {times}, got {steps.tolist()}")
    labels = checked_indices(name, _labels(name, targets, lengths), classes)
    wide = scores if scores.dtype.itemsize > HALF else cast(scores, "float32")
    losses = _path_losses(wide, labels, steps, lengths, blank) + _normalization(wide, steps)
    losses = losses if wide is scores else cast(losses, scores.dtype.name)
    if zero_infinity:
        losses = where(eq(losses, math.inf), 0.0, losses)
    if reduction == "mean":
        divisors = np.maximum(lengths, 1).astype(log_probs.dtype)
        return mean(losses / _on_device(log_probs, divisors))
    return reduced(squeeze(losses, 0) if single else losses, reduction)


def _normalization(scores: Any, steps: NDArray) -> Any:
    """Zeros for each sequence, whose gradient is that of the sum of all probabilities.

    PyTorch's gradient is that of scores which a softmax made log-probabilities, whatever they are.
    """
    is_step = np.arange(scores.shape[0])[:, None] < steps
    total = sum(where(unsqueeze(_on_device(scores, is_step), 2), exp(scores), 0.0), (0, 2))
    return total - tape.alias(total)


def _on_device(like: Any, array: NDArray) -> Any:
    """The array as a tensor on the device of `like`."""
    return from_host(type(like).result_class, np.ascontiguousarray(array), like.device, copy=False)


def _labels(name: str, targets: Any, lengths: NDArray) -> NDArray:
    """The labels of each sequence in a row, padded with 0.

    Raises:
        ArgumentError: a length is negative, or larger than there are labels.
        ShapeError: there are fewer labels than the lengths say.
    """
    labels = integer_indices(name, targets)
    most = labels.shape[1] if labels.ndim == 2 else labels.size
    if (lengths > most).any() or (lengths < 0).any():
        raise ArgumentError(f"[{name}] target_lengths must lie between 0 and {most}, got {lengths.tolist()}")
    longest = int(lengths.max(initial=0))
    rows = np.zeros((len(lengths), longest), np.int64)
    is_padded = labels.ndim == 2
    if (is_padded and len(labels) != len(lengths)) or (not is_padded and labels.size < lengths.sum()):
        raise ShapeError(f"[{name}] targets of shape {labels.shape} do not fit lengths {lengths.tolist()}")
    start = 0
    for row, length in enumerate(lengths):
        rows[row, :length] = labels[row, :length] if is_padded else labels[start : start + length]
        start += int(length)
    return rows


def _path_losses(scores: Any, labels: NDArray, steps: NDArray, lengths: NDArray, blank: int) -> Any:
    """The negative logarithm of the sum of the probabilities of all paths, for each sequence."""
    times, count, _ = scores.shape
    states = np.full((count, 2 * labels.shape[1] + 1), blank)
    states[:, 1::2] = labels
    size = states.shape[1]
    emitted = gather(scores, 2, np.broadcast_to(states, (times, *states.shape)))
    emitted = clamp(emitted, IMPOSSIBLE)  # a class that cannot be, too
    # A label may follow another without a blank between them, unless both are the same.
    skips = np.zeros(states.shape, bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    is_first = _on_device(scores, np.arange(size)[None] < 2)
    step = _small_step(scores, skips) if skips.size * size <= SMALL else _large_step(scores, skips)
    rows = unbind(emitted, 0)  # whose gradients are joined once
    alpha, shortest = where(is_first, rows[0], IMPOSSIBLE), int(steps.min(initial=times))
    for time in range(1, times):
        after = step(alpha) + rows[time]
        goes_on = time < shortest
        alpha = after if goes_on else where(_on_device(scores, (time < steps)[:, None]), after, alpha)
    alpha = where(gt(alpha, IMPOSSIBLE / 2), alpha, -math.inf)
    ends = np.stack([2 * lengths, np.maximum(2 * lengths - 1, 0)], 1)
    last = gather(alpha, 1, ends)
    label = where(_on_device(scores, lengths > 0), select(last, 1, 1), -math.inf)
    return -logaddexp(select(last, 1, 0), label)


def _small_step(scores: Any, skips: NDArray) -> Callable[[Any], Any]:
    """A step of the recursion: from each state to each, for states (N, S) that skip the one before or not."""
    places = np.arange(skips.shape[1])
    back = places[:, None] - places
    moves = np.where((back == 0) | (back == 1) | ((back == 2) & skips[:, :, None]), 0.0, IMPOSSIBLE)
    table = _on_device(scores, moves.astype(scores.dtype))
    return lambda alpha: logsumexp(unsqueeze(alpha, 1) + table, 2)


def _large_step(scores: Any, skips: NDArray) -> Callable[[Any], Any]:
    """The same from three states to each."""
    can_skip, size = _on_device(scores, skips), skips.shape[1]

    def step(alpha: Any) -> Any:
        before = pad(alpha, (2, 0), value=IMPOSSIBLE)
        one, two = before[:, 1 : size + 1], where(can_skip, before[:, :size], IMPOSSIBLE)
        return logsumexp(stack([alpha, one, two]), 0)

    return step
