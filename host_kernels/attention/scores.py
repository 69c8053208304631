"""Common parts of the kernels of attention: slots, packed keys and values, masked scores, and weights.

Scores are those of a block of queries with a block of keys, in rows that are KEYS apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dl4all.host_kernels.linalg.gemm import pack, pack_parts
from dl4all.host_kernels.linalg.gemm_panels import panel_elements
from dl4all.host_kernels.linalg.gemm_tiles import BLOCK, tile_sizes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

QUERIES, KEYS = 64, 128
"""Of a block, whose scores are in memory at a time."""

SMALLEST_SCORE = -87.0
"""Of which the exponential is a normal number."""

PACK_GRAIN = 32768
"""Elements of panels that a thread packs at a time."""


class AttentionSizes(NamedTuple):
    """The constants of the kernels. Strides count elements, those of a mask's axes of size 1 are 0."""

    batch: int
    queries: int
    keys: int
    features: int
    columns: int
    q_batch: int
    q_row: int
    q_column: int
    k_batch: int
    k_row: int
    k_column: int
    v_batch: int
    v_row: int
    v_column: int
    mask_count: int
    mask_batch: int
    mask_row: int
    mask_column: int
    repeats: int
    causal: int
    k_panels: int  # elements of the panels of a batch's keys
    v_panels: int
    pack_grain: int
    scale: float


def constants_of(
    query: ArrayLayout,
    key: ArrayLayout,
    value: ArrayLayout,
    mask: ArrayLayout | None,
    scale: float,
    causal: bool,
    repeats: int,
) -> AttentionSizes:
    """
    Raises:
        NoKernel: other dtypes, nothing to attend to, or values or a mask whose columns have gaps.
    """
    operands = (query, key, value, *(() if mask is None else (mask,)))
    if any(o.dtype != np.float32 for o in operands) or any(0 in o.shape for o in operands):
        raise NoKernel("attention of other dtypes, or to nothing")
    batch, queries, features = query.shape
    keys, columns = value.shape[1:]
    mask_count, mask_strides = 0, [0, 0, 0]
    if mask is not None:
        mask_count = mask.shape[0]
        mask_strides = [0 if size == 1 else step for size, step in zip(mask.shape, mask.strides, strict=True)]
    if (value.strides[2] != 1 and columns > 1) or mask_strides[2] not in (0, 1):
        raise NoKernel("columns with gaps")
    k_panels, v_panels = panel_elements(features, keys), panel_elements(columns, keys)
    pack_grain = max(1, PACK_GRAIN // (min(features, BLOCK) * tile_sizes().columns))
    return AttentionSizes._make((
        batch, queries, keys, features, columns, *query.strides, *key.strides, *value.strides, mask_count,
        *mask_strides, repeats, int(causal), k_panels, v_panels, pack_grain, float(scale),
    ))  # fmt: skip


Slots = dict[str, IrValue]


def attention_slots(code: Code, addresses: tuple[str, ...]) -> Slots:
    """The values of all slots of a function."""
    at = {name: code.slot(place, "ptr") for place, name in enumerate(addresses)}
    for place, name in enumerate(AttentionSizes._fields, len(addresses)):
        at[name] = code.slot(place, "double" if name == "scale" else "i64")
    return at


def panels_of(code: Code, at: Slots, operand: str, batch: IrValue) -> IrValue:
    """The address of the panels of a batch's keys, or of its values, which follow all keys."""
    if operand == "k":
        return code.at(at["panels"], batch * at["k_panels"], "float")
    return code.at(at["panels"], at["batch"] * at["k_panels"] + batch * at["v_panels"], "float")


def write_pack(module: IrModule, addresses: tuple[str, ...], operand: str, depth: str) -> Code:
    """The part that packs the transposes of keys, or values, of all batches."""
    with module.part(f"pack_{operand}") as part:
        at = attention_slots(part, addresses)
        _, begin, end = part.parameters
        parts = pack_parts(part, at[depth], at["keys"])
        with part.loop(begin, end) as number:
            batch = number // parts
            source = part.at(at[operand], batch * at[f"{operand}_batch"], "float")
            target = panels_of(part, at, operand, batch)
            strides = at[f"{operand}_column"], at[f"{operand}_row"]
            pack(part, source, strides, at[depth], at["keys"], target, number % parts)
    return part


def visible_keys(code: Code, at: Slots, query: IrValue, first_key: IrValue, keys: IrValue) -> IrValue:
    """The number of keys of a block that a query sees."""
    earlier = code.intrinsic("smin", keys, query + 1 - first_key)
    seen = code.intrinsic("smax", earlier, code.constant("i64", 0))
    return code.select(at["causal"].equals(0), keys, seen)


def masked_scores(
    code: Code, at: Slots, scores: IrValue, batch: IrValue, query: IrValue, first_key: IrValue, masked: bool
) -> Callable[[IrValue, IrValue | None], IrValue]:
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

    def load(i: IrValue, mask: IrValue | None) -> IrValue:
        value = code.load(scores, i, type, mask) * factor
        if masked:
            inside = varies if mask is None else varies & mask
            value = value + code.select(varies, code.load(added, i, type, inside), single)
        return value

    return load


def weight_of(code: Code, score: IrValue) -> IrValue:
    """The exponential of a score less its row's largest; 0 below the normal numbers, which take long."""
    normal = code.select(score < SMALLEST_SCORE, SMALLEST_SCORE, score)
    return code.select(score < SMALLEST_SCORE, 0.0, functions.exp(code, normal))
