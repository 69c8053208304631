"""Linear systems of triangles, Cholesky factors and tensors, which of them fail, and exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.host import computed_on_host, to_device_of
from dl4all.functions.matrices.factorizations import (
    check_matrices,
    cholesky,
    inverse,
    slogdet,
    solve,
    solve_triangular,
    transposed,
)
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import HALVES
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add, mul, true_divide
from dl4all.ops.elementwise.comparison import eq, ne
from dl4all.ops.elementwise.logic import where
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.conversion import cast, in_float32
from dl4all.ops.memory.views import movedim, reshape, unsqueeze

TAYLOR_TERMS = 18
"""Of a matrix whose norm is at most 1, further terms are below the precision of float64."""


class TriangularSolution(NamedTuple):
    """The results of :func:`triangular_solve`."""

    solution: Array
    cloned_coefficient: Array


class CheckedInverse(NamedTuple):
    """The results of :func:`inv_ex`."""

    inverse: Array
    info: Array


class CheckedSolution(NamedTuple):
    """The results of :func:`solve_ex`."""

    result: Array
    info: Array


class CheckedFactor(NamedTuple):
    """The results of :func:`cholesky_ex`."""

    L: Array
    info: Array


# Systems with factors


@export("dl", "Tensor")
def triangular_solve(
    input: Array, A: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """The solutions X of ``A X = input`` for triangles `A`; an older form of ``dl.linalg.solve_triangular``.

    Args:
        input: float32 or float64 of shape (..., n, k).
        A: shape (..., n, n), of which one triangle is read.
        upper: whether it is the upper triangle.
        transpose: whether `A` stands transposed in the equation.
        unitriangular: whether ones are taken for the diagonal.

    Returns:
        ``solution``, and a copy of `A` as ``cloned_coefficient``.

    Raises:
        ArgumentError, ShapeError, DTypeError: as for ``dl.linalg.solve_triangular``.

    Example:
        >>> import dl4all as dl
        >>> dl.triangular_solve(dl.tensor([[4.0]]), dl.tensor([[2.0]])).solution.item()
        2.0
    """
    matrix = transposed(A) if transpose else A
    solution = solve_triangular(matrix, input, upper=upper != transpose, unitriangular=unitriangular)
    return TriangularSolution(solution, A.clone())


@export("dl", "Tensor")
def cholesky_solve(input: Array, input2: Array, upper: bool = False) -> Array:
    """The solutions X of ``A X = input`` for the Cholesky factors of `A`; see :func:`dl4all.cholesky`.

    Args:
        input: float32 or float64 of shape (..., n, k).
        input2: the factors, of shape (..., n, n), of which one triangle is read.
        upper: whether it is the upper one: ``A = U.T @ U``.

    Returns:
        The shape of `input`, with leading axes broadcast.

    Raises:
        ArgumentError, ShapeError, DTypeError: as for ``dl.linalg.solve_triangular``.

    Example:
        >>> import dl4all as dl
        >>> dl.cholesky_solve(dl.tensor([[8.0]]), dl.tensor([[2.0]])).item()
        2.0
    """
    first, second = (transposed(input2), input2) if upper else (input2, transposed(input2))
    return solve_triangular(second, solve_triangular(first, input, upper=False), upper=True)


@export("dl", "Tensor")
def cholesky_inverse(input: Array, upper: bool = False) -> Array:
    """The inverses of matrices, of their Cholesky factors; see :func:`cholesky_solve`.

    Args:
        input: the factors, float32 or float64 of shape (..., n, n), of which one triangle is read.
        upper: whether it is the upper one.

    Raises:
        ArgumentError, ShapeError, DTypeError: as for ``dl.linalg.solve_triangular``.

    Example:
        >>> import dl4all as dl
        >>> dl.cholesky_inverse(dl.tensor([[2.0]])).item()
        0.25
    """
    check_matrices("cholesky_inverse", input)
    return cholesky_solve(_identities(input), input, upper)


def _identities(like: Array) -> Array:
    """Identity matrices, as many as there are matrices."""
    identity = to_device_of(like, np.eye(like.shape[-1], dtype=like.dtype))
    return add(mul(tape.alias(like), 0), identity) if len(like.shape) > 2 else identity


# Systems of tensors


@export()
def tensorsolve(A: Array, B: Array, dims: Sequence[int] | None = None) -> Array:
    """The tensor X for which ``tensordot(A, X, X.ndim) = B``; ``dl.linalg.tensorsolve``.

    Args:
        A: float32 or float64 of shape ``B.shape + X.shape``; both have as many elements.
        B: the right-hand side.
        dims: axes of `A` that are moved to its end first.

    Raises:
        ShapeError: `A` has not as many elements along both groups of axes.
        ArgumentError: the system is singular.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.tensorsolve(2 * dl.eye(6).reshape(2, 3, 6), dl.ones(2, 3)).tolist()
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """
    if dims is not None:
        A = movedim(A, tuple(dims), tuple(range(len(A.shape) - len(dims), len(A.shape))))
    shape = tuple(A.shape[len(B.shape) :])
    size = math.prod(B.shape)
    if math.prod(shape) != size or A.numel() != size * size:
        raise ShapeError(f"[tensorsolve] shapes {A.shape} and {B.shape} are no square system")
    return reshape(solve(reshape(A, size, size), reshape(B, size)), shape)


@export()
def tensorinv(A: Array, ind: int = 2) -> Array:
    """The inverse of a tensor with regard to :func:`dl4all.tensordot`; ``dl.linalg.tensorinv``.

    Args:
        A: float32 or float64; its first `ind` axes have as many elements as the others.
        ind: how many axes stand for the rows.

    Returns:
        The shape of `A`, with both groups of axes exchanged.

    Raises:
        ShapeError: the groups have different numbers of elements.
        ArgumentError: the tensor is singular, or `ind` is below 1.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.tensorinv(dl.eye(6).reshape(6, 2, 3), ind=1).shape
        (2, 3, 6)
    """
    integer("tensorinv", "ind", ind, least=1)
    rows, columns = A.shape[:ind], A.shape[ind:]
    size = math.prod(rows)
    if math.prod(columns) != size:
        raise ShapeError(f"[tensorinv] expected as many elements in {rows} as in {columns}")
    return reshape(inverse(reshape(A, size, size)), (*columns, *rows))


# Factorizations that do not raise


@export()
def inv_ex(A: Array, *, check_errors: bool = False) -> CheckedInverse:
    """The inverses of matrices, and which matrices have none; ``dl.linalg.inv_ex``.

    Args:
        A: float32 or float64 of shape (..., n, n).
        check_errors: raise for singular matrices, too.

    Returns:
        ``inverse`` of `A`'s shape, nan for singular matrices, and ``info`` of shape (...): int32, above 0
        for those.

    Raises:
        ArgumentError: `check_errors` is set, and a matrix is singular.
        ShapeError, DTypeError: `A` does not hold square matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.inv_ex(dl.tensor([[[2.0]], [[0.0]]])).info.tolist()
        [0, 1]
    """
    info = _singular("inv_ex", A, check_errors)
    return CheckedInverse(_unless(info, inverse(_regular(info, A)), 2), info)


@export()
def solve_ex(A: Array, B: Array, *, left: bool = True, check_errors: bool = False) -> CheckedSolution:
    """The solutions of linear systems, and which are singular; ``dl.linalg.solve_ex``.

    Args:
        A, B, left: as for ``dl.linalg.solve``.
        check_errors: raise for singular matrices, too.

    Returns:
        ``result``, nan for singular matrices, and ``info`` as of :func:`inv_ex`.

    Raises:
        ArgumentError: `check_errors` is set, and a matrix is singular.
        ShapeError, DTypeError: the shapes or dtypes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.solve_ex(dl.tensor([[2.0]]), dl.tensor([4.0])).result.tolist()
        [2.0]
    """
    info = _singular("solve_ex", A, check_errors)
    result = solve(_regular(info, A), B, left=left)
    return CheckedSolution(_unless(info, result, len(result.shape) - len(info.shape)), info)


@export()
def cholesky_ex(A: Array, *, upper: bool = False, check_errors: bool = False) -> CheckedFactor:
    """The Cholesky factors of matrices, and which have none; ``dl.linalg.cholesky_ex``.

    Args:
        A: float32 or float64 of shape (..., n, n).
        upper: as for :func:`dl4all.cholesky`.
        check_errors: raise for matrices that are not positive definite, too.

    Returns:
        ``L`` of `A`'s shape, nan for matrices that are not positive definite, and ``info`` of shape (...):
        int32, for those the order of the first leading minor that is not positive.

    Raises:
        ArgumentError: `check_errors` is set, and a matrix is not positive definite.
        ShapeError, DTypeError: `A` does not hold square matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.linalg.cholesky_ex(dl.tensor([[1.0, 2.0], [2.0, 1.0]])).info.item()
        2
    """
    check_matrices("cholesky_ex", A)
    info = _indefinite(tape.alias(A))
    _check("cholesky_ex", info, check_errors, "positive definite")
    return CheckedFactor(_unless(info, cholesky(_regular(info, A), upper), 2), info)


@reads("A")
@computed_on_host("cholesky_ex")
def _indefinite(A: Array) -> Array:
    """The order of the first leading minor of each matrix that is not positive, 0 where there is none."""
    found = np.zeros(A.shape[:-2], np.int32)
    array = A.on_host()
    for place in np.ndindex(*found.shape):
        found[place] = _first_indefinite(array[place])
    return to_device_of(A, found)


def _first_indefinite(matrix: Any) -> int:
    low, high = 0, matrix.shape[0] + 1  # a minor within one that is positive definite is so, too
    while high - low > 1:
        order = high - 1 if low == 0 and high == matrix.shape[0] + 1 else (low + high) // 2
        try:
            np.linalg.cholesky(matrix[:order, :order])
            low = order
        except np.linalg.LinAlgError:
            high = order
    return 0 if high > matrix.shape[0] else high


def _singular(name: str, A: Array, check_errors: bool) -> Array:
    """1 for each matrix that is singular, else 0, as int32."""
    check_matrices(name, A)
    info = cast(eq(slogdet(tape.alias(A)).sign, 0), "int32")
    _check(name, info, check_errors, "regular")
    return info


def _check(name: str, info: Array, check_errors: bool, what: str) -> None:
    """
    Raises:
        ArgumentError: errors are asked for, and there is one.
    """
    if check_errors and bool(info.on_host().any()):
        raise ArgumentError(f"[{name}] a matrix is not {what}")


def _regular(info: Array, A: Array) -> Array:
    """The matrices, with identities for those that a function fails for."""
    return where(_wide(ne(info, 0), 2), _identities(A), A)


def _unless(info: Array, result: Array, axes: int) -> Array:
    """The result, and nan where a function fails."""
    return where(_wide(ne(info, 0), axes), float("nan"), result)


def _wide(flags: Array, axes: int) -> Array:
    for _ in range(axes):
        flags = unsqueeze(flags, -1)
    return flags


# Exponentials


@export("dl", "Tensor")
@reads("input")
def matrix_exp(input: Array) -> Array:
    """The exponentials of matrices: ``I + A + A @ A / 2 + ...``.

    Args:
        input: floats of shape (..., n, n); those of 16 bits are computed in float32.

    Returns:
        The same shape.

    Raises:
        ShapeError, DTypeError: `input` does not hold square matrices of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.matrix_exp(dl.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    if isinstance(input, TensorBase) and input.dtype in HALVES:
        return in_float32(matrix_exp, input)
    check_matrices("matrix_exp", input)
    norms = np.abs(input.on_host()).sum(-2).max(-1, initial=0.0) if input.numel() else np.zeros(0)
    largest = float(norms.max(initial=0.0))
    squarings = max(0, math.ceil(math.log2(largest))) if 0 < largest < math.inf else 0
    scaled = mul(input, 0.5**squarings)
    identity = _identities(input)
    result = identity
    for count in range(TAYLOR_TERMS, 0, -1):
        result = add(identity, true_divide(matmul(scaled, result), count))
    for _ in range(squarings):
        result = matmul(result, result)
    return result
