"""Scaled dot-product attention as PyTorch has it: any leading axes, masks of bools or floats, dropout."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.attention.flash import flash_attention, flash_attention_backward, score_bias, split_flat
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.views import expand, narrow, reshape, transpose
from dl4all.ops.random.dropout_functions import dropout
from dl4all.ops.reduce.softmax_function import softmax

T = TypeVar("T", bound=TensorBase)


@export("F")
def scaled_dot_product_attention(
    query: T,
    key: T,
    value: T,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> T:
    """``softmax(scale * query @ key.T + mask) @ value`` (Vaswani et al., arXiv:1706.03762).

    The scores are computed tile by tile and never stored, also for the gradient (Dao et al.,
    arXiv:2205.14135); with dropout, or a mask that wants a gradient, they are.

    Args:
        query: shape (..., queries, features).
        key: shape (..., keys, features).
        value: shape (..., keys, columns).
        attn_mask: of a shape that broadcasts to (..., queries, keys): bools, True where a query may see a
            key, or floats that are added to the scores. A query that sees nothing gets zeros.
        dropout_p: the probability with which a share becomes zero.
        is_causal: query i sees the keys 0 to i; not together with `attn_mask`.
        scale: ``1 / sqrt(features)`` if not given.

    Returns:
        Shape (..., queries, columns).

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there are a mask and `is_causal`.
        DTypeError: the operands are no floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> q, k = dl.zeros(1, 1), dl.zeros(2, 1)
        >>> dl.nn.functional.scaled_dot_product_attention(q, k, dl.tensor([[2.0], [4.0]])).tolist()
        [[3.0]]
    """
    name = "scaled_dot_product_attention"
    for word, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, TensorBase):
            raise DTypeError(f"[{name}] expected a tensor for {word!r}, got {type(tensor).__name__}")
        if len(tensor.shape) < 2:
            raise ShapeError(f"[{name}] {word} must have at least two axes, got {tensor.shape}")
    if attn_mask is not None and is_causal:
        raise ArgumentError(f"[{name}] got attn_mask and is_causal=True; put the causal part into the mask")
    (queries, features), (keys, columns) = query.shape[-2:], value.shape[-2:]
    try:
        lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"[{name}] shapes {query.shape}, {key.shape} and {value.shape} do not fit each other"
        ) from None
    if key.shape[-2] != keys or key.shape[-1] != features:
        raise ShapeError(
            f"[{name}] a key of shape {key.shape} does not fit query {query.shape} and value {value.shape}"
        )
    mask = None if attn_mask is None else _added(name, query, attn_mask, (*lead, queries, keys))
    factor = 1 / math.sqrt(max(features, 1)) if scale is None else float(scale)
    q, k, v = [
        reshape(expand(t, (*lead, *t.shape[-2:])), math.prod(lead), *t.shape[-2:])
        for t in (query, key, value)
    ]
    if dropout_p or tape.wants_gradient(mask):
        made = _stored(q, k, v, mask, lead, dropout_p, is_causal, factor)
    else:
        few, repeats = (None, 1) if mask is None else _few_masks(mask, lead)
        made = _tiled(q, k, v, few, {"scale": factor, "causal": bool(is_causal), "repeats": repeats})
    result: T = reshape(made, *lead, queries, columns)
    return result


def _added(name: str, like: Any, given: Any, shape: Shape) -> Any:
    """A mask as numbers to add."""
    there = (1,) * (len(shape) - len(given.shape)) + tuple(given.shape)
    if len(there) != len(shape) or any(a not in (1, b) for a, b in zip(there, shape, strict=True)):
        raise ShapeError(f"[{name}] a mask of shape {given.shape} does not broadcast to {shape}")
    if given.dtype == np.bool_:
        kind = type(like).result_class
        numbers = [
            from_host(kind, np.array(v, like.dtype), given.device, copy=False) for v in (0.0, -math.inf)
        ]
        return where(given, *numbers)
    if given.dtype != like.dtype:
        raise DTypeError(f"[{name}] expected a mask of bool or {like.dtype}, got {given.dtype}")
    return given


def _few_masks(mask: Any, lead: Shape) -> tuple[Any, int]:
    """A mask with one axis for the batch, and how many neighbours share each of its entries."""
    given = (1,) * (len(lead) + 2 - len(mask.shape)) + mask.shape
    of_batch = given[:-2]
    varies = [axis for axis, size in enumerate(of_batch) if size != 1]
    if not varies:
        return reshape(mask, 1, *given[-2:]), 1
    first, last = varies[0], varies[-1]
    if len(varies) == last - first + 1:  # the axes that vary are neighbours: others repeat around them
        count = math.prod(of_batch)
        return reshape(mask, count, *given[-2:]), math.prod(lead[last + 1 :])
    whole = expand(reshape(mask, given), (*lead, *given[-2:]))
    return reshape(whole, math.prod(lead), *given[-2:]), 1


def _tiled(query: Any, key: Any, value: Any, mask: Any, given: dict[str, Any]) -> Any:
    (batch, queries), columns = query.shape[:2], value.shape[2]
    count = batch * queries * columns
    with tape.gradients(False):
        kept = flash_attention(query, key, value, mask, **given)
        result = tape.alias(reshape(narrow(kept, 0, 0, count), batch, queries, columns))
    shapes = query.shape, key.shape, value.shape

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        nothing = new_like(grads[0], (batch * queries,))
        fill_with(nothing, 0)
        g = cat([reshape(grads[0], count), nothing])
        q, k, v, result = saved
        return split_flat(flash_attention_backward(g, q, k, v, mask, saved=result, **given), *shapes)

    tape.attach(
        "scaled_dot_product_attention", [query, key, value], [result], backward, (query, key, value, kept)
    )
    return result


def _stored(
    query: Any, key: Any, value: Any, mask: Any, lead: Shape, dropout_p: float, causal: bool, scale: float
) -> Any:
    """With all scores in memory."""
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    scores = matmul(query, transpose(key, 1, 2)) * scale
    if mask is not None:
        scores = scores + reshape(expand(mask, (*lead, queries, keys)), batch, queries, keys)
    bias = score_bias(query, key, None, causal, 1)
    shares = softmax(scores if bias is None else scores + bias, 2)
    return matmul(dropout(shares, dropout_p), value)
