"""The gradient of flash attention, which computes the weights again. A chunk is a batch.

Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022,
arXiv:2205.14135, section B.2.
"""

from __future__ import annotations

import math

import numpy as np

from dl4all.host_kernels.attention.scores import (
    KEYS,
    QUERIES,
    Slots,
    attention_slots,
    constants_of,
    masked_scores,
    panels_of,
    visible_keys,
    weight_of,
    write_pack,
)  # fmt: skip
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.host_kernels.linalg.gemm import Panels, Rows, multiply, pack_parts
from dl4all.host_kernels.linalg.gemm_tiles import ADD, tile_sizes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector


@host_kernel("flash_attention_backward", copies=True)
def prepare_flash_attention_backward(
    out: ArrayLayout, grad: ArrayLayout, query: ArrayLayout, key: ArrayLayout, value: ArrayLayout, mask:
    ArrayLayout | None, saved: ArrayLayout | None, *, scale: float, causal: bool, repeats: int,
) -> HostLaunch:  # fmt: skip
    """
    Raises:
        NoKernel: nothing is saved, other dtypes, nothing to attend to, or operands with gaps.
    """
    if saved is None or not (saved.is_contiguous() and grad.is_contiguous()) or grad.dtype != np.float32:
        raise NoKernel("gradients of what is not saved, or with gaps")
    for operand in (query, key):
        if operand.strides[2] != 1 and operand.shape[2] > 1:
            raise NoKernel("columns with gaps")
    sizes = constants_of(query, key, value, mask, scale, causal, repeats)
    work = sizes.batch * sizes.queries * sizes.keys * (3 * sizes.features + 2 * sizes.columns) // 8
    panels = sizes.batch * (sizes.k_panels + sizes.v_panels)
    masked, terms = mask is not None, grad.numel() > sizes.batch * sizes.queries * sizes.columns
    return HostLaunch(
        flash_attention_backward, (masked, terms), 6 + masked, sizes, scratch=4 * panels, work=work
    )


def flash_attention_backward(masked: bool, terms: bool) -> IrModule:
    """Slots: gradient, queries, keys, values, the mask if there is one, what is saved, result, panels; sizes.

    With `terms`, the gradient has a part for logsumexps.
    """
    addresses = ("g", "q", "k", "v", *(("mask",) if masked else ()), "saved", "out", "panels")
    width = tile_sizes().columns
    module = IrModule()
    packs = [write_pack(module, addresses, "k", "features"), write_pack(module, addresses, "v", "columns")]
    with module.part("attend") as part:
        at = attention_slots(part, addresses)
        _, begin, end = part.parameters
        weights, grad_scores = (part.local("float", QUERIES * KEYS) for _ in range(2))
        deltas = part.local("float", QUERIES)
        features, columns = at["features"], at["columns"]
        count = (at["keys"] + (width - 1)) // width
        k_start = at["batch"] * at["queries"] * features
        v_start = k_start + at["batch"] * at["keys"] * features
        with part.loop(begin, end) as batch:
            q, k = (part.at(at[name], batch * at[f"{name}_batch"], "float") for name in "qk")
            grad_q = part.at(at["out"], batch * at["queries"] * features, "float")
            grad_k = part.at(at["out"], k_start + batch * at["keys"] * features, "float")
            grad_v = part.at(at["out"], v_start + batch * at["keys"] * columns, "float")
            _fill_zeros(part, grad_q, at["queries"] * features)
            _fill_zeros(part, grad_k, at["keys"] * features)
            _fill_zeros(part, grad_v, at["keys"] * columns)
            with part.loop(0, at["keys"], KEYS) as key:
                keys = part.intrinsic("smin", at["keys"] - key, part.constant("i64", KEYS))
                # Queries before the first key of the block see none of it.
                start = part.select(at["causal"].equals(0), 0, key)  # KEYS is a multiple of QUERIES
                with part.loop(start, at["queries"], QUERIES) as first:
                    rows = part.intrinsic("smin", at["queries"] - first, part.constant("i64", QUERIES))
                    row_of_all = batch * at["queries"] + first
                    g = part.at(at["g"], row_of_all * columns, "float")
                    _deltas(part, at, g, row_of_all, rows, deltas, terms)
                    q_block = part.at(q, first * at["q_row"], "float")
                    q_strides = at["q_row"], at["q_column"]
                    block = Panels(panels_of(part, at, "k", batch), count, key // width)
                    multiply(part, q_block, q_strides, block, weights, KEYS, (rows, keys, features))
                    block = Panels(panels_of(part, at, "v", batch), count, key // width)
                    multiply(part, g, (columns, 1), block, grad_scores, KEYS, (rows, keys, columns))
                    with part.loop(0, rows) as row:
                        _grad_scores_row(
                            part, at, weights, grad_scores, deltas, batch, first, row, key, keys, masked
                        )
                    key_rows = Rows(part.at(k, key * at["k_row"], "float"), at["k_row"])
                    target = part.at(grad_q, first * features, "float")
                    extent = (rows, features, keys)
                    multiply(part, grad_scores, (KEYS, 1), key_rows, target, features, extent, mode=ADD)
                    for factor, other, stride, total, size in (
                        (grad_scores, q_block, at["q_row"], grad_k, features),
                        (weights, g, columns, grad_v, columns),
                    ):
                        target = part.at(total, key * size, "float")
                        extent = (keys, size, rows)
                        multiply(part, factor, (1, KEYS), Rows(other, stride), target, size, extent, mode=ADD)
    with module.kernel("flash_attention_backward") as code:
        at = attention_slots(code, addresses)
        for packing, depth in zip(packs, ("features", "columns"), strict=True):
            parts = at["batch"] * pack_parts(code, at[depth], at["keys"])
            code.parallel(packing, code.parameters[0], parts, at["pack_grain"])
        code.parallel(part, code.parameters[0], at["batch"], 1)
    return module


def _fill_zeros(code: Code, place: IrValue, count: IrValue) -> None:
    lanes = provider.processor().lanes()
    zeros = code.constant(vector("float", lanes), 0.0)
    row_passes(code, count, lanes, lambda i, mask: code.store(zeros, place, i, mask))


def _deltas(
    code: Code, at: Slots, g: IrValue, first: IrValue, rows: IrValue, deltas: IrValue, terms: bool
) -> None:
    """Write, for each query of a block, the sum of gradients times results, less the logsumexp's gradient."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    with code.loop(0, rows) as row:
        grads = code.at(g, row * at["columns"], "float")
        results = code.at(at["saved"], (first + row) * at["columns"], "float")
        total = code.variable(type, 0.0)

        def add(i: IrValue, mask: IrValue | None) -> None:
            factors = (code.load(place, i, type, mask) for place in (grads, results))
            total.value = code.intrinsic("fmuladd", *factors, total.value)

        row_passes(code, at["columns"], lanes, add)
        delta = code.sum_of(total.value)
        if terms:
            place = at["batch"] * at["queries"] * at["columns"] + first + row
            delta = delta - code.load(at["g"], place, "float")
        code.store(delta, deltas, row)


def _grad_scores_row(
    code: Code,
    at: Slots,
    weights: IrValue,
    grad_scores: IrValue,
    deltas: IrValue,
    batch: IrValue,
    first: IrValue,
    row: IrValue,
    key: IrValue,
    keys: IrValue,
    masked: bool,
) -> None:
    """Replace a row of scores by weights, and the gradients of weights by those of scores."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    scores, grads = (code.at(place, row * KEYS, "float") for place in (weights, grad_scores))
    query = first + row
    load = masked_scores(code, at, scores, batch, query, key, masked)
    factor = code.splat(code.convert(at["scale"], "float"), lanes)
    count = at["batch"] * at["queries"]
    term = count * at["columns"] + batch * at["queries"] + query
    logsumexp, rest = code.load(at["saved"], term, "float"), code.load(at["saved"], term + count, "float")
    delta = code.load(deltas, row, "float")
    visible = visible_keys(code, at, query, key, keys)
    has_weights = code.splat(logsumexp.differs(-math.inf), lanes)

    def step(i: IrValue, mask: IrValue | None) -> None:
        weight = code.select(has_weights, weight_of(code, load(i, mask) - logsumexp - rest), 0.0)
        grad = (code.load(grads, i, type, mask) - delta) * weight * factor
        code.store(weight, scores, i, mask)
        code.store(code.select(weight.differs(0.0), grad, 0.0), grads, i, mask)  # 0 * nan is nan

    row_passes(code, visible, lanes, step)
    zeros = code.constant(type, 0.0)

    def hide(i: IrValue, mask: IrValue | None) -> None:
        code.store(zeros, scores, i, mask)
        code.store(zeros, grads, i, mask)

    row_passes(code, keys, lanes, hide, visible)
