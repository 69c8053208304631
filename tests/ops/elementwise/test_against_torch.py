"""Elementwise ops beside PyTorch's: values and gradients, special values, element types, and ulps."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.op import REGISTRY
from tests.support.operands import NDArray, close, generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
ours = dl.nn.functional
theirs = torch.nn.functional

TOLERANCE = 1e-5
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        1e-6,
        -1e-6,
        20.5,
        -20.5,
        3.0,
        -3.0,
    ],
    np.float32,
)


def compare(got: dl.Tensor, expected: Any, what: object = "") -> None:
    wanted = expected.detach().numpy()
    assert got.dtype == wanted.dtype, what
    assert got.shape == wanted.shape, what
    if wanted.dtype.kind == "f":
        close(got.numpy().astype(np.float64), wanted.astype(np.float64), TOLERANCE)
    else:
        np.testing.assert_array_equal(got.numpy(), wanted, str(what))


def check(
    device: str,
    f: Callable[..., Any],
    g: Callable[..., Any],
    *given: Any,
    gradients: bool = True,
    **arguments: Any,
) -> None:
    """Values and gradients of ``f`` on the device against those of ``g``; what is no array is passed on."""
    mine, other = [], []
    for value in given:
        if not isinstance(value, np.ndarray):
            mine.append(value)
            other.append(value)
            continue
        x, y = dl.tensor(value, device=device), torch.from_numpy(value.copy())
        if value.dtype.kind == "f" and gradients:
            x.requires_grad_()
            y.requires_grad_()
        mine.append(x)
        other.append(y)
    got, expected = f(*mine, **arguments), g(*other, **arguments)
    compare(got, expected)
    if not gradients or not expected.requires_grad:
        return
    weight = numbers(generator(expected.shape), tuple(expected.shape))
    got.backward(dl.tensor(weight, device=device))
    expected.backward(torch.from_numpy(weight.copy()))
    for x, y in zip(mine, other, strict=True):
        if isinstance(y, torch.Tensor) and y.requires_grad:
            compare(x.grad, torch.zeros_like(y) if y.grad is None else y.grad, "gradient")


# One operand: its name, and the interval of the random values.
UNARY = {
    "abs": (-3, 3), "sign": (-3, 3), "floor": (-3, 3), "ceil": (-3, 3), "round": (-3, 3), "trunc": (-3, 3),
    "sqrt": (0.1, 9), "rsqrt": (0.1, 9), "reciprocal": (0.2, 3), "square": (-3, 3), "exp": (-5, 5),
    "exp2": (-5, 5), "expm1": (-3, 3), "log": (0.1, 9), "log2": (0.1, 9), "log10": (0.1, 9),
    "log1p": (-0.9, 9), "sin": (-9, 9), "cos": (-9, 9), "tan": (-1.4, 1.4), "asin": (-0.99, 0.99),
    "acos": (-0.99, 0.99), "atan": (-5, 5), "sinh": (-4, 4), "cosh": (-4, 4), "tanh": (-4, 4), "erf": (-3, 3),
    "erfc": (-3, 3), "sigmoid": (-9, 9), "relu": (-3, 3), "neg": (-3, 3), "clone": (-3, 3),
}  # fmt: skip
TESTS = ("isnan", "isinf", "isfinite", "logical_not")


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(name: str, device: str) -> None:
    low, high = UNARY[name]
    x = generator(name).uniform(low, high, (11, 13)).astype(np.float32)
    check(device, getattr(dl, name), getattr(torch, name), x)
    check(device, getattr(dl, name), getattr(torch, name), SPECIAL, gradients=False)
    compare(getattr(dl.tensor(x, device=device), name)(), getattr(torch.from_numpy(x), name)())


@pytest.mark.parametrize("name", TESTS)
def test_questions_about_one_operand(name: str, device: str) -> None:
    for x in (SPECIAL, np.array([0, 3, -1], np.int32), np.array([True, False])):
        check(device, getattr(dl, name), getattr(torch, name), x)


ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.3}), ("elu", {}), ("elu", {"alpha": 1.7}),
    ("selu", {}), ("celu", {}), ("celu", {"alpha": 0.4}), ("gelu", {}), ("gelu", {"approximate": "tanh"}),
    ("silu", {}), ("mish", {}), ("softplus", {}), ("softplus", {"beta": 3.0, "threshold": 2.0}),
    ("softsign", {}), ("hardswish", {}), ("hardsigmoid", {}), ("hardtanh", {}),
    ("hardtanh", {"min_val": -0.3, "max_val": 1.2}), ("relu6", {}), ("logsigmoid", {}), ("sigmoid", {}),
    ("threshold", {"threshold": 0.4, "value": 7.0}), ("tanh", {}), ("relu", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), ACTIVATIONS, ids=str)
def test_activations(name: str, arguments: dict[str, Any], device: str) -> None:
    x = generator(name).uniform(-7, 7, (11, 13)).astype(np.float32)
    check(device, getattr(ours, name), getattr(theirs, name), x, **arguments)
    # PyTorch's gelu(inf) is nan, where it computes in vectors.
    special = SPECIAL[np.inf != SPECIAL] if name == "gelu" else SPECIAL
    check(device, getattr(ours, name), getattr(theirs, name), special, gradients=False, **arguments)


@pytest.mark.parametrize(("shape", "weights"), [((5, 3, 7), 3), ((5, 3), 1), ((4, 3), 3), ((7,), 1), ((), 1)])
def test_prelu(shape: tuple[int, ...], weights: int, device: str) -> None:
    x, w = numbers(generator(shape), shape), numbers(generator(weights), (weights,))
    check(device, ours.prelu, theirs.prelu, x, w)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_glu(dim: int, device: str) -> None:
    check(device, ours.glu, theirs.glu, numbers(generator(dim), (4, 6, 10)), dim=dim)


def test_refused_activations(device: str) -> None:
    x = dl.zeros(3, 5, device=device)
    with pytest.raises(ShapeError, match=r"\[glu\] axis -1 of shape \(3, 5\) has no halves"):
        ours.glu(x)
    with pytest.raises(ShapeError, match=r"\[prelu\] expected a weight of shape \(1,\) or \(5,\)"):
        ours.prelu(x, dl.zeros(3, device=device))
    with pytest.raises(ArgumentError, match=r"\[gelu\] approximate must be 'none' or 'tanh', got 'sigmoid'"):
        ours.gelu(x, approximate="sigmoid")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"\[celu\] alpha must not be 0"):
        ours.celu(x, 0)
    with pytest.raises(ArgumentError, match=r"\[clamp\] expected min, max or both"):
        dl.clamp(x)


# Two operands


def with_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch with a number in the second place, where not all of them take one."""
    return lambda x, number: function(x, torch.tensor(number, dtype=x.dtype))


PAIRS = [*itertools.product(SPECIAL, repeat=2)]
LEFT, RIGHT = (np.array(side, np.float32) for side in zip(*PAIRS, strict=True))
BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "remainder", "fmod", "floor_divide", "pow", "atan2",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(name: str, device: str) -> None:
    f, g = getattr(dl, name), getattr(torch, name)
    rng = generator(name)
    a = np.abs(numbers(rng, (7, 1, 5))) if name == "pow" else numbers(rng, (7, 1, 5))
    b = numbers(rng, (3, 1))
    check(device, f, g, a, b, gradients=name != "floor_divide")
    for number in (0.3, -2, 0.0):
        smooth = name != "floor_divide" and (name != "fmod" or number != 0)
        check(device, f, with_number(g), a, number, gradients=smooth)
    check(device, f, g, LEFT, RIGHT, gradients=False)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "pow", "atan2"])
def test_exact_functions_of_far_apart_operands(name: str, device: str) -> None:
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
    check(device, lambda t: t**exponent, lambda t: t**exponent, x)
    check(device, lambda t: exponent**t, lambda t: exponent**t, x, gradients=exponent > 0)


def test_gradients_of_powers_of_zero(device: str) -> None:
    a, b = np.array([0, 0, 2, 0], np.float32), np.array([0, 2, 0, 3], np.float32)
    check(device, dl.pow, torch.pow, a, b)
    check(device, dl.pow, torch.pow, a, 2)
    check(device, lambda t: 0.0**t, lambda t: 0.0**t, b)


def test_ties_share_the_gradient(device: str) -> None:
    a, b = np.array([1, 2, 3], np.float32), np.array([1, 3, 2], np.float32)
    for name in ("maximum", "minimum"):
        check(device, getattr(dl, name), getattr(torch, name), a, b)


@pytest.mark.parametrize("alpha", [2, -0.5, 0])
def test_alpha(alpha: float, device: str) -> None:
    a, b = numbers(generator("a"), (5, 7)), numbers(generator("b"), (7,))
    for name in ("add", "sub"):
        check(device, getattr(dl, name), getattr(torch, name), a, b, alpha=alpha)
    whole = np.arange(7, dtype=np.int32)
    check(device, dl.add, torch.add, whole, whole, alpha=3)
    with pytest.raises(ArgumentError, match=r"\[add\] alpha must be an integer for int32, got 0\.5"):
        dl.add(dl.tensor(whole, device=device), 1, alpha=0.5)


# Three operands


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_products_with_a_sum(name: str, device: str) -> None:
    a, b, c = (numbers(generator(name, i), s) for i, s in enumerate(((7, 5), (5,), (7, 1))))
    check(device, getattr(dl, name), getattr(torch, name), a, b, c)
    check(device, getattr(dl, name), getattr(torch, name), a, b, c, value=-0.7)


def test_lerp(device: str) -> None:
    a, b, c = (numbers(generator("lerp", i), s) for i, s in enumerate(((7, 5), (7, 5), (7, 5))))
    check(device, dl.lerp, torch.lerp, a, b, c)
    for weight in (0.0, 0.3, 0.5, 1.0):
        check(device, dl.lerp, torch.lerp, a, b, weight)


def test_where(device: str) -> None:
    a, b = numbers(generator("where", 1), (7, 5)), numbers(generator("where", 2), (5,))
    condition = numbers(generator("where", 3), (7, 1), "bool")
    check(device, dl.where, torch.where, condition, a, b)
    check(device, dl.where, torch.where, condition, a, 0.5)
    check(device, dl.where, torch.where, condition, 0.5, b)
    check(device, dl.where, torch.where, condition, np.arange(5, dtype=np.int32), np.int32(3).item())
    check(device, lambda x, m: x.masked_fill(m, -1.5), lambda x, m: x.masked_fill(m, -1.5), a, condition)
    with pytest.raises(DTypeError, match=r"\[where\] 'condition' must be bool, not float32"):
        dl.where(dl.tensor(a, device=device), 0.0, 1.0)
    with pytest.raises(DTypeError, match=r"\[masked_fill\] the value 1\.5 does not fit into int32"):
        dl.masked_fill(dl.zeros(3, dtype="int32", device=device), dl.zeros(3, device=device) == 0, 1.5)


LIMITS: list[tuple[Any, Any]] = [(-0.7, 1.1), (None, 0.2), (-0.1, None), (1.0, -1.0), (np.nan, 1.0)]


@pytest.mark.parametrize(("low", "high"), LIMITS, ids=str)
def test_clamp(low: Any, high: Any, device: str) -> None:
    x = numbers(generator("clamp"), (7, 5))
    check(device, dl.clamp, torch.clamp, x, min=low, max=high, gradients=low == low)
    check(device, dl.clamp, torch.clamp, SPECIAL, min=low, max=high, gradients=False)


def test_clamp_between_tensors(device: str) -> None:
    x, low, high = (numbers(generator("clamp", i), s) for i, s in enumerate(((7, 5), (5,), (7, 1))))
    check(device, dl.clamp, torch.clamp, x, low, high)
    check(device, lambda x, y: dl.clamp(x, min=y), lambda x, y: torch.clamp(x, min=y), x, low)
    check(device, lambda x, y: dl.clamp(x, max=y), lambda x, y: torch.clamp(x, max=y), x, high)


def test_nan_to_num(device: str) -> None:
    check(device, dl.nan_to_num, torch.nan_to_num, SPECIAL, gradients=False)
    check(device, dl.nan_to_num, torch.nan_to_num, SPECIAL, nan=2.0, posinf=5.0, neginf=-6.0)


@pytest.mark.parametrize("decimals", [1, 2, -1])
def test_round_to_decimals(decimals: int, device: str) -> None:
    x = generator("round").uniform(-30, 30, (7, 5)).astype(np.float32)
    check(device, dl.round, torch.round, x, decimals=decimals)


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
    for place, (got, expected) in enumerate(pairs):
        compare(got, expected, place)


def test_tensors_are_still_keys_and_equal_nothing_else() -> None:
    x, y = dl.zeros(3, device="cpu"), dl.zeros(3, device="cpu")
    assert {x: 1, y: 2}[y] == 2
    nothing: object = x == None  # noqa: E711
    other: object = x != "x"
    assert (nothing, other) == (False, True)


# Element types on devices

WHOLE = ("add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 127, 1000])
def test_integers_and_bools_stay_on_the_device(
    count: int, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    for op in REGISTRY.values():
        op._fallbacks.clear()
    rng = generator(count)
    a, b = (rng.integers(-9, 9, count).astype(np.int32) for _ in range(2))
    b[b == 0] = 4
    flags = [rng.integers(0, 2, count).astype(bool) for _ in range(2)]
    small = [rng.integers(0, 256, count).astype(np.uint8) for _ in range(2)]
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        for name in (*WHOLE, *BITS, *COMPARED):
            check(device, getattr(dl, name), getattr(torch, name), a, b)
            check(device, getattr(dl, name), with_number(getattr(torch, name)), a, 3)
        for name in (*BITS, *COMPARED):
            check(device, getattr(dl, name), getattr(torch, name), *flags)
            check(device, getattr(dl, name), getattr(torch, name), *small)
        for name in ("abs", "sign", "neg", "clone", "bitwise_not", "logical_not", "floor", "round"):
            check(device, getattr(dl, name), getattr(torch, name), a)
        check(device, dl.bitwise_not, torch.bitwise_not, flags[0])
        check(device, dl.bitwise_not, torch.bitwise_not, small[0])
        check(device, dl.where, torch.where, flags[0], a, b)
        check(device, dl.where, torch.where, *flags, flags[0])
        check(device, dl.where, torch.where, flags[0], *small)
        check(device, dl.clamp, torch.clamp, a, -2, 3)
        check(device, dl.add, torch.add, a, a.astype(np.float32))
        check(device, dl.mul, torch.mul, flags[0], a.astype(np.float32))
        for source, target in itertools.product((a, a.astype(np.float32) / 2, flags[0], small[0]), CAST):
            check(device, lambda x: dl.ops.cast(x, target), lambda x: x.to(getattr(torch, target)), source)  # noqa: B023
    assert [record.getMessage() for record in caplog.records] == []


CAST = ("float32", "int32", "bool", "uint8")


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_gradients_come_back_in_the_dtype_they_left(dtype: str, device: str) -> None:
    there = getattr(torch, dtype)
    x = numbers(generator(dtype), (3, 5))
    check(device, lambda x: (dl.ops.cast(x, dtype) * 2).float(), lambda x: (x.to(there) * 2).float(), x)


def test_the_limits_of_int32(device: str) -> None:
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    a = np.array([low, low, high, high, low, 7, -7, 7, -7], np.int32)
    b = np.array([1, -1, -1, high, low, 2, 2, -2, -2], np.int32)
    for name in ("remainder", "fmod"):
        check(device, getattr(dl, name), getattr(torch, name), a[2:], b[2:])
    for name in ("add", "sub", "mul", "eq", "lt"):
        check(device, getattr(dl, name), getattr(torch, name), a, b)
    zeros = dl.tensor(np.zeros(2, np.int32), device=device)
    for divide in (dl.remainder, dl.fmod, dl.floor_divide):  # as NumPy; PyTorch raises
        assert divide(dl.tensor(np.array([7, -7], np.int32), device=device), zeros).tolist() == [0, 0]


def test_floats_that_are_no_integers(device: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.9, -2.9, 2147483520.0], np.float32)
    low = np.iinfo(np.int32).min
    result = dl.ops.cast(dl.tensor(x, device=device), "int32")
    if device != "cpu":
        assert result.tolist() == [low] * 5 + [2, -2, 2147483520]
    assert dl.ops.cast(dl.tensor(x[:1], device=device), "bool").tolist() == [True]


def test_bytes_are_read_wherever_they_lie(device: str) -> None:
    flags = generator("bytes").integers(0, 2, (7, 9)).astype(bool)
    x, y = dl.tensor(flags, device=device), torch.from_numpy(flags)
    for part in (np.s_[1:], np.s_[:, 2:5], np.s_[::2, ::3], np.s_[3], np.s_[:, 1]):
        compare(x[part].clone(), y[part])
        compare(dl.logical_not(x[part]), ~y[part])
        compare(dl.where(x[part], 1.0, -1.0), torch.where(y[part], 1.0, -1.0))
    compare(x.T.clone(), y.T)


# Ulps

ULPS = {
    "sqrt": 1, "rsqrt": 4, "reciprocal": 3, "exp": 2, "exp2": 2, "expm1": 3, "log": 2, "log2": 2, "log10": 3,
    "log1p": 4, "sin": 4, "cos": 4, "tan": 5, "asin": 4, "acos": 3, "atan": 4, "sinh": 3, "cosh": 3,
    "tanh": 3, "erf": 4, "erfc": 12, "sigmoid": 4,
}  # fmt: skip


def ulps(got: NDArray, exact: NDArray) -> NDArray:
    """How many units in the last place results are off; beyond the largest float, as if it went on."""
    rounded = exact.astype(np.float32)
    unit = np.maximum(np.spacing(np.abs(rounded)).astype(np.float64), 2.0**-149)
    unit = np.where(np.isfinite(unit), unit, 2.0**104)
    wide = np.where(np.isinf(got), np.copysign(2.0**128, got), got.astype(np.float64))
    off = np.abs(wide - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    return np.where(same, 0, np.where(np.isnan(off), np.inf, off))


@pytest.mark.parametrize("name", ULPS)
def test_ulps(name: str, device: str) -> None:
    """Of random bits, and near the values that matter; numbers below the smallest normal one may be 0."""
    if device == "cpu":
        pytest.skip("NumPy's own functions")
    rng = generator(name, "ulps")
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [rng.uniform(-spread, spread, 5000).astype(np.float32) for spread in (1, 2, 20, 100)]
    x = np.concatenate([bits, *near, rng.uniform(0.5, 1.5, 5000).astype(np.float32), SPECIAL])
    x = x[~((np.abs(x) < 1.2e-38) & (x != 0))]
    with np.errstate(all="ignore"):
        exact = REGISTRY[name].body(x.astype(np.float64))
        got = REGISTRY[name](dl.tensor(x, device=device)).numpy()
        off = np.where((np.abs(exact) < 1.2e-38) & (np.abs(got) < 1.3e-38), 0, ulps(got, exact))
    worst = int(np.argmax(off))
    assert off[worst] <= ULPS[name], f"{name}({x[worst]!r}) is {got[worst]!r}, not {exact[worst]!r}"


def test_ulps_of_powers(device: str) -> None:
    rng = generator("pow", "ulps")
    x = np.exp2(rng.uniform(-100, 100, 20000)).astype(np.float32)
    x[:5000] = rng.uniform(0.5, 1.5, 5000).astype(np.float32)
    with np.errstate(all="ignore"):
        y = (rng.uniform(-140, 140, 20000) / np.log2(x)).astype(np.float32)
        exact = x.astype(np.float64) ** y.astype(np.float64)
        got = dl.pow(dl.tensor(x, device=device), dl.tensor(y, device=device)).numpy()
        off = np.where((np.abs(exact) < 1.2e-38) & (np.abs(got) < 1.3e-38), 0, ulps(got, exact))
    worst = int(np.argmax(off))
    assert off[worst] <= 4, f"{x[worst]!r} ** {y[worst]!r} is {got[worst]!r}, not {exact[worst]!r}"
