"""FlashAttention (Dao et al., arXiv:2205.14135): attention by tiles, without storing the matrix of scores.

Drivers that run on a CPU use matrix products on a bounded part of the scores instead: materialized.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.attention import materialized
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import widened
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions.branchless import keep_where
from dl4all.ops.core.kernels.launch import ceil_div, check_rounds, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.rounding import zero
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.triangular import triu
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.copy import copy_into, fill_with
from dl4all.ops.memory.parts import narrow, take_region
from dl4all.ops.memory.views import contiguous, reshape, transpose
from dl4all.ops.reduce.softmax_function import softmax, softmax_backward
from dl4all.ops.reduce.sums import sum
from dl4all.runtime.spirv import Shader

# As in shaders/attention/flash.glsl
OWN = 64  # queries or keys of a workgroup
PART = 32  # rows of the other side whose factors are in shared memory at a time
MAX_PARTS = 2  # whose scores are in registers at a time
MAX_DEPTH = 4  # times 32 columns of a result are computed at a time

ROW_TERMS = 2
"""Numbers behind the columns of each query's result: the logsumexp of its scores in two parts.

The gradient computes the weights from their sum. One number would not do: of large scores, such as those
under a mask of finite numbers, it has no digits left for the logarithm of the sum.
"""

KEY_BLOCK = 128
"""Keys that the CPU processes at a time."""

FLASH_PUSH = PushBlock(
    "attention/flash.comp",
    "uint blocks, blocks_per_batch, queries, keys, features, columns, q_offset, v_offset, logsumexp_offset, "
    "rest_offset, causal; float scale; uint mask_offset, mask_repeats, mask_count, mask_batch_stride, "
    "mask_row_stride, mask_column_stride;",
)
FLASH_BACKWARD_PUSH = PushBlock(
    "attention/flash_backward.comp",
    "uint blocks, blocks_per_batch, queries, keys, features, columns, k_offset, v_offset, g_offset, "
    "logsumexp_offset, rest_offset, delta_offset, y_offset, causal; float scale; uint mask_offset, "
    "mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride;",
)
FORWARD = {
    (mask, fours): shader("attention/flash.comp", MASK=int(mask), FOURS=int(fours))
    for mask in (False, True)
    for fours in (False, True)
}
BACKWARD = {
    (operand, mask, fours): shader(
        "attention/flash_backward.comp", OPERAND=operand, MASK=int(mask), FOURS=int(fours)
    )
    for operand in range(3)
    for mask in (False, True)
    for fours in (False, True)
}


def _tiling(columns: int, products: int) -> tuple[int, int]:
    """DEPTH and PARTS in flash.glsl, for a result of so many columns.

    With as many sums in registers, of two `products` a GPU would have no room for another workgroup.
    """
    depth = next((depth for depth in (1, 2) if columns <= PART * depth), MAX_DEPTH)
    return depth, 1 if depth * products >= MAX_DEPTH else MAX_PARTS


def _by_fours(*lengths: int) -> bool:
    """Whether rows of these lengths, from these offsets on, are of aligned vec4s."""
    return not any(length % 4 for length in lengths)


def _rounds(other_rows: int, features: int, columns: int, width: int) -> int:
    """Rounds of all loops of an invocation, at most, for queries or keys of the other side."""
    passes = ceil_div(max(width, 1), PART * MAX_DEPTH)
    return ceil_div(other_rows, PART) * passes * (2 * (features + columns) + 4 * PART)


def _launch(
    code: Shader,
    blocks: int,
    tiling: tuple[int, int],
    push: bytes,
    operands: tuple[TensorBase, ...],
    flops: int,
) -> None:
    run(code, strided_grid(blocks, 1), push, *operands, constants=tiling, flops=flops)


def _sizes(name: str, query: Any, key: Any, value: Any, mask: Any, repeats: int) -> tuple[int, ...]:
    """Check the operands, and return the sizes of batch, queries, keys, features and columns.

    Raises:
        ShapeError, DTypeError
    """
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


def _host_scores(
    query: Any, key: Any, mask: Any, start: int, end: int, repeats: int, causal: bool, scale: Any
) -> Any:
    """Scores of the keys from `start` to `end`, as a NumPy array."""
    scores = np.matmul(query, key[:, start:end].swapaxes(1, 2))
    scores *= scale
    if mask is not None:
        columns = mask if mask.shape[2] == 1 else mask[:, :, start:end]
        scores += columns[_mask_indices(len(query), mask.shape[0], repeats)]
    if causal:
        np.copyto(scores, -np.inf, where=_later_keys(query.shape[1], start, end))
    return scores


def _later_keys(queries: int, start: int, end: int) -> Any:
    """Which of the keys from `start` to `end` come after each query."""
    return np.arange(start, end)[None, :] > np.arange(queries)[:, None]


def _mask_indices(batch: int, count: int, repeats: int) -> Any:
    """Which of `count` masks each batch uses."""
    return np.arange(batch) // repeats % count


def _infer_forward(
    query: TensorBase,
    key: TensorBase,
    value: TensorBase,
    mask: TensorBase | None,
    *,
    scale: float,
    causal: bool,
    repeats: int,
) -> Result:
    batch, queries, _, _, columns = _sizes("flash_attention", query, key, value, mask, repeats)
    return (batch * queries * (columns + ROW_TERMS),), widened(query.dtype)  # logsumexps keep their digits


def _mask_push(mask: TensorBase | None, repeats: int) -> tuple[int, ...]:
    """Offset, repeats, count and strides of a mask, for push constants."""
    if mask is None:
        return (0,) * 6
    count, rows, columns = mask.shape
    return (
        mask.offset, repeats, count, rows * columns, columns if rows > 1 else 0, 1 if columns > 1 else 0,
    )  # fmt: skip


def _concatenate_flat(*tensors: TensorBase) -> tuple[TensorBase, list[int]]:
    """Flattened copies of tensors in one tensor, and the offset of each."""
    offsets = np.cumsum([0, *(t.numel() for t in tensors)]).tolist()
    joined = empty(
        type(tensors[0]).result_class, (offsets[-1],), widened(tensors[0].dtype), tensors[0].device
    )
    for tensor, offset in zip(tensors, offsets, strict=False):
        copy_into(reshape(narrow(joined, 0, offset, tensor.numel()), tensor.shape), tensor)
    return joined, offsets


def _run_forward(
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
    batch, queries, keys, features, columns = _sizes("flash_attention", query, key, value, mask, repeats)
    if 0 in (keys, columns):
        fill_with(narrow(out, 0, 0, batch * queries * columns), 0)
        if not keys:
            fill_with(narrow(out, 0, batch * queries * columns, batch * queries), -math.inf)
            fill_with(narrow(out, 0, batch * queries * (columns + 1), batch * queries), 0)
            return
    q, m = contiguous(query), None if mask is None else contiguous(mask)
    if materialized.applies(out.device, queries, keys):
        mask_push = _mask_push(m, repeats)
        materialized.forward(out, q, contiguous(key), contiguous(value), m, float(scale), causal, mask_push)
        return
    check_rounds(out.device, _rounds(keys, features, columns, columns))
    with tape.gradients(False):
        joined, offsets = _concatenate_flat(key, value)
    blocks_per_batch = ceil_div(queries, OWN)
    push = FLASH_PUSH.pack(
        batch * blocks_per_batch, blocks_per_batch, queries, keys, features, columns, q.offset, offsets[1],
        batch * queries * columns, batch * queries * (columns + 1), int(causal), float(scale),
        *_mask_push(m, repeats),
    )  # fmt: skip
    code = FORWARD[m is not None, _by_fours(features, columns, q.offset)]
    operands = (q, joined, out) if m is None else (q, joined, m, out)
    flops = 2 * batch * queries * keys * (features + columns)
    _launch(code, batch * blocks_per_batch, _tiling(columns, 1), push, operands, flops)


def split_flat(flat: Any, *shapes: Shape) -> list[Any]:
    """Split a flat concatenation into views of the given shapes."""
    tensors, start = [], 0
    for shape in shapes:
        tensors.append(take_region(flat, (shape, contiguous_strides(shape), start)))
        start += math.prod(shape)
    return tensors


def _split_gradient(grad: Any, shape: Shape) -> tuple[Any, Any]:
    """The gradients of results of this shape and of their logsumexps; None where `grad` has none of these."""
    if grad.numel() == math.prod(shape):
        return reshape(grad, shape), None
    return tuple(split_flat(grad, shape, (*shape[:2], 1)))


@export()
@op(
    infer=_infer_forward,
    kernel=Kernel(_run_forward, (*FORWARD.values(), *materialized.SHADERS)),
    examples=(
        example((2, 2, 1), (2, 3, 1), (2, 3, 2), (1, 1, 3), scale=0.7),
        example((1, 3, 2), (1, 5, 2), (1, 5, 1), None, scale=0.7),
        example((4, 5, 3), (4, 7, 3), (4, 7, 37), (2, 5, 7), scale=0.5, repeats=2),
        example((4, 11, 3), (4, 7, 3), (4, 7, 5), (2, 11, 1), scale=0.5),
        example((2, 13, 3), (2, 11, 3), (2, 11, 5), None, scale=0.5, causal=True),
        example((2, 13, 3), (2, 12, 3), (2, 12, 5), None, scale=0.5, causal=True),
        example((2, 3, 5), (2, 8, 5), (2, 8, 3), (1, 3, 8), scale=0.5),
        example((2, 5, 4), (2, 7, 4), (2, 7, 8), None, scale=0.5),
        example((2, 5, 4), (2, 7, 4), (2, 7, 8), (1, 5, 7), scale=0.5),
        example((1, 37, 5), (1, 67, 5), (1, 67, 131), None, scale=0.1),
        example((1, 0, 5), (1, 3, 5), (1, 3, 2), None, scale=1.0),
    ),
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
    """``softmax(scale * query @ key.T + mask) @ value``, and the logsumexp of each row of scores.

    Keys are processed block by block with a running maximum (Dao et al., arXiv:2205.14135). A query for which
    the mask excludes all keys gets zeros.

    Args:
        query, key, value: shapes (B, queries, features), (B, keys, features) and (B, keys, columns).
        mask: added to the scores, shape (M, queries or 1, keys or 1); it gets no gradient.
        scale: factor of the products.
        causal: whether query i attends only to the keys 0 to i.
        repeats: the mask of batch b is ``mask[b // repeats % M]``.

    Returns:
        One axis: the results of shape (B, queries, columns), followed by the logsumexp (B, queries), and by
        what rounding took from it (B, queries), which has no gradient.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> q, k = dl.zeros(1, 1, 1), dl.zeros(1, 2, 1)
        >>> dl.ops.flash_attention(q, k, dl.tensor([[[2.0], [4.0]]])).exp().numpy().round().tolist()
        [20.0, 2.0, 1.0]
    """
    batch, queries = query.shape[:2]
    dtype = query.dtype
    maximum = np.full((batch, queries, 1), -np.inf, dtype)
    sums, output = np.zeros_like(maximum), np.zeros((batch, queries, value.shape[2]), dtype)
    for start in range(0, key.shape[1], KEY_BLOCK):
        end = min(start + KEY_BLOCK, key.shape[1])
        scores = _host_scores(query, key, mask, start, end, repeats, causal, np.asarray(scale, dtype))
        new_maximum = np.maximum(maximum, scores.max(2, keepdims=True))
        shift = np.where(np.isneginf(new_maximum), np.zeros((), dtype), new_maximum)
        scores -= shift
        weights, correction = np.exp(scores, out=scores), np.exp(maximum - shift)
        sums = sums * correction + weights.sum(2, keepdims=True)
        output = output * correction + np.matmul(weights, value[:, start:end])
        maximum = new_maximum
    visible = sums != 0
    result = np.where(visible, output / np.where(visible, sums, 1), 0)
    log_sums = np.log(np.where(visible, sums, 1))
    logsumexp = np.where(visible, maximum + log_sums, -np.inf)
    rest = np.where(visible, log_sums - (logsumexp - maximum), 0)
    parts = (result, logsumexp, rest)
    return np.concatenate([part.reshape(-1) for part in parts]).astype(dtype, copy=False)


# Gradients


def _infer_backward(
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
    batch, queries, _, _, columns = _sizes("flash_attention_backward", query, key, value, mask, repeats)
    check_float("flash_attention_backward", grad, query)
    expected = [(batch * queries * (columns + terms),) for terms in (ROW_TERMS, 0)]
    if grad.shape not in expected:
        raise ShapeError(
            f"[flash_attention_backward] grad must have shape {expected[0]}, or {expected[1]} without"
            f" logsumexps, got {grad.shape}"
        )
    return (query.numel() + key.numel() + value.numel(),), query.dtype


def _run_backward(
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
    batch, queries, keys, features, columns = _sizes("flash_attention", query, key, value, mask, repeats)
    m = None if mask is None else contiguous(mask)
    with tape.gradients(False):
        if saved is None:
            saved = flash_attention(query, key, value, mask, scale=scale, causal=causal, repeats=repeats)
        if features and columns and materialized.applies(out.device, queries, keys):
            flat_grad, flat, q, k, v = (contiguous(t) for t in (grad, saved, query, key, value))
            if (
                m is not None
            ):  # then the kernel reads both from one buffer: devices may bind no more than four
                joined, _ = _concatenate_flat(flat, flat_grad)
                flat, flat_grad = split_flat(joined, flat.shape, flat_grad.shape)
            mask_push = _mask_push(m, repeats)
            materialized.backward(out, flat_grad, flat, q, k, v, m, float(scale), causal, mask_push)
            return
        rows = (batch, queries, 1)
        result, logsumexp, rest = split_flat(saved, (batch, queries, columns), rows, rows)
        grad_result, grad_logsumexp = _split_gradient(grad, (batch, queries, columns))
        delta = sum(mul(grad_result, result), 2, keepdim=True)
        if grad_logsumexp is not None:
            delta = delta - grad_logsumexp
        check_rounds(out.device, _rounds(max(queries, keys), features, columns, max(features, columns)))
        joined, offsets = _concatenate_flat(query, key, value, grad_result, logsumexp, rest, delta)
    for operand, width in enumerate((features, features, columns)):  # query, key, value
        blocks_per_batch = ceil_div(queries if operand == 0 else keys, OWN)
        if not blocks_per_batch * width:
            continue
        push = FLASH_BACKWARD_PUSH.pack(
            batch * blocks_per_batch, blocks_per_batch, queries, keys, features, columns, *offsets[1:7],
            offsets[operand], int(causal), float(scale), *_mask_push(m, repeats),
        )  # fmt: skip
        operands = (joined, out) if m is None else (joined, m, out)
        flops = 2 * batch * queries * keys * (features + columns + (0 if operand == 2 else features))
        code = BACKWARD[operand, m is not None, _by_fours(features, columns)]
        tiling = _tiling(width, 1 if operand == 2 else 2)
        _launch(code, batch * blocks_per_batch, tiling, push, operands, flops)


@export()
@op(
    infer=_infer_backward,
    kernel=Kernel(_run_backward, (*BACKWARD.values(), *FORWARD.values(), *materialized.SHADERS)),
    examples=(
        example((8,), (1, 2, 2), (1, 2, 2), (1, 2, 2), (1, 1, 2), scale=0.5),
        example((98,), (2, 7, 2), (2, 13, 2), (2, 13, 5), None, scale=0.7),
        example((70,), (2, 7, 2), (2, 13, 2), (2, 13, 5), None, scale=0.7),
        example((740,), (4, 5, 37), (4, 7, 37), (4, 7, 37), (2, 5, 7), scale=0.1, repeats=2),
        example((780,), (4, 5, 37), (4, 7, 37), (4, 7, 37), (2, 5, 7), scale=0.1, repeats=2),
        example((308,), (4, 11, 3), (4, 7, 3), (4, 7, 5), (2, 11, 1), scale=0.5),
        example((182,), (2, 13, 3), (2, 11, 3), (2, 11, 5), None, scale=0.5, causal=True),
        example((182,), (2, 13, 3), (2, 12, 3), (2, 12, 5), None, scale=0.5, causal=True),
        example((30,), (2, 3, 5), (2, 8, 5), (2, 8, 3), (1, 3, 8), scale=0.5),
        example((100,), (2, 5, 4), (2, 7, 4), (2, 7, 8), None, scale=0.5),
        example((100,), (2, 5, 4), (2, 7, 4), (2, 7, 8), (1, 5, 7), scale=0.5),
        example((4921,), (1, 37, 131), (1, 67, 131), (1, 67, 131), None, scale=0.05),
        example((0,), (1, 0, 1), (1, 3, 1), (1, 3, 2), None, scale=1.0),
        example((6,), (1, 2, 1), (1, 0, 1), (1, 0, 1), None, scale=1.0),
    ),
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
    saved: TensorBase | None = None,
) -> Array:
    """The gradient of :func:`flash_attention`, which computes the scores again.

    Args:
        grad: the gradient of the result, of its shape, or without those of the logsumexps and their rests,
            which are then 0.
        query, key, value, mask, scale, causal, repeats: the arguments of :func:`flash_attention`.
        saved: its result; computed again if not given.

    Returns:
        One axis: the gradients of `query`, `key` and `value`, concatenated.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> q, k, v = dl.zeros(1, 1, 1), dl.zeros(1, 2, 1), dl.tensor([[[2.0], [4.0]]])
        >>> dl.ops.flash_attention_backward(dl.tensor([1.0, 0.0, 0.0]), q, k, v).tolist()
        [0.0, 0.0, 0.0, 0.5, 0.5]
    """
    batch, queries = query.shape[:2]
    count, dtype = batch * queries * value.shape[2], query.dtype
    if saved is None:
        result = flash_attention.body(query, key, value, mask, scale, causal, repeats)
    else:
        # Compiled calls give its array.
        result = saved.on_host() if isinstance(saved, TensorBase) else np.asarray(saved)
    g = grad[:count].reshape(batch, queries, value.shape[2])
    logsumexp, rest = result[count:].reshape(ROW_TERMS, batch, queries, 1)
    delta = (g * result[:count].reshape(g.shape)).sum(2, keepdims=True)
    if grad.size > count:
        delta = delta - grad[count:].reshape(ROW_TERMS, *logsumexp.shape)[0]
    grad_query, grad_key, grad_value = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    factor = np.asarray(scale, dtype)
    for start in range(0, key.shape[1], KEY_BLOCK):
        end = min(start + KEY_BLOCK, key.shape[1])
        scores = _host_scores(query, key, mask, start, end, repeats, causal, factor)
        scores -= logsumexp
        scores -= rest
        weights = np.exp(scores, out=scores)
        np.copyto(weights, 0, where=np.isneginf(logsumexp))
        if causal and np.isnan(logsumexp).any():  # keys that the query does not see stay right
            np.copyto(weights, 0, where=_later_keys(queries, start, end))
        grad_scores = np.matmul(g, value[:, start:end].swapaxes(1, 2))
        grad_scores -= delta
        grad_scores *= weights
        grad_scores *= factor
        keep_where(grad_scores, weights != 0, out=grad_scores)  # 0 * nan is nan
        grad_query += np.matmul(grad_scores, key[:, start:end])
        grad_key[:, start:end] = np.matmul(grad_scores.swapaxes(1, 2), query)
        grad_value[:, start:end] = np.matmul(weights.swapaxes(1, 2), g)
    return np.concatenate([grad_query.reshape(-1), grad_key.reshape(-1), grad_value.reshape(-1)])


def _flash_attention_gradient(
    g: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, repeats: int
) -> tuple[Any, ...]:
    flat = flash_attention_backward(g, query, key, value, mask, scale=scale, causal=causal, repeats=repeats)
    return tuple(split_flat(flat, query.shape, key.shape, value.shape))


def _flash_attention_backward_gradient(
    u: Any, grad: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, repeats: int
) -> tuple[Any, ...]:
    """The gradients of ``sum(u * flash_attention_backward(grad, query, key, value))``.

    Made of matrix products and softmax, with all scores in memory: second derivatives are rare.
    """
    batch, queries, _ = query.shape
    columns = value.shape[2]
    u_q, u_k, u_v = split_flat(u, query.shape, key.shape, value.shape)
    g, grad_logsumexp = _split_gradient(grad, (batch, queries, columns))

    def transposed(tensor: Any) -> Any:
        return transpose(tensor, 1, 2)

    def row_sums(tensor: Any) -> Any:
        return sum(tensor, 2, keepdim=True)

    scores = matmul(query, transposed(key)) * scale
    bias = score_bias(query, key, mask, causal, repeats)
    weights = softmax(scores if bias is None else scores + bias, 2)
    grad_weights = matmul(g, transposed(value))
    centered = grad_weights - row_sums(weights * grad_weights)
    if grad_logsumexp is not None:
        centered = centered + grad_logsumexp
    grad_scores = weights * centered
    # The factor of grad_scores in the sum.
    t = (matmul(u_q, transposed(key)) + matmul(query, transposed(u_k))) * scale
    z = softmax_backward(t, weights, 2)
    weights_gradient = t * centered - grad_weights * row_sums(t * weights) + matmul(g, transposed(u_v))
    scores_gradient = softmax_backward(weights_gradient, weights, 2)
    g_gradient = matmul(weights, u_v) + matmul(z, value)
    grad_gradient = reshape(g_gradient, g_gradient.numel())
    if grad_logsumexp is not None:
        row_gradient = reshape(row_sums(t * weights), batch * queries)
        grad_gradient = cat([grad_gradient, row_gradient, zero(row_gradient)])
    return (
        grad_gradient,
        (matmul(grad_scores, u_k) + matmul(scores_gradient, key)) * scale,
        (matmul(transposed(grad_scores), u_q) + matmul(transposed(scores_gradient), query)) * scale,
        matmul(transposed(z), g),
    )


def _operand_gradient(gradients: Callable[..., tuple[Any, ...]], index: int) -> Callable[..., Any]:
    """The gradient of one operand, out of a function that returns all of them."""

    @functools.wraps(gradients)  # the parameters' names say what is saved
    def gradient(*args: Any, **saved: Any) -> Any:
        return gradients(*args, **saved)[index]

    return gradient


flash_attention.defgrad(*(_operand_gradient(_flash_attention_gradient, i) for i in range(3)), None)
flash_attention_backward.defgrad(
    *(_operand_gradient(_flash_attention_backward_gradient, i) for i in range(4)), None
)


@reads("mask")
def score_bias(query: Any, key: Any, mask: Any, causal: bool, repeats: int) -> Any:
    """The tensor that is added to the scores for a mask and for causal attention; None for neither."""
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    if mask is None and causal and query.dtype == np.float32 and not query.device.is_host:
        blocked = empty(type(query).result_class, (1, queries, keys), query.dtype, query.device, "attention")
        fill_with(blocked, -math.inf)  # nothing is uploaded
        return triu(blocked, 1)
    bias = np.zeros((1, 1, 1), query.dtype)
    if mask is not None:
        bias = bias + mask.on_host()[_mask_indices(batch, mask.shape[0], repeats)]
    if causal:
        bias = bias + np.triu(np.full((queries, keys), -np.inf, query.dtype), 1)
    if mask is None and not causal:
        return None
    return from_host(type(query).result_class, bias, query.device, copy=False)
