"""Tensors brought to a common number of axes or shape, and joined: atleast_1d, dstack, cartesian_prod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from dl4all.errors import ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.declare import broadcast_shapes
from dl4all.ops.indexing.concatenation import cat, stack
from dl4all.ops.memory.views import expand, flatten, reshape, unsqueeze


@overload
def atleast_1d(tensor: Array, /) -> Array: ...
@overload
def atleast_1d(*tensors: Array | Sequence[Array]) -> Array | tuple[Array, ...]: ...
@export("dl")
def atleast_1d(*tensors: Array | Sequence[Array]) -> Array | tuple[Array, ...]:
    """Tensors with at least one axis.

    Example:
        >>> import dl4all as dl
        >>> dl.atleast_1d(dl.tensor(2.0)).shape
        (1,)
    """
    return _apply_to_each(tensors, lambda x: reshape(x, 1) if not x.shape else x)


@overload
def atleast_2d(tensor: Array, /) -> Array: ...
@overload
def atleast_2d(*tensors: Array | Sequence[Array]) -> Array | tuple[Array, ...]: ...
@export("dl")
def atleast_2d(*tensors: Array | Sequence[Array]) -> Array | tuple[Array, ...]:
    """Tensors with at least two axes; vectors become rows.

    Example:
        >>> import dl4all as dl
        >>> dl.atleast_2d(dl.zeros(3)).shape
        (1, 3)
    """
    return _apply_to_each(tensors, as_matrix)


def as_matrix(input: Array) -> Array:
    """The input with at least two axes."""
    return reshape(input, 1, input.numel()) if len(input.shape) < 2 else input


@overload
def atleast_3d(tensor: Array, /) -> Array: ...
@overload
def atleast_3d(*tensors: Array | Sequence[Array]) -> Array | tuple[Array, ...]: ...
@export("dl")
def atleast_3d(*tensors: Array | Sequence[Array]) -> Array | tuple[Array, ...]:
    """Tensors with at least three axes: shape (n,) becomes (1, n, 1), and (m, n) becomes (m, n, 1).

    Example:
        >>> import dl4all as dl
        >>> dl.atleast_3d(dl.zeros(3)).shape
        (1, 3, 1)
    """
    return _apply_to_each(tensors, _as_3d)


def _as_3d(input: Array) -> Array:
    matrix = as_matrix(input)
    return unsqueeze(matrix, 2) if len(matrix.shape) == 2 else matrix


def _apply_to_each(
    tensors: tuple[Array | Sequence[Array], ...], function: Callable[[Array], Array]
) -> Array | tuple[Array, ...]:
    """A tensor for a single tensor, a tuple for several tensors or a sequence of them."""
    if len(tensors) == 1 and isinstance(tensors[0], TensorBase):
        return function(tensors[0])
    return tuple(map(function, tensors[0] if len(tensors) == 1 else tensors))


@export("dl")
def dstack(tensors: Sequence[Array]) -> Array:
    """:func:`cat` along the third axis, after :func:`atleast_3d`.

    Example:
        >>> import dl4all as dl
        >>> dl.dstack([dl.zeros(2, 3), dl.ones(2, 3)]).shape
        (2, 3, 2)
    """
    return cat([_as_3d(x) for x in tensors], 2)


@export("dl")
def column_stack(tensors: Sequence[Array]) -> Array:
    """:func:`cat` along the second axis; vectors become columns.

    Example:
        >>> import dl4all as dl
        >>> dl.column_stack([dl.tensor([1, 2]), dl.tensor([3, 4])]).tolist()
        [[1, 3], [2, 4]]
    """
    return cat([reshape(x, x.numel(), 1) if len(x.shape) < 2 else x for x in tensors], 1)


@export("dl")
def broadcast_tensors(*tensors: Array) -> tuple[Array, ...]:
    """Views of tensors, broadcast to their common shape.

    Raises:
        ShapeError: they do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> [x.shape for x in dl.broadcast_tensors(dl.zeros(3, 1), dl.zeros(2))]
        [(3, 2), (3, 2)]
    """
    shape = broadcast_shapes("broadcast_tensors", tensors)
    return tuple(x if x.shape == shape else expand(x, shape) for x in tensors)


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
