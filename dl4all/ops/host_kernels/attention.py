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
from dl4all.runtime.cpu.llvm.ir import Code, Module, Value, lanes_of, vector

QUERIES, KEYS = 64, 128
"""Of a block, whose scores are in memory at a time."""

SMALLEST_SCORE = -87.0
"""Of which the exponential is a normal number."""

PACK_GRAIN = 32768
"""Elements of panels that a thread packs at a time."""

CONSTANTS = (
    "batch", "queries", "keys", "features", "columns", "q_batch", "q_row", "q_column", "k_batch", "k_row",
    "k_column", "v_batch", "v_row", "v_column", "mask_count", "mask_batch", "mask_row", "mask_column", "repeats",
    "causal", "k_panels", "v_panels", "pack_grain", "scale",
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


@host_kernel("flash_attention_backward")
def prepare_flash_attention_backward(
    out: Layout, grad: Layout, query: Layout, key: Layout, value: Layout, mask: Layout | None,
    saved: Layout | None, *, scale: float, causal: bool, repeats: int,
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
    constants = _constants(query, key, value, mask, scale, causal, repeats)
    batch, queries, keys, features, columns = constants[:5]
    panels = batch * (panel_elements(features, keys) + panel_elements(columns, keys)) * 4
    work = batch * queries * keys * (3 * features + 2 * columns)
    has_terms = grad.numel() > batch * queries * columns
    return HostLaunch(
        flash_attention_backward, (mask is not None, has_terms), 6 + (mask is not None), constants,
        scratch=panels, work=work // 8,
    )  # fmt: skip


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
        repeats, int(causal), panel_elements(features, keys), panel_elements(columns, keys), pack_grain, float(scale),
    )  # fmt: skip


Slots = dict[str, Value]


def _slots(code: Code, addresses: tuple[str, ...]) -> Slots:
    """The values of all slots of a function."""
    at = {name: code.slot(place, "ptr") for place, name in enumerate(addresses)}
    types = {name: "double" if name == "scale" else "i64" for name in CONSTANTS}
    return at | {name: code.slot(len(addresses) + i, types[name]) for i, name in enumerate(CONSTANTS)}


def _panels(code: Code, at: Slots, operand: str, batch: Value) -> Value:
    """The address of the panels of a batch's keys, or of its values, which follow all keys."""
    if operand == "k":
        return code.at(at["panels"], batch * at["k_panels"], "float")
    return code.at(at["panels"], at["batch"] * at["k_panels"] + batch * at["v_panels"], "float")


def _write_pack(module: Module, addresses: tuple[str, ...], operand: str, depth: str) -> Code:
    """The part that packs the transposes of keys, or values, of all batches."""
    with module.part(f"pack_{operand}") as part:
        at = _slots(part, addresses)
        _, begin, end = part.parameters
        parts = pack_parts(part, at[depth], at["keys"])
        with part.loop(begin, end) as number:
            batch = number // parts
            source = part.at(at[operand], batch * at[f"{operand}_batch"], "float")
            target = _panels(part, at, operand, batch)
            strides = at[f"{operand}_column"], at[f"{operand}_row"]
            pack(part, source, strides, at[depth], at["keys"], target, number % parts)
    return part


def _visible(code: Code, at: Slots, query: Value, first_key: Value, keys: Value) -> Value:
    """How many keys of a block a query sees."""
    earlier = code.intrinsic("smin", keys, query + 1 - first_key)
    seen = code.intrinsic("smax", earlier, code.constant("i64", 0))
    return code.select(at["causal"].equals(0), keys, seen)


def _masked_scores(
    code: Code, at: Slots, scores: Value, batch: Value, query: Value, first_key: Value, masked: bool
) -> Callable[[Value, Value | None], Value]:
    """A function that loads a vector of a row of scores, scaled and with the mask."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    factor = code.splat(code.convert(at["scale"], "float"), lanes)
    if masked:
        number = batch // at["repeats"] % at["mask_count"]
        offset = number * at["mask_batch"] + query * at["mask_row"] + first_key * at["mask_column"]
        added = code.at(at["mask"], offset, "float")
        single = code.splat(code.load(added, 0, "float"), lanes)
        varies = code.splat(at["mask_column"].differs(0), lanes)

    def load(i: Value, mask: Value | None) -> Value:
        value = code.load(scores, i, type, mask) * factor
        if masked:
            inside = varies if mask is None else varies & mask
            value = value + code.select(varies, code.load(added, i, type, inside), single)
        return value

    return load


def _weight(code: Code, score: Value) -> Value:
    """The exponential of a score less its row's largest; 0 below float32's normal numbers, which take long."""
    normal = code.select(score < SMALLEST_SCORE, SMALLEST_SCORE, score)
    return code.select(score < SMALLEST_SCORE, 0.0, functions.exp(code, normal))


def flash_attention(masked: bool) -> Module:
    """Slots: queries, keys, values, the mask if there is one, result, panels; CONSTANTS."""
    addresses = ("q", "k", "v", *(("mask",) if masked else ()), "out", "panels")
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    width = tile_sizes().columns
    module = Module()
    packing = _write_pack(module, addresses, "k", "features")
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
            panels = _panels(part, at, "k", batch)
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
                    visible = _visible(part, at, first + row, key, keys)
                    load = _masked_scores(part, at, place, batch, first + row, key, masked)
                    largest = part.variable(type, -math.inf)
                    total = part.variable(type, 0.0)

                    def widest(i: Value, mask: Value | None) -> None:
                        value = load(i, mask)  # noqa: B023 - called within the loop
                        part.store(value, place, i, mask)  # noqa: B023
                        larger = value > largest.value  # noqa: B023
                        larger = larger if mask is None else larger & mask
                        largest.value = part.select(larger, value, largest.value)  # noqa: B023

                    row_passes(part, visible, lanes, widest)
                    before = part.load(maxima, row, "float")
                    block_most = _largest_lane(part, largest.value)
                    most = part.select(before > block_most, before, block_most)
                    part.store(most, maxima, row)
                    shift = part.select(most.equals(-math.inf), part.constant("float", 0.0), most)

                    def weigh(i: Value, mask: Value | None) -> None:
                        value = _weight(part, part.load(place, i, type, mask) - shift)  # noqa: B023
                        part.store(value, place, i, mask)  # noqa: B023
                        counted = value if mask is None else part.select(mask, value, 0.0)
                        total.value = total.value + counted  # noqa: B023

                    row_passes(part, visible, lanes, weigh)
                    zeros = part.constant(type, 0.0)

                    def hide(i: Value, mask: Value | None) -> None:
                        part.store(zeros, place, i, mask)  # noqa: B023

                    row_passes(part, keys, lanes, hide, visible)
                    summed = part.variable("float", part.sum_of(total.value))
                    with part.if_(key.differs(0)):
                        correction = _weight(part, part.splat(before - shift, lanes))
                        summed.value = summed.value + part.load(sums, row, "float") * part.extract(correction, 0)
                        result = part.at(target, row * at["columns"], "float")

                        def correct(i: Value, mask: Value | None) -> None:
                            value = part.load(result, i, type, mask) * correction  # noqa: B023
                            part.store(value, result, i, mask)  # noqa: B023

                        row_passes(part, at["columns"], lanes, correct)
                    part.store(summed.value, sums, row)
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


def _largest_lane(code: Code, value: Value) -> Value:
    """The largest lane of a vector without nan."""
    lanes = lanes_of(value.type)
    while lanes > 1:
        lanes //= 2
        low, high = (code.shuffle(value, value, range(first, first + lanes)) for first in (0, lanes)) if lanes > 1 else (code.extract(value, 0), code.extract(value, 1))
        value = code.select(low > high, low, high)
    return value


def _store_results(
    code: Code, at: Slots, target: Value, batch: Value, first: Value, rows: Value, maxima: Value, sums: Value
) -> None:
    """Divide a block's results by the sums of their weights, and write the two parts of the logsumexps."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    with code.loop(0, rows) as row:
        total = code.load(sums, row, "float")
        result = code.at(target, row * at["columns"], "float")
        is_visible = code.splat(total.differs(0.0), lanes)
        factor = code.splat(1.0 / total, lanes)

        def normalize(i: Value, mask: Value | None) -> None:
            value = code.load(result, i, type, mask) * factor  # noqa: B023 - called within the loop
            code.store(code.select(is_visible, value, 0.0), result, i, mask)  # noqa: B023

        row_passes(code, at["columns"], lanes, normalize)
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


def flash_attention_backward(masked: bool, terms: bool) -> Module:
    """Slots: gradient, queries, keys, values, the mask if there is one, what is saved, result, panels; CONSTANTS.

    With `terms`, the gradient has a part for logsumexps.
    """
    addresses = ("g", "q", "k", "v", *(("mask",) if masked else ()), "saved", "out", "panels")
    width = tile_sizes().columns
    module = Module()
    packs = [_write_pack(module, addresses, "k", "features"), _write_pack(module, addresses, "v", "columns")]
    with module.part("attend") as part:
        at = _slots(part, addresses)
        _, begin, end = part.parameters
        weights, grad_scores = (part.local("float", QUERIES * KEYS) for _ in range(2))
        deltas = part.local("float", QUERIES)
        features, columns = at["features"], at["columns"]
        count = (at["keys"] + (width - 1)) // width
        k_start = at["batch"] * at["queries"] * features
        v_start = k_start + at["batch"] * at["keys"] * features
        with part.loop(begin, end) as batch:
            q, k, v = (part.at(at[name], batch * at[f"{name}_batch"], "float") for name in "qkv")
            grad_q = part.at(at["out"], batch * at["queries"] * features, "float")
            grad_k = part.at(at["out"], k_start + batch * at["keys"] * features, "float")
            grad_v = part.at(at["out"], v_start + batch * at["keys"] * columns, "float")
            for place, elements in (
                (grad_q, at["queries"] * features), (grad_k, at["keys"] * features), (grad_v, at["keys"] * columns)
            ):  # fmt: skip
                _fill_zeros(part, place, elements)
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
                    block = Panels(_panels(part, at, "k", batch), count, key // width)
                    multiply(part, q_block, q_strides, block, weights, KEYS, (rows, keys, features))
                    block = Panels(_panels(part, at, "v", batch), count, key // width)
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
                        (grad_scores, q_block, at["q_row"], grad_k, features), (weights, g, columns, grad_v, columns)
                    ):  # fmt: skip
                        target = part.at(total, key * size, "float")
                        extent = (keys, size, rows)
                        multiply(part, factor, (1, KEYS), Rows(other, stride), target, size, extent, mode=ADD)
    with module.kernel("flash_attention_backward") as code:
        at = _slots(code, addresses)
        for packing, depth in zip(packs, ("features", "columns"), strict=True):
            parts = at["batch"] * pack_parts(code, at[depth], at["keys"])
            code.parallel(packing, code.parameters[0], parts, at["pack_grain"])
        code.parallel(part, code.parameters[0], at["batch"], 1)
    return module


def _fill_zeros(code: Code, place: Value, count: Value) -> None:
    lanes = provider.processor().lanes()
    zeros = code.constant(vector("float", lanes), 0.0)
    row_passes(code, count, lanes, lambda i, mask: code.store(zeros, place, i, mask))


def _deltas(code: Code, at: Slots, g: Value, first: Value, rows: Value, deltas: Value, terms: bool) -> None:
    """Write, for each query of a block, the sum of gradients times results, less the logsumexp's gradient."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    with code.loop(0, rows) as row:
        grads = code.at(g, row * at["columns"], "float")
        results = code.at(at["saved"], (first + row) * at["columns"], "float")
        total = code.variable(type, 0.0)

        def add(i: Value, mask: Value | None) -> None:
            factors = (code.load(place, i, type, mask) for place in (grads, results))  # noqa: B023
            total.value = code.intrinsic("fmuladd", *factors, total.value)  # noqa: B023

        row_passes(code, at["columns"], lanes, add)
        delta = code.sum_of(total.value)
        if terms:
            place = at["batch"] * at["queries"] * at["columns"] + first + row
            delta = delta - code.load(at["g"], place, "float")
        code.store(delta, deltas, row)


def _grad_scores_row(
    code: Code,
    at: Slots,
    weights: Value,
    grad_scores: Value,
    deltas: Value,
    batch: Value,
    first: Value,
    row: Value,
    key: Value,
    keys: Value,
    masked: bool,
) -> None:
    """Replace a row of scores by weights, and the gradients of weights by those of scores."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    scores, grads = (code.at(place, row * KEYS, "float") for place in (weights, grad_scores))
    query = first + row
    load = _masked_scores(code, at, scores, batch, query, key, masked)
    factor = code.splat(code.convert(at["scale"], "float"), lanes)
    count = at["batch"] * at["queries"]
    term = count * at["columns"] + batch * at["queries"] + query
    logsumexp, rest = code.load(at["saved"], term, "float"), code.load(at["saved"], term + count, "float")
    delta = code.load(deltas, row, "float")
    visible = _visible(code, at, query, key, keys)
    has_weights = code.splat(logsumexp.differs(-math.inf), lanes)

    def step(i: Value, mask: Value | None) -> None:
        weight = code.select(has_weights, _weight(code, load(i, mask) - logsumexp - rest), 0.0)
        grad = (code.load(grads, i, type, mask) - delta) * weight * factor
        code.store(weight, scores, i, mask)
        code.store(code.select(weight.differs(0.0), grad, 0.0), grads, i, mask)  # 0 * nan is nan

    row_passes(code, visible, lanes, step)
    zeros = code.constant(type, 0.0)

    def hide(i: Value, mask: Value | None) -> None:
        code.store(zeros, scores, i, mask)
        code.store(zeros, grads, i, mask)

    row_passes(code, keys, lanes, hide, visible)
