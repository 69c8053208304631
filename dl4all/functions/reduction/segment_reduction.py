"""Reductions of consecutive parts of a tensor."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.host import numbers, to_device_of
from dl4all.functions.indexing.scatter_reduction import index_reduce
from dl4all.ops.core import strides
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import clone, true_divide
from dl4all.ops.indexing.gather_scatter import index_add, index_select
from dl4all.ops.memory.views import expand, reshape

# The number that a reduction begins with, and the name of the reduction by index.
REDUCTIONS: dict[str, tuple[float, Literal["prod", "amax", "amin"] | None]] = {
    "sum": (0.0, None),
    "mean": (0.0, None),
    "max": (-math.inf, "amax"),
    "min": (math.inf, "amin"),
    "prod": (1.0, "prod"),
}


@export("dl")
@reads("lengths", "offsets")
def segment_reduce(
    data: Array,
    reduce: Literal["sum", "mean", "max", "min", "prod"],
    *,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Array:
    """A reduction of consecutive parts, the segments, along an axis.

    Args:
        data: floats.
        reduce: the reduction.
        lengths: of the segments; ints of shape ``data.shape[:axis] + (segments,)``, which sum up to the
            axis' size.
        indices: must be None, as in PyTorch.
        offsets: where segments begin, and where the last one ends, in place of `lengths`.
        axis: the axis of segments.
        unsafe: let `lengths` leave out elements at the end.
        initial: what each reduction begins with, and all that an empty segment gives. By default empty
            segments give 0, nan for "mean", 1 for "prod", and an infinity for "max" and "min".

    Returns:
        Shape ``data.shape[:axis] + (segments,) + data.shape[axis + 1:]``.

    Raises:
        ArgumentError: the reduction is unknown, not exactly one of `lengths` and `offsets` is given,
            `lengths` do not add up, or a segment reaches beyond the data.
        ShapeError: they have another shape.
        DTypeError: `data` is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.segment_reduce(dl.tensor([1.0, 2.0, 3.0]), "sum", lengths=dl.tensor([2, 0, 1])).tolist()
        [3.0, 0.0, 3.0]
    """
    check_float("segment_reduce", data)
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"[segment_reduce] reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    given = lengths if offsets is None else offsets
    if given is None or (lengths is not None and offsets is not None) or indices is not None:
        raise ArgumentError("[segment_reduce] expected either lengths or offsets, and no indices")
    axis = strides.axis("segment_reduce", axis, len(data.shape))
    lead, size, rest = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    table = numbers(given).astype(np.int64)
    counts = table if offsets is None else np.diff(table, axis=-1)
    if counts.ndim != axis + 1 or counts.shape[:-1] != lead:
        raise ShapeError(f"[segment_reduce] segments of shape {counts.shape} do not fit data of {data.shape}")
    if offsets is None and not unsafe and (counts.sum(-1) != size).any():
        raise ArgumentError(f"[segment_reduce] the lengths of segments do not add up to {size}")
    begins = np.cumsum(counts, -1) - counts if offsets is None else table[..., :-1]
    if min(counts.min(initial=0), begins.min(initial=0)) < 0 or (begins + counts).max(initial=0) > size:
        raise ArgumentError(f"[segment_reduce] a segment reaches beyond the {size} elements of axis {axis}")
    total = counts.size
    first = (begins + size * np.arange(math.prod(lead)).reshape(*lead, 1)).reshape(-1)
    each = counts.reshape(-1)
    places = np.repeat(np.arange(total), each)
    taken = np.arange(len(places)) + np.repeat(first - (np.cumsum(each) - each), each)
    rows = index_select(reshape(data, math.prod(lead) * size, *rest), 0, taken)
    neutral, name = REDUCTIONS[reduce]
    start = to_device_of(data, np.full((total,), neutral if initial is None else initial, data.dtype))
    begun = clone(expand(reshape(start, total, *(1,) * len(rest)), (total, *rest)))
    result = index_add(begun, 0, places, rows) if name is None else index_reduce(begun, 0, places, rows, name)
    if reduce == "mean":
        flat = np.ascontiguousarray(counts.reshape(total, *(1,) * len(rest)).astype(data.dtype))
        divisor = to_device_of(data, flat if initial is None else np.maximum(flat, 1))
        result = true_divide(result, divisor)
    return reshape(result, *lead, counts.shape[-1], *rest)
