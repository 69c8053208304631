"""Normalisations."""

from __future__ import annotations

from typing import Any

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.registry import operator
from dl4all.ops.core.dtypes import HALVES


@operator("BatchNormalization")
def batch_norm(call: Call, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """By given statistics; in training mode by those of the batch, which are results, too."""
    x, *factors = call.tensors(x, scale, bias, mean, var)
    scale, bias, mean, var = (factor.to(x.dtype) for factor in factors)
    eps = call.get("epsilon", 1e-5)
    if not call.flag("training_mode"):
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, eps)
    axes, momentum = (0, *range(2, x.ndim)), call.get("momentum", 0.9)
    own_var, own_mean = functions.var(x, axes, correction=0), x.mean(axes)
    y = F.batch_norm(x, own_mean, own_var, scale, bias, False, 0.0, eps)
    return y, mean * momentum + own_mean * (1 - momentum), var * momentum + own_var * (1 - momentum)


@operator("InstanceNormalization")
def instance_norm(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    x, scale, bias = call.tensors(x, scale, bias)
    return F.instance_norm(x, weight=scale, bias=bias, eps=call.get("epsilon", 1e-5))


@operator("GroupNormalization")
def group_norm(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    """Factors are those of channels; before opset 21 those of groups."""
    x, scale, bias = call.tensors(x, scale, bias)
    groups = call.get("num_groups")
    if call.opset < 21 and groups != x.shape[1]:
        scale, bias = (functions.repeat_interleave(t, x.shape[1] // groups) for t in (scale, bias))
    return F.group_norm(x, groups, scale.to(x.dtype), bias.to(x.dtype), call.get("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_norm(call: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    x, scale, bias = call.tensor(x), call.tensor(scale), call.optional(bias)
    axis, eps = call.get("axis", -1) % x.ndim, call.get("epsilon", 1e-5)
    sizes = tuple(x.shape[axis:])
    if tuple(scale.shape) == sizes and (bias is None or tuple(bias.shape) == sizes):
        y = F.layer_norm(x, sizes, scale, bias, eps)
    else:
        y = F.layer_norm(x, sizes, None, None, eps) * scale
        y = y if bias is None else y + bias
    if call.results == 1:
        return y
    axes = tuple(range(axis, x.ndim))
    wide = x.float() if x.dtype in HALVES else x
    mean = wide.mean(axes, keepdim=True)
    return y, mean, functions.rsqrt(functions.var(wide, axes, correction=0, keepdim=True) + eps)


@operator("RMSNormalization")
def rms_norm(call: Call, x: Any, scale: Any) -> Any:
    x, scale = call.tensors(x, scale)
    sizes, eps = tuple(x.shape[call.get("axis", -1) % x.ndim :]), call.get("epsilon", 1e-5)
    if tuple(scale.shape) == sizes:
        return F.rms_norm(x, sizes, scale.to(x.dtype), eps)
    return F.rms_norm(x, sizes, None, eps) * scale


@operator("LRN")
def local_response_norm(call: Call, x: Any) -> Any:
    return F.local_response_norm(
        call.tensor(x),
        call.get("size"),
        call.get("alpha", 1e-4),
        call.get("beta", 0.75),
        call.get("bias", 1.0),
    )
