"""Negative log-likelihoods of normal and Poisson distributions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.transcendental import exp, log, square
from dl4all.ops.indexing.device_indices import refuse
from dl4all.ops.loss.reduction import check_reduction, check_tensors, legacy_reduction, reduced
from dl4all.ops.memory.views import expand, unsqueeze


@export("F", autocast="float32")
@reads("var")
def gaussian_nll_loss(
    input: Array,
    target: Array,
    var: Array | Scalar,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Array:
    """The negative log-likelihood under normal distributions: ``(log(var) + (input - target)**2 / var) / 2``.

    Args:
        input: the means, floats.
        target: samples, of a shape that broadcasts with the means.
        var: the variances: a number, or a tensor of the input's shape, whose last axis may have size 1 or
            be missing.
        full: whether to add the constant ``log(2 pi) / 2``.
        eps: lower bound of the variances, which does not affect the gradient.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.

    Raises:
        ShapeError: the variances do not fit.
        ArgumentError: a variance is negative, or there is no such reduction.

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
        elif len(var.shape) != len(input.shape) or [
            size for size, wide in zip(var.shape, input.shape, strict=True) if size != wide
        ] != [1]:
            raise ShapeError(f"[{name}] variances of shape {var.shape} do not fit shape {input.shape}")
    with tape.gradients(False):
        _check_variances(name, var)
        correction = clamp_min(var, eps) - var
    clamped = var + correction
    losses = (log(clamped) + square(input - target) / clamped) * 0.5
    return reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def _check_variances(name: str, var: Any) -> None:
    """
    Raises:
        ArgumentError: one is negative; on a device, at the next wait.
    """
    if not var.device.is_host and refuse(var < 0, partial(_negative_variance, name)):
        return
    if (var.on_host() < 0).any():
        raise _negative_variance(name)


def _negative_variance(name: str, found: int = 1) -> ArgumentError:
    return ArgumentError(f"[{name}] a variance is negative")


@export("F", autocast="float32")
def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """The negative log-likelihood of counts under Poisson distributions, without the term ``log(target!)``.

    Args:
        input: the expected counts or their logarithms.
        target: the counts.
        log_input: whether the input is logarithms.
        full: whether to add that term, by Stirling's approximation, for counts above 1.
        eps: is added to expected counts in the logarithm.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Raises:
        ArgumentError: there is no such reduction.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.poisson_nll_loss(dl.tensor([0.0]), dl.tensor([3.0])).item()
        1.0
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    check_reduction("poisson_nll_loss", reduction)
    check_tensors("poisson_nll_loss", input, target)
    losses = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        above_one = target > 1
        count = where(above_one, target, 1.0)
        stirling = count * log(count) - count + 0.5 * log(count * (2 * math.pi))
        losses = losses + where(above_one, stirling, 0.0)
    return reduced(losses, reduction)
