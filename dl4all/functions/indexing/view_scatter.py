"""Scatter into views: select_scatter, slice_scatter, diagonal_scatter."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array, check_repeated
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.indexing.assignment import setitem
from dl4all.ops.indexing.indices import untracked_view
from dl4all.ops.memory.views import movedim, permute


@export("dl", "Tensor")
def select_scatter(input: Array, src: Array, dim: int, index: int) -> Array:
    """A copy of the input with `src` at one index of axis `dim`.

    Raises:
        ArgumentError, ShapeError: the index is out of range, or the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.select_scatter(dl.zeros(2, 2), dl.ones(2), 0, 1).tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    axis = strides.axis("select_scatter", dim, len(input.shape))
    return _with_region(input, (*(slice(None),) * axis, index), src)


@export("dl", "Tensor")
def slice_scatter(
    input: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """A copy of the input with `src` at a slice of axis `dim`.

    Raises:
        ArgumentError, ShapeError: the slice or the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.slice_scatter(dl.zeros(4), dl.ones(2), start=1, end=3).tolist()
        [0.0, 1.0, 1.0, 0.0]
    """
    axis = strides.axis("slice_scatter", dim, len(input.shape))
    return _with_region(input, (*(slice(None),) * axis, slice(start, end, step)), src)


@export("dl", "Tensor")
def diagonal_scatter(input: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A copy of the input with `src` on a diagonal.

    Raises:
        ArgumentError, ShapeError: there are no such axes, or the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.diagonal_scatter(dl.zeros(2, 2), dl.ones(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    integer("diagonal_scatter", "offset", offset)
    check_repeated("diagonal_scatter", input)
    ndim = len(input.shape)
    first, second = (strides.axis("diagonal_scatter", d, ndim) for d in (dim1, dim2))
    matrices = permute(input, *(i for i in range(ndim) if i not in (first, second)), first, second)
    rows, columns = matrices.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)
    diagonal = np.arange(max(min(rows - row, columns - column), 0))
    src_shape = (*matrices.shape[:-2], len(diagonal))
    if src.shape != src_shape:
        raise ShapeError(f"[diagonal_scatter] the source must have shape {src_shape}, got {src.shape}")
    result = copy_for(matrices, src)
    setitem(result, (Ellipsis, diagonal + row, diagonal + column), src)
    return movedim(result, (-2, -1), (first, second))


def copy_for(input: Array, source: Array) -> Array:
    """A copy of the input to write `source` to; within ``vmap``, one for each sample of the source."""
    return clone(source.match_levels([input])[0] if isinstance(source, BatchedTensorBase) else input)


def _with_region(input: Array, key: tuple[int | slice, ...], src: Array) -> Array:
    """A copy of the input with `src` at an index.

    Raises:
        ArgumentError, ShapeError: the index or the source does not fit.
    """
    shape = untracked_view(input, key).shape
    if src.shape != shape:
        raise ShapeError(f"[scatter] the source must have shape {shape}, got {src.shape}")
    result = copy_for(input, src)
    setitem(result, key, src)
    return result
