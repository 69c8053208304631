"""Calls of functions of matrices and of whole sets of observations, for gradient checks."""

from __future__ import annotations

from typing import Any

import dl4all as dl
from tests.support.composite_cases import Calls, F, X, call, floating, ints

SQUARE = (2, 3, 3)


def regular(x: Any) -> Any:
    """Matrices far from singular ones."""
    return x + 4.0 * dl.eye(x.shape[-1], dtype="float64", device="cpu")


def positive(x: Any) -> Any:
    """Symmetric positive definite matrices."""
    return x @ x.transpose(-1, -2) + dl.eye(x.shape[-1], dtype="float64", device="cpu")


def reconstructed(x: Any) -> Any:
    """A product of singular vectors and values that does not depend on the signs of vectors."""
    u, s, vh = F.svd_factors(x, False)
    return (u * s.sqrt().unsqueeze(-2)) @ vh, s


MATRICES: Calls = {
    "inverse": (call(lambda x: F.inverse(regular(x)), SQUARE),),
    "solve": (
        call(lambda x, y: F.solve(regular(x), y), SQUARE, (3, 2)),
        call(lambda x, y: F.solve(regular(x), y, left=False), (3, 3), (2, 3)),
    ),
    "solve_triangular": (
        call(lambda x, y: F.solve_triangular(regular(x), y, upper=True), SQUARE, (2, 3, 2)),
        call(lambda x, y: F.solve_triangular(x, y, upper=False, unitriangular=True), (3, 3), (3, 2)),
    ),
    "cholesky": (call(lambda x: F.cholesky(positive(x)), SQUARE),),
    "det": (call(lambda x: F.det(regular(x)), SQUARE),),
    "logdet": (call(lambda x: F.logdet(positive(x)), SQUARE),),
    "slogdet": (call(lambda x: F.slogdet(regular(x)).logabsdet, SQUARE),),
    "qr": (call(F.qr, (2, 5, 3)), call(F.qr, (3, 5))),
    "eigh": (call(lambda x: floating([F.eigh(positive(x)).eigenvalues]), SQUARE),),
    "svd_factors": (call(reconstructed, (2, 5, 3)),),
    "svd": (call(lambda x: F.svd(x).S, (5, 3)),),
    "pinverse": (call(F.pinverse, (5, 3)),),
    "triangular_solve": (
        call(lambda x, y: F.triangular_solve(y, regular(x), transpose=True).solution, SQUARE, (2, 3, 2)),
    ),
    "cholesky_solve": (call(lambda x, y: F.cholesky_solve(y, regular(x)), SQUARE, (3, 2)),),
    "cholesky_inverse": (call(lambda x: F.cholesky_inverse(regular(x), True), SQUARE),),
    "tensorsolve": (call(lambda x, y: F.tensorsolve(regular(x).reshape(2, 3, 6), y), (6, 6), (2, 3)),),
    "tensorinv": (call(lambda x: F.tensorinv(regular(x).reshape(2, 3, 6)), (6, 6)),),
    "inv_ex": (call(lambda x: F.inv_ex(regular(x)).inverse, SQUARE),),
    "solve_ex": (call(lambda x, y: F.solve_ex(regular(x), y).result, SQUARE, (3, 2)),),
    "cholesky_ex": (call(lambda x: F.cholesky_ex(positive(x)).L, SQUARE),),
    "matrix_exp": (call(F.matrix_exp, SQUARE), call(F.matrix_exp, (1, 1))),
    "segment_reduce": (
        call(lambda x: F.segment_reduce(x, "mean", lengths=ints(2, 0, 1), initial=0.0)),
        call(
            lambda x: F.segment_reduce(
                x, "max", offsets=ints([0, 2, 5], [0, 1, 5], [0, 5, 5]), axis=1, initial=0.1
            )
        ),
    ),
    "cov": (call(F.cov), call(lambda x, y: F.cov(x, aweights=y.abs() + 1), X, (5,))),
    "corrcoef": (call(F.corrcoef, X),),
    "combinations": (call(F.combinations, (5,)),),
    "nanquantile": (call(lambda x: F.nanquantile(x, 0.3, 1)), call(lambda x: F.nanquantile(x, 0.3))),
    "index_reduce": (call(lambda x, y: F.index_reduce(x, 1, ints(4, 0, 0), y, "amax"), X, (3, 3)),),
    "put": (call(lambda x, y: F.put(x, ints(3, 14, 3), y, True), X, (3,)),),
    "row_stack": (call(lambda x, y: F.row_stack([x, y]), X, (5,)),),
}
