"""Views with given strides, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import VIEW_ELEMENTS, check_view, host_memory, integer
from dl4all.ops.core.tensor_base import Array, Shape, check_repeated
from dl4all.ops.indexing.indices import Indices, NDArray
from dl4all.ops.indexing.rows import take_rows_backward
from dl4all.ops.memory.views import reshape


@export("dl", "Tensor")
def as_strided(
    input: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    """A view of a tensor's memory with a given shape, strides and offset.

    Args:
        input: the tensor whose memory is viewed.
        size: the shape.
        stride: for each axis, the distance in elements between neighbours.
        storage_offset: the offset of the first element; by default that of the input.

    Raises:
        ArgumentError: there is not one stride for each axis, or the view reaches beyond the memory.
        OutOfMemoryError: the view takes part in differentiation and repeats elements too often.

    Example:
        >>> import dl4all as dl
        >>> dl.as_strided(dl.tensor([1, 2, 3]), (2, 2), (1, 1)).tolist()
        [[1, 2], [2, 3]]
    """
    shape, steps = strides.sizes("as_strided", (size,)), strides.sizes("as_strided", (stride,))
    offset = input.offset if storage_offset is None else integer("as_strided", "the offset", storage_offset)
    if len(shape) != len(steps) or min((offset, *shape, *steps), default=0) < 0:
        raise ArgumentError(
            f"[as_strided] size {shape} and stride {steps} from {offset} do not fit each other"
        )
    check_view("as_strided", shape)
    if max(steps, default=0) >= VIEW_ELEMENTS:
        raise ArgumentError(f"[as_strided] stride {steps} reaches beyond any memory; use smaller ones")
    last = offset + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    if 0 not in shape and last >= input.storage.nbytes // input.dtype.itemsize:
        raise ArgumentError(f"[as_strided] size {shape} and stride {steps} reach beyond the tensor's memory")
    view = input.strided_view(shape, steps, offset)
    if tape.state.enabled and tape.wants_gradient(input):
        check_repeated("as_strided", view)
        with host_memory("as_strided"):
            _attach_gradient(input, view, _element_offsets(shape, steps, offset))
    return view


def _element_offsets(shape: Shape, steps: Shape, start: int) -> NDArray:
    """The offset in memory of each element of a view."""
    grid = np.indices(shape) if shape else np.zeros((0,), np.int64)
    return np.asarray(
        start + np.sum([g * step for g, step in zip(grid, steps, strict=True)], axis=0), np.int64
    )


def _attach_gradient(input: Array, view: Array, view_offsets: NDArray) -> None:
    """The gradient of an element is the sum over all elements of the view at the same offset."""
    input_offsets = _element_offsets(input.shape, input.strides, input.offset).reshape(-1)
    order = np.argsort(input_offsets, kind="stable")
    ascending = input_offsets[order]
    positions = np.searchsorted(ascending, view_offsets.reshape(-1))
    positions = np.clip(positions, 0, max(input_offsets.size - 1, 0))
    is_input = ascending[positions] == view_offsets.reshape(-1)
    targets = Indices(np.where(is_input, order[positions], -1))
    shape, numel = input.shape, input.numel()

    def backward(grads: Sequence[Array], saved: Sequence[Array], needs: Sequence[bool]) -> list[Array]:
        rows = reshape(grads[0], 1, len(targets), 1)
        return [reshape(take_rows_backward(rows, targets, numel), shape)]

    tape.add_node("as_strided", [input], [view], backward, single_use=True)
