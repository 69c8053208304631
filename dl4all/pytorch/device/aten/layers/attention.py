"""Scaled dot-product attention by dl4all's flash attention, where that can compute it.

ATen chooses among its algorithms for devices of its own only, so the choice is made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dl4all import ops
from dl4all.ops.attention.scaled_dot_product import additive_mask, flatten_mask
from dl4all.ops.core.checks import broadcasts_to
from dl4all.pytorch.device.dispatch.registration import LIBRARY, native
from dl4all.pytorch.device.storage.memory import tensor, wrap_parts

FLOATS = (torch.float32, torch.float16)

_attention = torch.ops.aten.scaled_dot_product_attention.default
_fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The result of one kernel, or else ATen's composition of products and softmax."""
    groups = 1
    if enable_gqa and query.dim() == key.dim() == value.dim() == 4 and key.size(1) == value.size(1) != 0:
        groups = query.size(1) // key.size(1)
    k = key.repeat_interleave(groups, 1) if groups > 1 else key
    v = value.repeat_interleave(groups, 1) if groups > 1 else value
    if is_supported(query, k, v, attn_mask, dropout_p, is_causal):
        result: torch.Tensor = _fused(query, k, v, attn_mask, 0.0, is_causal, scale=scale)[0]
        return result
    arguments = (query, key, value, attn_mask, dropout_p, is_causal)
    composed: torch.Tensor = _attention.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
    return composed


def is_supported(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> bool:
    """Whether flash attention computes this. A traced graph has the composition, whose parts it may fuse."""
    lead = query.shape[:-2]
    operands = (query, key, value)
    return (
        torch._C._get_overrideable_sdp_enabled()
        and all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in operands)
        and all(one.dim() == 4 and one.device == query.device for one in operands)
        and query.dtype in FLOATS
        and query.dtype == key.dtype == value.dtype
        and lead == key.shape[:-2] == value.shape[:-2]
        and query.shape[-1] == key.shape[-1]
        and key.shape[-2] == value.shape[-2]
        and dropout_p == 0
        and (mask is None or (not is_causal and _is_supported_mask(query, key, mask)))
    )


def _is_supported_mask(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> bool:
    scores = (*query.shape[:-1], key.shape[-2])
    return (
        mask.device == query.device
        and mask.dtype in (torch.bool, query.dtype)
        and not mask.requires_grad
        and broadcasts_to(tuple(mask.shape), tuple(scores))
    )


# An op with a kernel of its own for a device needs one for the device's autograd too.
for _key in ("PrivateUse1", "AutogradPrivateUse1"):
    LIBRARY.impl("scaled_dot_product_attention", scaled_dot_product_attention, _key)


def _as_matrices(operand: torch.Tensor) -> Any:
    own = tensor(operand)
    return ops.reshape(own, (math.prod(own.shape[:-2]), *own.shape[-2:]))


def _options(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float | None
) -> dict[str, Any]:
    """The arguments of dl4all's op beside query, key and value."""
    lead, flat_mask, repeats = tuple(query.shape[:-2]), None, 1
    if mask is not None:
        scores = (*lead, query.shape[-2], key.shape[-2])
        added = additive_mask("scaled_dot_product_attention", tensor(query), tensor(mask), scores)
        flat_mask, repeats = flatten_mask(added, lead)
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    return {"mask": flat_mask, "repeats": repeats, "causal": is_causal, "scale": factor}


@native("_scaled_dot_product_fused_attention_overrideable")
def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The result and its logsumexp; all of dl4all's result, for the gradient, in the place of a seed."""
    options = _options(query, key, attn_bias, is_causal, scale)
    flat = ops.flash_attention(*map(_as_matrices, (query, key, value)), **options)
    lead, queries = tuple(query.shape[:-2]), query.shape[-2]
    output, logsumexp = wrap_parts(flat, (*lead, queries, value.shape[-1]), (*lead, queries))
    saved = output.as_strided((flat.numel(),), (1,))
    return output.to(query.dtype), logsumexp, None, None, queries, key.shape[-2], saved, torch.empty(()), None


@native("_scaled_dot_product_fused_attention_overrideable_backward")
def fused_attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    grad_input_mask: Sequence[bool],
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of query, key and value."""
    grad = ops.reshape(tensor(grad_out), (-1,))
    q, k, v = map(_as_matrices, (query, key, value))
    options = _options(query, key, attn_bias, is_causal, scale)
    flat = ops.flash_attention_backward(grad, q, k, v, saved=tensor(philox_seed), **options)
    return (*wrap_parts(flat, *(tuple(one.shape) for one in (query, key, value))), None)
