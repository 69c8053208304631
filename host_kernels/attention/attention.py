"""Flash attention: blocks of queries with a running maximum, the scores of a block in memory.

The products are tiles of gemm_tiles.py, with the transposed keys packed as their B. A chunk is a block of
queries of one batch.

Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022,
arXiv:2205.14135.
"""

from __future__ import annotations

import math

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
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import lanes_of, vector


@host_kernel("flash_attention", copies=True)
def prepare_flash_attention(
    out: ArrayLayout, query: ArrayLayout, key: ArrayLayout, value: ArrayLayout, mask: ArrayLayout | None, *,
    scale: float, causal: bool, repeats: int,
) -> HostLaunch:  # fmt: skip
    """
    Raises:
        NoKernel: other dtypes, nothing to attend to, or values or a mask whose columns have gaps.
    """
    sizes = constants_of(query, key, value, mask, scale, causal, repeats)
    work = sizes.batch * sizes.queries * sizes.keys * (sizes.features + sizes.columns) // 8
    masked = mask is not None
    return HostLaunch(
        flash_attention, (masked,), 4 + masked, sizes, scratch=4 * sizes.batch * sizes.k_panels, work=work
    )


def flash_attention(masked: bool) -> IrModule:
    """Slots: queries, keys, values, the mask if there is one, result, panels; AttentionSizes."""
    addresses = ("q", "k", "v", *(("mask",) if masked else ()), "out", "panels")
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    width = tile_sizes().columns
    module = IrModule()
    packing = write_pack(module, addresses, "k", "features")
    with module.part("attend") as part:
        at = attention_slots(part, addresses)
        _, begin, end = part.parameters
        blocks = (at["queries"] + (QUERIES - 1)) // QUERIES
        scores = part.local("float", QUERIES * KEYS)
        maxima, sums = part.local("float", QUERIES), part.local("float", QUERIES)
        with part.loop(begin, end) as number:
            batch, first = number // blocks, number % blocks * QUERIES
            rows = part.intrinsic("smin", at["queries"] - first, part.constant("i64", QUERIES))
            visible = part.intrinsic("smin", at["keys"], first + rows)
            last_key = part.select(at["causal"].equals(0), at["keys"], visible)
            q = part.at(at["q"], batch * at["q_batch"] + first * at["q_row"], "float")
            v = part.at(at["v"], batch * at["v_batch"], "float")
            target = part.at(at["out"], (batch * at["queries"] + first) * at["columns"], "float")
            panels = panels_of(part, at, "k", batch)
            with part.loop(0, rows) as row:
                part.store(part.constant("float", -math.inf), maxima, row)
            with part.loop(0, last_key, KEYS) as key:
                keys = part.intrinsic("smin", last_key - key, part.constant("i64", KEYS))
                count = (at["keys"] + (width - 1)) // width
                block = Panels(panels, count, key // width)
                multiply(
                    part, q, (at["q_row"], at["q_column"]), block, scores, KEYS, (rows, keys, at["features"])
                )
                with part.loop(0, rows) as row:
                    place = part.at(scores, row * KEYS, "float")
                    visible = visible_keys(part, at, first + row, key, keys)
                    load = masked_scores(part, at, place, batch, first + row, key, masked)
                    largest = part.variable(type, -math.inf)
                    total = part.variable(type, 0.0)

                    def widest(i: IrValue, mask: IrValue | None) -> None:
                        value = load(i, mask)
                        part.store(value, place, i, mask)
                        larger = value > largest.value
                        larger = larger if mask is None else larger & mask
                        largest.value = part.select(larger, value, largest.value)

                    row_passes(part, visible, lanes, widest)
                    before = part.load(maxima, row, "float")
                    block_most = _largest_lane(part, largest.value)
                    most = part.select(before > block_most, before, block_most)
                    part.store(most, maxima, row)
                    shift = part.select(most.equals(-math.inf), part.constant("float", 0.0), most)

                    def weigh(i: IrValue, mask: IrValue | None) -> None:
                        value = weight_of(part, part.load(place, i, type, mask) - shift)
                        part.store(value, place, i, mask)
                        counted = value if mask is None else part.select(mask, value, 0.0)
                        total.value = total.value + counted

                    row_passes(part, visible, lanes, weigh)
                    zeros = part.constant(type, 0.0)

                    def hide(i: IrValue, mask: IrValue | None) -> None:
                        part.store(zeros, place, i, mask)

                    row_passes(part, keys, lanes, hide, visible)
                    summed = part.variable("float", part.sum_of(total.value))
                    with part.if_(key.differs(0)):
                        correction = weight_of(part, part.splat(before - shift, lanes))
                        summed.value = summed.value + part.load(sums, row, "float") * part.extract(
                            correction, 0
                        )
                        result = part.at(target, row * at["columns"], "float")

                        def correct(i: IrValue, mask: IrValue | None) -> None:
                            value = part.load(result, i, type, mask) * correction
                            part.store(value, result, i, mask)

                        row_passes(part, at["columns"], lanes, correct)
                    part.store(summed.value, sums, row)
                mode = part.select(key.equals(0), part.constant("i64", 0), ADD)
                values = Rows(part.at(v, key * at["v_row"], "float"), at["v_row"])
                extent = (rows, at["columns"], keys)
                multiply(part, scores, (KEYS, 1), values, target, at["columns"], extent, mode=mode)
            _store_results(part, at, target, batch, first, rows, maxima, sums)
    with module.kernel("flash_attention") as code:
        at = attention_slots(code, addresses)
        parts = at["batch"] * pack_parts(code, at["features"], at["keys"])
        code.parallel(packing, code.parameters[0], parts, at["pack_grain"])
        blocks = (at["queries"] + (QUERIES - 1)) // QUERIES
        code.parallel(part, code.parameters[0], at["batch"] * blocks, 1)
    return module


def _largest_lane(code: Code, value: IrValue) -> IrValue:
    """The largest lane of a vector without nan."""
    lanes = lanes_of(value.type)
    while lanes > 1:
        lanes //= 2
        swapped = code.shuffle(value, value, [lane ^ lanes for lane in range(lanes_of(value.type))])
        value = code.select(value > swapped, value, swapped)
    return code.extract(value, 0)


def _store_results(
    code: Code,
    at: Slots,
    target: IrValue,
    batch: IrValue,
    first: IrValue,
    rows: IrValue,
    maxima: IrValue,
    sums: IrValue,
) -> None:
    """Divide a block's results by the sums of their weights, and write the two parts of the logsumexps."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    with code.loop(0, rows) as row:
        total = code.load(sums, row, "float")
        result = code.at(target, row * at["columns"], "float")
        is_visible = code.splat(total.differs(0.0), lanes)
        factor = code.splat(1.0 / total, lanes)

        def normalize(i: IrValue, mask: IrValue | None) -> None:
            value = code.load(result, i, type, mask) * factor
            code.store(code.select(is_visible, value, 0.0), result, i, mask)

        row_passes(code, at["columns"], lanes, normalize)
    count = at["batch"] * at["queries"]
    terms = code.at(at["out"], count * at["columns"] + batch * at["queries"] + first, "float")

    def store_terms(i: IrValue, mask: IrValue | None) -> None:
        total, most = code.load(sums, i, type, mask), code.load(maxima, i, type, mask)
        is_visible = total.differs(0.0)
        logarithm = functions.log(code, code.select(is_visible, total, 1.0))
        logsumexp = code.select(is_visible, most + logarithm, -math.inf)
        rest = code.select(is_visible, logarithm - (logsumexp - most), 0.0)
        code.store(logsumexp, terms, i, mask)
        code.store(rest, code.at(terms, count, "float"), i, mask)

    row_passes(code, rows, lanes, store_terms)
