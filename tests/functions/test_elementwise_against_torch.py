"""Elementwise functions composed of ops, against PyTorch's: values, gradients and special numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError
from tests.support.compare_torch import LibraryCall, NDArray, compare_libraries, index_tensor, values
from tests.support.operands import close

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

inf, nan = float("inf"), float("nan")
SPECIAL = np.array([nan, inf, -inf, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.5, -3.5, 1e-7, 1e9, -1e20], np.float32)
PAIRS = [np.ascontiguousarray(x) for x in np.broadcast_arrays(SPECIAL[:, None], SPECIAL[None])]
INSIDE = np.random.default_rng(3).uniform(0.05, 0.95, (5, 7)).astype(np.float32)

UNARY: dict[str, tuple[NDArray, LibraryCall]] = {
    "asinh": (values(5, 7) * 3, lambda m, x: m.asinh(x)),
    "acosh": (INSIDE * 4 + 1, lambda m, x: m.acosh(x)),
    "atanh": (INSIDE * 2 - 1, lambda m, x: m.arctanh(x)),
    "frac": (values(5, 7) * 3, lambda m, x: m.frac(x)),
    "deg2rad": (values(5, 7) * 90, lambda m, x: m.deg2rad(x)),
    "rad2deg": (values(5, 7), lambda m, x: m.rad2deg(x)),
    "sinc": (np.append(values(5), np.float32(0)), lambda m, x: m.sinc(x)),
    "polygamma": (INSIDE, lambda m, x: m.polygamma(2, x)),
    "mvlgamma": (INSIDE + 2, lambda m, x: m.mvlgamma(x, 3)),
    "multigammaln": (INSIDE + 2, lambda m, x: m.special.multigammaln(x, 2)),
    "entr": (INSIDE, lambda m, x: m.special.entr(x)),
    "ndtr": (values(5, 7) * 3, lambda m, x: m.special.ndtr(x)),
    "log_ndtr": (values(5, 7) * 2, lambda m, x: m.special.log_ndtr(x)),
    "ndtri": (INSIDE, lambda m, x: m.special.ndtri(x)),
    "erfcx": (values(5, 7), lambda m, x: m.special.erfcx(x)),
    "frexp": (values(5, 7) * 100, lambda m, x: tuple(m.frexp(x))),
    "gradient": (values(5, 7), lambda m, x: m.gradient(x, spacing=None)),
    "gradient, order 2": (values(3, 7), lambda m, x: m.gradient(x, spacing=0.3, dim=-1, edge_order=2)),
    "gradient, distances": (values(5, 7), lambda m, x: m.gradient(x, spacing=[0.3, 2.0], dim=(1, 0))),
    "gradient, coordinates": (
        values(2, 5, 7),
        lambda m, x: m.gradient(
            x.contiguous(), spacing=[x[0, 0].detach().cumsum(0) + x[0, 0].detach() * 9], dim=2, edge_order=2
        ),
    ),
    "gradient of two": (values(2, 5), lambda m, x: m.gradient(x, dim=0)),
    "gradient of ints": (np.arange(15).reshape(3, 5) ** 2, lambda m, x: m.gradient(x)),
    "logit": (INSIDE, lambda m, x: m.logit(x)),
    "logit, eps": (INSIDE, lambda m, x: m.logit(x, eps=0.2)),
    "sgn": (values(5, 7), lambda m, x: m.sgn(x.detach())),
    "absolute": (values(5, 7), lambda m, x: m.absolute(x)),
    "negative": (values(5, 7), lambda m, x: m.negative(x)),
    "fix": (values(5, 7), lambda m, x: m.fix(x)),
    "clip": (values(5, 7), lambda m, x: m.clip(x, -1.0, 0.75)),
    "positive": (values(5, 7), lambda m, x: m.positive(x)),
    "real": (values(5, 7), lambda m, x: m.real(x)),
    "ravel": (values(5, 7), lambda m, x: m.ravel(x)),
    "rsub": (values(5, 7), lambda m, x: m.rsub(x, 3.0, alpha=2)),
    "copysign, number": (values(5, 7), lambda m, x: m.copysign(x, -2.0)),
    "heaviside": (values(5, 7), lambda m, x: m.heaviside(x.detach(), x.detach() * 2)),
    "float_power": (INSIDE, lambda m, x: m.float_power(x, 1.5)),
}
BINARY: dict[str, LibraryCall] = {
    "fmax": lambda m, a, b: m.fmax(a, b),
    "fmin": lambda m, a, b: m.fmin(a, b),
    "hypot": lambda m, a, b: m.hypot(a, b),
    "copysign": lambda m, a, b: m.copysign(a, b.detach()),
    "ldexp": lambda m, a, b: m.ldexp(a, b),
    "logaddexp": lambda m, a, b: m.logaddexp(a, b),
    "logaddexp2": lambda m, a, b: m.logaddexp2(a, b),
    "xlogy": lambda m, a, b: m.xlogy(a, abs(b)),
    "xlog1py": lambda m, a, b: m.special.xlog1py(a, abs(b)),
    "xlog1py, number": lambda m, a, b: m.special.xlog1py(a, 0.5) + m.special.xlog1py(2, abs(b)),
    "zeta": lambda m, a, b: m.special.zeta(2 + abs(a.detach()), abs(b)),
    "nextafter": lambda m, a, b: m.nextafter(a, b),
    "multiply": lambda m, a, b: m.multiply(a, b),
    "subtract": lambda m, a, b: m.subtract(a, b, alpha=2),
    "divide": lambda m, a, b: m.divide(a, b),
    "divide, floor": lambda m, a, b: m.div(a, b, rounding_mode="floor"),
    "divide, trunc": lambda m, a, b: m.div(a, b, rounding_mode="trunc"),
    "true_divide": lambda m, a, b: m.true_divide(a, b),
}
ON_SPECIAL: dict[str, LibraryCall] = {
    **{name: BINARY[name] for name in ("fmax", "fmin", "copysign", "hypot", "logaddexp", "logaddexp2")},
    "xlogy": lambda m, a, b: m.xlogy(a, b),
    "xlog1py": lambda m, a, b: m.special.xlog1py(a.detach(), b.detach()),
    "nextafter": lambda m, a, b: m.nextafter(a, b),
    "entr": lambda m, a, b: m.special.entr(a),
    "ndtr": lambda m, a, b: m.special.ndtr(a),
    "log_ndtr": lambda m, a, b: m.special.log_ndtr(a),
    "frexp": lambda m, a, b: m.frexp(a.detach()).mantissa,
    "greater": lambda m, a, b: m.greater(a, b),
    "greater_equal": lambda m, a, b: m.greater_equal(a, b),
    "less": lambda m, a, b: m.less(a, b),
    "less_equal": lambda m, a, b: m.less_equal(a, b),
    "not_equal": lambda m, a, b: m.not_equal(a, b),
    "isclose": lambda m, a, b: m.isclose(a, b),
    "isclose, nan": lambda m, a, b: m.isclose(a, b, rtol=0.1, atol=0.5, equal_nan=True),
    "heaviside": lambda m, a, b: m.heaviside(a, b),
    **{
        name: functools.partial(lambda m, a, b, name: getattr(m, name)(a), name=name)
        for name in ("signbit", "isneginf", "isposinf", "isreal", "asinh", "acosh", "atanh", "frac", "sinc")
    },
}


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name: str, device: str) -> None:
    array, call = UNARY[name]
    compare_libraries(device, call, array)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str, device: str) -> None:
    compare_libraries(device, BINARY[name], values(5, 7), values(4, 1, 7))


@pytest.mark.parametrize("name", ON_SPECIAL)
def test_special_numbers(name: str, device: str) -> None:
    result, expected = (
        ON_SPECIAL[name](m, *(make(x.copy()) for x in PAIRS))
        for m, make in ((dl, lambda x: dl.tensor(x, device=device)), (torch, torch.from_numpy))
    )
    result, expected = result.numpy(), expected.numpy()
    if name in ("hypot", "logaddexp", "logaddexp2"):
        # PyTorch's follow C: the result of infinity and nan is infinity.
        known = ~np.isnan(PAIRS[0]) & ~np.isnan(PAIRS[1])
        result, expected = result[known], expected[known]
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-7)


DIVIDENDS = np.array([-7, 7, -8, 8, 2**40, 5, 0], np.int64)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_rounded_quotients_of_integers(mode: Any, device: str) -> None:
    for divisor in (2, -3):
        result = dl.div(dl.tensor(DIVIDENDS, device=device), divisor, rounding_mode=mode)
        expected = torch.div(torch.from_numpy(DIVIDENDS), divisor, rounding_mode=mode)
        assert str(expected.dtype) == f"torch.{result.dtype}"
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-7)


INTEGERS: tuple[LibraryCall, ...] = (
    lambda m, x: m.sinc(x),
    lambda m, x: m.deg2rad(x),
    lambda m, x: m.asinh(x),
    lambda m, x: m.copysign(x, x),
    lambda m, x: m.xlogy(x, x),
    lambda m, x: m.ldexp(x, x),
    lambda m, x: m.signbit(x),
    lambda m, x: m.fmax(x, x),
    lambda m, x: m.isclose(x, x + 1),
    lambda m, x: m.isposinf(x),
    lambda m, x: m.float_power(x, 2),
)


def test_integers_become_floats_as_in_pytorch(device: str) -> None:
    array = np.array([[1, 2, 3], [4, 5, 6]], np.int64)
    for call in INTEGERS:
        compare_libraries(device, call, array)


TWICE_DIFFERENTIABLE: tuple[tuple[LibraryCall, NDArray], ...] = (
    (lambda m, x: m.asinh(x), values(6)),
    (lambda m, x: m.hypot(x, x * 2 + 1), values(6)),
    (lambda m, x: m.logaddexp(x, x * x), values(6)),
    (lambda m, x: m.logit(x), INSIDE[0]),
)


def test_second_derivatives(device: str) -> None:
    for call, array in TWICE_DIFFERENTIABLE:
        x = dl.tensor(array, device=device).requires_grad_()
        y = torch.from_numpy(array.copy()).requires_grad_()
        (first,) = dl.grad([call(dl, x).sum()], [x], create_graph=True)
        (other,) = torch.autograd.grad(call(torch, y).sum(), y, create_graph=True)
        (second,), (expected,) = dl.grad([first.sum()], [x]), torch.autograd.grad(other.sum(), y)
        close(second.numpy().astype(np.float64), expected.numpy().astype(np.float64), 1e-5)


def test_equality_of_tensors(device: str) -> None:
    x = dl.tensor(values(3, 4), device=device)
    assert dl.equal(x, x + 0) is True
    assert dl.equal(x, x[:2]) is False
    assert dl.allclose(x, x + 1e-7) is True
    assert dl.allclose(x, x + 1e-3) is False
    assert x.allclose(x + 0.5, atol=1.0) is True
    assert dl.is_nonzero(x[0, 0]) is True
    compare_libraries(
        device,
        lambda m, a: m.isin(a, index_tensor(m, device, np.arange(3))),
        np.array([[0, 3], [5, 2]], np.int64),
    )
    assert dl.isin(dl.tensor([1, 5], device=device), 5, invert=True).tolist() == [True, False]


def test_invalid_arguments() -> None:
    x = dl.tensor([1.0, 2.0], device="cpu")
    with pytest.raises(ArgumentError, match=r"\[div\] rounding_mode"):
        dl.divide(x, 2, rounding_mode="up")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"\[isclose\] expected operands of one dtype"):
        dl.isclose(x, x.to("int64"))
    with pytest.raises(ArgumentError, match=r"\[isclose\] tolerances"):
        dl.isclose(x, x, rtol=-1)
    with pytest.raises(ArgumentError, match=r"\[is_nonzero\]"):
        dl.is_nonzero(x)
    with pytest.raises(DTypeError, match=r"\[isin\]"):
        dl.isin(1, 2)
    with pytest.raises(ArgumentError, match=r"\[positive\]"):
        dl.positive(x > 0)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_shifts(dtype: str, device: str) -> None:
    rng = np.random.default_rng(2)
    x, places = rng.integers(0, 100, (3, 5)).astype(dtype), rng.integers(0, 5, 5).astype(dtype)
    compare_libraries(device, lambda m, x, places: [x << places, x >> places, x << 2, x >> 1], x, places)
    compare_libraries(device, lambda m, places: [3 << places, 100 >> places], places)
