"""What order and frequency say: medians, quantiles, histograms. Places are found on the host."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.composite.sort_and_count import Sorted, searchsorted, sort
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import lerp
from dl4all.ops.elementwise.comparison import isnan
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.gather_scatter import gather, index_select, nonzero
from dl4all.ops.indexing.indices import NDArray
from dl4all.ops.memory.views import flatten, movedim, reshape, squeeze, unsqueeze
from dl4all.ops.reduce.any_all import any
from dl4all.ops.reduce.reduction_kernel import one_axis

T = TypeVar("T", bound=TensorBase)
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _chosen(input: Any, places: NDArray, axis: int, keepdim: bool) -> Sorted:
    """The elements at one place of each line along an axis, and the places."""
    if not input.shape:
        index = from_host(type(input).result_class, places.reshape(()), input.device, copy=False)
        return Sorted(gather(input, 0, index), index)
    kept = np.ascontiguousarray(np.expand_dims(places, axis), np.int64)
    values = gather(input, axis, kept)
    index = from_host(type(input).result_class, kept, input.device, copy=False)
    return Sorted(values, index) if keepdim else Sorted(squeeze(values, axis), squeeze(index, axis))


def _lines(name: str, input: TensorBase, dim: int) -> tuple[NDArray, int]:
    """The elements on the host with the axis last, and which axis that was.

    Raises:
        ArgumentError: there is no such axis, or nothing along it.
    """
    axis = one_axis(name, dim, len(input.shape))
    array = np.moveaxis(np.atleast_1d(input.on_host()), axis, -1)
    if array.shape[-1] == 0:
        raise ArgumentError(f"[{name}] axis {axis} of shape {input.shape} has no elements")
    return array, axis


@export("dl", "Tensor")
@reads("input")
def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element, of an even number the lower one; nan if there is one.

    Args:
        input: any dtype.
        dim: the axis; by default all elements count.
        keepdim: whether the axis stays, with size 1.

    Returns:
        A tensor, or with `dim` a pair of `values` and int64 `indices`.

    Raises:
        ArgumentError: there is no such axis, or no element.

    Example:
        >>> import dl4all as dl
        >>> dl.median(dl.tensor([3.0, 1.0, 2.0, 4.0])).item()
        2.0
    """
    return _median("median", input, dim, keepdim)


@export("dl", "Tensor")
@reads("input")
def nanmedian(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle one of the elements that are not nan, of an even number the lower one.

    Arguments, results and errors are those of :func:`median`.

    Example:
        >>> import dl4all as dl
        >>> dl.nanmedian(dl.tensor([3.0, float("nan"), 2.0])).item()
        2.0
    """
    return _median("nanmedian", input, dim, keepdim)


def _median(name: str, input: Any, dim: int | None, keepdim: bool) -> Any:
    if dim is None:
        return _median(name, flatten(input), 0, False).values
    array, axis = _lines(name, input, dim)
    order = np.argsort(array, -1, kind="stable")
    unknown = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    known = array.shape[-1] - unknown.sum(-1)
    places = np.take_along_axis(order, np.maximum(known - 1, 0)[..., None] // 2, -1)[..., 0]
    if name == "median":
        places = np.where(unknown.any(-1), unknown.argmax(-1), places)
    return _chosen(input, places, axis, keepdim)


@export("dl", "Tensor")
@reads("input")
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The `k` th smallest element along an axis, counted from 1; nan counts as the largest.

    Returns:
        ``values`` and int64 ``indices``.

    Raises:
        ArgumentError: there is no such axis, or it has less than `k` elements.

    Example:
        >>> import dl4all as dl
        >>> dl.kthvalue(dl.tensor([3.0, 1.0, 2.0]), 2).values.item()
        2.0
    """
    array, axis = _lines("kthvalue", input, dim)
    if not 1 <= k <= array.shape[-1]:
        raise ArgumentError(f"[kthvalue] k must be from 1 to {array.shape[-1]}, got {k}")
    return _chosen(input, np.argsort(array, -1, kind="stable")[..., k - 1], axis, keepdim)


@export("dl", "Tensor")
@reads("input")
def mode(input: Any, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The element that comes most often along an axis, of several the smallest, and where it is last.

    Returns:
        ``values`` and int64 ``indices``.

    Raises:
        ArgumentError: there is no such axis, or nothing along it.

    Example:
        >>> import dl4all as dl
        >>> dl.mode(dl.tensor([3, 1, 3, 2])).values.item()
        3
    """
    array, axis = _lines("mode", input, dim)
    order = np.argsort(array, -1, kind="stable")
    ranked = np.take_along_axis(array, order, -1)
    size = array.shape[-1]
    begins = np.ones(array.shape, bool)
    begins[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    starts = np.maximum.accumulate(np.where(begins, np.arange(size), 0), -1)
    last = np.argmax(np.arange(size) - starts, -1)  # where the first of the longest runs ends
    return _chosen(input, np.take_along_axis(order, last[..., None], -1)[..., 0], axis, keepdim)


@export("dl", "Tensor")
def msort(input: T) -> T:
    """The elements along the first axis in order.

    Example:
        >>> import dl4all as dl
        >>> dl.msort(dl.tensor([[3.0, 1.0], [2.0, 4.0]])).tolist()
        [[2.0, 1.0], [3.0, 4.0]]
    """
    return sort(input, 0).values  # type: ignore[no-any-return]


@export("dl", "Tensor")
@reads("input", "q")
def quantile(
    input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    """The value below which a share `q` of the elements lies; nan where there is a nan.

    Args:
        input: floats.
        q: from 0 to 1, a number or a 1-d tensor of several.
        dim: the axis; by default all elements count.
        keepdim: whether the axis stays, with size 1.
        interpolation: what is taken between two elements: "linear", "lower", "higher", "midpoint" or
            "nearest".

    Returns:
        The input's shape without the axis; of several `q` with an axis for them in front.

    Raises:
        ArgumentError: `q` is out of range, there is no such axis or nothing along it, or no such
            interpolation.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.quantile(dl.tensor([0.0, 10.0, 20.0]), 0.25).item()
        5.0
    """
    if interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        raise ArgumentError(f"[quantile] interpolation must be one of {known}, got {interpolation!r}")
    if input.dtype.kind != "f":
        raise DTypeError(f"[quantile] expected floats, got {input.dtype}; convert with .float()")
    shares = np.asarray(q.on_host() if isinstance(q, TensorBase) else q, input.dtype)
    if shares.ndim > 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise ArgumentError(f"[quantile] q must be a number from 0 to 1, or a 1-d tensor of them, got {q!r}")
    if dim is None:
        found = _quantiles(flatten(input), shares, interpolation)
        return reshape(found, *found.shape, *(1,) * len(input.shape)) if keepdim else found
    axis = one_axis("quantile", dim, len(input.shape))
    last = movedim(input, axis, -1) if input.shape else reshape(input, 1)
    found = _quantiles(last, shares, interpolation)
    return unsqueeze(found, axis + shares.ndim) if keepdim and input.shape else found


def _quantiles(lines: Any, shares: NDArray, interpolation: str) -> Any:
    """Along the last axis; the axis of `shares` comes first."""
    size = lines.shape[-1]
    if size == 0:
        raise ArgumentError(f"[quantile] there are no elements in shape {lines.shape}")
    ranks = shares.reshape(-1) * lines.dtype.type(size - 1)
    if interpolation == "nearest":
        ranks = np.rint(ranks)
    elif interpolation in ("lower", "higher"):
        ranks = (np.floor if interpolation == "lower" else np.ceil)(ranks)
    ordered = sort(lines, -1).values
    below = np.floor(ranks).astype(np.int64)
    found = index_select(ordered, -1, below)
    if interpolation in ("linear", "midpoint"):
        weights = np.full(ranks.shape, 0.5) if interpolation == "midpoint" else ranks - below
        weights = np.where(ranks == below, 0, weights).astype(lines.dtype)
        above = index_select(ordered, -1, np.minimum(below + 1, size - 1))
        found = lerp(found, above, from_host(type(lines).result_class, weights, lines.device, copy=False))
    found = where(any(isnan(lines), -1, keepdim=True), np.nan, found)
    return movedim(found, -1, 0) if shares.ndim else squeeze(found, -1)


@export("dl", "Tensor")
def argwhere(input: T) -> T:
    """The places of the elements that are not 0, a line for each; :func:`nonzero`.

    Example:
        >>> import dl4all as dl
        >>> dl.argwhere(dl.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
        [[0, 1], [1, 0]]
    """
    return nonzero(input)  # type: ignore[no-any-return]


@export("dl")
def bucketize(input: Any, boundaries: TensorBase, *, right: bool = False) -> Any:
    """Between which boundaries elements lie: :func:`searchsorted` with its operands in the other order.

    Args:
        input: a tensor or a number.
        boundaries: rising, 1-d.
        right: an element that is a boundary lies behind it, not before it.

    Returns:
        int64, of the input's shape.

    Raises:
        ArgumentError: the boundaries have not one axis.

    Example:
        >>> import dl4all as dl
        >>> dl.bucketize(dl.tensor([0.5, 2.5]), dl.tensor([1.0, 2.0, 3.0])).tolist()
        [0, 2]
    """
    if len(boundaries.shape) != 1:
        raise ArgumentError(f"[bucketize] boundaries must have one axis, got shape {boundaries.shape}")
    return searchsorted(boundaries, input, right=right)


@export("dl", "Tensor")
@reads("input")
def histc(input: T, bins: int = 100, min: float = 0, max: float = 0) -> T:
    """How many elements lie in each of equally wide bins; what lies outside does not count.

    Args:
        input: floats.
        bins: how many.
        min, max: where the first begins and the last ends; both 0 for the smallest and largest element.

    Returns:
        Shape (bins,), of the input's dtype.

    Raises:
        ArgumentError: there is no bin, or `min` is above `max`, or one is not finite.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.histc(dl.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3).tolist()
        [0.0, 2.0, 1.0, 0.0]
    """
    if input.dtype.kind != "f":
        raise DTypeError(f"[histc] expected floats, got {input.dtype}; convert with .float()")
    array = input.on_host().astype(np.float64).reshape(-1)
    low, high = (min, max) if (min, max) != (0, 0) or not array.size else (array.min(), array.max())
    if bins < 1 or not low <= high or not np.isfinite([low, high]).all():
        raise ArgumentError(f"[histc] expected bins, and finite limits that rise, not {bins}, {low}, {high}")
    if low == high:
        low, high = low - 1, high + 1
    within = array[(array >= low) & (array <= high)]
    places = np.minimum(((within - low) * bins / (high - low)).astype(np.int64), bins - 1)
    counts = np.bincount(places, minlength=bins).astype(input.dtype)
    made: T = from_host(type(input).result_class, counts, input.device, copy=False)
    return made


@export("dl", "Tensor")
@reads("input")
def unique_consecutive(
    input: T, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements without those that equal the one before; with `dim`, the places along that axis.

    Args:
        input: a tensor of any dtype.
        return_inverse: also, for each element, where it is among those that are left.
        return_counts: also, how many of each there were in a row.
        dim: the axis; by default all elements count in row-major order.

    Returns:
        A tensor, or a tuple with what was asked for behind it.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.unique_consecutive(dl.tensor([1, 1, 2, 1])).tolist()
        [1, 2, 1]
    """
    source: Any = flatten(input) if dim is None else input
    axis = strides.axis("unique_consecutive", 0 if dim is None else dim, len(source.shape))
    rows = np.moveaxis(source.on_host(), axis, 0)
    rows = rows.reshape(len(rows), -1 if rows.size else 0)
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(new)
    made = [index_select(source, axis, starts)]
    if return_inverse:
        inverse = np.cumsum(new, dtype=np.int64) - 1
        made.append(_placed(input, inverse.reshape(input.shape if dim is None else (-1,))))
    if return_counts:
        made.append(_placed(input, np.diff(np.append(starts, len(rows))).astype(np.int64)))
    return tuple(made) if len(made) > 1 else made[0]


def _placed(like: TensorBase, array: NDArray) -> Any:
    return from_host(type(like).result_class, array, like.device, copy=False)
