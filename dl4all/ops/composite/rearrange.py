"""Turning, splitting and joining in PyTorch's further ways, and what is made of rows and diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.declare import broadcast_shapes
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.concatenation import cat, stack
from dl4all.ops.indexing.indices import integer_indices
from dl4all.ops.indexing.padding import pad
from dl4all.ops.indexing.repeat_and_flip import flip
from dl4all.ops.indexing.triangular import diag_embed
from dl4all.ops.memory.views import diagonal, expand, flatten, narrow, reshape, transpose, unsqueeze
from dl4all.ops.reduce.reduction_kernel import widened
from dl4all.ops.reduce.sums import sum
from dl4all.ops.reduce.variance import norm

T = TypeVar("T", bound=TensorBase)


@export("dl", "Tensor")
def t(input: T) -> T:
    """A view of a matrix with its axes swapped; of fewer axes the tensor itself.

    Raises:
        ShapeError: there are more than two axes.

    Example:
        >>> import dl4all as dl
        >>> dl.t(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[1, 3], [2, 4]]
    """
    if len(input.shape) > 2:
        raise ShapeError(f"[t] expected at most two axes, got shape {input.shape}; use .mT or transpose")
    return transpose(input, 0, 1) if len(input.shape) == 2 else input


@export("dl", "Tensor")
def adjoint(input: T) -> T:
    """A view with the last two axes swapped.

    Example:
        >>> import dl4all as dl
        >>> dl.adjoint(dl.zeros(2, 3, 5)).shape
        (2, 5, 3)
    """
    return transpose(input, -2, -1)


@export("dl", "Tensor")
def fliplr(input: T) -> T:
    """A copy with the second axis in reverse order.

    Raises:
        ArgumentError: there is no second axis.

    Example:
        >>> import dl4all as dl
        >>> dl.fliplr(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[2, 1], [4, 3]]
    """
    return flip(input, 1)


@export("dl", "Tensor")
def flipud(input: T) -> T:
    """A copy with the first axis in reverse order.

    Raises:
        ArgumentError: there is no axis.

    Example:
        >>> import dl4all as dl
        >>> dl.flipud(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[3, 4], [1, 2]]
    """
    return flip(input, 0)


@export("dl", "Tensor")
def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """A copy turned by `k` quarters, from the first of two axes to the second.

    Raises:
        ArgumentError: there are not two different axes.

    Example:
        >>> import dl4all as dl
        >>> dl.rot90(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[2, 4], [1, 3]]
    """
    axes = tuple(strides.axis("rot90", dim, len(input.shape)) for dim in dims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ArgumentError(f"[rot90] expected two different axes, got {tuple(dims)}")
    first, second = axes
    if k % 4 == 2:
        return flip(input, first, second)
    if k % 4 == 0:
        return input.clone()
    return flip(transpose(input, first, second), first if k % 4 == 1 else second)


# Splitting


@export("dl", "Tensor")
def tensor_split(input: T, indices_or_sections: Any, dim: int = 0) -> tuple[T, ...]:
    """Views of parts along an axis: so many, the first ones perhaps larger, or those between given places.

    Args:
        input: a tensor.
        indices_or_sections: how many parts, or where all but the first begin.
        dim: the axis.

    Raises:
        ArgumentError: there is no such axis, or no part.

    Example:
        >>> import dl4all as dl
        >>> [part.tolist() for part in dl.tensor_split(dl.arange(5), 2)]
        [[0, 1, 2], [3, 4]]
        >>> [part.tolist() for part in dl.tensor_split(dl.arange(5), (1, 3))]
        [[0], [1, 2], [3, 4]]
    """
    axis = strides.axis("tensor_split", dim, len(input.shape))
    size = input.shape[axis]
    given = integer_indices("tensor_split", indices_or_sections)
    if given.ndim:
        inner = [slice(None, int(place)).indices(size)[1] for place in given]
    else:
        parts = int(given)
        if parts < 1:
            raise ArgumentError(f"[tensor_split] expected at least one part, got {parts}")
        inner = np.cumsum([size // parts + (i < size % parts) for i in range(parts - 1)]).tolist()
    starts, ends = [0, *inner], [*inner, size]
    return tuple(
        narrow(input, axis, start, max(end - start, 0)) for start, end in zip(starts, ends, strict=True)
    )


def _split(name: str, input: T, parts: Any, axis: int, least: int) -> tuple[T, ...]:
    """
    Raises:
        ArgumentError: there are too few axes, or the axis is no multiple of the number of parts.
    """
    if len(input.shape) < least:
        raise ArgumentError(f"[{name}] expected at least {least} axes, got shape {input.shape}")
    if isinstance(parts, int) and (parts < 1 or input.shape[axis] % parts):
        raise ArgumentError(
            f"[{name}] axis {axis} of shape {input.shape} does not split into {parts} equal parts; "
            "see tensor_split"
        )
    return tensor_split(input, parts, axis)


@export("dl", "Tensor")
def hsplit(input: T, indices_or_sections: Any) -> tuple[T, ...]:
    """:func:`tensor_split` along the second axis, along the only one of 1-d tensors, in equal parts.

    Raises:
        ArgumentError: there is no axis, or it does not split evenly.

    Example:
        >>> import dl4all as dl
        >>> [part.shape for part in dl.hsplit(dl.zeros(2, 4), 2)]
        [(2, 2), (2, 2)]
    """
    return _split("hsplit", input, indices_or_sections, 0 if len(input.shape) == 1 else 1, 1)


@export("dl", "Tensor")
def vsplit(input: T, indices_or_sections: Any) -> tuple[T, ...]:
    """:func:`tensor_split` of at least two axes along the first, in equal parts.

    Raises:
        ArgumentError: there are too few axes, or it does not split evenly.

    Example:
        >>> import dl4all as dl
        >>> [part.shape for part in dl.vsplit(dl.zeros(4, 2), 2)]
        [(2, 2), (2, 2)]
    """
    return _split("vsplit", input, indices_or_sections, 0, 2)


@export("dl", "Tensor")
def dsplit(input: T, indices_or_sections: Any) -> tuple[T, ...]:
    """:func:`tensor_split` along the third axis, in equal parts.

    Raises:
        ArgumentError: there are too few axes, or it does not split evenly.

    Example:
        >>> import dl4all as dl
        >>> [part.shape for part in dl.dsplit(dl.zeros(1, 2, 4), 2)]
        [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", input, indices_or_sections, 2, 3)


# Joining


@export("dl")
def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least one axis.

    Example:
        >>> import dl4all as dl
        >>> dl.atleast_1d(dl.tensor(2.0)).shape
        (1,)
    """
    return _with_axes(tensors, lambda x: reshape(x, 1) if not x.shape else x)


@export("dl")
def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two axes; vectors become rows.

    Example:
        >>> import dl4all as dl
        >>> dl.atleast_2d(dl.zeros(3)).shape
        (1, 3)
    """
    return _with_axes(tensors, lambda x: reshape(x, 1, x.numel()) if len(x.shape) < 2 else x)


@export("dl")
def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three axes: matrices get one behind, vectors one in front, too.

    Example:
        >>> import dl4all as dl
        >>> dl.atleast_3d(dl.zeros(3)).shape
        (1, 3, 1)
    """

    def grown(x: Any) -> Any:
        x = reshape(x, 1, x.numel()) if len(x.shape) < 2 else x
        return unsqueeze(x, 2) if len(x.shape) == 2 else x

    return _with_axes(tensors, grown)


def _with_axes(tensors: tuple[Any, ...], grown: Any) -> Any:
    """Of one tensor a tensor, of several or a list of them a tuple."""
    if len(tensors) == 1 and isinstance(tensors[0], TensorBase):
        return grown(tensors[0])
    listed = tensors[0] if len(tensors) == 1 else tensors
    return tuple(map(grown, listed))


@export("dl")
def dstack(tensors: Sequence[Any]) -> Any:
    """:func:`cat` along the third axis, of what :func:`atleast_3d` makes of each.

    Example:
        >>> import dl4all as dl
        >>> dl.dstack([dl.zeros(2, 3), dl.ones(2, 3)]).shape
        (2, 3, 2)
    """
    return cat([atleast_3d(x) for x in tensors], 2)


@export("dl")
def column_stack(tensors: Sequence[Any]) -> Any:
    """:func:`cat` along the second axis; vectors are columns.

    Example:
        >>> import dl4all as dl
        >>> dl.column_stack([dl.tensor([1, 2]), dl.tensor([3, 4])]).tolist()
        [[1, 3], [2, 4]]
    """
    return cat([reshape(x, x.numel(), 1) if len(x.shape) < 2 else x for x in tensors], 1)


@export("dl")
def broadcast_tensors(*tensors: T) -> tuple[T, ...]:
    """Views of tensors in the shape that their shapes broadcast to.

    Raises:
        ShapeError: they do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> [x.shape for x in dl.broadcast_tensors(dl.zeros(3, 1), dl.zeros(2))]
        [(3, 2), (3, 2)]
    """
    shape = broadcast_shapes("broadcast_tensors", tensors)
    return tuple(expand(x, shape) for x in tensors)


@export("dl")
def cartesian_prod(*tensors: Any) -> Any:
    """Every choice of one element of each vector, in a line of its own.

    Raises:
        ShapeError: a tensor has not one axis.

    Example:
        >>> import dl4all as dl
        >>> dl.cartesian_prod(dl.tensor([1, 2]), dl.tensor([3, 4])).tolist()
        [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    wrong = [x.shape for x in tensors if len(x.shape) != 1]
    if wrong:
        raise ShapeError(f"[cartesian_prod] expected vectors, got shape {wrong[0]}")
    if len(tensors) == 1:
        return tensors[0]
    sizes = [x.shape[0] for x in tensors]
    lines = [
        flatten(expand(reshape(x, *(n if i == place else 1 for i, n in enumerate(sizes))), *sizes))
        for place, x in enumerate(tensors)
    ]
    return stack(lines, 1)


@export("dl")
def block_diag(*tensors: Any) -> Any:
    """A matrix of matrices along its diagonal, with zeros around them; vectors are rows.

    Example:
        >>> import dl4all as dl
        >>> dl.block_diag(dl.tensor([[1, 2]]), dl.tensor([[3], [4]])).tolist()
        [[1, 2, 0], [0, 0, 3], [0, 0, 4]]
    """
    matrices = [atleast_2d(x) for x in tensors]
    width = int(np.sum([x.shape[1] for x in matrices]))
    lines, before = [], 0
    for x in matrices:
        lines.append(pad(x, (before, width - before - x.shape[1])))
        before += x.shape[1]
    return cat(lines, 0)


# Rows and diagonals


@export("dl", "Tensor")
def trace(input: Any) -> Any:
    """The sum of a matrix's diagonal.

    Raises:
        ShapeError: it is no matrix.

    Example:
        >>> import dl4all as dl
        >>> dl.trace(dl.tensor([[1.0, 2.0], [3.0, 4.0]])).item()
        5.0
    """
    if len(input.shape) != 2:
        raise ShapeError(f"[trace] expected a matrix, got shape {input.shape}")
    return sum(diagonal(input))


@export("dl", "Tensor")
def diagflat(input: Any, offset: int = 0) -> Any:
    """A matrix with the elements, in row-major order, on a diagonal.

    Example:
        >>> import dl4all as dl
        >>> dl.diagflat(dl.tensor([1, 2])).tolist()
        [[1, 0], [0, 2]]
    """
    return diag_embed(flatten(input), offset)


@export("dl")
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each element in a line, the highest first.

    Args:
        x: a vector.
        N: how many powers, from 0 on; by default as many as there are elements.
        increasing: the power 0 first.

    Raises:
        ShapeError: it is no vector.
        ArgumentError: `N` is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.vander(dl.tensor([2, 3]), 3).tolist()
        [[4, 2, 1], [9, 3, 1]]
    """
    if len(x.shape) != 1:
        raise ShapeError(f"[vander] expected a vector, got shape {x.shape}")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise ArgumentError(f"[vander] N must be at least 0, got {N}")
    base = x if widened(x.dtype) == x.dtype else x.to(widened(x.dtype))
    powers = [base.new_ones(x.shape[0])]
    while len(powers) < count:
        powers.append(mul(powers[-1], base))
    kept = powers[:count] if increasing else powers[:count][::-1]
    return stack(kept, 1) if kept else base.new_empty(x.shape[0], 0)


@export("dl", "Tensor", "Tensor_")
def renorm(input: Any, p: float, dim: int, maxnorm: float) -> Any:
    """The parts along an axis, those whose norm is above `maxnorm` scaled down to it.

    Args:
        input: floats.
        p: the order of the norm.
        dim: the axis; what lies at each of its places is a part.
        maxnorm: the largest norm a part may have.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.renorm(dl.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0).round(decimals=4).tolist()[0]
        [0.6000000238418579, 0.800000011920929]
    """
    axis = strides.axis("renorm", dim, len(input.shape))
    others = tuple(i for i in range(len(input.shape)) if i != axis)
    size = norm(input, p, others, True)
    large = size > maxnorm
    return mul(input, where(large, maxnorm / (where(large, size, 1.0) + 1e-7), 1.0))


@export("dl", "Tensor")
def ravel(input: Any) -> Any:
    """The elements in one axis, a view where that is possible.

    Example:
        >>> import dl4all as dl
        >>> dl.ravel(dl.tensor([[1, 2], [3, 4]])).tolist()
        [1, 2, 3, 4]
    """
    return reshape(input, -1)
