"""Changes to networks as a whole."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ShapeError
from dl4all.nn.convolution import Conv2d
from dl4all.nn.module import Parameter
from dl4all.nn.normalization import BatchNorm2d
from dl4all.tensor.creation import from_numpy


def fuse_conv_bn_eval(conv: Conv2d, bn: BatchNorm2d) -> Conv2d:
    """One convolution that computes what `conv` followed by `bn` does in inference.

    The filters of each output channel are multiplied by the channel's scale, and mean and shift go
    into the bias (Jacob et al., arXiv:1712.05877, section 3.2). Computed in float64 on the host.

    Args:
        conv: is left as it is.
        bn: with as many features as `conv` has output channels.

    Returns:
        A new layer, with a bias, on `conv`'s device.

    Raises:
        ShapeError: the numbers of channels and features differ.
    """
    if conv.weight.shape[:1] != bn.weight.shape:
        raise ShapeError(
            f"[fuse_conv_bn_eval] {conv.weight.shape[0]} output channels, {bn.weight.shape[0]} features"
        )
    weight = conv.weight.numpy().astype(np.float64)
    scale = bn.weight.numpy() / np.sqrt(bn.running_var.numpy().astype(np.float64) + bn.eps)
    old_bias = 0.0 if conv.bias is None else conv.bias.numpy().astype(np.float64)
    bias = (old_bias - bn.running_mean.numpy()) * scale + bn.bias.numpy()

    fused = object.__new__(Conv2d)
    fused.__dict__.update(conv.__dict__, _buffer_names=set(conv._buffer_names))
    dtype, place = conv.weight.dtype, conv.weight.device
    fused.weight = Parameter(from_numpy((weight * scale.reshape(-1, 1, 1, 1)).astype(dtype), place))
    fused.bias = Parameter(from_numpy(bias.astype(dtype), place))
    return fused
