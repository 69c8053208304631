"""Combinations of the elements of vectors."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_shape, host_memory, integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.indexing.gather_scatter import index_select
from dl4all.ops.memory.views import expand, flatten, reshape


@export("dl")
def cartesian_prod(*tensors: Array) -> Array:
    """The Cartesian product of vectors: one row for each combination of their elements.

    Raises:
        ShapeError: a tensor is not 1-d.

    Example:
        >>> import dl4all as dl
        >>> dl.cartesian_prod(dl.tensor([1, 2]), dl.tensor([3, 4])).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    wrong_shapes = [x.shape for x in tensors if len(x.shape) != 1]
    if wrong_shapes:
        raise ShapeError(f"[cartesian_prod] expected vectors, got shape {wrong_shapes[0]}")
    if len(tensors) == 1:
        return tensors[0]
    sizes = [x.shape[0] for x in tensors]
    columns = [
        flatten(expand(reshape(x, *(n if i == axis else 1 for i, n in enumerate(sizes))), *sizes))
        for axis, x in enumerate(tensors)
    ]
    return stack(columns, 1)


@export("dl")
def combinations(input: Array, r: int = 2, with_replacement: bool = False) -> Array:
    """All combinations of `r` elements of a vector, in the order of ``itertools.combinations``.

    Args:
        input: a tensor with one axis.
        r: how many elements are combined.
        with_replacement: whether an element may be combined with itself.

    Returns:
        Shape (combinations, r); (0,) where `r` is 0.

    Raises:
        ShapeError: the input has another number of axes.
        ArgumentError: `r` is negative, or there are too many combinations.
        OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.combinations(dl.tensor([1, 2, 3])).tolist()
        [[1, 2], [1, 3], [2, 3]]
    """
    if len(input.shape) != 1:
        raise ShapeError(f"[combinations] expected one axis, got shape {input.shape}")
    integer("combinations", "r", r, least=0)
    size = input.shape[0]
    # As PyTorch, which has no combination of no elements.
    count = math.comb(size + r - 1 if with_replacement and size else size, r) if r else 0
    check_shape("combinations", (count, r))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    with host_memory("combinations"):
        places = np.fromiter(itertools.chain.from_iterable(choose(range(size), r)), np.int64, count * r)
    chosen = index_select(input, 0, places)
    return reshape(chosen, count, r) if r else chosen
