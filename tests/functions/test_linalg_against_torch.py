"""Linear algebra against PyTorch's: values, gradients, tolerances and what each driver leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from tests.support.compare_torch import (
    LibraryCall,
    NDArray,
    check_against_torch,
    compare_libraries,
    index_tensor,
)
from tests.support.operands import LAYOUTS

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

RNG = np.random.default_rng(22)


def drawn(*shape: int) -> NDArray:
    return np.asarray(RNG.standard_normal(shape))


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


REGULAR = drawn(2, 4, 4) + 4 * np.eye(4)
POSITIVE = REGULAR @ REGULAR.swapaxes(-1, -2)
RIGHT = drawn(2, 4, 3)


def lower(x: Any) -> Any:
    return x.tril()


SYSTEMS: dict[str, tuple[LibraryCall, tuple[NDArray, ...]]] = {
    "triangular_solve": (lambda m, b, x: tuple(m.triangular_solve(b, x)), (RIGHT, REGULAR)),
    "triangular_solve, options": (
        lambda m, b, x: m.triangular_solve(b, lower(x), False, True, True).solution,
        (RIGHT, REGULAR),
    ),
    "cholesky_solve": (lambda m, b, x: m.cholesky_solve(b, lower(x)), (RIGHT, REGULAR)),
    "cholesky_solve, upper": (lambda m, b, x: m.cholesky_solve(b, x.triu(), upper=True), (RIGHT, REGULAR)),
    "cholesky_inverse": (lambda m, x: m.cholesky_inverse(lower(x)), (REGULAR,)),
    "tensorsolve": (
        lambda m, x, b: m.linalg.tensorsolve(x.reshape(2, 2, 4), b.reshape(2, 2)),
        (REGULAR[0], RIGHT[0, 0, 0] + drawn(4)),
    ),
    "tensorsolve, dims": (
        lambda m, x, b: m.linalg.tensorsolve(x.reshape(4, 2, 2), b, dims=(0,)),
        (REGULAR[0], drawn(2, 2)),
    ),
    "tensorinv": (lambda m, x: m.linalg.tensorinv(x.reshape(2, 2, 4)), (REGULAR[0],)),
    "tensorinv, ind": (lambda m, x: m.linalg.tensorinv(x.reshape(4, 2, 2), ind=1), (REGULAR[0],)),
    "vander": (lambda m, x: m.linalg.vander(x, N=4), (drawn(2, 3),)),
    "vander of ints": (lambda m, x: m.linalg.vander(x), (np.array([2, 3, -1]),)),
    "vander of a number": (lambda m, x: m.linalg.vander(x, N=3), (drawn(),)),
    "matrix_exp": (lambda m, x: m.matrix_exp(x), (REGULAR,)),
    "matrix_exp of small ones": (lambda m, x: m.linalg.matrix_exp(x * 0.01), (REGULAR,)),
    "matrix_exp of none": (lambda m, x: m.linalg.matrix_exp(x), (drawn(0, 3, 3),)),
    "inv_ex": (lambda m, x: tuple(m.linalg.inv_ex(x)), (REGULAR,)),
    "solve_ex": (lambda m, x, b: tuple(m.linalg.solve_ex(x, b)), (REGULAR, RIGHT)),
    "solve_ex, right": (
        lambda m, x, b: tuple(m.linalg.solve_ex(x, b, left=False)),
        (REGULAR, RIGHT.swapaxes(1, 2)),
    ),
    "cholesky_ex": (lambda m, x: tuple(m.linalg.cholesky_ex(x, upper=True)), (POSITIVE,)),
}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.filterwarnings("ignore:torch.triangular_solve:UserWarning")
def test_systems(name: str) -> None:
    function, arrays = SYSTEMS[name]
    compare_libraries("cpu", function, *arrays)


def test_systems_on_devices(device: str) -> None:
    narrow = REGULAR.astype(np.float32)
    compare_libraries(device, lambda m, x: m.matrix_exp(x * 0.1), narrow)
    compare_libraries(device, lambda m, x: tuple(m.linalg.inv_ex(x)), narrow)
    compare_libraries(device, lambda m, x: m.cholesky_inverse(x.tril()), narrow)


def test_what_fails_is_told_apart() -> None:
    some = np.stack([np.eye(3), np.ones((3, 3)), np.diag([1.0, 2.0, -1.0])])
    for m in (dl, torch):
        x = m.tensor(some)
        factor, info = m.linalg.cholesky_ex(x)
        assert info.tolist() == [0, 2, 3]
        assert factor[0].tolist() == some[0].tolist()
        inverses, info = m.linalg.inv_ex(x)
        assert [bool(one) for one in info.tolist()] == [False, True, False]
        np.testing.assert_allclose(inverses[2].numpy(), np.diag([1.0, 0.5, -1.0]))
        assert [bool(one) for one in m.linalg.solve_ex(x, x).info.tolist()] == [False, True, False]
        for function in (m.linalg.cholesky_ex, m.linalg.inv_ex):
            with pytest.raises(RuntimeError):
                function(x, check_errors=True)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 0.75])
def test_segment_reduce(reduce: Any, initial: float | None, device: str) -> None:
    x = drawn(2, 7, 3).astype(np.float32)
    lengths = np.array([[2, 0, 4, 1], [0, 7, 0, 0]])

    def call(library: Any, values: Any, lengths: NDArray, axis: int, *, by_offset: bool) -> Any:
        where = {"device": device} if library is dl else {}
        begins = np.concatenate([lengths[..., :1] * 0, lengths.cumsum(-1)], -1)
        segments = library.tensor(begins if by_offset else lengths, **where)
        options = {"offsets" if by_offset else "lengths": segments, "axis": axis, "initial": initial}
        return library.segment_reduce(values, reduce, **options)

    # PyTorch has no gradients of the empty segments of means.
    compare_libraries(device, lambda m, v: call(m, v, np.array([3, 1, 3]), 0, by_offset=False), x[0])
    for by_offset in (False, True):
        compare_libraries(device, lambda m, v, o=by_offset: call(m, v.detach(), lengths, 1, by_offset=o), x)
    for options in ({"lengths": [1, 2], "unsafe": True}, {"offsets": [1, 4, 6]}):
        compare_libraries(
            device,
            lambda m, v, o=options: m.segment_reduce(
                v.detach(),
                reduce,
                initial=initial,
                **{k: index_tensor(m, device, np.array(n)) if k != "unsafe" else n for k, n in o.items()},
            ),
            x[0],
        )
    with pytest.raises(ArgumentError, match="reaches beyond the 7 elements"):
        dl.segment_reduce(dl.tensor(x[0], device=device), reduce, offsets=dl.tensor([0, 8], device=device))
    with pytest.raises(ArgumentError, match="add up to 7"):
        call(dl, dl.tensor(x[0], device=device), np.array([3, 1, 2]), 0, by_offset=False)


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
        dl.norm(dl.tensor(TALL), "nuc")  # type: ignore[arg-type]


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
