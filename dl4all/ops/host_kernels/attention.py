"""Flash attention and its gradient: blocks of queries with a running maximum, the scores of a block in memory.

The products are tiles of gemm_tiles.py, the keys packed as their B. A chunk of the forward kernel is a block of
queries of one batch, a chunk of the gradient a batch.

Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022,
arXiv:2205.14135.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.host_kernels.gemm import Panels, Rows, multiply, pack, pack_parts
from dl4all.ops.host_kernels.gemm_panels import panel_elements
from dl4all.ops.host_kernels.gemm_tiles import ADD, tile_sizes
from dl4all.ops.host_kernels.rows import row_passes
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import Code, Module, Value, vector

QUERIES, KEYS = 64, 128
"""Of a block, whose scores are in memory at a time."""

PACK_GRAIN = 32768
"""Elements of panels that a thread packs at a time."""

CONSTANTS = (
    "batch", "queries", "keys", "features", "columns", "q_batch", "q_row", "q_column", "k_batch", "k_row",
    "k_column", "v_batch", "v_row", "v_column", "mask_count", "mask_batch", "mask_row", "mask_column", "repeats",
    "causal", "panel_elements", "pack_grain", "scale",
)  # fmt: skip


@host_kernel("flash_attention")
def prepare_flash_attention(
    out: Layout, query: Layout, key: Layout, value: Layout, mask: Layout | None, *, scale: float, causal: bool,
    repeats: int,
) -> HostLaunch:  # fmt: skip
    """
    Raises:
        NoKernel: other dtypes, nothing to attend to, or values or a mask whose columns have gaps.
    """
    constants = _constants(query, key, value, mask, scale, causal, repeats)
    batch, queries, keys, features, columns = constants[:5]
    panels = batch * panel_elements(features, keys) * 4
    work = batch * queries * keys * (features + columns)
    return HostLaunch(
        flash_attention, (mask is not None,), 4 + (mask is not None), constants, scratch=panels, work=work // 8
    )


def _constants(
    query: Layout, key: Layout, value: Layout, mask: Layout | None, scale: float, causal: bool, repeats: int
) -> tuple[int | float, ...]:
    """
    Raises:
        NoKernel
    """
    operands = (query, key, value, *(() if mask is None else (mask,)))
    if any(o.dtype != np.float32 for o in operands) or any(0 in o.shape for o in operands):
        raise NoKernel("attention of other dtypes, or to nothing")
    batch, queries, features = query.shape
    keys, columns = value.shape[1:]
    mask_strides = [0, 0, 0, 0]
    if mask is not None:
        mask_strides = [mask.shape[0], *(0 if n == 1 else s for n, s in zip(mask.shape, mask.strides, strict=True))]
    if (value.strides[2] != 1 and columns > 1) or mask_strides[3] not in (0, 1):
        raise NoKernel("columns with gaps")
    pack_grain = max(1, PACK_GRAIN // (min(features, 256) * tile_sizes().columns))
    return (
        batch, queries, keys, features, columns, *query.strides, *key.strides, *value.strides, *mask_strides,
        repeats, int(causal), panel_elements(features, keys), pack_grain, float(scale),
    )  # fmt: skip


Slots = dict[str, Value]


def _slots(code: Code, addresses: tuple[str, ...]) -> Slots:
    """The values of all slots of a function."""
    at = {name: code.slot(place, "ptr") for place, name in enumerate(addresses)}
    types = {name: "double" if name == "scale" else "i64" for name in CONSTANTS}
    return at | {name: code.slot(len(addresses) + i, types[name]) for i, name in enumerate(CONSTANTS)}


def _write_pack(module: Module, name: str, addresses: tuple[str, ...], operand: str, depth: str) -> Code:
    """The part that packs the transposes of keys, or values, of all batches."""
    with module.part(name) as part:
        at = _slots(part, addresses)
        _, begin, end = part.parameters
        parts = pack_parts(part, at[depth], at["keys"])
        with part.loop(begin, end) as number:
            batch = number // parts
            source = part.at(at[operand], batch * at[f"{operand}_batch"], "float")
            target = part.at(at["panels"], batch * at["panel_elements"], "float")
            strides = at[f"{operand}_column"], at[f"{operand}_row"]
            pack(part, source, strides, at[depth], at["keys"], target, number % parts)
    return part


def _masked_scores(
    code: Code, at: Slots, scores: Value, batch: Value, query: Value, first_key: Value, masked: bool
) -> Callable[[Value, Value | None], Value]:
    """A function that loads a vector of a row of scores: scaled, with the mask, -inf for later keys."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    factor = code.splat(code.convert(at["scale"], "float"), lanes)
    # How many keys of the block the query sees.
    limit = code.select(at["causal"].equals(0), at["keys"], query + 1) - first_key
    if masked:
        number = batch // at["repeats"] % at["mask_count"]
        offset = number * at["mask_batch"] + query * at["mask_row"] + first_key * at["mask_column"]
        added = code.at(at["mask"], offset, "float")
        single = code.splat(code.load(added, 0, "float"), lanes)

    def load(i: Value, mask: Value | None) -> Value:
        value = code.load(scores, i, type, mask) * factor
        if masked:
            varies = code.splat(at["mask_column"].differs(0), lanes)
            inside = varies if mask is None else varies & mask
            value = value + code.select(varies, code.load(added, i, type, inside), single)
        seen = code.first_lanes(limit - i, lanes)
        return code.select(seen if mask is None else seen & mask, value, -math.inf)

    return load


def flash_attention(masked: bool) -> Module:
    """Slots: queries, keys, values, the mask if there is one, result, panels; CONSTANTS."""
    addresses = ("q", "k", "v", *(("mask",) if masked else ()), "out", "panels")
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    width = tile_sizes().columns
    module = Module()
    packing = _write_pack(module, "pack", addresses, "k", "features")
    with module.part("attend") as part:
        at = _slots(part, addresses)
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
            panels = part.at(at["panels"], batch * at["panel_elements"], "float")
            with part.loop(0, rows) as row:
                part.store(part.constant("float", -math.inf), maxima, row)
                part.store(part.constant("float", 0.0), sums, row)
            with part.loop(0, last_key, KEYS) as key:
                keys = part.intrinsic("smin", last_key - key, part.constant("i64", KEYS))
                count = (at["keys"] + (width - 1)) // width
                block = Panels(panels, count, key // width)
                multiply(
                    part, q, (at["q_row"], at["q_column"]), block, scores, KEYS, (rows, keys, at["features"])
                )
                with part.loop(0, rows) as row:
                    place = part.at(scores, row * KEYS, "float")
                    load = _masked_scores(part, at, place, batch, first + row, key, masked)
                    largest = part.variable(type, -math.inf)
                    total = part.variable(type, 0.0)

                    def widest(i: Value, mask: Value | None) -> None:
                        value = load(i, mask)  # noqa: B023 - called within the loop
                        part.store(value, place, i, mask)  # noqa: B023
                        largest.value = part.intrinsic("maximum", largest.value, value)  # noqa: B023

                    row_passes(part, keys, lanes, widest)
                    before = part.load(maxima, row, "float")
                    most = part.intrinsic("maximum", before, part.largest_of(largest.value))
                    part.store(most, maxima, row)
                    shift = part.select(most.equals(-math.inf), part.constant("float", 0.0), most)
                    correction = functions.exp(part, part.splat(before - shift, lanes))

                    def weigh(i: Value, mask: Value | None) -> None:
                        value = functions.exp(part, part.load(place, i, type, mask) - shift)  # noqa: B023
                        part.store(value, place, i, mask)  # noqa: B023
                        counted = value if mask is None else part.select(mask, value, 0.0)
                        total.value = total.value + counted  # noqa: B023

                    row_passes(part, keys, lanes, weigh)
                    summed = part.load(sums, row, "float") * part.extract(correction, 0)
                    part.store(summed + part.sum_of(total.value), sums, row)
                    with part.if_(key.differs(0)):
                        result = part.at(target, row * at["columns"], "float")

                        def correct(i: Value, mask: Value | None) -> None:
                            value = part.load(result, i, type, mask) * correction  # noqa: B023
                            part.store(value, result, i, mask)  # noqa: B023

                        row_passes(part, at["columns"], lanes, correct)
                mode = part.select(key.equals(0), part.constant("i64", 0), ADD)
                values = Rows(part.at(v, key * at["v_row"], "float"), at["v_row"])
                extent = (rows, at["columns"], keys)
                multiply(part, scores, (KEYS, 1), values, target, at["columns"], extent, mode=mode)
            _store_results(part, at, target, batch, first, rows, maxima, sums)
    with module.kernel("flash_attention") as code:
        at = _slots(code, addresses)
        parts = at["batch"] * pack_parts(code, at["features"], at["keys"])
        code.parallel(packing, code.parameters[0], parts, at["pack_grain"])
        blocks = (at["queries"] + (QUERIES - 1)) // QUERIES
        code.parallel(part, code.parameters[0], at["batch"] * blocks, 1)
    return module


def _store_results(
    code: Code, at: Slots, target: Value, batch: Value, first: Value, rows: Value, maxima: Value, sums: Value
) -> None:
    """Divide a block's results by the sums of their weights, and write the two parts of the logsumexps."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    with code.loop(0, rows) as row:
        total = code.load(sums, row, "float")
        result = code.at(target, row * at["columns"], "float")
        is_visible = total.differs(0.0)

        def divide(i: Value, mask: Value | None) -> None:
            value = code.load(result, i, type, mask) / total  # noqa: B023 - called within the loop
            code.store(code.select(code.splat(is_visible, lanes), value, 0.0), result, i, mask)  # noqa: B023

        row_passes(code, at["columns"], lanes, divide)
    count = at["batch"] * at["queries"]
    terms = code.at(at["out"], count * at["columns"] + batch * at["queries"] + first, "float")

    def store_terms(i: Value, mask: Value | None) -> None:
        total, most = code.load(sums, i, type, mask), code.load(maxima, i, type, mask)
        is_visible = total.differs(0.0)
        logarithm = functions.log(code, code.select(is_visible, total, 1.0))
        logsumexp = code.select(is_visible, most + logarithm, -math.inf)
        rest = code.select(is_visible, logarithm - (logsumexp - most), 0.0)
        code.store(logsumexp, terms, i, mask)
        code.store(rest, code.at(terms, count, "float"), i, mask)

    row_passes(code, rows, lanes, store_terms)
