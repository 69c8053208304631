"""Scaled dot-product attention with PyTorch's arguments: leading axes, masks of bools or floats, dropout."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.attention.flash import (
    flash_attention,
    flash_attention_backward,
    score_bias,
    split_flat,
)
from dl4all.ops.core import tape
from dl4all.ops.core.checks import broadcasts_to
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import real
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand, in_shape, reshape, transpose
from dl4all.ops.random.dropout_functions import dropout
from dl4all.ops.reduce.extrema import amax
from dl4all.ops.reduce.softmax_function import softmax

T = TypeVar("T", bound=TensorBase)


@export("F", autocast="lower")
def scaled_dot_product_attention(
    query: T,
    key: T,
    value: T,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> T:
    """``softmax(scale * query @ key.T + mask) @ value`` (Vaswani et al., arXiv:1706.03762).

    No scores are kept for the gradient, which computes them again (Dao et al., arXiv:2205.14135). A GPU works
    on tiles of them that never leave a workgroup. The ``cpu`` device has those of 128 keys in memory at a
    time, a driver that runs on a CPU those of a few batches: at most 16 MiB forward, and 32 MiB backward.
    With dropout, with a mask that requires a gradient and for second derivatives, all are in memory.

    Args:
        query: shape (..., queries, features).
        key: shape (..., keys, features).
        value: shape (..., keys, columns).
        attn_mask: of a shape that broadcasts to (..., queries, keys): bools, True where a query attends to a
            key, or floats that are added to the scores. A query that attends to no key gets zeros.
        dropout_p: the probability with which an attention weight is set to zero.
        is_causal: whether query i attends only to the keys 0 to i; not together with `attn_mask`.
        scale: factor of the products, ``1 / sqrt(features)`` if not given.
        enable_gqa: whether the third axis from the end is one of heads, of which key and value may have
            fewer: each of theirs is for as many heads of the query in a row.

    Returns:
        Shape (..., queries, columns).

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: both `attn_mask` and `is_causal` are given.
        DTypeError: the operands are no floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> q, k = dl.zeros(1, 1), dl.zeros(2, 1)
        >>> dl.nn.functional.scaled_dot_product_attention(q, k, dl.tensor([[2.0], [4.0]])).tolist()
        [[3.0]]
    """
    name = "scaled_dot_product_attention"
    for operand, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, TensorBase):
            raise DTypeError(f"[{name}] expected a tensor for {operand!r}, got {type(tensor).__name__}")
        if len(tensor.shape) < 2:
            raise ShapeError(f"[{name}] {operand} must have at least two axes, got {tensor.shape}")
    if attn_mask is not None and is_causal:
        raise ArgumentError(f"[{name}] got attn_mask and is_causal=True; put the causal part into the mask")
    if enable_gqa:
        key, value = (_for_heads(name, tensor, query) for tensor in (key, value))
    (queries, features), (keys, columns) = query.shape[-2:], value.shape[-2:]
    leads = [tensor.shape[:-2] for tensor in (query, key, value)]
    try:
        lead = leads[0] if leads[0] == leads[1] == leads[2] else np.broadcast_shapes(*leads)
    except ValueError:
        raise ShapeError(
            f"[{name}] shapes {query.shape}, {key.shape} and {value.shape} do not fit each other"
        ) from None
    if key.shape[-2] != keys or key.shape[-1] != features:
        raise ShapeError(
            f"[{name}] a key of shape {key.shape} does not fit query {query.shape} and value {value.shape}"
        )
    mask = None if attn_mask is None else additive_mask(name, query, attn_mask, (*lead, queries, keys))
    factor = 1 / math.sqrt(max(features, 1)) if scale is None else real(name, "scale", scale)
    q, k, v = [
        in_shape(t if own == lead else expand(t, (*lead, *t.shape[-2:])), math.prod(lead), *t.shape[-2:])
        for t, own in zip((query, key, value), leads, strict=True)
    ]
    if dropout_p or tape.wants_gradient(mask):
        output = _materialized(q, k, v, mask, lead, dropout_p, is_causal, factor)
    else:
        flat_mask, repeats = (None, 1) if mask is None else flatten_mask(mask, lead)
        options = {"scale": factor, "causal": bool(is_causal), "repeats": repeats}
        output = _flash(q, k, v, flat_mask, options)
    result: T = in_shape(output, *lead, queries, columns)
    return result


def _for_heads(name: str, tensor: T, query: T) -> T:
    """Keys or values with each head repeated for the heads of the query that share it.

    Raises:
        ShapeError: there are no heads, or those of the query do not split among them.
    """
    if min(len(tensor.shape), len(query.shape)) < 3 or query.shape[-3] % (tensor.shape[-3] or 1):
        raise ShapeError(
            f"[{name}] the heads of {query.shape} do not split among those of {tensor.shape}, axis -3"
        )
    *lead, heads, count, columns = tensor.shape
    times = query.shape[-3] // (heads or 1)
    repeated = expand(reshape(tensor, *lead, heads, 1, count, columns), (*lead, heads, times, count, columns))
    return reshape(repeated, *lead, heads * times, count, columns)


def additive_mask(name: str, like: Any, mask: Any, shape: Shape) -> Any:
    """A mask as numbers to add to the scores.

    Raises:
        ShapeError, DTypeError
    """
    if not broadcasts_to(mask.shape, shape):
        raise ShapeError(f"[{name}] a mask of shape {mask.shape} does not broadcast to {shape}")
    if mask.dtype == np.bool_:
        result_class = type(like).result_class
        zero, minus_infinity = [
            from_host(result_class, np.array(value, like.dtype), mask.device, copy=False)
            for value in (0.0, -math.inf)
        ]
        return where(mask, zero, minus_infinity)
    if mask.dtype != like.dtype:
        raise DTypeError(f"[{name}] expected a mask of bool or {like.dtype}, got {mask.dtype}")
    return mask


def flatten_mask(mask: Any, lead: Shape) -> tuple[Any, int]:
    """A mask with one axis in place of the leading ones, and how many neighbouring batches share an entry."""
    shape = (1,) * (len(lead) + 2 - len(mask.shape)) + mask.shape
    mask_lead, matrix = shape[:-2], shape[-2:]
    varying = [axis for axis, size in enumerate(mask_lead) if size != 1]
    if not varying:
        return reshape(mask, 1, *matrix), 1
    first, last = varying[0], varying[-1]
    if len(varying) == last - first + 1:  # the varying axes are neighbours: no copy is needed
        return reshape(mask, math.prod(mask_lead), *matrix), math.prod(lead[last + 1 :])
    expanded = expand(reshape(mask, shape), (*lead, *matrix))
    return reshape(expanded, math.prod(lead), *matrix), 1


def _flash(query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]) -> Any:
    """Flash attention as one node, which keeps the logsumexp for the gradient."""
    (batch, queries), columns = query.shape[:2], value.shape[2]
    count = batch * queries * columns
    with tape.gradients(False):
        flat = flash_attention(query, key, value, mask, **options)
        output = split_flat(flat, (batch, queries, columns))[0]
        output = tape.alias(output) if flat.dtype == query.dtype else cast(output, query.dtype.name)
    shapes = query.shape, key.shape, value.shape

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        g = reshape(grads[0], count)
        q, k, v, result = saved
        return split_flat(flash_attention_backward(g, q, k, v, mask, saved=result, **options), *shapes)

    tape.add_node(
        "scaled_dot_product_attention", [query, key, value], [output], backward, (query, key, value, flat)
    )
    return output


def _materialized(
    query: Any, key: Any, value: Any, mask: Any, lead: Shape, dropout_p: float, causal: bool, scale: float
) -> Any:
    """Attention with all scores in memory."""
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    scores = matmul(query, transpose(key, 1, 2)) * scale
    if mask is not None:
        scores = scores + reshape(expand(mask, (*lead, queries, keys)), batch, queries, keys)
    bias = score_bias(query, key, None, causal, 1)
    if bias is not None:
        scores = scores + bias
    weights = softmax(scores, 2) if mask is None else _softmax_of_masked(scores)
    return matmul(dropout(weights, dropout_p), value)


def _softmax_of_masked(scores: Any) -> Any:
    """The softmax of each row, zeros where a row is -inf alone: of a query that attends to no key."""
    zero = from_host(type(scores).result_class, np.zeros((), scores.dtype), scores.device, copy=False)
    with tape.gradients(False):
        nothing = eq(amax(scores, 2, keepdim=True), -math.inf)
    weights = softmax(where(nothing, zero, scores), 2)  # a softmax of -inf alone is nan, as is its gradient
    return where(nothing, zero, weights)
