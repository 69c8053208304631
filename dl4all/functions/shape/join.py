"""Tensors brought to a number of axes and joined: atleast_1d, column_stack, dstack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.memory.views import reshape, unsqueeze


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


@export("dl", out=True)
def dstack(tensors: Sequence[Array]) -> Array:
    """:func:`cat` along the third axis, after :func:`atleast_3d`.

    Example:
        >>> import dl4all as dl
        >>> dl.dstack([dl.zeros(2, 3), dl.ones(2, 3)]).shape
        (2, 3, 2)
    """
    return cat([_as_3d(x) for x in tensors], 2)


@export("dl", out=True)
def column_stack(tensors: Sequence[Array]) -> Array:
    """:func:`cat` along the second axis; vectors become columns.

    Example:
        >>> import dl4all as dl
        >>> dl.column_stack([dl.tensor([1, 2]), dl.tensor([3, 4])]).tolist()
        [[1, 3], [2, 4]]
    """
    return cat([reshape(x, x.numel(), 1) if len(x.shape) < 2 else x for x in tensors], 1)
