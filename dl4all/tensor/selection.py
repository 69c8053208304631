"""Picking elements by value, on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.base import from_host
from dl4all.tensor.indexing import axis
from dl4all.tensor.tensor import Tensor


class TopK(NamedTuple):
    """The largest values and where they were."""

    values: Tensor
    indices: Tensor


def topk(input: Tensor, k: int, dim: int = -1) -> TopK:
    """The `k` largest elements along axis `dim`, the largest first; equal ones in their order.

    nan counts as the largest. Runs on the host: the elements are few and the next step is usually
    to print them.

    Args:
        input: a tensor of any shape but ().
        k: how many, at most the axis's size.
        dim: the axis.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape but for size `k` along `dim`, on the
        input's device.

    Raises:
        ArgumentError: there is no such axis, or it has fewer than `k` elements.

    Example:
        >>> import dl4all as dl
        >>> dl.topk(dl.tensor([0.1, 0.7, 0.2]), 2).indices.tolist()
        [1, 2]
    """
    place = axis("topk", dim, input.ndim)
    if not 0 <= k <= input.shape[place]:
        raise ArgumentError(
            f"[topk] k must be from 0 to {input.shape[place]} for shape {input.shape}, got {k}"
        )
    array = np.moveaxis(input.numpy(), place, -1)
    # Sorted from the back and turned round, not by -array: that has no meaning for bool and wraps for uint8.
    from_back = np.argsort(array[..., ::-1], axis=-1, kind="stable")
    order = (array.shape[-1] - 1 - from_back[..., ::-1])[..., :k]
    values = np.take_along_axis(array, order, -1)
    return TopK(
        *(
            from_host(Tensor, np.ascontiguousarray(np.moveaxis(found, -1, place)), input.device, copy=False)
            for found in (values, order)
        )
    )
