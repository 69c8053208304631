"""Limits on gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from dl4all import ops
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.reduce.global_norm import partial_square_sums, scale_in_place
from dl4all.tensor.creation import zeros
from dl4all.tensor.tensor import Tensor


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that the norm of all of them together is at most `max_norm`.

    Pascanu et al., arXiv:1211.5063. The host does not wait for the device unless `error_if_nonfinite` is set.

    Args:
        parameters: tensors whose gradients count as one vector.
        max_norm: the largest norm.
        norm_type: the exponent p of the norm, or infinity.
        error_if_nonfinite: raise an error if the norm is nan or infinite.
        foreach: is taken for PyTorch's sake and changes nothing.

    Returns:
        The norm before the scaling, a tensor of one element.

    Raises:
        ArgumentError: `norm_type` is not positive.
        GradientError: the norm is not finite, and `error_if_nonfinite` is set.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([0.0, 0.0])
        >>> w.grad = dl.tensor([3.0, 4.0])
        >>> dl.nn.utils.clip_grad_norm_([w], max_norm=0.5).item()
        5.0
        >>> [round(g, 3) for g in w.grad.tolist()]
        [0.3, 0.4]
    """
    gradients = _gradients(parameters)
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    _scale(gradients, max_norm, total)
    return total


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors together, as one vector.

    Args:
        tensors: such as gradients.
        norm_type, error_if_nonfinite, foreach: as for :func:`clip_grad_norm_`.

    Raises:
        ArgumentError, GradientError: as for :func:`clip_grad_norm_`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.utils.get_total_norm([dl.tensor([3.0]), dl.tensor([4.0])]).item()
        5.0
    """
    norm_type = float(norm_type)
    if not norm_type > 0:
        raise ArgumentError(f"[clip_grad_norm_] the norm's exponent must be positive, got {norm_type}")
    given = [tensors] if isinstance(tensors, Tensor) else [t for t in tensors if t.numel()]
    if not given:
        return zeros(())
    total = _norm(given, norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise GradientError(f"[clip_grad_norm_] the gradients' norm is {total.item()}; look for nan and inf")
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients in place as :func:`clip_grad_norm_` does, by a norm that is known.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.tensor([3.0, 4.0]))
        >>> (w * w).sum().backward()
        >>> norm = dl.nn.utils.get_total_norm([w.grad])
        >>> dl.nn.utils.clip_grads_with_norm_([w], 1.0, norm)
        >>> round(norm.item()), [round(g, 2) for g in w.grad.tolist()]
        (10, [0.6, 0.8])
    """
    _scale(_gradients(parameters), max_norm, total_norm)


def _scale(gradients: list[Tensor], max_norm: float, total: Tensor) -> None:
    if not gradients:
        return
    factor = ops.clamp(float(max_norm) / (total + 1e-6), max=1.0)
    for gradient in scale_in_place(gradients, factor):
        gradient.mul_(factor.to(gradient.device))


@no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp the elements of all gradients to [-clip_value, clip_value], in place.

    Example:
        >>> import dl4all as dl
        >>> w = dl.tensor([0.0, 0.0])
        >>> w.grad = dl.tensor([-3.0, 0.5])
        >>> dl.nn.utils.clip_grad_value_([w], 1.0)
        >>> w.grad.tolist()
        [-1.0, 0.5]
    """
    for gradient in _gradients(parameters):
        gradient.clamp_(-clip_value, clip_value)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in tensors if p.grad is not None and p.numel()]


def _norm(gradients: list[Tensor], p: float) -> Tensor:
    """The p-norm of all gradients together, on the first gradient's device."""
    device = gradients[0].device
    total: Tensor
    if p == 2 and all(g.device is device and g.dtype == np.float32 for g in gradients):
        total = ops.sqrt(ops.sum(partial_square_sums(gradients)))
        return total
    magnitudes = [ops.abs(g) for g in gradients]
    if p == math.inf:
        total = ops.amax(ops.stack([ops.amax(s).to(device) for s in magnitudes]))
        return total
    total = ops.sum(ops.stack([ops.sum(ops.pow(s, p)).to(device) for s in magnitudes]))
    return total if p == 1 else ops.pow(total, 1 / p)
