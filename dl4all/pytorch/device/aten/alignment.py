"""Connectionist temporal classification: the loss over alignments of labels with time, and its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all import ops
from dl4all.autograd.functional import vjp
from dl4all.functions.host import to_device_of
from dl4all.ops.indexing.indices import integer_indices
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.tensor.tensor import Tensor


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Any, Any]:
    """The loss of each sequence, and nan in place of the logarithms that PyTorch keeps for its gradient.

    The gradient here computes these again.
    """
    losses = ops.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, "none", zero_infinity=False
    )
    longest = int(integer_indices("ctc_loss", target_lengths).max(initial=0))
    times, count, _ = log_probs.shape
    nothing = to_device_of(log_probs, np.asarray(math.nan, log_probs.dtype))
    return losses, ops.expand(nothing, count, times, 2 * longest + 1)


def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    losses: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Any:
    """The gradient as PyTorch defines it: that of a log-softmax in front of the loss is already in it.

    So the probabilities are added, up to the end of each sequence. That of an infinite loss is nan.
    """
    grads = ops.where(ops.isinf(losses), 0.0 if zero_infinity else math.nan, grad)

    def loss(scores: Any) -> Any:
        return ops.ctc_loss(
            scores, targets, input_lengths, target_lengths, blank, "none", zero_infinity=zero_infinity
        )

    gradient = ops.add(vjp(loss, log_probs, grads)[1], ops.mul(ops.exp(log_probs), ops.unsqueeze(grads, 1)))
    lengths = integer_indices("ctc_loss", input_lengths).reshape(-1)
    counts = np.arange(log_probs.shape[0])[:, None] < lengths
    return ops.where(to_device_of(log_probs, counts[..., None]), gradient, 0.0)


declare("_ctc_loss", ctc_loss)
declare("_ctc_loss.Tensor", ctc_loss)
declare("_ctc_loss_backward", ctc_loss_backward)
declare("_ctc_loss_backward.Tensor", ctc_loss_backward)
