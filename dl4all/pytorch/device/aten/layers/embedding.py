"""Tables of rows: look-up, sums of bags of rows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.ops.indexing.indices import Indices, indices_into
from dl4all.ops.indexing.rows import take_rows, take_rows_backward
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative
from dl4all.tensor.creation import from_numpy

SUM, MEAN, MAX = 0, 1, 2  # ATen's numbers for how a bag becomes one row


def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return ops.embedding(indices, weight)


def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """For each row of the table, the sum of the gradients of its copies."""
    columns = grad_output.shape[-1]
    places, _ = indices_into("embedding", indices, num_weights, grad_output)
    rows = ops.reshape(grad_output, 1, len(places), columns)
    if scale_grad_by_freq:
        rows = ops.mul(rows, _inverse_frequencies(indices))
    if padding_idx >= 0:
        places = places.without(padding_idx)
    return ops.reshape(take_rows_backward(rows, places, num_weights), num_weights, columns)


def _inverse_frequencies(indices: Any) -> Any:
    """For each index, one through how often it occurs, as a column."""
    numbers = indices.on_host().reshape(-1)
    inverse = 1 / np.bincount(numbers)[numbers]
    return from_numpy(inverse.astype(np.float32).reshape(-1, 1), indices.device)


def _bag_of_each(indices: Any, offsets: Any, include_last_offset: bool) -> tuple[npt.NDArray[Any], int]:
    """The bag that each index is in, and the number of bags."""
    starts = offsets.on_host().reshape(-1)
    count = indices.numel()
    ends = starts[1:] if include_last_offset else np.append(starts[1:], count)
    starts = starts[:-1] if include_last_offset else starts
    if not len(starts) or starts[0] != 0 or (ends < starts).any() or ends[-1] != count:
        raise NotNative(f"bags that do not rise from 0 to {count}")
    return np.repeat(np.arange(len(starts)), ends - starts), len(starts)


def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, Any, Any, Any]:
    """One row for each bag, the bag of each index, the sizes of bags, and the rows that maxima are from.

    An index of padding is in no bag. Where a bag is empty, the rows of its maxima are 0 and mean nothing.
    """
    if len(weight.shape) != 2 or len(indices.shape) != 1 or weight.dtype.name != "float32":
        raise NotNative(f"bags of {weight.dtype} rows of shape {weight.shape}")
    bag_of, bags = _bag_of_each(indices, offsets, include_last_offset)
    if padding_idx >= 0:
        bag_of = np.where(indices.on_host() == padding_idx, -1, bag_of)
    sizes = np.bincount(bag_of[bag_of >= 0], minlength=bags)
    places, _ = indices_into("embedding_bag", indices, weight.shape[0], weight)
    rows = take_rows(ops.reshape(weight, 1, *weight.shape), places)
    if per_sample_weights is not None:
        rows = ops.mul(rows, ops.reshape(per_sample_weights, 1, -1, 1))
    bag_sizes = from_numpy(sizes, weight.device)
    columns = weight.shape[1]
    if mode == MAX:
        result, maxima = _largest(rows, indices, bag_of, sizes)
    else:
        result = ops.reshape(take_rows_backward(rows, Indices(bag_of), bags), bags, columns)
        maxima = new_like(indices, (0,))
    if mode == MEAN:
        result = ops.true_divide(result, _divisors(sizes, weight))
    return result, from_numpy(bag_of, weight.device), bag_sizes, maxima


def _divisors(sizes: npt.NDArray[Any], like: Any) -> Any:
    """The sizes of bags as a column, 1 for empty ones."""
    return from_numpy(np.maximum(sizes, 1).astype(np.float32).reshape(-1, 1), like.device)


def _largest(rows: Any, indices: Any, bag_of: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> tuple[Any, Any]:
    """The largest elements of each bag, and the rows that they are from; bags are padded to equal lengths."""
    bags, longest = len(sizes), max(int(sizes.max(initial=0)), 1)
    order = np.argsort(bag_of, kind="stable")[np.count_nonzero(bag_of < 0) :]
    before = np.cumsum(sizes) - sizes
    members = np.full((bags, longest), -1)
    members[bag_of[order], np.arange(len(order)) - before[bag_of[order]]] = order
    columns = rows.shape[2]
    padded = ops.reshape(take_rows(rows, Indices(members)), bags, longest, columns)
    is_member = from_numpy((members >= 0)[:, :, None], rows.device)
    largest = ops.argmax(ops.where(is_member, padded, -math.inf), 1, True)
    result = ops.reshape(ops.gather(padded, 1, largest), bags, columns)
    positions = from_numpy(np.maximum(members, 0).astype(np.int64)[:, :, None], rows.device)
    position = ops.gather(ops.expand(positions, (bags, longest, columns)), 1, largest)
    if not indices.numel():
        return result, ops.reshape(position, bags, columns)
    return result, ops.reshape(ops.take(indices, position), bags, columns)


def embedding_bag_dense_backward(
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    if scale_grad_by_freq:  # PyTorch's CPU kernel divides by counts of other indices, which is its own
        raise NotNative("gradients scaled by frequency")
    sizes, columns = bag_size.on_host(), grad.shape[1]
    if mode == MAX:
        filled = from_numpy((sizes > 0).astype(np.float32).reshape(-1, 1), grad.device)
        table = new_like(grad, (num_weights, columns))
        fill_with(table, 0)
        return ops.scatter_add(table, 0, maximum_indices, ops.mul(grad, filled))
    if mode == MEAN:
        grad = ops.true_divide(grad, _divisors(sizes, grad))
    rows = take_rows(ops.reshape(grad, 1, *grad.shape), Indices(offset2bag.on_host()))
    if per_sample_weights is not None:
        rows = ops.mul(rows, ops.reshape(per_sample_weights, 1, -1, 1))
    places, _ = indices_into("embedding_bag", indices, num_weights, grad)
    return ops.reshape(take_rows_backward(rows, places, num_weights), num_weights, columns)


def embedding_bag_backward(
    grad: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    if sparse:
        raise NotNative("sparse gradients")
    return embedding_bag_dense_backward(
        grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
        per_sample_weights, padding_idx,
    )  # fmt: skip


def per_sample_weights_backward(
    grad: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    """For each index, the product of its row with the gradient of its bag; 0 for padding."""
    of_bags = take_rows(ops.reshape(grad, 1, *grad.shape), Indices(offset2bag.on_host()))
    places, _ = indices_into("embedding_bag", indices, weight.shape[0], weight)
    rows = take_rows(ops.reshape(weight, 1, *weight.shape), places)
    return ops.reshape(ops.sum(ops.mul(of_bags, rows), -1), -1)


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding": embedding,
    "embedding_dense_backward": embedding_dense_backward,
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "_embedding_bag_backward": embedding_bag_backward,
    "_embedding_bag_dense_backward": embedding_bag_dense_backward,
    "_embedding_bag_per_sample_weights_backward": per_sample_weights_backward,
}

for _name, _function in KERNELS.items():
    declare(_name, _function)
