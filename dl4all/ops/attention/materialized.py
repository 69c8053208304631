"""Attention by matrix products, with the scores of a few batches in memory at a time.

For drivers that run on a CPU: there a product runs at full speed, and a kernel that keeps a tile of scores in
shared memory at a fiftieth of it. Where the scores of one batch are too many, the tiles it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dl4all.ops.core.launch import MAX_GRID_SIZE, pack, run, shader, strided_grid
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS, GemmProblem, gemm
from dl4all.scheduler.device import Device

WORKGROUP = 32
SCORE_BYTES = 2**24  # of one batch, and of as many as are in memory at a time
MOST_KEYS = 2**14  # which an invocation goes over three times
SHARES = {
    (backward, mask, fours): shader(
        "attention/flash_weights.comp", BACKWARD=int(backward), MASK=int(mask), FOURS=int(fours)
    )
    for backward in (False, True)
    for mask in (False, True)
    for fours in (False, True)
}
SHADERS = (*SHARES.values(), *GEMM_SHADERS)


def suits(device: Device, queries: int, keys: int) -> bool:
    """Whether products are faster than tiles, and the scores few enough."""
    few = 4 * queries * keys <= SCORE_BYTES and keys <= MOST_KEYS
    return device.info.type == "software" and few


def forward(
    out: TensorBase,
    q: TensorBase,
    k: TensorBase,
    v: TensorBase,
    mask: TensorBase | None,
    scale: float,
    causal: bool,
    mask_words: tuple[int, ...],
) -> None:
    """Fill `out` with the results and the logarithms of the sums; the operands are contiguous."""
    (batch, queries), (keys, columns) = q.shape[:2], v.shape[1:]
    scores: TensorBase | None = None
    for first, count in _portions(batch, queries, keys):
        if scores is None:
            scores = _memory(q, count, queries, keys)
        _scores(scores, q, k, first, count)
        push = pack(
            count * queries, queries, keys, first * queries, batch * queries * columns, 0, int(causal), scale,
            *mask_words,
        )  # fmt: skip
        operands = (scores, out) if mask is None else (mask, scores, out)
        code = SHARES[False, mask is not None, keys % 4 == 0]
        run(code, strided_grid(count * queries, WORKGROUP), push, *operands)
        product = GemmProblem(
            m=queries, n=columns, k=keys, lda=keys, ldb=columns, ldc=columns,
            b_offset=v.offset + first * keys * columns, c_offset=first * queries * columns,
            batch=count, a_step=queries * keys, b_step=keys * columns, c_step=queries * columns,
        )  # fmt: skip
        gemm(out, scores, v, None, product)


def backward(
    out: TensorBase,
    g: TensorBase,
    q: TensorBase,
    k: TensorBase,
    v: TensorBase,
    levels: TensorBase,
    mask: TensorBase | None,
    scale: float,
    causal: bool,
    mask_words: tuple[int, ...],
) -> None:
    """Fill `out` with the gradients of queries, keys and values from `g`, that of the results.

    `levels` are the logarithms of the sums, and behind them what is taken off the gradients of the shares.
    """
    (batch, queries, features), (keys, columns) = q.shape, v.shape[1:]
    of_k = batch * queries * features
    of_v = of_k + batch * keys * features
    shares: TensorBase | None = None
    for first, count in _portions(batch, queries, keys):
        if shares is None:
            shares, slopes = (_memory(q, count, queries, keys) for _ in range(2))
        _scores(shares, q, k, first, count)
        product = GemmProblem(
            m=queries, n=keys, k=columns, lda=columns, ldb=columns, ldc=keys,
            a_offset=g.offset + first * queries * columns, b_offset=v.offset + first * keys * columns,
            batch=count, a_step=queries * columns, b_step=keys * columns, c_step=queries * keys,
            transpose_b=True,
        )  # fmt: skip
        gemm(slopes, g, v, None, product)
        level_offset = levels.offset
        push = pack(
            count * queries, queries, keys, first * queries, level_offset, level_offset + batch * queries,
            int(causal), scale, *mask_words,
        )  # fmt: skip
        operands = (levels, shares, slopes) if mask is None else (mask, levels, shares, slopes)
        code = SHARES[True, mask is not None, keys % 4 == 0]
        run(code, strided_grid(count * queries, WORKGROUP), push, *operands)
        of_q = GemmProblem(
            m=queries, n=features, k=keys, lda=keys, ldb=features, ldc=features,
            b_offset=k.offset + first * keys * features, c_offset=first * queries * features,
            batch=count, a_step=queries * keys, b_step=keys * features, c_step=queries * features,
        )  # fmt: skip
        gemm(out, slopes, k, None, of_q)
        for place, weights, other, wide in ((of_k, slopes, q, features), (of_v, shares, g, columns)):
            turned = GemmProblem(
                m=keys, n=wide, k=queries, lda=keys, ldb=wide, ldc=wide,
                b_offset=other.offset + first * queries * wide, c_offset=place + first * keys * wide,
                batch=count, a_step=queries * keys, b_step=queries * wide, c_step=keys * wide,
                transpose_a=True,
            )  # fmt: skip
            gemm(out, weights, other, None, turned)


def _portions(batch: int, queries: int, keys: int) -> Iterator[tuple[int, int]]:
    """The first batch, and how many, of those whose scores are in memory together."""
    some = max(1, min(SCORE_BYTES // (4 * max(1, queries * keys)), MAX_GRID_SIZE))
    for first in range(0, batch, some):
        yield first, min(some, batch - first)


def _memory(like: TensorBase, count: int, queries: int, keys: int) -> TensorBase:
    made: TensorBase = empty(
        type(like).result_class, (count, queries, keys), np.dtype(np.float32), like.device, "attention"
    )
    return made


def _scores(scores: TensorBase, q: TensorBase, k: TensorBase, first: int, count: int) -> None:
    """Fill `scores` with the products of queries and keys of some batches."""
    (queries, features), keys = q.shape[1:], k.shape[1]
    product = GemmProblem(
        m=queries, n=keys, k=features, lda=features, ldb=features, ldc=keys,
        a_offset=q.offset + first * queries * features, b_offset=k.offset + first * keys * features,
        batch=count, a_step=queries * features, b_step=keys * features, c_step=queries * keys,
        transpose_b=True,
    )  # fmt: skip
    gemm(scores, q, k, None, product)
