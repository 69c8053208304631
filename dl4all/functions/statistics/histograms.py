"""Histograms; integers are counted on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.functions.host import computed_on_host, numbers, to_device_of
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_shape, integer, real
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import clamp, ge, le
from dl4all.ops.elementwise.logic import logical_and, where
from dl4all.ops.indexing.gather_scatter import index_add
from dl4all.ops.indexing.indices import integer_indices
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.views import flatten
from dl4all.ops.reduce.extrema import amax, amin
from dl4all.ops.sorting.placement import by_kernels_or_host


@export("dl", "Tensor")
@reads("input", "weights")
@computed_on_host("bincount")
def bincount(input: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """The number of times that each integer from 0 on occurs in a 1-d tensor, or the sum of its weights.

    Raises:
        ArgumentError: an integer is negative, the tensor is not 1-d, or `minlength` is negative or too large.
        OutOfMemoryError
        DTypeError: the elements are no integers.

    Example:
        >>> import dl4all as dl
        >>> dl.bincount(dl.tensor([0, 1, 1, 3])).tolist()
        [1, 2, 0, 1]
    """
    check_shape("bincount", (integer("bincount", "minlength", minlength, least=0),))
    integer_array = integer_indices("bincount", input)
    if integer_array.ndim != 1 or (integer_array.size and integer_array.min() < 0):
        raise ArgumentError("[bincount] expected a 1-d tensor of ints from 0 on")
    if weights is None:
        counts = np.bincount(integer_array, minlength=minlength)
        return to_device_of(input, counts.astype(np.int64))
    if weights.shape != integer_array.shape:
        raise ArgumentError(
            f"[bincount] the weights must have shape {integer_array.shape}, got {weights.shape}"
        )
    if kind_of(weights.dtype) == "b":
        raise DTypeError("[bincount] weights must be numbers, got bool")
    sums = np.bincount(integer_array, numbers(weights), minlength)
    return to_device_of(input, sums.astype(np.float32 if weights.dtype == np.float32 else np.float64))


@export("dl", "Tensor", out=True)
@reads("input")
def histc(input: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """The number of elements in each of equally wide bins; elements outside of them are not counted.

    Args:
        input: floats.
        bins: the number of bins.
        min, max: the limits of the bins; both 0 for the smallest and the largest element.

    Returns:
        Shape (bins,), of the input's dtype.

    Raises:
        ArgumentError: `bins` is below 1, `min` is above `max`, or a limit is not finite.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.histc(dl.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3).tolist()
        [0.0, 2.0, 1.0, 0.0]
    """
    if kind_of(input.dtype) != "f":
        raise DTypeError(f"[histc] expected floats, got {input.dtype}; convert with .float()")
    check_shape("histc", (integer("histc", "bins", bins),))
    low, high = real("histc", "min", min), real("histc", "max", max)
    if (low, high) == (0, 0) and input.numel():
        low, high = (float(numbers(limit)) for limit in (amin(tape.alias(input)), amax(tape.alias(input))))
    if bins < 1 or not low <= high or not np.isfinite([low, high]).all():
        raise ArgumentError(f"[histc] expected bins, and finite limits that rise, not {bins}, {low}, {high}")
    if low == high:
        width = float(np.maximum(1.0, np.abs(low) * 2.0**-20))  # which float32 still tells apart
        low, high = low - width, high + width

    def kernels() -> Array:
        x = flatten(tape.alias(input))
        inside = logical_and(ge(x, low), le(x, high))
        places = clamp(true_divide(mul(sub(x, low), bins), high - low), 0, bins - 1)
        indices = cast(where(inside, places, 0.0), "int32")
        counts = new_like(x, (bins,))
        fill_with(counts, 0)
        return index_add(counts, 0, indices, cast(inside, x.dtype.name))

    def host() -> Array:
        array = numbers(input).astype(np.float64).reshape(-1)
        inside = array[(array >= low) & (array <= high)]
        bin_indices = np.minimum(((inside - low) * bins / (high - low)).astype(np.int64), bins - 1)
        return to_device_of(input, np.bincount(bin_indices, minlength=bins).astype(input.dtype))

    return by_kernels_or_host("histc", input, kernels, host)


class Histogram(NamedTuple):
    """Sums of each bin, and the edges of the bins."""

    hist: Array
    bin_edges: Array


@export("dl", "Tensor")
@reads("input", "weight")
@computed_on_host("histogram")
def histogram(
    input: Array,
    bins: int | Array = 100,
    *,
    range: tuple[float, float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Histogram:
    """The number of elements in each bin, and the bins.

    Args:
        input: floats.
        bins: the number of equally wide bins, or their edges: ascending, of the input's dtype.
        range: the first and the last edge; by default the smallest and the largest element.
        weight: what each element counts, of the input's shape.
        density: whether the result is a density, whose integral is 1.

    Returns:
        ``hist`` of shape (bins,) and ``bin_edges`` of shape (bins + 1,), of the input's dtype.

    Raises:
        ArgumentError: there is no bin, or the range does not rise.
        DTypeError: the input is not of floats.
        ShapeError: the weights have another shape.

    Example:
        >>> import dl4all as dl
        >>> dl.histogram(dl.tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 4.0)).hist.tolist()
        [0.0, 2.0, 1.0, 0.0]
    """
    if kind_of(input.dtype) != "f":
        raise DTypeError(f"[histogram] expected floats, got {input.dtype}; convert with .float()")
    if weight is not None and weight.shape != input.shape:
        raise ShapeError(f"[histogram] expected weights of shape {input.shape}, got {weight.shape}")
    elements = numbers(input).reshape(-1)
    if isinstance(bins, TensorBase):
        edges = numbers(bins).reshape(-1)
        if len(edges) < 2 or (np.diff(edges) < 0).any():
            raise ArgumentError("[histogram] bins must be at least two edges that rise")
    else:
        check_shape("histogram", (integer("histogram", "bins", bins, least=1),))
        low, high = (elements.min(initial=np.inf), elements.max(initial=-np.inf)) if range is None else range
        if not elements.size and range is None:
            low, high = 0.0, 1.0
        if low == high:
            low, high = low - 0.5, high + 0.5
        if not low < high or not np.isfinite([low, high]).all():
            raise ArgumentError(f"[histogram] expected a finite range that rises, got {low} and {high}")
        edges = np.linspace(low, high, bins + 1, dtype=input.dtype)
    counted = None if weight is None else numbers(weight).reshape(-1)
    sums, _ = np.histogram(elements, edges, weights=counted, density=density)
    return Histogram(to_device_of(input, sums.astype(input.dtype)), to_device_of(input, edges.copy()))
