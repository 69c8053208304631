"""Sorting, selection by rank, unique elements, and searches in what is sorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all import ops
from dl4all.functions.host import to_device_of
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.memory.copy import new_like
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative
from dl4all.tensor.tensor import Tensor

INT64 = np.dtype(np.int64)

# Order along an axis


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return tuple(ops.sort(x, dim, descending))


def sort_stable(x: Tensor, *, stable: bool | None = False, dim: int = -1, descending: bool = False) -> Any:
    return tuple(ops.sort(x, dim, descending))


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return tuple(ops.topk(x, int(k), dim, largest))


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return tuple(ops.kthvalue(x, int(k), dim, keepdim))


declare("sort", sort)
declare("sort.stable", sort_stable)
declare("topk", topk)
declare("kthvalue", kthvalue)

# Unique elements


def _parts(x: Tensor, found: Any, *asked: bool) -> tuple[Any, ...]:
    """The unique elements, and what else was asked for; nothing in place of the rest."""
    first, *others = found if isinstance(found, tuple) else (found,)
    rest = iter(others)
    return (first, *(next(rest) if wanted else new_like(x, (0,), INT64) for wanted in asked))


def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    found = ops.unique(x, True, return_inverse, return_counts)
    return _parts(x, found, return_inverse, return_counts)


def unique_and_inverse(x: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    return _parts(x, ops.unique(x, True, return_inverse), return_inverse)


def unique_dim(
    x: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    found = ops.unique(x, True, return_inverse, return_counts, dim)
    return _parts(x, found, return_inverse, return_counts)


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    found = ops.unique_consecutive(x, return_inverse, return_counts, dim)
    return _parts(x, found, return_inverse, return_counts)


def unique_dim_consecutive(
    x: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return unique_consecutive(x, return_inverse, return_counts, dim)


declare("_unique", unique_and_inverse)
declare("_unique2", unique)
declare("unique_consecutive", unique_consecutive)
declare("unique_dim", unique_dim)
declare("unique_dim_consecutive", unique_dim_consecutive)

# Searches


def searchsorted(
    sorted_sequence: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    if right and side == "left":
        raise NotNative("sides that contradict each other")
    if sorter is not None:
        sorted_sequence = ops.gather(sorted_sequence, -1, sorter)
    if not isinstance(values, Tensor):
        if isinstance(values, float) and kind_of(sorted_sequence.dtype) != "f":
            raise NotNative("a fraction among integers")
        values = to_device_of(sorted_sequence, np.asarray(values, sorted_sequence.dtype))
    common = np.promote_types(sorted_sequence.dtype, values.dtype).name
    sorted_sequence, values = (
        x if x.dtype == common else ops.cast(x, common) for x in (sorted_sequence, values)
    )
    places = ops.searchsorted(sorted_sequence, values, right=right or side == "right")
    return ops.cast(places, "int32") if out_int32 else places


def bucketize(x: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    if len(boundaries.shape) != 1:
        raise NotNative("boundaries that are no vector")
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


declare("searchsorted.Tensor", searchsorted)
declare("searchsorted.Scalar", searchsorted)
declare("bucketize.Tensor", bucketize)
declare("bucketize.Scalar", bucketize)

# Counts


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Counts of integers too, as on PyTorch's other GPUs; models count tokens by expert so."""
    if kind_of(x.dtype) == "f":
        return ops.histc(x, bins, min, max)
    if x.dtype.itemsize > 4 or kind_of(x.dtype) not in "iu":
        raise NotNative(f"a histogram of {x.dtype}")
    return ops.cast(ops.histc(ops.cast(x, "float32"), bins, min, max), x.dtype.name)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    return ops.bincount(x, weights, int(minlength))


declare("histc", histc)
declare("bincount", bincount)
declare("isin.Tensor_Tensor", ops.isin)
declare("isin.Tensor_Scalar", ops.isin)
declare("isin.Scalar_Tensor", ops.isin)
