"""Kernels of ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` where no gradient is needed.

ATen has kernels of these for a few devices. Here they are compositions, of the ops that training runs.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from dl4all.pytorch.device.dispatch.registration import native

KEY_PADDING, MERGED = 1, 2
"""ATen's numbers of masks of shape (N, keys) and (N, heads, queries, keys); others are (queries, keys)."""


@native("_native_multi_head_attention")
def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of shapes (N, queries, features), and its weights if they are needed."""
    padding = mask if mask_type == KEY_PADDING else None
    attention_mask = None if mask_type == KEY_PADDING else mask
    if mask_type == MERGED and mask is not None:
        attention_mask = mask.expand(query.shape[0], num_head, -1, -1).flatten(0, 1)
    result, weights = functional.multi_head_attention_forward(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), embed_dim, num_head,
        qkv_weight, qkv_bias, None, None, False, 0.0, proj_weight, proj_bias,
        training=False, key_padding_mask=padding, need_weights=need_weights, attn_mask=attention_mask,
        average_attn_weights=average_attn_weights,
    )  # fmt: skip
    return result.transpose(0, 1).contiguous(), weights


@native("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """An encoder layer without dropout, of shape (N, queries, features)."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        result: torch.Tensor = multi_head_attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]
        return result

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm_1(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attention(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attention(src))
    return norm_2(x + feed_forward(x))


@native("_nested_tensor_from_mask_left_aligned")
def nested_tensor_fits(tensor: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether encoders may leave padding out by nested tensors, of which the device has none."""
    return False
