"""Products of matrices of bfloat16 on the CPU, which some processors have an instruction for."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from tests.support.operands import generator

SIZES = [(16, 16, 1), (17, 19, 7), (65, 67, 129), (100, 33, 31), (130, 70, 256), (16, 257, 40), (300, 16, 77)]


def drawn(name: str, *shape: int) -> dl.Tensor:
    return dl.tensor(generator(name, *shape).standard_normal(shape), device="cpu").bfloat16()


def exact(x: dl.Tensor) -> npt.NDArray[np.float64]:
    return x.float().numpy().astype(np.float64)


def check(result: dl.Tensor, wanted: npt.NDArray[np.float64]) -> None:
    """One rounding of each result, and sums of float32."""
    assert result.dtype == dl.bfloat16
    np.testing.assert_allclose(exact(result), wanted, rtol=2.0**-8, atol=2.0**-18 * np.abs(wanted).max())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_operands_in_rows_and_in_columns(size: tuple[int, int, int]) -> None:
    m, n, k = size
    for turned_a, turned_b in itertools.product((False, True), repeat=2):
        a = drawn("a", k, m).T if turned_a else drawn("a", m, k)
        b = drawn("b", n, k).T if turned_b else drawn("b", k, n)
        check(a @ b, exact(a) @ exact(b))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_layers_with_a_bias(size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, weight, bias = drawn("x", 2, m, k), drawn("weight", n, k), drawn("bias", n)
    wanted = exact(x) @ exact(weight).T
    check(dl.nn.functional.linear(x, weight), wanted)
    check(dl.nn.functional.linear(x, weight, bias), wanted + exact(bias))


def test_parts_of_matrices() -> None:
    """Rows and columns that are further apart than they are long."""
    a, b = drawn("a", 40, 90), drawn("b", 80, 70)
    for left, right in ((a[:, 3:60], b[3:60]), (a[::2, :77], b[1:78, 5:]), (a[:, 1::2], b[:45, ::2])):
        check(left @ right, exact(left) @ exact(right))


def test_batches_and_gradients() -> None:
    x, y = drawn("x", 3, 20, 24).requires_grad_(), drawn("y", 24, 18).requires_grad_()
    out = x @ y
    check(out.detach(), exact(x.detach()) @ exact(y.detach()))
    g = drawn("g", 3, 20, 18)
    out.backward(g)
    assert x.grad is not None
    assert y.grad is not None
    check(x.grad, exact(g) @ exact(y.detach()).T)
    check(y.grad, np.einsum("bik,bij->kj", exact(x.detach()), exact(g)))


def test_infinity_and_nan_stay() -> None:
    a, b = np.ones((16, 33), np.float32), np.ones((33, 16), np.float32)
    a[0, 3], a[1, 32], a[2, 0], a[3, :2] = np.inf, np.nan, -np.inf, (np.inf, -np.inf)
    result = (dl.tensor(a, device="cpu").bfloat16() @ dl.tensor(b, device="cpu").bfloat16()).float().numpy()
    np.testing.assert_array_equal(result[:5, 7], [np.inf, np.nan, -np.inf, np.nan, 33])
