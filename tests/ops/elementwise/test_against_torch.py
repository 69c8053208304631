"""Elementwise ops beside PyTorch's: values, special values and gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.op import REGISTRY
from tests.support.compare_elementwise import (
    SPECIAL_VALUES,
    assert_equals_torch,
    check_elementwise,
    torch,
    with_number,
)
from tests.support.numpy_bodies import device as device
from tests.support.operands import generator, numbers

# Unary functions, and the interval of the random values.
UNARY = {
    "abs": (-3, 3), "sign": (-3, 3), "floor": (-3, 3), "ceil": (-3, 3), "round": (-3, 3), "trunc": (-3, 3),
    "sqrt": (0.1, 9), "rsqrt": (0.1, 9), "reciprocal": (0.2, 3), "square": (-3, 3), "exp": (-5, 5),
    "exp2": (-5, 5), "expm1": (-3, 3), "log": (0.1, 9), "log2": (0.1, 9), "log10": (0.1, 9),
    "log1p": (-0.9, 9), "sin": (-9, 9), "cos": (-9, 9), "tan": (-1.4, 1.4), "asin": (-0.99, 0.99),
    "acos": (-0.99, 0.99), "atan": (-5, 5), "sinh": (-4, 4), "cosh": (-4, 4), "tanh": (-4, 4), "erf": (-3, 3),
    "erfc": (-3, 3), "sigmoid": (-9, 9), "relu": (-3, 3), "neg": (-3, 3), "clone": (-3, 3),
}  # fmt: skip
PREDICATES = ("isnan", "isinf", "isfinite", "logical_not")


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name: str, device: str) -> None:
    low, high = UNARY[name]
    x = generator(name).uniform(low, high, (11, 13)).astype(np.float32)
    check_elementwise(device, getattr(dl, name), getattr(torch, name), x)
    check_elementwise(device, getattr(dl, name), getattr(torch, name), SPECIAL_VALUES, gradients=False)
    assert_equals_torch(getattr(dl.tensor(x, device=device), name)(), getattr(torch.from_numpy(x), name)())


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates(name: str, device: str) -> None:
    for x in (SPECIAL_VALUES, np.array([0, 3, -1], np.int32), np.array([True, False])):
        check_elementwise(device, getattr(dl, name), getattr(torch, name), x)


# Binary functions


PAIRS = [*itertools.product(SPECIAL_VALUES, repeat=2)]
LEFT, RIGHT = (np.array(side, np.float32) for side in zip(*PAIRS, strict=True))
BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "floor_divide", "pow", "atan2",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name: str, device: str) -> None:
    function, torch_function = getattr(dl, name), getattr(torch, name)
    rng = generator(name)
    a = np.abs(numbers(rng, (7, 1, 5))) if name == "pow" else numbers(rng, (7, 1, 5))
    b = numbers(rng, (3, 1))
    check_elementwise(device, function, torch_function, a, b, gradients=name != "floor_divide")
    for number in (0.3, -2, 0.0):
        smooth = name != "floor_divide" and (name != "fmod" or number != 0)
        check_elementwise(device, function, with_number(torch_function), a, number, gradients=smooth)
    check_elementwise(device, function, torch_function, LEFT, RIGHT, gradients=False)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "pow", "atan2"])
def test_binary_functions_of_operands_of_different_magnitude(name: str, device: str) -> None:
    rng = generator(name, "far")
    a, b = (
        np.exp2(rng.uniform(-40, 40, 3000)).astype(np.float32) * rng.choice((-1, 1), 3000) for _ in range(2)
    )
    a, b = a.astype(np.float32), b.astype(np.float32)
    got = (
        getattr(dl, name)(dl.tensor(a, device=device), dl.tensor(b, device=device)).numpy().astype(np.float64)
    )
    with np.errstate(all="ignore"):
        if name == "floor_divide":
            expected = (
                getattr(torch, name)(torch.from_numpy(a), torch.from_numpy(b)).numpy().astype(np.float64)
            )
        else:
            exact = REGISTRY[name].body(a.astype(np.float64), b.astype(np.float64))
            expected = exact.astype(np.float32).astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 0, 1, 2.5, -2])
def test_powers_with_a_number(exponent: float, device: str) -> None:
    x = np.abs(numbers(generator("pow"), (5, 7)))
    check_elementwise(device, lambda t: t**exponent, lambda t: t**exponent, x)
    check_elementwise(device, lambda t: exponent**t, lambda t: exponent**t, x, gradients=exponent > 0)


def test_gradients_of_powers_of_zero(device: str) -> None:
    a, b = np.array([0, 0, 2, 0], np.float32), np.array([0, 2, 0, 3], np.float32)
    check_elementwise(device, dl.pow, torch.pow, a, b)
    check_elementwise(device, dl.pow, torch.pow, a, 2)
    check_elementwise(device, lambda t: 0.0**t, lambda t: 0.0**t, b)


def test_equal_operands_share_the_gradient(device: str) -> None:
    a, b = np.array([1, 2, 3], np.float32), np.array([1, 3, 2], np.float32)
    for name in ("maximum", "minimum"):
        check_elementwise(device, getattr(dl, name), getattr(torch, name), a, b)


@pytest.mark.parametrize("alpha", [2, -0.5, 0])
def test_add_and_sub_with_alpha(alpha: float, device: str) -> None:
    a, b = numbers(generator("a"), (5, 7)), numbers(generator("b"), (7,))
    for name in ("add", "sub"):
        check_elementwise(device, getattr(dl, name), getattr(torch, name), a, b, alpha=alpha)
    whole = np.arange(7, dtype=np.int32)
    check_elementwise(device, dl.add, torch.add, whole, whole, alpha=3)
    with pytest.raises(ArgumentError, match=r"\[add\] alpha must be an integer for int32, got 0\.5"):
        dl.add(dl.tensor(whole, device=device), 1, alpha=0.5)


# Ternary functions


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_addcmul_and_addcdiv(name: str, device: str) -> None:
    a, b, c = (numbers(generator(name, i), s) for i, s in enumerate(((7, 5), (5,), (7, 1))))
    check_elementwise(device, getattr(dl, name), getattr(torch, name), a, b, c)
    check_elementwise(device, getattr(dl, name), getattr(torch, name), a, b, c, value=-0.7)


def test_lerp(device: str) -> None:
    a, b, c = (numbers(generator("lerp", i), s) for i, s in enumerate(((7, 5), (7, 5), (7, 5))))
    check_elementwise(device, dl.lerp, torch.lerp, a, b, c)
    for weight in (0.0, 0.3, 0.5, 1.0):
        check_elementwise(device, dl.lerp, torch.lerp, a, b, weight)


def test_where(device: str) -> None:
    a, b = numbers(generator("where", 1), (7, 5)), numbers(generator("where", 2), (5,))
    condition = numbers(generator("where", 3), (7, 1), "bool")
    check_elementwise(device, dl.where, torch.where, condition, a, b)
    check_elementwise(device, dl.where, torch.where, condition, a, 0.5)
    check_elementwise(device, dl.where, torch.where, condition, 0.5, b)
    check_elementwise(
        device, dl.where, torch.where, condition, np.arange(5, dtype=np.int32), np.int32(3).item()
    )
    check_elementwise(
        device, lambda x, m: x.masked_fill(m, -1.5), lambda x, m: x.masked_fill(m, -1.5), a, condition
    )
    with pytest.raises(DTypeError, match=r"\[where\] 'condition' must be bool, not float32"):
        dl.where(dl.tensor(a, device=device), 0.0, 1.0)
    ints = np.arange(-2, 3, dtype=np.int32)
    check_elementwise(
        device, lambda x, m: x.masked_fill(m, -1.5), lambda x, m: x.masked_fill(m, -1.5), ints, condition
    )
    with pytest.raises(DTypeError, match=r"\[masked_fill\] the value .* does not fit into int32"):
        dl.masked_fill(
            dl.tensor(ints, device=device),
            dl.tensor(condition[:5, 0], device=device),
            dl.tensor(1.5, device=device),
        )


LIMITS: list[tuple[Any, Any]] = [(-0.7, 1.1), (None, 0.2), (-0.1, None), (1.0, -1.0), (np.nan, 1.0)]


@pytest.mark.parametrize(("low", "high"), LIMITS, ids=str)
def test_clamp(low: Any, high: Any, device: str) -> None:
    x = numbers(generator("clamp"), (7, 5))
    check_elementwise(device, dl.clamp, torch.clamp, x, min=low, max=high, gradients=low == low)
    check_elementwise(device, dl.clamp, torch.clamp, SPECIAL_VALUES, min=low, max=high, gradients=False)


def test_clamp_without_limits(device: str) -> None:
    with pytest.raises(ArgumentError, match=r"\[clamp\] expected min, max or both"):
        dl.clamp(dl.zeros(3, 5, device=device))


def test_clamp_between_tensors(device: str) -> None:
    x, low, high = (numbers(generator("clamp", i), s) for i, s in enumerate(((7, 5), (5,), (7, 1))))
    check_elementwise(device, dl.clamp, torch.clamp, x, low, high)
    check_elementwise(device, lambda x, y: dl.clamp(x, min=y), lambda x, y: torch.clamp(x, min=y), x, low)
    check_elementwise(device, lambda x, y: dl.clamp(x, max=y), lambda x, y: torch.clamp(x, max=y), x, high)


def test_nan_to_num(device: str) -> None:
    check_elementwise(device, dl.nan_to_num, torch.nan_to_num, SPECIAL_VALUES, gradients=False)
    check_elementwise(
        device, dl.nan_to_num, torch.nan_to_num, SPECIAL_VALUES, nan=2.0, posinf=5.0, neginf=-6.0
    )


@pytest.mark.parametrize("decimals", [1, 2, -1])
def test_round_to_decimals(decimals: int, device: str) -> None:
    x = generator("round").uniform(-30, 30, (7, 5)).astype(np.float32)
    check_elementwise(device, dl.round, torch.round, x, decimals=decimals)


# Operators


def test_operators(device: str) -> None:
    a, b = numbers(generator("a"), (3, 5)), numbers(generator("b"), (5,))
    x, y, p, q = (
        dl.tensor(a, device=device),
        dl.tensor(b, device=device),
        torch.from_numpy(a),
        torch.from_numpy(b),
    )
    pairs = [
        (x == y, p == q), (x != y, p != q), (x < y, p < q), (x <= y, p <= q), (x > 1, p > 1),
        (x >= y, p >= q), (x % y, p % q), (x // y, p // q), (2.0 ** x, 2.0 ** p), (abs(x), abs(p)),
        ((x > 0) & (y > 0), (p > 0) & (q > 0)), ((x > 0) | (y > 0), (p > 0) | (q > 0)),
        ((x > 0) ^ (y > 0), (p > 0) ^ (q > 0)), (~(x > 0), ~(p > 0)), (3 % x, 3 % p), (3 // x, 3 // p),
    ]  # fmt: skip
    for position, (result, expected) in enumerate(pairs):
        assert_equals_torch(result, expected, position)


def test_tensors_are_hashable_and_equal_no_other_type() -> None:
    x, y = dl.zeros(3, device="cpu"), dl.zeros(3, device="cpu")
    assert {x: 1, y: 2}[y] == 2
    nothing: object = x == None  # noqa: E711
    other: object = x != "x"
    assert (nothing, other) == (False, True)
