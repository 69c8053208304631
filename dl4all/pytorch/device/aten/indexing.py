"""Reading and writing by index and by mask, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dl4all import ops
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.promotion import check_fits
from dl4all.ops.indexing.gather_scatter import expanded_number
from dl4all.ops.indexing.indices import Indices, untracked_view
from dl4all.ops.indexing.rows import take_rows_backward
from dl4all.ops.memory.copy import copy_into, fill_with, new_like, overwrite
from dl4all.pytorch.device.dispatch.registration import declare, native, operand
from dl4all.pytorch.device.storage.memory import TORCH_DTYPES, NotNative, tensor
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

# By lists of indices, as in input[indices]


def key_of(indices: Sequence[Any]) -> tuple[Any, ...]:
    """The key of dl4all for ATen's list of indices, in which None selects all of an axis."""
    for index in indices:
        if index is not None and index.dtype.name == "uint8":
            raise NotNative("masks of uint8")
    return tuple(slice(None) if index is None else index for index in indices)


def index(input: Any, indices: Sequence[Any]) -> Any:
    return ops.getitem(input, key_of(indices))


@native("_index_put_impl_")
def index_put_in_place(
    target: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    own, value = tensor(target), operand(values)
    key = key_of([None if one is None else tensor(one) for one in indices])
    if isinstance(value, Tensor) and value.dtype != own.dtype:
        raise NotNative(f"values of {value.dtype} for a tensor of {own.dtype}")
    if accumulate:
        if not isinstance(value, Tensor):
            value = expanded_number(own, value, ())
        overwrite(own, ops.index_put(own, key, value, accumulate=True))
    else:
        ops.setitem(own, key, value)
    return target


# Along an axis


def _with_axis(function: Callable[..., Any], dtypes: tuple[str, ...]) -> Callable[..., Any]:
    """The same for tensors without axes, which count as vectors of one element."""

    def kernel(input: Any, dim: int, index: Any, *rest: Any, **options: Any) -> Any:
        if index.dtype.name not in dtypes:
            raise NotNative(f"indices of {index.dtype}")
        if input.shape:
            return function(input, dim, _vector(index), *rest, **options)
        lifted = [_vector(one) for one in rest]
        return ops.reshape(function(ops.reshape(input, 1), dim, _vector(index), *lifted, **options), ())

    return kernel


def _vector(value: Any) -> Any:
    return ops.reshape(value, 1) if isinstance(value, Tensor) and not value.shape else value


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    if isinstance(value, Tensor) and value.shape:
        value = ops.reshape(value, ())
    return ops.index_fill(input, dim, index, value)


def index_reduce(
    input: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    ndim = len(source.shape)
    line = [-1 if axis == dim % ndim else 1 for axis in range(ndim)]
    wide = ops.expand(ops.reshape(index, *line), source.shape)
    return scatter_reduce(input, dim, wide, source, reduce, include_self=include_self)


def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not index.numel():
        return new_like(input, index.shape)
    return ops.reshape(ops.gather(_vector(input), dim, _vector(index)), index.shape)


def scatter(input: Any, dim: int, index: Any, value: Any) -> Any:
    return ops.scatter(input, dim, index, value) if index.numel() else ops.clone(input)


def scatter_with(input: Any, dim: int, index: Any, value: Any, *, reduce: str) -> Any:
    if not isinstance(value, Tensor):
        value = expanded_number(input, value, index.shape)
    if reduce == "add":
        return scatter_add(input, dim, index, value)
    return scatter_reduce(input, dim, index, value, "prod")


def scatter_add(input: Any, dim: int, index: Any, value: Any) -> Any:
    return ops.scatter_add(input, dim, index, value) if index.numel() else ops.clone(input)


def scatter_reduce(
    input: Any, dim: int, index: Any, value: Any, reduce: Any, *, include_self: bool = True
) -> Any:
    if kind_of(input.dtype) != "f":
        raise NotNative(f"reductions of {input.dtype}")
    if not index.numel():
        return ops.clone(input)
    return ops.scatter_reduce(input, dim, index, value, reduce, include_self=include_self)


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    if not input.numel():  # PyTorch looks at no index then
        raise NotNative("a tensor without elements")
    return ops.index_add(input, dim, index, source, alpha=alpha)


INDEX = ("int64", "int32")
SLICES: dict[str, Callable[..., Any]] = {
    "index_select": ops.index_select,
    "index_add": index_add,
    "index_copy": ops.index_copy,
    "index_fill.int_Scalar": index_fill,
    "index_fill.int_Tensor": index_fill,
    "index_reduce": index_reduce,
}
ELEMENTS: dict[str, Callable[..., Any]] = {
    "scatter.src": scatter,
    "scatter.value": scatter,
    "scatter.reduce": scatter_with,
    "scatter.value_reduce": scatter_with,
    "scatter_add": scatter_add,
    "scatter_reduce.two": scatter_reduce,
}

# Of the flattened tensor, and by masks


def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    """Which element of a sequence each element of the repeated sequence is."""
    counts = repeats.on_host()
    if counts.dtype.name not in INDEX or counts.ndim != 1 or (counts < 0).any():
        raise NotNative(f"repeats of {counts.dtype} and shape {counts.shape}, which may not be negative")
    places = np.repeat(np.arange(len(counts), dtype=counts.dtype), counts)
    if output_size not in (None, len(places)):
        raise NotNative(f"{len(places)} elements, not the {output_size} that were promised")
    return from_numpy(places, repeats.device)


def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat, places, values = (ops.reshape(one, -1) for one in (input, index, source))
    if not index.numel():
        return ops.clone(input)
    return ops.reshape(ops.index_put(flat, (places,), values, accumulate), input.shape)


def _check_mask(mask: Any) -> None:
    if mask.dtype.name != "bool":
        raise NotNative(f"masks of {mask.dtype}")


def _widened(function: Callable[..., Any], like: Any, *operands: Any) -> Any:
    """The result of a function that moves elements, by way of int32 for integers shorter than a word."""
    if like.dtype.name not in ("int16", "int8", "uint8"):
        return function(*operands)
    wide = [ops.cast(one, "int32") if getattr(one, "dtype", None) == like.dtype else one for one in operands]
    return ops.cast(function(*wide), like.dtype.name)


def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    _check_mask(mask)
    if isinstance(value, Tensor) and value.shape:
        raise NotNative("a value with axes")
    if isinstance(value, Tensor) and value.dtype != input.dtype:
        if not torch.can_cast(TORCH_DTYPES[value.dtype], TORCH_DTYPES[input.dtype]):
            raise NotNative(f"a value of {value.dtype} for a tensor of {input.dtype}")
        value = ops.cast(value, input.dtype.name)
    elif kind_of(input.dtype) == "b" and not isinstance(value, Tensor):
        value = bool(value)
    elif kind_of(input.dtype) != "f" and isinstance(value, int):
        check_fits("masked_fill", value, input.dtype)
    return _widened(ops.masked_fill, input, input, mask, value)


def masked_select(input: Any, mask: Any) -> Any:
    _check_mask(mask)
    return ops.masked_select(input, mask)


def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    _check_mask(mask)
    return ops.masked_scatter(input, mask, source)


def where(condition: Any, input: Any, other: Any) -> Any:
    _check_mask(condition)
    if isinstance(input, Tensor) and isinstance(other, Tensor) and input.dtype == other.dtype:
        return _widened(ops.where, input, condition, input, other)
    return ops.where(condition, input, other)


def nonzero_static(input: Any, *, size: int, fill_value: int = -1) -> Any:
    found = ops.nonzero(input)
    result = new_like(found, (size, found.shape[1]))
    fill_with(result, fill_value)
    count = min(size, found.shape[0])
    copy_into(untracked_view(result, slice(0, count)), untracked_view(found, slice(0, count)))
    return result


# Gradients of views


def _zeros(like: Any, sizes: Sequence[int]) -> Any:
    result = new_like(like, tuple(sizes))
    fill_with(result, 0)
    return result


def slice_backward(
    grad_output: Any, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Any:
    result = _zeros(grad_output, input_sizes)
    axis = dim % len(input_sizes)
    copy_into(untracked_view(result, (*(slice(None),) * axis, slice(start, end, step))), grad_output)
    return result


def select_backward(grad_output: Any, input_sizes: Sequence[int], dim: int, index: int) -> Any:
    result = _zeros(grad_output, input_sizes)
    copy_into(untracked_view(result, (*(slice(None),) * (dim % len(input_sizes)), index)), grad_output)
    return result


def unfold_backward(grad_in: Any, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    """The sums over all windows that an element is in; windows are along `dim`, their elements last."""
    sizes = tuple(input_sizes)
    if not sizes:
        return ops.reshape(grad_in, ())
    axis = dim % len(sizes)
    windows = grad_in.shape[axis]
    outer, inner = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
    rows = ops.reshape(ops.movedim(grad_in, -1, axis + 1), outer, windows * size, inner)
    places = Indices(np.add.outer(np.arange(windows) * step, np.arange(size)))
    return ops.reshape(take_rows_backward(rows, places, sizes[axis]), sizes)


KERNELS: dict[str, Callable[..., Any]] = {
    "index.Tensor": index,
    "_unsafe_index.Tensor": index,
    "gather": gather,
    "repeat_interleave.Tensor": repeat_interleave,
    "take": ops.take,
    "put": put,
    "masked_fill.Scalar": masked_fill,
    "masked_fill.Tensor": masked_fill,
    "masked_select": masked_select,
    "masked_scatter": masked_scatter,
    "nonzero": ops.nonzero,
    "nonzero_static": nonzero_static,
    "slice_backward": slice_backward,
    "select_backward": select_backward,
    "unfold_backward": unfold_backward,
}

for _name, _function in SLICES.items():
    declare(_name, _with_axis(_function, INDEX))
for _name, _function in ELEMENTS.items():
    declare(_name, _with_axis(_function, (*INDEX, "uint8")))
for _name, _function in KERNELS.items():
    declare(_name, _function)
declare("where.self", where, pointwise=True)
