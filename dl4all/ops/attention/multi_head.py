"""Multi-head attention as a function of its weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.attention.scaled_dot_product import scaled_dot_product_attention
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.padding import pad
from dl4all.ops.linalg.matrix_product import linear, matmul
from dl4all.ops.memory.views import expand, permute, reshape, squeeze, transpose, unsqueeze
from dl4all.ops.random.dropout_functions import dropout
from dl4all.ops.reduce.softmax_function import softmax

NAME = "multi_head_attention_forward"


@export("F")
def multi_head_attention_forward(
    query: Array,
    key: Array,
    value: Array,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Array | None,
    in_proj_bias: Array | None,
    bias_k: Array | None,
    bias_v: Array | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Array,
    out_proj_bias: Array | None,
    training: bool = True,
    key_padding_mask: Array | None = None,
    need_weights: bool = True,
    attn_mask: Array | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Array | None = None,
    k_proj_weight: Array | None = None,
    v_proj_weight: Array | None = None,
    static_k: Array | None = None,
    static_v: Array | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Array, Array | None]:
    """Multi-head attention (Vaswani et al., arXiv:1706.03762) with weights that are given.

    Args:
        query: (L, N, E), or (L, E) for one sequence.
        key, value: (S, N, E), or (S, E); other numbers of features with `use_separate_proj_weight`.
        embed_dim_to_check: E, the features of the query.
        num_heads: among how many heads the projected features are divided.
        in_proj_weight: (3 P, E), which makes query, key and value of P features, commonly E.
        in_proj_bias: (3 P,), added to them; None for no bias.
        bias_k, bias_v: (1, 1, P), a key and a value after the others; None for none.
        add_zero_attn: whether a key and a value of zeros come after the others.
        dropout_p: the probability with which an attention weight becomes zero in training.
        out_proj_weight: (columns, P), applied to the result.
        out_proj_bias: (columns,), added to it; None for no bias.
        training: whether weights are dropped.
        key_padding_mask: (N, S): bools, True for keys that no query may see, or floats that are added to the
            scores.
        need_weights: whether weights are returned, all of which are then in memory.
        attn_mask: (L, S) or (N * num_heads, L, S): bools, True where a query may *not* see a key, or floats
            that are added to the scores.
        use_separate_proj_weight: whether the next three are used in place of `in_proj_weight`.
        q_proj_weight, k_proj_weight, v_proj_weight: (P, features of each).
        static_k, static_v: (N * num_heads, S, P // num_heads), in place of the projected key and value.
        average_attn_weights: return the mean over the heads.
        is_causal: a promise that `attn_mask` is causal, which must be given too.

    Returns:
        (L, N, columns) and None or weights (N, L, S), or (N, num_heads, L, S) for each head; both without N
        for a query of two axes.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: `is_causal` without `attn_mask`, or weights are missing.

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.rand(5, 2, 6), dl.rand(18, 6)
        >>> out, weights = dl.nn.functional.multi_head_attention_forward(
        ...     x, x, x, 6, 3, w, None, None, None, False, 0.0, dl.rand(4, 6), None)
        >>> tuple(out.shape), tuple(weights.shape)
        ((5, 2, 4), (2, 5, 5))
    """
    if is_causal and attn_mask is None:
        raise ArgumentError(f"[{NAME}] is_causal takes the mask too; pass attn_mask")
    if query.ndim not in (2, 3) or query.shape[-1] != embed_dim_to_check:
        raise ShapeError(
            f"[{NAME}] expected a query of 2 or 3 axes with {embed_dim_to_check} features, got {query.shape}"
        )
    unbatched = query.ndim == 2
    same = query is key and key is value
    if unbatched:
        query, key, value = (unsqueeze(t, 1) for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    separate = [q_proj_weight, k_proj_weight, v_proj_weight] if use_separate_proj_weight else None
    q, k, v = _projected([query, key, value], in_proj_weight, separate, in_proj_bias, same)
    (length, batch), size = q.shape[:2], q.shape[-1]
    if size % num_heads:
        raise ArgumentError(f"[{NAME}] {size} features do not split into {num_heads} heads")
    head = size // num_heads
    if bias_k is not None and bias_v is not None:
        k = cat([k, expand(bias_k, 1, batch, size)])
        v = cat([v, expand(bias_v, 1, batch, size)])
    q = _split_heads(q, num_heads)
    k, v = (
        _split_heads(found, num_heads) if given is None else reshape(given, batch, num_heads, -1, head)
        for found, given in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    keys = key.shape[0] if static_k is None else static_k.shape[1]
    mask = _additive_mask(attn_mask, key_padding_mask, q, keys)
    if mask is not None and k.shape[2] > keys:  # all queries see the keys that have been added
        mask = pad(mask, (0, k.shape[2] - keys))
    rate = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = matmul(q, transpose(k, -2, -1)) * (1 / math.sqrt(head))
        weights = softmax(scores if mask is None else scores + mask, -1)
        weights = dropout(weights, rate) if rate else weights
        attended = matmul(weights, v)
    else:
        attended = scaled_dot_product_attention(q, k, v, mask, rate)
    attended = reshape(permute(attended, (2, 0, 1, 3)), length, batch, size)
    result = linear(attended, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if unbatched:
        return squeeze(result, 1), None if weights is None else squeeze(weights, 0)
    return result, weights


def _projected(
    operands: list[Any], stacked: Any, separate: list[Any] | None, bias: Any, same: bool
) -> list[Any]:
    """Query, key and value after their projections: one product if they are the same tensor."""
    weights = [stacked] if separate is None else separate
    if any(weight is None for weight in weights):
        needed = "in_proj_weight" if separate is None else "q_proj_weight, k_proj_weight and v_proj_weight"
        raise ArgumentError(f"[{NAME}] needs {needed}, got None")
    if separate is None and same:
        return list(linear(operands[0], stacked, bias).chunk(3, -1))
    size = weights[0].shape[0] // (3 if separate is None else 1)
    parts = [slice(i * size, (i + 1) * size) for i in range(3)]
    if separate is None:
        weights = [stacked[part] for part in parts]
    biases = [None if bias is None else bias[part] for part in parts]
    return [linear(x, w, b) for x, w, b in zip(operands, weights, biases, strict=True)]


def _split_heads(x: Any, heads: int) -> Any:
    """(L, N, features) as (N, heads, L, features of a head)."""
    return permute(reshape(x, *x.shape[:2], heads, -1), (1, 2, 0, 3))


def _additive_mask(attn_mask: Any, key_padding_mask: Any, query: TensorBase, keys: int) -> Any:
    """Both masks as numbers to add to scores (N, heads, L, S); None if there is no mask."""
    batch, heads, length = query.shape[:3]
    mask = None
    if attn_mask is not None:
        if attn_mask.shape == (batch * heads, length, keys):
            attn_mask = reshape(attn_mask, batch, heads, length, keys)
        elif attn_mask.shape not in ((length, keys), (1, length, keys)):
            raise ShapeError(
                f"[{NAME}] attn_mask must have shape {(length, keys)} or "
                f"{(batch * heads, length, keys)}, got {attn_mask.shape}"
            )
        mask = _as_numbers(attn_mask, query)
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, keys):
            raise ShapeError(
                f"[{NAME}] key_padding_mask must have shape {(batch, keys)}, got {key_padding_mask.shape}"
            )
        padding = reshape(_as_numbers(key_padding_mask, query), batch, 1, 1, keys)
        mask = padding if mask is None else mask + padding
    return mask


def _as_numbers(mask: Any, query: TensorBase) -> Any:
    """A mask as numbers to add to scores: -inf where a mask of bools is True, 0 elsewhere."""
    if mask.dtype != np.bool_:
        return mask
    kind = type(query).result_class
    numbers = (from_host(kind, np.array(v, query.dtype), query.device, copy=False) for v in (-math.inf, 0.0))
    return where(mask, *numbers)
