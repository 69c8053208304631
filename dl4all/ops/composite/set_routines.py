"""Set routines: unique elements and membership. They run on the host, gradients stay on the device."""

from __future__ import annotations

from typing import overload

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.composite.host import computed_on_host, to_device_of
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.gather_scatter import index_select
from dl4all.ops.indexing.indices import NDArray
from dl4all.ops.memory.views import flatten


@overload
def unique(input: Array, sorted: bool = True, *, dim: int | None = None) -> Array: ...
@overload
def unique(
    input: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Array | tuple[Array, ...]: ...
@export("dl", "Tensor")
@reads("input")
@computed_on_host("unique")
def unique(
    input: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Array | tuple[Array, ...]:
    """The different elements in ascending order; with `dim`, the different slices along that axis.

    Args:
        input: a tensor of any dtype.
        sorted: has no effect; the result is always sorted.
        return_inverse: also return the index of each element in the result.
        return_counts: also return how often each of the different elements occurs.
        dim: the axis.

    Returns:
        A tensor, or a tuple of it, the inverse and the counts if they are asked for. The gradient of an
        element goes to the first of the elements that equal it.
    """
    axis = None if dim is None else strides.axis("unique", dim, len(input.shape))
    _, first, inverse, counts = np.unique(
        input.on_host(),
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=axis,
        equal_nan=False,
    )
    source = flatten(input) if axis is None else input
    inverse = inverse.reshape(input.shape if axis is None else (input.shape[axis],))
    return _with_inverse_and_counts(
        index_select(source, axis or 0, first),
        inverse if return_inverse else None,
        counts if return_counts else None,
    )


@overload
def unique_consecutive(input: Array, *, dim: int | None = None) -> Array: ...
@overload
def unique_consecutive(
    input: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Array | tuple[Array, ...]: ...
@export("dl", "Tensor")
@reads("input")
@computed_on_host("unique_consecutive")
def unique_consecutive(
    input: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Array | tuple[Array, ...]:
    """The elements without those that equal their predecessor; with `dim`, the slices along that axis.

    Args:
        input: a tensor of any dtype.
        return_inverse: also return the index of each element in the result.
        return_counts: also return the length of each run of equal elements.
        dim: the axis; by default all elements in row-major order.

    Returns:
        A tensor, or a tuple of it, the inverse and the counts if they are asked for.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.unique_consecutive(dl.tensor([1, 1, 2, 1])).tolist()
        [1, 2, 1]
    """
    source = flatten(input) if dim is None else input
    axis = strides.axis("unique_consecutive", 0 if dim is None else dim, len(source.shape))
    slices = np.moveaxis(source.on_host(), axis, 0)
    slices = slices.reshape(len(slices), -1 if slices.size else 0)
    starts_run = np.ones(len(slices), bool)
    starts_run[1:] = (slices[1:] != slices[:-1]).any(1)
    starts = np.flatnonzero(starts_run)
    inverse = (np.cumsum(starts_run) - 1).reshape(input.shape if dim is None else (-1,))
    return _with_inverse_and_counts(
        index_select(source, axis, starts),
        inverse if return_inverse else None,
        np.diff(np.append(starts, len(slices))) if return_counts else None,
    )


def _with_inverse_and_counts(
    values: Array, inverse: NDArray | None, counts: NDArray | None
) -> Array | tuple[Array, ...]:
    arrays = [array for array in (inverse, counts) if array is not None]
    if not arrays:
        return values
    return (values, *(to_device_of(values, array.astype(np.int64)) for array in arrays))


@export("dl")
@reads("elements", "test_elements")
@computed_on_host("isin")
def isin(
    elements: Array | Scalar,
    test_elements: Array | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Array:
    """Whether each element occurs in another tensor.

    Args:
        elements, test_elements: tensors; one may be a number.
        assume_unique: has no effect.
        invert: return whether each element does not occur in it.

    Returns:
        bool, of the shape of `elements`.

    Raises:
        DTypeError: neither is a tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.isin(dl.tensor([1, 2, 3]), dl.tensor([2, 3])).tolist()
        [False, True, True]
    """
    tensors = [x for x in (elements, test_elements) if isinstance(x, TensorBase)]
    if not tensors:
        raise DTypeError("[isin] expected a tensor and numbers, got numbers only")
    searched, candidates = (
        x.on_host() if isinstance(x, TensorBase) else np.asarray(x) for x in (elements, test_elements)
    )
    return to_device_of(tensors[0], np.asarray(np.isin(searched, candidates, invert=invert)))
