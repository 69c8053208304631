"""Functions of sparse tensors, with the names of ``torch.sparse``; see :func:`dl4all.sparse_coo_tensor`.

There is one format, coordinates (COO): what graph networks need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all import ops
from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.creation import full, zeros
from dl4all.tensor.sparse import SparseTensor, sparse_coo_tensor
from dl4all.tensor.tensor import Tensor

__all__ = ["FloatTensor", "SparseTensor", "addmm", "log_softmax", "mm", "softmax", "spmm", "sum"]


def FloatTensor(indices: Any, values: Any, size: Any = None) -> SparseTensor:
    """The older name of :func:`dl4all.sparse_coo_tensor`, with values of float32.

    Example:
        >>> import dl4all as dl
        >>> dl.sparse.FloatTensor([[0], [1]], [2.0], (2, 2)).to_dense().tolist()
        [[0.0, 2.0], [0.0, 0.0]]
    """
    return sparse_coo_tensor(indices, values, size, dtype="float32")


def mm(mat1: Any, mat2: Any) -> Any:
    """The product of two matrices of which at least one is sparse.

    Args:
        mat1: of shape (n, m).
        mat2: of shape (m, p).

    Returns:
        A dense tensor of shape (n, p); a sparse one where both are sparse.

    Example:
        >>> import dl4all as dl
        >>> eye = dl.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0])
        >>> dl.sparse.mm(eye, dl.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[1.0, 2.0], [6.0, 8.0]]
    """
    return ops.matmul(mat1, mat2)


spmm = mm


def addmm(mat: Tensor, mat1: Any, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * mat + alpha * (mat1 @ mat2)`` with a sparse `mat1`.

    Example:
        >>> import dl4all as dl
        >>> eye = dl.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0])
        >>> dl.sparse.addmm(dl.ones(2, 1), eye, dl.tensor([[3.0], [4.0]]), alpha=10).tolist()
        [[31.0], [81.0]]
    """
    product = ops.mul(ops.matmul(mat1, mat2), alpha)
    return product if beta == 0 else ops.add(product, ops.mul(mat, beta))


def sum(input: SparseTensor, dim: Any = None, dtype: DTypeLike = None) -> Any:
    """The sum of all elements, or along sparse axes, which is sparse as long as sparse axes are left.

    Example:
        >>> import dl4all as dl
        >>> dl.sparse.sum(dl.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0])).item()
        3.0
    """
    return (input if dtype is None else input.to(dtype)).sum(dim)


def softmax(input: SparseTensor, dim: int, *, dtype: DTypeLike = None) -> SparseTensor:
    """Softmax over the elements that are kept, along the last axis of a sparse matrix or the first one.

    Args:
        input: a sparse matrix.
        dim: the axis.

    Raises:
        ShapeError: it is no matrix.
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.sparse_coo_tensor([[0, 0, 1], [0, 1, 1]], [1.0, 1.0, 5.0])
        >>> dl.sparse.softmax(scores, 1).values().tolist()
        [0.5, 0.5, 1.0]
    """
    own, group, count = _groups("softmax", input, dim, dtype)
    powers = ops.exp(ops.sub(own._values, ops.index_select(_largest(own, group, count), 0, group)))
    sums = ops.index_add(zeros(count, dtype=own.dtype, device=own.device), 0, group, powers)
    return own._with_values(ops.true_divide(powers, ops.index_select(sums, 0, group)))


def log_softmax(input: SparseTensor, dim: int, *, dtype: DTypeLike = None) -> SparseTensor:
    """The logarithm of :func:`softmax`, computed without overflow.

    Example:
        >>> import dl4all as dl
        >>> scores = dl.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 5.0])
        >>> dl.sparse.log_softmax(scores, 1).values().tolist()
        [0.0, 0.0]
    """
    own, group, count = _groups("log_softmax", input, dim, dtype)
    shifted = ops.sub(own._values, ops.index_select(_largest(own, group, count), 0, group))
    sums = ops.index_add(zeros(count, dtype=own.dtype, device=own.device), 0, group, ops.exp(shifted))
    return own._with_values(ops.sub(shifted, ops.index_select(ops.log(sums), 0, group)))


def _groups(name: str, input: SparseTensor, dim: int, dtype: DTypeLike) -> tuple[SparseTensor, Tensor, int]:
    """The coalesced matrix, the row (or column) that each element belongs to, and how many there are."""
    if not isinstance(input, SparseTensor):
        raise DTypeError(f"[{name}] expected a sparse tensor, got {type(input).__name__}")
    own = (input if dtype is None else input.to(dtype)).coalesce()
    rows, columns = own._matrix(name)
    if dim not in (0, 1, -1, -2):
        raise ArgumentError(f"[{name}] a matrix has axes 0 and 1, not {dim}")
    return (own, rows, own.shape[0]) if dim % 2 else (own, columns, own.shape[1])


def _largest(own: SparseTensor, group: Tensor, count: int) -> Tensor:
    """The largest element of each group; no gradient flows through it, as it cancels out."""
    least = full((count,), -np.inf, dtype=own.dtype, device=own.device)
    return ops.scatter_reduce(least, 0, group, own._values.detach(), "amax")
