"""Fusion of layers into one, for inference."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt

from dl4all.errors import ShapeError
from dl4all.nn.modules.conv import Conv2d
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.normalization import BatchNorm, BatchNorm2d
from dl4all.nn.parameter import Parameter
from dl4all.tensor.creation import from_numpy
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
    if conv.out_channels != bn.num_features:
        raise ShapeError(
            f"[fuse_conv_bn_eval] {conv.out_channels} output channels, {bn.num_features} features"
        )
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_eval(linear: Linear, bn: BatchNorm) -> Linear:
    """Fuse a linear layer and the batch normalization after it into one linear layer, for inference.

    Args:
        linear: the layer; it does not change.
        bn: the normalization, with as many features as `linear` has outputs.

    Raises:
        ShapeError: the numbers of features differ.

    Example:
        >>> import dl4all as dl
        >>> linear, norm = dl.nn.Linear(3, 4).eval(), dl.nn.BatchNorm1d(4).eval()
        >>> x = dl.rand(5, 3)
        >>> dl.allclose(dl.nn.utils.fuse_linear_bn_eval(linear, norm)(x), norm(linear(x)), atol=1e-5)
        True
    """
    if bn.num_features not in (linear.out_features, 1):
        raise ShapeError(f"[fuse_linear_bn_eval] {linear.out_features} outputs, {bn.num_features} features")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """The weight and the bias of a linear layer with a batch normalization folded into them.

    Example:
        >>> import dl4all as dl
        >>> linear, norm = dl.nn.Linear(3, 4), dl.nn.BatchNorm1d(4)
        >>> statistics = norm.running_mean, norm.running_var, norm.eps
        >>> weight, bias = dl.nn.utils.fuse_linear_bn_weights(
        ...     linear.weight, linear.bias, *statistics, norm.weight, norm.bias
        ... )
        >>> weight.shape, bias.shape
        ((4, 3), (4,))
    """
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and the bias of a convolution with a batch normalization folded into them.

    Args:
        conv_w, conv_b: the convolution's; None for a bias that is not there.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: of the normalization: running mean and variance, what is added to
            the variance, weight and bias.
        transpose: whether the convolution is a transposed one.

    Example:
        >>> import dl4all as dl
        >>> conv, norm = dl.nn.Conv2d(3, 4, 3), dl.nn.BatchNorm2d(4).eval()
        >>> statistics = norm.running_mean, norm.running_var, norm.eps
        >>> weight, bias = dl.nn.utils.fuse_conv_bn_weights(
        ...     conv.weight, conv.bias, *statistics, norm.weight, norm.bias
        ... )
        >>> weight.shape, bias.shape
        ((4, 3, 3, 3), (4,))
    """
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def _folded(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    axis: int,
) -> tuple[Parameter, Parameter]:
    """A weight with a normalization of an axis in it, and the bias, computed in float64 on the host."""
    factors = _numbers(scale, 1.0) / np.sqrt(_numbers(var) + eps)
    shape = tuple(-1 if at == axis else 1 for at in range(weight.ndim))
    folded = _numbers(weight) * factors.reshape(shape)
    shifted = (_numbers(bias, 0.0) - _numbers(mean)) * factors + _numbers(shift, 0.0)
    made = (from_numpy(np.asarray(part, weight.dtype), weight.device) for part in (folded, shifted))
    new_weight, new_bias = (Parameter(part, weight.requires_grad) for part in made)
    return new_weight, new_bias


def _numbers(tensor: Tensor | None, missing: float = 0.0) -> npt.NDArray[np.float64]:
    """The elements of a tensor; a number in place of one that is not there."""
    return np.asarray(missing if tensor is None else tensor.detach().numpy(), np.float64)
