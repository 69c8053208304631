"""Attention by matrix products, with the scores of a few batches in memory at a time.

For drivers that run on a CPU: there a product runs at full speed, and a kernel that keeps a tile of scores in
shared memory at a fiftieth of it. If the scores of one batch do not fit, flash.py computes by tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS, GemmProblem, gemm
from dl4all.scheduler.device.device import Device

WORKGROUP = 32
MAX_SCORE_BYTES = 2**24
"""Of the scores of one batch, and of all batches that are in memory at a time."""

MAX_KEYS = 2**14
"""An invocation reads a row of scores three times."""

NO_GRADIENT = 2**32 - 1
"""The offset of the logsumexps' gradients where there are none."""

FLASH_WEIGHTS_PUSH = PushBlock(
    "attention/flash_weights.comp",
    "uint rows, queries, keys, first, logsumexp_offset, rest_offset, causal; float scale; uint mask_offset, "
    "mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride;",
    BACKWARD=0,
)
FLASH_WEIGHTS_BACKWARD_PUSH = PushBlock(
    "attention/flash_weights.comp",
    "uint rows, queries, keys, first, logsumexp_offset, rest_offset, causal; float scale; uint mask_offset, "
    "mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride, columns, "
    "result_offset, gradient_offset, logsumexp_gradient_offset;",
    BACKWARD=1,
)
WEIGHTS = {
    (backward, mask, vec4): shader(
        "attention/flash_weights.comp", BACKWARD=int(backward), MASK=int(mask), VEC4=int(vec4)
    )
    for backward in (False, True)
    for mask in (False, True)
    for vec4 in (False, True)
}
SHADERS = (*WEIGHTS.values(), *GEMM_SHADERS)


def applies(device: Device, queries: int, keys: int) -> bool:
    """Whether products are faster than tiles, and the scores of a batch fit."""
    fits = 4 * queries * keys <= MAX_SCORE_BYTES and keys <= MAX_KEYS
    return device.info.type == "software" and fits


def forward(
    out: TensorBase,
    q: TensorBase,
    k: TensorBase,
    v: TensorBase,
    mask: TensorBase | None,
    scale: float,
    causal: bool,
    mask_push: tuple[int, ...],
) -> None:
    """Fill `out` with the results and the two parts of the logsumexps; the operands are contiguous."""
    (batch, queries), (keys, columns) = q.shape[:2], v.shape[1:]
    scores: TensorBase | None = None
    for first, count in _batch_chunks(batch, queries, keys):
        if scores is None:
            scores = _empty_scores(q, count, queries, keys)
        _compute_scores(scores, q, k, first, count)
        push = FLASH_WEIGHTS_PUSH.pack(
            count * queries, queries, keys, first * queries, batch * queries * columns,
            batch * queries * (columns + 1), int(causal), scale, *mask_push,
        )  # fmt: skip
        operands = (scores, out) if mask is None else (mask, scores, out)
        code = WEIGHTS[False, mask is not None, keys % 4 == 0]
        run(code, strided_grid(count * queries, WORKGROUP), push, *operands)
        product = GemmProblem(
            m=queries, n=columns, k=keys, lda=keys, ldb=columns, ldc=columns,
            b_offset=v.offset + first * keys * columns, c_offset=first * queries * columns,
            batch=count, a_step=queries * keys, b_step=keys * columns, c_step=queries * columns,
        )  # fmt: skip
        gemm(out, scores, v, None, product)


def backward(
    out: TensorBase,
    grad: TensorBase,
    saved: TensorBase,
    q: TensorBase,
    k: TensorBase,
    v: TensorBase,
    mask: TensorBase | None,
    scale: float,
    causal: bool,
    mask_push: tuple[int, ...],
) -> None:
    """Fill `out` with the gradients of queries, keys and values.

    Args:
        out: the three gradients, concatenated.
        grad: the gradients of what :func:`forward` computes, as it fills them in, or of the results only.
        saved: what :func:`forward` has computed.
        q, k, v: the operands, contiguous as all others are.
        mask, scale, causal: as in the op; with a mask, `grad` and `saved` are views of one tensor.
        mask_push: the mask's push constants.
    """
    (batch, queries, features), (keys, columns) = q.shape, v.shape[1:]
    k_offset = batch * queries * features
    v_offset = k_offset + batch * keys * features
    results = batch * queries * columns
    weights: TensorBase | None = None
    for first, count in _batch_chunks(batch, queries, keys):
        if weights is None:
            weights, grad_scores = (_empty_scores(q, count, queries, keys) for _ in range(2))
        _compute_scores(weights, q, k, first, count)
        product = GemmProblem(
            m=queries, n=keys, k=columns, lda=columns, ldb=columns, ldc=keys,
            a_offset=grad.offset + first * queries * columns, b_offset=v.offset + first * keys * columns,
            batch=count, a_step=queries * columns, b_step=keys * columns, c_step=queries * keys,
        transpose_b=True,
        )  # fmt: skip
        gemm(grad_scores, grad, v, None, product)
        push = FLASH_WEIGHTS_BACKWARD_PUSH.pack(
            count * queries, queries, keys, first * queries, saved.offset + results,
            saved.offset + results + batch * queries, int(causal), scale, *mask_push,
            columns, saved.offset, grad.offset,
            grad.offset + results if grad.numel() > results else NO_GRADIENT,
        )  # fmt: skip
        first_operands = (saved, grad) if mask is None else (mask, saved)
        code = WEIGHTS[True, mask is not None, keys % 4 == 0]
        run(code, strided_grid(count * queries, WORKGROUP), push, *first_operands, weights, grad_scores)
        product = GemmProblem(
            m=queries, n=features, k=keys, lda=keys, ldb=features, ldc=features,
            b_offset=k.offset + first * keys * features, c_offset=first * queries * features,
            batch=count, a_step=queries * keys, b_step=keys * features, c_step=queries * features,
        )  # fmt: skip
        gemm(out, grad_scores, k, None, product)
        for offset, factor, other, width in (
            (k_offset, grad_scores, q, features),
            (v_offset, weights, grad, columns),
        ):
            product = GemmProblem(
                m=keys, n=width, k=queries, lda=keys, ldb=width, ldc=width,
                b_offset=other.offset + first * queries * width, c_offset=offset + first * keys * width,
                batch=count, a_step=queries * keys, b_step=queries * width, c_step=keys * width,
                transpose_a=True,
            )  # fmt: skip
            gemm(out, factor, other, None, product)


def _batch_chunks(batch: int, queries: int, keys: int) -> Iterator[tuple[int, int]]:
    """The first batch and the number of batches whose scores are in memory at a time."""
    count = max(1, min(MAX_SCORE_BYTES // (4 * max(1, queries * keys)), MAX_GRID_SIZE))
    for first in range(0, batch, count):
        yield first, min(count, batch - first)


def _empty_scores(like: TensorBase, count: int, queries: int, keys: int) -> TensorBase:
    scores: TensorBase = empty(
        type(like).result_class, (count, queries, keys), np.dtype(np.float32), like.device, "attention"
    )
    return scores


def _compute_scores(scores: TensorBase, q: TensorBase, k: TensorBase, first: int, count: int) -> None:
    """Fill `scores` with the products of queries and keys of `count` batches."""
    (queries, features), keys = q.shape[1:], k.shape[1]
    product = GemmProblem(
        m=queries, n=keys, k=features, lda=features, ldb=features, ldc=keys,
        a_offset=q.offset + first * queries * features, b_offset=k.offset + first * keys * features,
        batch=count, a_step=queries * features, b_step=keys * features, c_step=queries * keys,
        transpose_b=True,
    )  # fmt: skip
    gemm(scores, q, k, None, product)
