"""Quantiles of the elements that are numbers."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.functions.host import numbers, to_device_of
from dl4all.functions.sorting.order_statistics import INTERPOLATIONS, Interpolation
from dl4all.functions.sorting.sort_and_search import sort
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import lerp, mul, sub
from dl4all.ops.elementwise.comparison import clamp, isnan, minimum
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import ceil, floor, round
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import flatten, movedim, reshape, squeeze, unsqueeze
from dl4all.ops.reduce.reduction_kernel import one_axis
from dl4all.ops.reduce.sums import sum


@export("dl", "Tensor")
@reads("input", "q")
def nanquantile(
    input: Array,
    q: Array | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: Interpolation = "linear",
) -> Array:
    """:func:`quantile` of the elements that are not nan; nan where there are none.

    Args:
        input, q, dim, keepdim, interpolation: as for :func:`quantile`.

    Returns:
        As :func:`quantile`.

    Raises:
        ArgumentError, DTypeError: as for :func:`quantile`.

    Example:
        >>> import dl4all as dl
        >>> dl.nanquantile(dl.tensor([0.0, float("nan"), 10.0, 20.0]), 0.25).item()
        5.0
    """
    if interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        raise ArgumentError(f"[nanquantile] interpolation must be one of {known}, got {interpolation!r}")
    if kind_of(input.dtype) != "f":
        raise DTypeError(f"[nanquantile] expected floats, got {input.dtype}; convert with .float()")
    fractions = np.asarray(numbers(q) if isinstance(q, TensorBase) else q, input.dtype)
    if fractions.ndim > 1 or not ((fractions >= 0) & (fractions <= 1)).all():
        raise ArgumentError(
            f"[nanquantile] q must be a number from 0 to 1, or a 1-d tensor of them, got {q!r}"
        )
    axis = None if dim is None else one_axis("nanquantile", dim, len(input.shape))
    lines = flatten(input) if axis is None or not input.shape else movedim(input, axis, -1)
    if not lines.shape[-1]:
        raise ArgumentError(f"[nanquantile] there are no elements in shape {input.shape}")
    if isinstance(q, TensorBase) and tape.wants_gradient(q):
        shares: Array = flatten(q)
    else:
        shares = to_device_of(lines, fractions.reshape(-1))
    found = movedim(_quantiles_of_numbers(lines, shares, interpolation), -1, 0)
    result = found if fractions.ndim else squeeze(found, 0)
    if not keepdim or not input.shape:
        return result
    if axis is None:
        return reshape(result, *fractions.shape, *(1,) * len(input.shape))
    return unsqueeze(result, axis + fractions.ndim)


def _quantiles_of_numbers(lines: Array, fractions: Array, interpolation: Interpolation) -> Array:
    """Quantiles along the last axis of the elements that are numbers, with the fractions as last axis."""
    ascending = sort(lines, -1).values  # nan comes last
    counts = sum(cast(isnan(lines), "int64"), -1, keepdim=True)
    last = clamp(lines.shape[-1] - 1 - counts, min=0)
    ranks = mul(cast(last, lines.dtype.name), fractions)
    below = floor(ranks)
    if interpolation == "nearest":
        below = round(ranks)
    elif interpolation == "higher":
        below = ceil(ranks)
    lower = cast(below, "int64")
    result = gather(ascending, -1, lower)
    if interpolation not in ("linear", "midpoint"):
        return result
    upper = gather(ascending, -1, minimum(lower + 1, last))
    share = sub(ranks, below)
    return lerp(
        result, upper, share if interpolation == "linear" else where(share == 0, 0.0, share * 0 + 0.5)
    )
