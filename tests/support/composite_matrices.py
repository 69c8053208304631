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
    "cov": (call(F.cov), call(lambda x, y: F.cov(x, aweights=y.abs() + 1), X, (5,))),
    "corrcoef": (call(F.corrcoef, X),),
    "combinations": (call(F.combinations, (5,)),),
    "nanquantile": (call(lambda x: F.nanquantile(x, 0.3, 1)), call(lambda x: F.nanquantile(x, 0.3))),
    "index_reduce": (call(lambda x, y: F.index_reduce(x, 1, ints(4, 0, 0), y, "amax"), X, (3, 3)),),
    "put": (call(lambda x, y: F.put(x, ints(3, 14, 3), y, True), X, (3,)),),
    "row_stack": (call(lambda x, y: F.row_stack([x, y]), X, (5,)),),
}
