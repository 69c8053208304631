"""Linear algebra under the names of ``torch.linalg``: norms and products; there are no factorizations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops import matmul, matrix_power
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.tensor import Tensor

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "vecdot",
    "vector_norm",
]


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis.

    Raises:
        ShapeError: the axis has another size.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.cross(dl.tensor([1.0, 0.0, 0.0]), dl.tensor([0.0, 1.0, 0.0])).tolist()
        [0.0, 0.0, 1.0]
    """
    return ops.cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of matrices.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.diagonal(dl.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [1.0, 4.0]
    """
    return ops.diagonal(A, offset, dim1, dim2)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices, in the cheapest order; the first and the last may be vectors.

    Raises:
        ShapeError: the inner sizes differ, or one is neither.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.multi_dot([dl.ones(2, 3), dl.ones(3, 5), dl.ones(5)]).tolist()
        [15.0, 15.0]
    """
    if len(tensors) < 2:
        raise ArgumentError(f"[multi_dot] expected at least two tensors, got {len(tensors)}")
    first, *_, last = matrices = list(tensors)
    for one in matrices:
        if len(one.shape) != 2 and not (len(one.shape) == 1 and (one is first or one is last)):
            raise ShapeError(f"[multi_dot] expected matrices, got shape {one.shape}")
    if len(first.shape) == 1:
        matrices[0] = first.unsqueeze(0)
    if len(last.shape) == 1:
        matrices[-1] = last.unsqueeze(1)
    product = ops.chain_matmul(*matrices)
    product = product.squeeze(-1) if len(last.shape) == 1 else product
    return product.squeeze(0) if len(first.shape) == 1 else product


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products of vectors along an axis; the others broadcast.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.vecdot(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), dl.tensor([1.0, 1.0])).tolist()
        [3.0, 7.0]
    """
    return ops.sum(x * y, dim)


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Tensor:
    """The norm of vectors, or of all elements without `dim`.

    Args:
        x: floats of any shape.
        ord: the order, also infinity, minus infinity and 0.
        dim: the axes of the vectors.
        keepdim: keep them, with size 1.
        dtype: convert to it before.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.vector_norm(dl.tensor([[3.0, 4.0], [0.0, 2.0]]), dim=1).tolist()
        [5.0, 2.0]
    """
    x = x if dtype is None else x.to(dtype)
    result: Tensor = ops.norm(x, ord, _axes(x, dim), keepdim)
    return result


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Tensor:
    """The norm of matrices.

    Args:
        A: floats with at least two axes.
        ord: ``"fro"``, or 1, -1, infinity or minus infinity: the largest or smallest sum of a column or row.
        dim: the axes of the matrices.
        keepdim: keep them, with size 1.
        dtype: convert to it before.

    Raises:
        ArgumentError: the norm needs singular values (``"nuc"``, 2, -2), or is unknown.

    Example:
        >>> import dl4all as dl
        >>> A = dl.tensor([[3.0, 4.0], [0.0, -2.0]])
        >>> dl.linalg.matrix_norm(A, 1).item(), dl.linalg.matrix_norm(A, float("inf")).item()
        (6.0, 7.0)
    """
    A = A if dtype is None else A.to(dtype)
    rows, columns = (axis % len(A.shape) for axis in dim)
    if ord == "fro":
        result: Tensor = ops.norm(A, 2, (rows, columns), keepdim)
        return result
    if not isinstance(ord, (int, float)) or abs(ord) not in (1, math.inf):
        raise ArgumentError(
            f"[matrix_norm] expected 'fro', 1, -1, inf or -inf, got {ord!r}; there are no singular values"
        )
    summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(summed, keepdim=True)
    reduced = sums.amax(kept, keepdim=True) if ord > 0 else sums.amin(kept, keepdim=True)
    return reduced if keepdim else reduced.squeeze((rows, columns))


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Tensor:
    """A norm of vectors or of matrices, as `ord`, `dim` and the number of axes say.

    Without `ord` it is the 2-norm of all elements along `dim`; with it, that of vectors for one axis and that
    of matrices for two.

    Raises:
        ArgumentError: as :func:`matrix_norm`; or there are more axes than two, and no `dim`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.norm(dl.tensor([[3.0, 4.0]])).item(), dl.linalg.norm(dl.tensor([3.0, -4.0]), 1).item()
        (5.0, 7.0)
    """
    axes = len(A.shape) if dim is None else 1 if isinstance(dim, int) else len(dim)
    if ord is None or (axes == 1 and not isinstance(ord, str)):
        order = 2 if ord is None else ord
        return vector_norm(A, order, dim, keepdim, dtype=dtype)
    if axes != 2:
        raise ArgumentError(f"[norm] expected one axis or two with ord={ord!r}, got {axes}; pass dim")
    matrices: Any = (-2, -1) if dim is None else dim
    return matrix_norm(A, ord, matrices, keepdim, dtype=dtype)


def _axes(x: Tensor, dim: int | Sequence[int] | None) -> Any:
    """The axes for ops; of a list a tuple."""
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim
