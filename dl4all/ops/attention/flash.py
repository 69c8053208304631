"""Scaled dot-product attention, tile by tile, so that the matrix of scores is never stored.

Drivers that run on a CPU compute a bounded part of it at a time by products: attention_products.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.attention import materialized
from dl4all.ops.core import tape
from dl4all.ops.core.branchless import keep_where
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import ceil_div, check_rounds, pack, run, shader, strided_grid
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.copy import copy_into, fill_with
from dl4all.ops.memory.views import contiguous, narrow, reshape, transpose
from dl4all.ops.reduce.softmax_function import softmax, softmax_backward
from dl4all.ops.reduce.sums import sum

ROWS, LANES, TILE = 8, 16, 32  # of a workgroup: rows, invocations for each, and how many it meets at a time
BLOCK = 128  # keys that the CPU takes at a time
DEPTHS = {32: 2, 128: 8}  # columns up to which, and how many of them one invocation keeps
FORWARD = {
    (mask, depth): shader("attention/flash.comp", MASK=int(mask), DEPTH=depth)
    for mask in (False, True)
    for depth in DEPTHS.values()
}
BACKWARD = {
    (of, mask, depth): shader("attention/flash_backward.comp", OF=of, MASK=int(mask), DEPTH=depth)
    for of in range(3)
    for mask in (False, True)
    for depth in DEPTHS.values()
}


def _depth(columns: int) -> int:
    return next((depth for most, depth in DEPTHS.items() if columns <= most), max(DEPTHS.values()))


def _tiles(others: int, columns: int) -> int:
    """How many tiles a workgroup goes through."""
    return ceil_div(others, TILE) * ceil_div(columns, LANES * _depth(columns))


def _check(name: str, query: Any, key: Any, value: Any, mask: Any, repeats: int) -> tuple[int, ...]:
    """Batch, queries, keys, features and columns."""
    check_float(name, query, key, value, mask)
    shapes = query.shape, key.shape, value.shape
    if any(len(shape) != 3 for shape in shapes) or not (
        query.shape[0] == key.shape[0] == value.shape[0]
        and query.shape[2] == key.shape[2]
        and key.shape[1] == value.shape[1]
    ):
        raise ShapeError(
            f"[{name}] expected shapes (B, queries, features), (B, keys, features) and (B, keys, columns), "
            f"got {shapes[0]}, {shapes[1]} and {shapes[2]}"
        )
    batch, queries, features = query.shape
    keys, columns = value.shape[1:]
    if mask is not None and not (
        len(mask.shape) == 3
        and mask.shape[0] * repeats != 0
        and batch % (mask.shape[0] * repeats) == 0
        and mask.shape[1] in (1, queries)
        and mask.shape[2] in (1, keys)
    ):
        raise ShapeError(f"[{name}] a mask of shape {mask.shape} does not fit {queries} queries, {keys} keys")
    return batch, queries, keys, features, columns


def _scores(query: Any, key: Any, mask: Any, start: int, end: int, repeats: int, causal: bool, s: Any) -> Any:
    """NumPy's scores of some of the keys."""
    scores = np.matmul(query, key[:, start:end].swapaxes(1, 2))
    scores *= s
    if mask is not None:
        part = mask if mask.shape[2] == 1 else mask[:, :, start:end]
        scores += part[_mask_of(len(query), mask.shape[0], repeats)]
    if causal:
        later = np.arange(start, end)[None, :] > np.arange(query.shape[1])[:, None]
        np.copyto(scores, -np.inf, where=later)
    return scores


def _mask_of(batch: int, count: int, repeats: int) -> Any:
    return np.arange(batch) // repeats % count


def _forward_shape(
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    mask: TensorBase | None,
    *,
    scale: float,
    causal: bool,
    repeats: int,
) -> Result:
    batch, queries, _, _, columns = _check("flash_attention", query, key, value, mask, repeats)
    return (batch * queries * (columns + 1),), query.dtype


def _mask_words(mask: TensorBase | None, repeats: int) -> tuple[int, ...]:
    """Where a mask's elements lie, as the kernels are told."""
    if mask is None:
        return (0,) * 6
    count, rows, columns = mask.shape
    return (
        mask.offset, repeats, count, rows * columns, columns if rows > 1 else 0, 1 if columns > 1 else 0,
    )  # fmt: skip


def _end_to_end(*tensors: TensorBase) -> tuple[TensorBase, list[int]]:
    """Copies of tensors one behind the other in memory, and where each begins."""
    starts = np.cumsum([0, *(t.numel() for t in tensors)]).tolist()
    joined = empty(type(tensors[0]).result_class, (starts[-1],), tensors[0].dtype, tensors[0].device)
    for tensor, start in zip(tensors, starts, strict=False):
        copy_into(reshape(narrow(joined, 0, start, tensor.numel()), tensor.shape), tensor)
    return joined, starts


def _forward_run(
    out: TensorBase,
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    mask: TensorBase | None,
    *,
    scale: float,
    causal: bool,
    repeats: int,
) -> None:
    batch, queries, keys, features, columns = _check("flash_attention", query, key, value, mask, repeats)
    if 0 in (keys, columns):
        fill_with(narrow(out, 0, 0, batch * queries * columns), 0)
        if not keys:
            fill_with(narrow(out, 0, batch * queries * columns, batch * queries), -math.inf)
            return
    q, m = contiguous(query), None if mask is None else contiguous(mask)
    if materialized.suits(out.device, queries, keys):
        words = _mask_words(m, repeats)
        materialized.forward(out, q, contiguous(key), contiguous(value), m, float(scale), causal, words)
        return
    check_rounds(out.device, _tiles(keys, columns) * (2 * features + 3 * TILE))
    with tape.gradients(False):
        joined, starts = _end_to_end(key, value)
    across = ceil_div(queries, ROWS)
    push = pack(
        batch * across, across, queries, keys, features, columns, q.offset, starts[1],
        batch * queries * columns, int(causal), float(scale), *_mask_words(m, repeats),
    )  # fmt: skip
    code = FORWARD[m is not None, _depth(columns)]
    operands = (q, joined) if m is None else (q, joined, m)
    flops = 2 * batch * queries * keys * (features + columns)
    run(code, strided_grid(batch * across, 1), push, *operands, out, flops=flops)


def _gradient_of(place: int) -> Any:
    def gradient(
        g: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, repeats: int
    ) -> Any:
        flat = flash_attention_backward(
            g, query, key, value, mask, scale=scale, causal=causal, repeats=repeats
        )
        return split_flat(flat, query.shape, key.shape, value.shape)[place]

    return gradient


def split_flat(flat: Any, *shapes: Shape) -> list[Any]:
    """Tensors that lie one behind the other."""
    found, start = [], 0
    for shape in shapes:
        found.append(reshape(narrow(flat, 0, start, math.prod(shape)), shape))
        start += math.prod(shape)
    return found


@export()
@op(
    infer=_forward_shape,
    kernel=Kernel(_forward_run, (*FORWARD.values(), *materialized.SHADERS)),
    examples=(
        example((2, 2, 1), (2, 3, 1), (2, 3, 2), (1, 1, 3), scale=0.7),
        example((1, 3, 2), (1, 5, 2), (1, 5, 1), None, scale=0.7),
        example((4, 5, 3), (4, 7, 3), (4, 7, 37), (2, 5, 7), scale=0.5, repeats=2),
        example((4, 11, 3), (4, 7, 3), (4, 7, 5), (2, 11, 1), scale=0.5),
        example((2, 13, 3), (2, 11, 3), (2, 11, 5), None, scale=0.5, causal=True),
        example((2, 13, 3), (2, 12, 3), (2, 12, 5), None, scale=0.5, causal=True),
        example((2, 3, 5), (2, 8, 5), (2, 8, 3), (1, 3, 8), scale=0.5),
        example((1, 37, 5), (1, 67, 5), (1, 67, 131), None, scale=0.1),
        example((1, 0, 5), (1, 3, 5), (1, 3, 2), None, scale=1.0),
    ),
    grad=(_gradient_of(0), _gradient_of(1), _gradient_of(2), None),
)
def flash_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    scale: float = 1.0,
    causal: bool = False,
    repeats: int = 1,
) -> Array:
    """``softmax(scale * query @ key.T + mask) @ value``, and the logarithms of the sums of exponentials.

    Keys are taken block by block with a running maximum (Dao et al., arXiv:2205.14135). A query that all of
    the mask forbids gets zeros.

    Args:
        query, key, value: shapes (B, queries, features), (B, keys, features) and (B, keys, columns).
        mask: is added to the scores; shape (M, queries or 1, keys or 1). Has no gradient.
        scale: what products are multiplied by.
        causal: whether query i sees only the keys 0 to i.
        repeats: the mask of batch b is ``mask[b // repeats % M]``.

    Returns:
        One axis: the results of shape (B, queries, columns), and behind them the logarithms (B, queries).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> q, k = dl.zeros(1, 1, 1), dl.zeros(1, 2, 1)
        >>> dl.ops.flash_attention(q, k, dl.tensor([[[2.0], [4.0]]])).exp().numpy().round().tolist()
        [20.0, 2.0]
    """
    batch, queries = query.shape[:2]
    dtype = query.dtype
    high = np.full((batch, queries, 1), -np.inf, dtype)
    sums, found = np.zeros_like(high), np.zeros((batch, queries, value.shape[2]), dtype)
    for start in range(0, key.shape[1], BLOCK):
        end = min(start + BLOCK, key.shape[1])
        scores = _scores(query, key, mask, start, end, repeats, causal, np.asarray(scale, dtype))
        top = np.maximum(high, scores.max(2, keepdims=True))
        least = np.where(np.isneginf(top), np.zeros((), dtype), top)
        scores -= least
        shares, left = np.exp(scores, out=scores), np.exp(high - least)
        sums = sums * left + shares.sum(2, keepdims=True)
        found = found * left + np.matmul(shares, value[:, start:end])
        high = top
    some = sums != 0
    result = np.where(some, found / np.where(some, sums, 1), 0)
    level = np.where(some, high + np.log(np.where(some, sums, 1)), -np.inf)
    return np.concatenate([result.reshape(-1), level.reshape(-1)]).astype(dtype, copy=False)


# Gradients


def _backward_shape(
    grad: TensorBase,
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    mask: TensorBase | None,
    *,
    scale: float,
    causal: bool,
    repeats: int,
    saved: Any,
) -> Result:
    sizes = _check("flash_attention_backward", query, key, value, mask, repeats)
    check_float("flash_attention_backward", grad, query)
    wanted = (sizes[0] * sizes[1] * (sizes[4] + 1),)
    if grad.shape != wanted:
        raise ShapeError(f"[flash_attention_backward] grad must have shape {wanted}, got {grad.shape}")
    return (query.numel() + key.numel() + value.numel(),), query.dtype


def _backward_run(
    out: TensorBase,
    grad: TensorBase,
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    mask: TensorBase | None,
    *,
    scale: float,
    causal: bool,
    repeats: int,
    saved: Any,
) -> None:
    batch, queries, keys, features, columns = _check("flash_attention", query, key, value, mask, repeats)
    m = None if mask is None else contiguous(mask)
    with tape.gradients(False):
        if saved is None:
            saved = flash_attention(query, key, value, mask, scale=scale, causal=causal, repeats=repeats)
        shapes = (batch, queries, columns), (batch, queries, 1)
        result, level = split_flat(saved, *shapes)
        of_result, of_level = split_flat(grad, *shapes)
        delta = sum(mul(of_result, result), 2, keepdim=True) - of_level
        if features and columns and materialized.suits(out.device, queries, keys):
            g, q, k, v = (contiguous(t) for t in (of_result, query, key, value))
            levels, _ = _end_to_end(level, delta)
            words = _mask_words(m, repeats)
            materialized.backward(out, g, q, k, v, levels, m, float(scale), causal, words)
            return
        tiles = _tiles(max(queries, keys), max(features, columns))
        check_rounds(out.device, tiles * (2 * (features + columns) + 3 * TILE))
        joined, starts = _end_to_end(query, key, value, of_result, level, delta)
    for of, wide in enumerate((features, features, columns)):
        across = ceil_div(queries if of == 0 else keys, ROWS)
        if not across * wide:
            continue
        push = pack(
            batch * across, across, queries, keys, features, columns, *starts[1:6], starts[of],
            int(causal), float(scale), *_mask_words(m, repeats),
        )  # fmt: skip
        operands = (joined,) if m is None else (joined, m)
        flops = 2 * batch * queries * keys * (features + columns + (0 if of == 2 else features))
        code = BACKWARD[of, m is not None, _depth(wide)]
        run(code, strided_grid(batch * across, 1), push, *operands, out, flops=flops)


def _second(place: int) -> Any:
    def gradient(
        u: Any,
        grad: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        scale: float,
        causal: bool,
        repeats: int,
    ) -> Any:
        return _second_derivatives(u, grad, query, key, value, mask, scale, causal, repeats)[place]

    return gradient


def _second_derivatives(
    u: Any, grad: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, repeats: int
) -> tuple[Any, ...]:
    """Written of products and softmax, with all scores in memory: few want to differentiate twice."""
    batch, queries, _ = query.shape
    columns = value.shape[2]
    u_q, u_k, u_v = split_flat(u, query.shape, key.shape, value.shape)
    g, of_level = split_flat(grad, (batch, queries, columns), (batch, queries, 1))

    def turned(tensor: Any) -> Any:
        return transpose(tensor, 1, 2)

    def rows(tensor: Any) -> Any:
        return sum(tensor, 2, keepdim=True)

    scores = matmul(query, turned(key)) * scale
    bias = score_bias(query, key, mask, causal, repeats)
    shares = softmax(scores if bias is None else scores + bias, 2)
    of_shares = matmul(g, turned(value))
    away = of_shares - rows(shares * of_shares) + of_level
    of_scores = shares * away
    t = (matmul(u_q, turned(key)) + matmul(query, turned(u_k))) * scale  # by what of_scores is weighted
    z = softmax_backward(t, shares, 2)
    r = t * away - of_shares * rows(t * shares) + matmul(g, turned(u_v))
    y = softmax_backward(r, shares, 2)
    found_g = matmul(shares, u_v) + matmul(z, value)
    return (
        cat([reshape(found_g, found_g.numel()), reshape(rows(t * shares), batch * queries)]),
        (matmul(of_scores, u_k) + matmul(y, key)) * scale,
        (matmul(turned(of_scores), u_q) + matmul(turned(y), query)) * scale,
        matmul(turned(z), g),
    )


@reads("mask")
def score_bias(query: Any, key: Any, mask: Any, causal: bool, repeats: int) -> Any:
    """What is added to the scores."""
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    parts = np.zeros((1, 1, 1), query.dtype)
    if mask is not None:
        parts = parts + mask.on_host()[_mask_of(batch, mask.shape[0], repeats)]
    if causal:
        parts = parts + np.triu(np.full((queries, keys), -np.inf, query.dtype), 1)
    if mask is None and not causal:
        return None
    return from_host(type(query).result_class, parts, query.device, copy=False)


@export()
@op(
    infer=_backward_shape,
    kernel=Kernel(_backward_run, (*BACKWARD.values(), *FORWARD.values(), *materialized.SHADERS)),
    examples=(
        example((6,), (1, 2, 2), (1, 2, 2), (1, 2, 2), (1, 1, 2), scale=0.5),
        example((84,), (2, 7, 2), (2, 13, 2), (2, 13, 5), None, scale=0.7),
        example((760,), (4, 5, 37), (4, 7, 37), (4, 7, 37), (2, 5, 7), scale=0.1, repeats=2),
        example((264,), (4, 11, 3), (4, 7, 3), (4, 7, 5), (2, 11, 1), scale=0.5),
        example((156,), (2, 13, 3), (2, 11, 3), (2, 11, 5), None, scale=0.5, causal=True),
        example((156,), (2, 13, 3), (2, 12, 3), (2, 12, 5), None, scale=0.5, causal=True),
        example((24,), (2, 3, 5), (2, 8, 5), (2, 8, 3), (1, 3, 8), scale=0.5),
        example((4884,), (1, 37, 131), (1, 67, 131), (1, 67, 131), None, scale=0.05),
        example((0,), (1, 0, 1), (1, 3, 1), (1, 3, 2), None, scale=1.0),
        example((4,), (1, 2, 1), (1, 0, 1), (1, 0, 1), None, scale=1.0),
    ),
    grad=(_second(0), _second(1), _second(2), _second(3), None),
)
def flash_attention_backward(
    grad: Array,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    scale: float = 1.0,
    causal: bool = False,
    repeats: int = 1,
    saved: Any = None,
) -> Array:
    """The gradient of :func:`attention`, which computes the scores once more.

    Args:
        grad: of the result, of its shape.
        query, key, value, mask, scale, causal, repeats: as they were.
        saved: the result, if it was kept.

    Returns:
        One axis: the gradients of `query`, `key` and `value`, one behind the other.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> q, k, v = dl.zeros(1, 1, 1), dl.zeros(1, 2, 1), dl.tensor([[[2.0], [4.0]]])
        >>> dl.ops.flash_attention_backward(dl.tensor([1.0, 0.0]), q, k, v).tolist()
        [0.0, 0.0, 0.0, 0.5, 0.5]
    """
    batch, queries = query.shape[:2]
    count, dtype = batch * queries * value.shape[2], query.dtype
    if saved is None:
        found = flash_attention.body(query, key, value, mask, scale, causal, repeats)
    else:
        found = saved.on_host()
    g = grad[:count].reshape(batch, queries, value.shape[2])
    level = found[count:].reshape(batch, queries, 1)
    delta = (g * found[:count].reshape(g.shape)).sum(2, keepdims=True) - grad[count:].reshape(level.shape)
    of_query, of_key, of_value = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    factor = np.asarray(scale, dtype)
    for start in range(0, key.shape[1], BLOCK):
        end = min(start + BLOCK, key.shape[1])
        scores = _scores(query, key, mask, start, end, repeats, causal, factor)
        scores -= level
        shares = np.exp(scores, out=scores)
        np.copyto(shares, 0, where=np.isneginf(level))
        of_scores = np.matmul(g, value[:, start:end].swapaxes(1, 2))
        of_scores -= delta
        of_scores *= shares
        of_scores *= factor
        keep_where(of_scores, shares != 0, out=of_scores)  # 0 * nan is nan
        of_query += np.matmul(of_scores, key[:, start:end])
        of_key[:, start:end] = np.matmul(of_scores.swapaxes(1, 2), query)
        of_value[:, start:end] = np.matmul(shares.swapaxes(1, 2), g)
    return np.concatenate([of_query.reshape(-1), of_key.reshape(-1), of_value.reshape(-1)])
