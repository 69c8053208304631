"""Linear algebra against PyTorch's: values, gradients, tolerances and what each driver leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from tests.support.compare_torch import LibraryCall, NDArray, check_against_torch, compare_libraries
from tests.support.operands import LAYOUTS

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

RNG = np.random.default_rng(22)


def drawn(*shape: int) -> NDArray:
    return RNG.standard_normal(shape)


TALL, WIDE, SQUARE, BATCH = drawn(7, 3), drawn(3, 5), drawn(5, 5), drawn(2, 5, 3)
LOW_RANK = drawn(7, 2) @ drawn(2, 5)
REPEATED = np.linalg.qr(drawn(5, 5))[0] * np.array([2.0, 2.0, 2.0, 1.0, 1.0])
"""Singular values that are equal, so that singular vectors have no gradients."""
SYMMETRIC = SQUARE + SQUARE.T


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("matrix", [TALL, WIDE, SQUARE, BATCH, REPEATED], ids=lambda m: str(m.shape))
def test_pinv(matrix: NDArray, layout: str) -> None:
    check_against_torch("cpu", dl.linalg.pinv, matrix, g=torch.linalg.pinv, layout=layout)


def test_pinv_on_devices(device: str) -> None:
    compare_libraries(device, lambda m, x: m.linalg.pinv(x), BATCH.astype(np.float32))
    compare_libraries(device, lambda m, x: m.pinverse(x), TALL.astype(np.float32))


def test_pinv_of_low_rank() -> None:
    compare_libraries("cpu", lambda m, x: m.linalg.pinv(x, rtol=1e-9), LOW_RANK)
    compare_libraries("cpu", lambda m, x: m.linalg.pinv(x, 1e-9), LOW_RANK)


def test_pinv_of_symmetric_matrices() -> None:
    for matrix in (SYMMETRIC, np.stack([SYMMETRIC, SYMMETRIC @ SYMMETRIC])):
        compare_libraries("cpu", lambda m, x: m.linalg.pinv(x, hermitian=True), matrix)
    lower = torch.from_numpy(SQUARE).tril()
    lower = (lower + lower.tril(-1).T).numpy()  # whatever stands above the diagonal is not read
    found = dl.linalg.pinv(dl.tensor(SQUARE, device="cpu"), hermitian=True).numpy()
    np.testing.assert_allclose(found, np.linalg.pinv(lower, hermitian=True), rtol=1e-9)


def test_pinv_has_second_derivatives() -> None:
    x = dl.tensor(TALL, device="cpu").requires_grad_()
    assert dl.autograd.gradgradcheck(dl.linalg.pinv, (x,))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 3, 2), (2, 0, 0), (1, 1)])
def test_pinv_and_rank_of_few_elements(shape: tuple[int, ...]) -> None:
    matrix = drawn(*shape)
    compare_libraries("cpu", lambda m, x: m.linalg.pinv(x), matrix)
    compare_libraries("cpu", lambda m, x: m.linalg.matrix_rank(x), matrix)


SCALES = np.array([1.0, 1e-3, 1e-5])
RANKS = np.stack([np.diag(SCALES), np.diag(SCALES) * 10, np.zeros((3, 3))])
RANK_CALLS: dict[str, LibraryCall] = {
    "default": lambda m, x: m.linalg.matrix_rank(x),
    "tol": lambda m, x: m.linalg.matrix_rank(x, 1e-4),
    "tol of 0": lambda m, x: m.linalg.matrix_rank(x, 0.0),
    "atol": lambda m, x: m.linalg.matrix_rank(x, atol=1e-4),
    "rtol": lambda m, x: m.linalg.matrix_rank(x, rtol=1e-4),
    "both": lambda m, x: m.linalg.matrix_rank(x, atol=1e-2, rtol=1e-4),
    "hermitian": lambda m, x: m.linalg.matrix_rank(x, hermitian=True, rtol=1e-4),
    "atol of each": lambda m, x: m.linalg.matrix_rank(x, atol=x[:, 1, 1] * 0.5),
    "rtol of each": lambda m, x: m.linalg.matrix_rank(x, rtol=x[:, 1, 1] * 2),
    "tol of each": lambda m, x: m.linalg.matrix_rank(x, x[:, 1, 1] * 2),
    "pinv, tolerances of each": lambda m, x: m.linalg.pinv(x, atol=x[:, 1, 1] * 2, rtol=x[:, 2, 2]),
}


@pytest.mark.parametrize("name", RANK_CALLS)
def test_tolerances(name: str) -> None:
    compare_libraries("cpu", lambda m, x: RANK_CALLS[name](m, x.detach()), RANKS)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(7, 3), (4, 4), (3, 5), (2, 5, 3)])
def test_lstsq(shape: tuple[int, ...], driver: str | None) -> None:
    A, B = drawn(*shape), drawn(*shape[:-1], 2)

    def call(library: Any, A: Any, B: Any) -> Any:
        return library.linalg.lstsq(A, B, driver=driver)

    ours, theirs = (call(m, m.tensor(A), m.tensor(B)) for m in (dl, torch))
    for name in ("solution", "residuals", "rank", "singular_values"):
        one, other = getattr(ours, name).numpy(), getattr(theirs, name).numpy()
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    compare_libraries("cpu", lambda m, A, B: call(m, A, B).solution, A, B)


def test_lstsq_of_low_rank_has_no_residuals() -> None:
    A, B = drawn(7, 2) @ drawn(2, 3), drawn(7, 2)
    for driver in ("gelsd", "gelss"):
        for m in (dl, torch):
            assert m.linalg.lstsq(m.tensor(A), m.tensor(B), driver=driver).residuals.shape == (0,)


@pytest.mark.parametrize("n", [-4, -2, -1, 1, 3])
def test_matrix_power(n: int) -> None:
    matrix = drawn(2, 3, 3) + 3 * np.eye(3)
    compare_libraries("cpu", lambda m, x: m.matrix_power(x, n), matrix)
    compare_libraries("cpu", lambda m, x: m.linalg.matrix_power(x, n), matrix[0, :1, :1])


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="inverse"):
        dl.matrix_power(dl.zeros(2, 2), -1)
    with pytest.raises(DTypeError, match="inverse"):
        dl.matrix_power(dl.tensor([[2]]), -1)
    with pytest.raises(ShapeError, match="pinv"):
        dl.linalg.pinv(dl.tensor(TALL), hermitian=True)
    with pytest.raises(DTypeError, match="matrix_rank"):
        dl.linalg.matrix_rank(dl.tensor([[2]]))
    with pytest.raises(ArgumentError, match=r"linalg\.norm"):
        dl.norm(dl.tensor(TALL), "nuc")


COUNTS = RNG.integers(-9, 9, (3, 11))
OF_INTEGERS: dict[str, tuple[NDArray, LibraryCall]] = {
    "cov": (COUNTS, lambda m, x: m.cov(x)),
    "cov, one variable": (COUNTS[0], lambda m, x: m.cov(x, correction=0)),
    "cov, weights": (COUNTS, lambda m, x: m.cov(x, fweights=abs(x[0]) + 1, aweights=(abs(x[1]) + 1) * 0.5)),
    "corrcoef": (COUNTS, lambda m, x: m.corrcoef(x)),
    "corrcoef, int32": (COUNTS.astype(np.int32), lambda m, x: m.corrcoef(x)),
    "unravel_index": (abs(COUNTS), lambda m, x: m.unravel_index(x, (2, 9223372036854775807))),
    "unravel_index, sizes": (abs(COUNTS), lambda m, x: m.unravel_index(x, (5, 1, 3))),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers(name: str, device: str) -> None:
    array, call = OF_INTEGERS[name]
    compare_libraries(device, call, array)


def test_no_axes_unravel_to_no_indices() -> None:
    assert dl.unravel_index(dl.tensor(0), ()) == torch.unravel_index(torch.tensor(0), ()) == ()
    with pytest.raises(ArgumentError, match="negative"):
        dl.unravel_index(dl.tensor(3), (2, -1))


def test_broadcast_shapes_gives_a_size() -> None:
    found = dl.broadcast_shapes((2, 1), (3,), ())
    assert isinstance(found, dl.Size)
    assert (found, found.numel()) == ((2, 3), 6)
