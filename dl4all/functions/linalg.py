"""Linear algebra under the names of ``torch.linalg``; factorizations are computed by LAPACK on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.matrices.pseudoinverse import numerical_rank, pseudoinverse
from dl4all.ops import matmul, matrix_exp, matrix_power
from dl4all.ops.core.arguments.numpy_names import with_numpy_names
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.ops.memory.conversion import in_float32
from dl4all.tensor.creation import ones_like
from dl4all.tensor.tensor import Tensor

__all__ = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "lstsq",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

solve, solve_triangular = ops.solve, ops.solve_triangular
tensorsolve, tensorinv = ops.tensorsolve, ops.tensorinv
solve_ex, inv_ex, cholesky_ex = ops.solve_ex, ops.inv_ex, ops.cholesky_ex
eigh, svd = ops.eigh, ops.svd_factors


def inv(A: Tensor) -> Tensor:
    """The inverses of matrices; see :func:`dl4all.inverse`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.inv(dl.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    return ops.inverse(A)


def det(A: Tensor) -> Tensor:
    """The determinants of matrices; see :func:`dl4all.det`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.det(dl.tensor([[2.0, 1.0], [1.0, 2.0]])).item()
        3.0
    """
    return ops.det(A)


def slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """The signs of determinants, and the logarithms of their magnitudes; see :func:`dl4all.slogdet`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.slogdet(dl.tensor([[-1.0, 0.0], [0.0, 1.0]])).sign.item()
        -1.0
    """
    return ops.slogdet(A)


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The Cholesky factors of symmetric positive definite matrices; see :func:`dl4all.cholesky`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.cholesky(dl.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    return ops.cholesky(A, upper)


def qr(A: Tensor, mode: Literal["reduced", "complete"] = "reduced") -> Any:
    """The QR decomposition of matrices, ``A = Q @ R``; see :func:`dl4all.qr`.

    Args:
        A: float32 or float64 of shape (..., m, n).
        mode: "complete" for a square `Q`.

    Raises:
        ArgumentError: the mode is unknown.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.qr(dl.tensor([[-3.0], [-4.0]])).R.abs().tolist()
        [[5.0]]
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"[qr] mode must be 'reduced' or 'complete', got {mode!r}")
    return ops.qr(A, mode == "reduced")


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, ascending; see :func:`eigh`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.eigvalsh(dl.tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
        [1.0, 2.0]
    """
    return ops.eigh(A, UPLO).eigenvalues


def svdvals(A: Tensor) -> Tensor:
    """The singular values of matrices, descending; see :func:`svd`.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.svdvals(dl.tensor([[3.0, 0.0], [0.0, 4.0]])).tolist()
        [4.0, 3.0]
    """
    return ops.svd_factors(A, False).S


def pinv(
    A: Tensor,
    rcond: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:
    """The pseudoinverses of matrices, by their singular values.

    Args:
        A: float32 or float64 of shape (..., m, n).
        rcond: an older name of `rtol`.
        hermitian: whether the matrices are symmetric; then only their lower triangles are read.
        atol: singular values up to it count as 0; a number, or a tensor with one for each matrix.
        rtol: so do those up to this part of the largest one: the dtype's precision times the larger of m and
            n, unless `atol` is given.

    Returns:
        Shape (..., n, m).

    Raises:
        ShapeError, DTypeError: `A` does not hold matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.pinv(dl.tensor([[2.0], [0.0]])).tolist()
        [[0.5, 0.0]]
    """
    result: Tensor = pseudoinverse(A, atol, rcond if rtol is None else rtol, hermitian)
    return result


def matrix_rank(
    A: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
) -> Tensor:
    """The number of singular values of matrices that are not 0.

    Args:
        A: float32 or float64 of shape (..., m, n).
        tol: an older form of `atol`, with an `rtol` of 0.
        atol, rtol, hermitian: as for :func:`pinv`.

    Returns:
        int64 of shape (...).

    Raises:
        ShapeError, DTypeError: `A` does not hold matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.matrix_rank(dl.tensor([[1.0, 1.0], [1.0, 1.0]])).item()
        1
    """
    if tol is not None:
        atol, rtol = tol, 0.0
    result: Tensor = numerical_rank(A, atol, rtol, hermitian)
    return result


class LeastSquares(NamedTuple):
    """The results of :func:`lstsq`."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """The X for which ``A @ X - B`` has the least norm.

    Args:
        A: float32 or float64 of shape (..., m, n).
        B: shape (..., m, k).
        rcond: singular values below this part of the largest one count as 0.
        driver: "gelsy" (the default), "gels", "gelsd" or "gelss": what else is returned; the solution
            is always that by singular values.

    Returns:
        ``solution`` of shape (..., n, k); but for "gelsy" and where m is larger than n, ``residuals`` of
        shape (..., k), sums of squares of what is left; but for "gels" ``rank``; with "gelsd" and "gelss"
        ``singular_values``, and ``residuals`` only of full ranks. What is left out has the shape (0,).

    Raises:
        ArgumentError: there is no such driver.

    Example:
        >>> import dl4all as dl
        >>> A, B = dl.tensor([[1.0], [1.0]]), dl.tensor([[1.0], [3.0]])
        >>> round(dl.linalg.lstsq(A, B).solution.item(), 4)
        2.0
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(f"[lstsq] driver must be gels, gelsy, gelsd or gelss, got {driver!r}")
    solution: Tensor = pinv(A, rtol=rcond) @ B
    none, tall = A.new_zeros(0), A.shape[-2] > A.shape[-1]
    if driver == "gels":
        return LeastSquares(solution, _squares(A @ solution - B) if tall else none, none.long(), none)
    rank = matrix_rank(A, rtol=rcond)
    if driver in (None, "gelsy"):
        return LeastSquares(solution, none, rank, none)
    full = tall and bool((rank == A.shape[-1]).all())
    return LeastSquares(solution, _squares(A @ solution - B) if full else none, rank, svdvals(A))


def _squares(rest: Tensor) -> Tensor:
    """Sums of squares of columns."""
    return (rest * rest).sum(-2)


def cond(A: Tensor, p: float | str | None = None) -> Tensor:
    """The condition numbers of matrices: the norm of a matrix times that of its inverse.

    Args:
        A: float32 or float64 of shape (..., m, n); square but for `p` None, 2 and -2.
        p: the norm as for :func:`matrix_norm`; 2 by default.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.cond(dl.tensor([[2.0, 0.0], [0.0, 1.0]])).item()
        2.0
    """
    if p is None or p in (2, -2):
        values = svdvals(A)
        ratio = values[..., 0] / values[..., -1]
        return 1 / ratio if p == -2 else ratio
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


@with_numpy_names
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


@with_numpy_names
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products of vectors along an axis; the others broadcast.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.vecdot(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), dl.tensor([1.0, 1.0])).tolist()
        [3.0, 7.0]
    """
    result: Tensor = in_float32(lambda x, y: ops.sum(x * y, dim), x, y)
    return result


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Vandermonde matrices: the powers of each element of vectors, from 0 on.

    Args:
        x: numbers of shape (..., n).
        N: how many powers; n by default.

    Returns:
        Shape (..., n, N).

    Raises:
        ArgumentError: `N` is no int above 0.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.vander(dl.tensor([2, 3]), N=3).tolist()
        [[1, 2, 4], [1, 3, 9]]
    """
    x = x if x.shape else x.unsqueeze(0)
    count = x.shape[-1] if N is None else integer("vander", "N", N, least=1)
    ones = ones_like(x.unsqueeze(-1))
    if count <= 1:
        return ones[..., :count]
    factors = x.unsqueeze(-1).expand(*x.shape, count - 1)
    return ops.cumprod(ops.cat([ones, factors], -1), -1)


@with_numpy_names
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


@with_numpy_names
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
        ord: ``"fro"``; 1, -1, infinity or minus infinity: the largest or smallest sum of a column or row;
            ``"nuc"``, 2 or -2: the sum of the singular values, the largest or the smallest one.
        dim: the axes of the matrices.
        keepdim: keep them, with size 1.
        dtype: convert to it before.

    Raises:
        ArgumentError: the norm is unknown.

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
    if ord == "nuc" or ord in (2, -2):
        values = svdvals(A.movedim((rows, columns), (-2, -1)))
        found = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        first, second = sorted((rows, columns))
        return found.unsqueeze(first).unsqueeze(second) if keepdim else found
    if not isinstance(ord, (int, float)) or abs(ord) not in (1, math.inf):
        raise ArgumentError(f"[matrix_norm] expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")
    summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(summed, keepdim=True)
    reduced = sums.amax(kept, keepdim=True) if ord > 0 else sums.amin(kept, keepdim=True)
    return reduced if keepdim else reduced.squeeze((rows, columns))


@with_numpy_names
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
