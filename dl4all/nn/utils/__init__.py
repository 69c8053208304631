"""Clipping of gradients and fusion of layers; :mod:`dl4all.nn.utils.rnn` has the packed sequences."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import numpy as np

from dl4all import ops
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, GradientError, ShapeError
from dl4all.nn.conv import Conv2d
from dl4all.nn.module import Parameter
from dl4all.nn.normalization import BatchNorm2d
from dl4all.nn.utils import rnn as rnn
from dl4all.ops.reduce.global_norm import partial_square_sums, scale_in_place
from dl4all.tensor.creation import from_numpy, zeros
from dl4all.tensor.tensor import Tensor


def fuse_conv_bn_eval(conv: Conv2d, bn: BatchNorm2d) -> Conv2d:
    """Fuse a convolution and the batch normalization after it into one convolution, for inference.

    The filters of each output channel are multiplied by the channel's scale; mean and shift become part
    of the bias (Jacob et al., arXiv:1712.05877, section 3.2). Computed in float64 on the host.

    Args:
        conv: the convolution; it does not change.
        bn: the normalization, with as many features as `conv` has output channels.

    Returns:
        A new layer, with a bias, on `conv`'s device.

    Raises:
        ShapeError: the numbers of channels and features differ.

    Example:
        >>> import dl4all as dl
        >>> conv, norm = dl.nn.Conv2d(3, 4, 3), dl.nn.BatchNorm2d(4).eval()
        >>> fused = dl.nn.utils.fuse_conv_bn_eval(conv, norm)
        >>> x = dl.rand(1, 3, 5, 5)
        >>> dl.allclose(fused(x), norm(conv(x)), atol=1e-5)
        True
    """
    if conv.weight.shape[:1] != bn.weight.shape:
        raise ShapeError(
            f"[fuse_conv_bn_eval] {conv.weight.shape[0]} output channels, {bn.weight.shape[0]} features"
        )
    weight = conv.weight.detach().numpy().astype(np.float64)
    scale = bn.weight.detach().numpy() / np.sqrt(bn.running_var.numpy().astype(np.float64) + bn.eps)
    old_bias = 0.0 if conv.bias is None else conv.bias.detach().numpy().astype(np.float64)
    bias = (old_bias - bn.running_mean.numpy()) * scale + bn.bias.detach().numpy()

    fused = copy.deepcopy(conv)
    dtype, device = conv.weight.dtype, conv.weight.device
    fused.weight = Parameter(from_numpy((weight * scale.reshape(-1, 1, 1, 1)).astype(dtype), device))
    fused.bias = Parameter(from_numpy(bias.astype(dtype), device))
    return fused


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients in place so that the norm of all of them together is at most `max_norm`.

    Pascanu et al., arXiv:1211.5063. The host does not wait for the device unless `error_if_nonfinite` is set.

    Args:
        parameters: tensors whose gradients count as one vector.
        max_norm: the largest norm.
        norm_type: the exponent p of the norm, or infinity.
        error_if_nonfinite: raise an error if the norm is nan or infinite.

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
    if not norm_type > 0:
        raise ArgumentError(f"[clip_grad_norm_] the norm's exponent must be positive, got {norm_type}")
    gradients = _gradients(parameters)
    if not gradients:
        return zeros(())
    total = _norm(gradients, norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise GradientError(f"[clip_grad_norm_] the gradients' norm is {total.item()}; look for nan and inf")
    factor = ops.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in scale_in_place(gradients, factor):
        gradient.mul_(factor.to(gradient.device))
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
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
