"""Pseudoinverses and ranks of matrices, by their singular values."""

from __future__ import annotations

from typing import Any

from dl4all.functions.matrices.factorizations import check_matrices, svd_factors, transposed
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import finfo
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add, mul, neg, sub, true_divide
from dl4all.ops.elementwise.comparison import clamp, gt, maximum
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.triangular import tril
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.views import unsqueeze
from dl4all.ops.reduce.extrema import amax
from dl4all.ops.reduce.sums import sum

Tolerance = float | Array | None
"""A number, or a tensor that broadcasts to the batch of matrices."""


@export("dl", "Tensor")
def pinverse(input: Array, rcond: float = 1e-15) -> Array:
    """The pseudoinverses of matrices, by their singular values.

    Args:
        input: float32 or float64 of shape (..., m, n).
        rcond: singular values below this part of the largest one count as 0.

    Returns:
        Shape (..., n, m).

    Raises:
        ArgumentError, ShapeError, DTypeError: as for :func:`dl4all.linalg.svd`.

    Example:
        >>> import dl4all as dl
        >>> dl.pinverse(dl.tensor([[2.0], [0.0]])).tolist()
        [[0.5, 0.0]]
    """
    return pseudoinverse(input, 0.0, rcond)


@reads("A")
def pseudoinverse(A: Array, atol: Tolerance, rtol: Tolerance, hermitian: bool = False) -> Array:
    """The pseudoinverses of matrices, whose singular values up to a limit count as 0.

    The gradient takes the rank for constant; its formula has no division by differences of singular values,
    which may be equal.

    Args:
        A: float32 or float64 of shape (..., m, n).
        atol, rtol: see :func:`cutoff`.
        hermitian: whether the matrices are symmetric; then only their lower triangles are read.
    """
    check_matrices("pinv", A, square=hermitian)
    whole = symmetric(A) if hermitian else A
    U, S, Vh = svd_factors(tape.alias(whole), False)
    if S.numel():
        counts = gt(S, cutoff(whole, S, atol, rtol))
        S = where(counts, true_divide(1.0, where(counts, S, 1.0)), 0.0)
    P = matmul(mul(transposed(Vh), unsqueeze(S, -2)), transposed(U))

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        # Golub and Pereyra, SIAM J. Numer. Anal. 10 (1973), theorem 4.3.
        a, p = kept
        g, p_t = transposed(grads[0]), transposed(p)
        of_inverse = neg(matmul(p_t, matmul(grads[0], p_t)))
        left = matmul(matmul(g, p), p_t)
        right = matmul(p_t, matmul(p, g))
        of_columns = sub(left, matmul(a, matmul(p, left)))
        of_rows = sub(right, matmul(matmul(right, p), a))
        return [add(of_inverse, add(of_columns, of_rows))]

    tape.add_node("pinv", [A], [P], backward, (whole, P))
    return P


@reads("A")
def numerical_rank(A: Array, atol: Tolerance, rtol: Tolerance, hermitian: bool = False) -> Array:
    """The number of singular values of matrices above a limit, as int64.

    Args:
        A, atol, rtol, hermitian: as for :func:`pseudoinverse`.
    """
    check_matrices("matrix_rank", A, square=hermitian)
    whole = tape.alias(symmetric(A) if hermitian else A)
    S = svd_factors(whole, False).S
    return sum(gt(S, cutoff(whole, S, atol, rtol)) if S.shape[-1] else S, -1, dtype="int64")


def cutoff(A: Array, S: Array, atol: Tolerance, rtol: Tolerance) -> Array:
    """Up to which number singular values count as 0.

    Args:
        A: matrices.
        S: their singular values, at least one of each.
        atol: the number itself; 0 if it is None.
        rtol: the number as a part of the largest value; the larger of both counts. If it is None, the
            precision of the dtype times the larger of both sizes; with an `atol` above 0, none.

    Returns:
        The shape of `S`, with a last axis of 1; tolerances broadcast it.
    """
    if rtol is None:
        rtol = float(finfo(A.dtype).eps) * max(A.shape[-2:])
        if isinstance(atol, TensorBase):
            rtol = where(gt(atol, 0), 0.0, rtol)
        elif atol:
            rtol = 0.0
    relative = mul(amax(S, -1, keepdim=True), unsqueeze(rtol, -1) if isinstance(rtol, TensorBase) else rtol)
    if isinstance(atol, TensorBase):
        return maximum(relative, unsqueeze(atol, -1))
    return clamp(relative, min=atol or 0.0)


def symmetric(A: Array) -> Array:
    """Symmetric matrices with these lower triangles."""
    return add(tril(A), transposed(tril(A, -1)))
