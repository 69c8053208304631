"""Factorizations and inverses of matrices, by LAPACK on the host, with their gradients.

No device has kernels for them: each call of one is counted as computed on the host. The gradients are made of
ops and of these functions, so that they are differentiable again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.functions.host import computed_on_host, to_device_of
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add, mul, neg, sub, true_divide
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.triangular import diag_embed, tril, triu
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.parts import diagonal
from dl4all.ops.memory.views import squeeze, transpose, unsqueeze
from dl4all.ops.reduce.sums import sum_to


class SignAndLogarithm(NamedTuple):
    """The sign of determinants, and the logarithm of their magnitude."""

    sign: Array
    logabsdet: Array


class Orthogonal(NamedTuple):
    """Matrices with orthonormal columns, and upper triangles."""

    Q: Array
    R: Array


class Eigen(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class SingularTriples(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right ones as columns."""

    U: Array
    S: Array
    V: Array


class SingularValues(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right ones as rows."""

    U: Array
    S: Array
    Vh: Array


def check_matrices(name: str, A: Any, *, square: bool = True) -> None:
    """Raise unless `A` holds (square) matrices of float32 or float64.

    Raises:
        DTypeError, ShapeError
    """
    if not isinstance(A, TensorBase) or A.dtype not in (np.float32, np.float64):
        found = A.dtype if isinstance(A, TensorBase) else type(A).__name__
        raise DTypeError(f"[{name}] expected matrices of float32 or float64, got {found}")
    if len(A.shape) < 2 or (square and A.shape[-1] != A.shape[-2]):
        expected = "(..., n, n)" if square else "(..., m, n)"
        raise ShapeError(f"[{name}] expected matrices of shape {expected}, got {A.shape}")


def _on_host(name: str, function: Callable[..., Any], *tensors: Any) -> list[Any]:
    """The arrays that a NumPy function makes of tensors, as tensors without a history.

    Raises:
        ArgumentError: LAPACK finds a matrix singular, or not positive definite.
    """

    @computed_on_host(name)
    def call(*operands: Any) -> list[Any]:
        try:
            results = function(*(operand.on_host() for operand in operands))
        except np.linalg.LinAlgError as error:
            raise ArgumentError(f"[{name}] LAPACK refuses a matrix: {error}") from None
        arrays = results if isinstance(results, tuple) else (results,)
        dtype = operands[0].dtype
        return [
            to_device_of(operands[0], np.ascontiguousarray(np.asarray(a, dtype)).reshape(a.shape))
            for a in arrays
        ]

    return call(*(tape.alias(tensor) for tensor in tensors))


def transposed(A: Array) -> Array:
    """Each matrix transposed, as a view."""
    return transpose(A, -1, -2)


@export("dl", "Tensor")
@reads("input")
def inverse(input: Array) -> Array:
    """The inverses of matrices.

    Args:
        input: float32 or float64 of shape (..., n, n).

    Returns:
        The same shape.

    Raises:
        ArgumentError: a matrix is singular.
        ShapeError, DTypeError: `input` does not hold square matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.inverse(dl.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    check_matrices("inverse", input)
    (result,) = _on_host("inverse", np.linalg.inv, input)
    saved = (result,)
    tape.add_node(
        "inverse",
        [input],
        [result],
        lambda g, kept, needs: [neg(matmul(transposed(kept[0]), matmul(g[0], transposed(kept[0]))))],
        saved,
    )
    return result


@export()
@reads("A", "B")
def solve(A: Array, B: Array, *, left: bool = True) -> Array:
    """The solutions X of ``A X = B``, or of ``X A = B``; ``dl.linalg.solve``.

    Args:
        A: float32 or float64 of shape (..., n, n).
        B: shape (..., n, k), or one vector for each matrix: (n,), or `A`'s shape without the last axis.
        left: whether `A` stands on the left.

    Returns:
        The shape of `B`, with leading axes broadcast.

    Raises:
        ArgumentError: a matrix is singular.
        ShapeError, DTypeError: the shapes or dtypes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.solve(dl.tensor([[2.0, 0.0], [0.0, 4.0]]), dl.tensor([2.0, 2.0])).tolist()
        [1.0, 0.5]
    """
    check_matrices("solve", A)
    if B.dtype != A.dtype:
        raise DTypeError(f"[solve] expected one dtype, got {A.dtype} and {B.dtype}")
    if not left:
        return transposed(solve(transposed(A), transposed(B)))
    is_vector = len(B.shape) == 1 or B.shape == A.shape[:-1]
    columns = unsqueeze(B, -1) if is_vector else B
    if columns.shape[-2] != A.shape[-1]:
        raise ShapeError(f"[solve] matrices {A.shape} do not fit right-hand sides {B.shape}")
    X = _solution(A, columns)
    return squeeze(X, -1) if is_vector else X


def _solution(A: Array, B: Array) -> Array:
    (X,) = _on_host("solve", _solved, A, B)

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        solved = _solution(transposed(kept[0]), grads[0])
        of_A = neg(matmul(solved, transposed(kept[1]))) if needs[0] else None
        return [_summed(of_A, A.shape), _summed(solved, B.shape) if needs[1] else None]

    tape.add_node("solve", [A, B], [X], backward, (A, X))
    return X


def _solved(A: Any, B: Any) -> Any:
    """NumPy takes right-hand sides with fewer axes for vectors."""
    lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    return np.linalg.solve(A, np.broadcast_to(B, (*lead, *B.shape[-2:])))


def _summed(gradient: Any, shape: tuple[int, ...]) -> Any:
    """The gradient summed over axes that were broadcast."""
    return gradient if gradient is None or gradient.shape == shape else sum_to(gradient, shape)


@export("dl", "Tensor")
@reads("input")
def cholesky(input: Array, upper: bool = False) -> Array:
    """The Cholesky factors of symmetric positive definite matrices: ``A = L @ L.T``.

    Args:
        input: float32 or float64 of shape (..., n, n).
        upper: whether the result is ``L.T``.

    Returns:
        Triangular matrices of the same shape.

    Raises:
        ArgumentError: a matrix is not positive definite.
        ShapeError, DTypeError: `input` does not hold square matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.cholesky(dl.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist()
        [[2.0, 0.0], [1.0, 2.0]]
    """
    check_matrices("cholesky", input)
    (L,) = _on_host("cholesky", np.linalg.cholesky, input)

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        # Murray, arXiv:1602.07527, equation 10.
        (factor,) = kept
        inner = tril(matmul(transposed(factor), grads[0]))
        half = sub(inner, mul(diag_embed(diagonal(inner, 0, -2, -1)), 0.5))
        outer = transposed(_solution(transposed(factor), transposed(_solution(transposed(factor), half))))
        return [mul(add(outer, transposed(outer)), 0.5)]

    tape.add_node("cholesky", [input], [L], backward, (L,))
    return transposed(L) if upper else L


@export("dl", "Tensor")
@reads("input")
def slogdet(input: Array) -> SignAndLogarithm:
    """The signs of the determinants of matrices, and the logarithms of their magnitudes.

    Args:
        input: float32 or float64 of shape (..., n, n).

    Returns:
        ``sign`` and ``logabsdet`` of shape (...); 0 and -inf for singular matrices.

    Raises:
        ShapeError, DTypeError: `input` does not hold square matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.slogdet(dl.tensor([[-1.0, 0.0], [0.0, 1.0]])).sign.item()
        -1.0
    """
    check_matrices("slogdet", input)
    sign, logarithm = _on_host("slogdet", lambda array: tuple(np.linalg.slogdet(array)), input)

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        if grads[1] is None:  # the sign does not change
            return [mul(kept[0], 0)]
        return [mul(unsqueeze(unsqueeze(grads[1], -1), -1), transposed(inverse(kept[0])))]

    tape.add_node("slogdet", [input], [sign, logarithm], backward, (input,))
    return SignAndLogarithm(sign, logarithm)


@export("dl", "Tensor")
def logdet(input: Array) -> Array:
    """The logarithms of the determinants of matrices; nan where one is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.logdet(dl.tensor([[1.0, 0.0], [0.0, 1.0]])).item()
        0.0
    """
    sign, logarithm = slogdet(input)
    return where(eq(sign, -1), float("nan"), logarithm)


@export("dl", "Tensor")
@reads("input")
def det(input: Array) -> Array:
    """The determinants of matrices.

    Args:
        input: float32 or float64 of shape (..., n, n).

    Returns:
        Shape (...).

    Raises:
        ShapeError, DTypeError: `input` does not hold square matrices of floats.
        ArgumentError: a gradient is asked for, and a matrix is singular.

    Example:
        >>> import dl4all as dl
        >>> dl.det(dl.tensor([[2.0, 1.0], [1.0, 2.0]])).item()
        3.0
    """
    check_matrices("det", input)
    (result,) = _on_host("det", lambda array: np.asarray(np.linalg.det(array)), input)

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        scale = unsqueeze(unsqueeze(mul(grads[0], kept[1]), -1), -1)
        return [mul(scale, transposed(inverse(kept[0])))]

    tape.add_node("det", [input], [result], backward, (input, result))
    return result


@export("dl", "Tensor")
@reads("input")
def qr(input: Array, some: bool = True) -> Orthogonal:
    """The QR decomposition of matrices: ``input = Q @ R``.

    Args:
        input: float32 or float64 of shape (..., m, n).
        some: whether `Q` has only as many columns as `input`; otherwise it is square.

    Returns:
        ``Q`` of shape (..., m, k) and ``R`` of shape (..., k, n), k the smaller of m and n, or m.

    Raises:
        ShapeError, DTypeError: `input` does not hold matrices of floats.
        ArgumentError: a gradient is asked for with ``some=False``, of more rows than columns.

    Example:
        >>> import dl4all as dl
        >>> q, r = dl.qr(dl.tensor([[3.0, 1.0], [4.0, 2.0]]))
        >>> bool(((q @ r - dl.tensor([[3.0, 1.0], [4.0, 2.0]])).abs() < 1e-5).all())
        True
    """
    check_matrices("qr", input, square=False)
    mode: Any = "reduced" if some else "complete"
    Q, R = _on_host("qr", lambda array: tuple(np.linalg.qr(array, mode)), input)
    rows, columns = input.shape[-2:]

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        if not some and rows > columns:
            raise ArgumentError("[qr] more rows than columns have a gradient with some=True only")
        A, q, r = kept
        of_q, of_r = (g if g is not None else mul(k, 0) for g, k in zip(grads, (q, r), strict=True))
        if rows >= columns:
            return [_qr_gradient(q, r, of_q, of_r)]
        # The last columns are Q times those of R: only the first ones determine Q.
        behind = of_r[..., rows:]
        of_q = add(of_q, matmul(A[..., rows:], transposed(behind)))
        first = _qr_gradient(q, r[..., :rows], of_q, of_r[..., :rows])
        return [cat([first, matmul(q, behind)], -1)]

    tape.add_node("qr", [input], [Q, R], backward, (input, Q, R))
    return Orthogonal(Q, R)


def _qr_gradient(q: Any, r: Any, of_q: Any, of_r: Any) -> Any:
    """Walter and Lehmann, arXiv:1009.6112."""
    inner = sub(matmul(r, transposed(of_r)), matmul(transposed(of_q), q))
    lower = tril(inner, -1)
    symmetric = add(add(lower, transposed(lower)), diag_embed(diagonal(inner, 0, -2, -1)))
    return transposed(_solution(r, transposed(add(of_q, matmul(q, symmetric)))))


@export()
@reads("A")
def eigh(A: Array, UPLO: str = "L") -> Eigen:
    """The eigenvalues and eigenvectors of symmetric matrices; ``dl.linalg.eigh``.

    Args:
        A: float32 or float64 of shape (..., n, n).
        UPLO: whether the lower triangle "L" or the upper one "U" is read.

    Returns:
        ``eigenvalues`` of shape (..., n), ascending, and ``eigenvectors`` of shape (..., n, n), in columns.

    Raises:
        ShapeError, DTypeError: `A` does not hold square matrices of floats.
        ArgumentError: LAPACK does not converge, or `UPLO` is neither.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.eigh(dl.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
        [1.0, 2.0]
    """
    check_matrices("eigh", A)
    if UPLO not in ("L", "U"):
        raise ArgumentError(f"[eigh] UPLO must be 'L' or 'U', got {UPLO!r}")
    triangle: Literal["L", "U"] = "L" if UPLO == "L" else "U"
    values, vectors = _on_host("eigh", lambda array: tuple(np.linalg.eigh(array, triangle)), A)

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        w, v = kept
        inner = diag_embed(grads[0]) if grads[0] is not None else None
        if grads[1] is not None:
            gaps = sub(unsqueeze(w, -2), unsqueeze(w, -1))
            shares = where(eq(gaps, 0), 0.0, true_divide(1.0, where(eq(gaps, 0), 1.0, gaps)))
            turned = mul(shares, matmul(transposed(v), grads[1]))
            inner = turned if inner is None else add(inner, turned)
        return [matmul(v, matmul(inner, transposed(v)))]

    tape.add_node("eigh", [A], [values, vectors], backward, (values, vectors))
    return Eigen(values, vectors)


@export()
@reads("A")
def svd_factors(A: Array, full_matrices: bool = True) -> SingularValues:
    """The singular value decomposition of matrices, ``A = U @ diag(S) @ Vh``; ``dl.linalg.svd``.

    Args:
        A: float32 or float64 of shape (..., m, n).
        full_matrices: whether `U` and `Vh` are square, and not only as large as they need to be.

    Returns:
        ``U`` of shape (..., m, k), ``S`` of shape (..., k), descending, and ``Vh`` of shape (..., k, n).

    Raises:
        ShapeError, DTypeError: `A` does not hold matrices of floats.
        ArgumentError: LAPACK does not converge.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.svd(dl.tensor([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
        [4.0, 3.0]
    """
    check_matrices("svd", A, square=False)
    U, S, Vh = _on_host("svd", lambda array: tuple(np.linalg.svd(array, full_matrices)), A)

    def backward(grads: Any, kept: Any, needs: Any) -> list[Any]:
        u, s, vh = kept
        of_u, of_s, of_vh = grads
        count = s.shape[-1]
        u, vh = u[..., :count], vh[..., :count, :]  # further columns and rows are any of their space
        of_u = None if of_u is None else of_u[..., :count]
        of_vh = None if of_vh is None else of_vh[..., :count, :]
        return [_svd_gradient(u, s, vh, of_u, of_s, of_vh)]

    tape.add_node("svd", [A], [U, S, Vh], backward, (U, S, Vh))
    return SingularValues(U, S, Vh)


def _svd_gradient(u: Any, s: Any, vh: Any, of_u: Any, of_s: Any, of_vh: Any) -> Any:
    """Townsend, "Differentiating the singular value decomposition" (2016)."""
    inner = None if of_s is None else diag_embed(of_s)
    squares = mul(s, s)
    gaps = sub(unsqueeze(squares, -2), unsqueeze(squares, -1))
    shares = where(eq(gaps, 0), 0.0, true_divide(1.0, where(eq(gaps, 0), 1.0, gaps)))
    outer = None
    if of_u is not None:
        product = matmul(transposed(u), of_u)
        turned = mul(mul(shares, sub(product, transposed(product))), unsqueeze(s, -2))
        inner = turned if inner is None else add(inner, turned)
        rest = sub(of_u, matmul(u, product))
        outer = matmul(true_divide(rest, unsqueeze(s, -2)), vh)
    if of_vh is not None:
        product = matmul(vh, transposed(of_vh))
        turned = mul(mul(shares, sub(product, transposed(product))), unsqueeze(s, -1))
        inner = turned if inner is None else add(inner, turned)
        rest = sub(of_vh, matmul(transposed(product), vh))
        term = matmul(true_divide(u, unsqueeze(s, -2)), rest)
        outer = term if outer is None else add(outer, term)
    total = matmul(u, matmul(inner, vh))
    return total if outer is None else add(total, outer)


@export("dl", "Tensor")
def svd(input: Array, some: bool = True, compute_uv: bool = True) -> SingularTriples:
    """The singular value decomposition ``input = U @ diag(S) @ V.T``; see :func:`dl4all.linalg.svd`.

    Args:
        input: float32 or float64 of shape (..., m, n).
        some: whether `U` and `V` have only as many columns as there are singular values.
        compute_uv: has no effect on `S`; without it, PyTorch gives zeros for `U` and `V`.

    Returns:
        ``U``, ``S`` and ``V``: not its transpose.

    Raises:
        ArgumentError, ShapeError, DTypeError: as for :func:`dl4all.linalg.svd`.

    Example:
        >>> import dl4all as dl
        >>> dl.svd(dl.tensor([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
        [4.0, 3.0]
    """
    U, S, Vh = svd_factors(input, not some)
    return SingularTriples(U, S, transposed(Vh))


@export()
def solve_triangular(
    A: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """The solutions X of ``A X = B`` for triangles `A`; ``dl.linalg.solve_triangular``.

    Args:
        A: float32 or float64 of shape (..., n, n), of which one triangle is read.
        B: shape (..., n, k).
        upper: whether it is the upper triangle.
        left: whether `A` stands on the left.
        unitriangular: whether ones are taken for the diagonal.

    Returns:
        The shape of `B`, with leading axes broadcast.

    Raises:
        ArgumentError: a triangle is singular.
        ShapeError, DTypeError: the shapes or dtypes do not fit.

    Example:
        >>> import dl4all as dl
        >>> A = dl.tensor([[2.0, 9.0], [2.0, 4.0]])
        >>> dl.linalg.solve_triangular(A, dl.tensor([[2.0], [6.0]]), upper=False).tolist()
        [[1.0], [1.0]]
    """
    check_matrices("solve_triangular", A)
    shift = 1 if unitriangular else 0
    triangle = triu(A, shift) if upper else tril(A, -shift)
    if unitriangular:
        ones = add(mul(diagonal(A, 0, -2, -1), 0), 1)
        triangle = add(triangle, diag_embed(ones.detach()))
    return solve(triangle, B, left=left)
