"""Elementwise ops on PyTorch's device compute what PyTorch's CPU does, of every dtype and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

import torch.nn.functional as F  # noqa: E402

import dl4all.torch  # noqa: E402
from dl4all.pytorch.device.dispatch.promotion import promoted_operands  # noqa: E402
from dl4all.pytorch.device.storage.memory import NotNative  # noqa: E402

pytestmark = pytest.mark.usefixtures("natively")


def moved(value: Any, place: str) -> Any:
    return value.detach().to(place) if isinstance(value, torch.Tensor) else value


def check(function: Callable[..., Any], place: str, *operands: Any, tolerance: float = 1e-6) -> None:
    """Dtype, shape, strides and elements are those of the CPU."""
    want, got = function(*operands), function(*(moved(one, place) for one in operands))
    assert (str(got.device), got.dtype, got.shape) == (place, want.dtype, want.shape)
    if want.numel():
        assert got.stride() == want.stride()
    exact = not want.is_floating_point()
    torch.testing.assert_close(
        got.cpu(), want, rtol=0 if exact else tolerance, atol=0 if exact else tolerance, equal_nan=True
    )


UNARY = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isneginf",
    "isposinf",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "nan_to_num",
    "neg",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
]
HARD = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 1e30, -1e-30]


def test_functions_of_one_tensor(place: str) -> None:
    x = torch.cat([torch.tensor(HARD), torch.randn(37)])
    for name in UNARY:
        check(getattr(torch, name), place, x, tolerance=3e-6)
        check(getattr(torch, name), place, torch.randn(3, 0))


BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: torch.add(a, b, alpha=3),
    "sub": lambda a, b: torch.sub(a, b, alpha=2),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=2),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    **{name: getattr(torch, name) for name in ("mul", "div", "remainder", "fmod", "clamp_min", "clamp_max")},
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
FLOATS_ONLY = ("fmax", "fmin", "atan2", "hypot", "copysign", "logaddexp", "logaddexp2", "xlogy", "heaviside")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_functions_of_two_tensors(place: str, dtype: Any) -> None:
    """Broadcast, transposed, and with a number."""
    a = torch.randint(-9, 9, (7, 1, 5)).to(dtype) + (0.25 if dtype.is_floating_point else 0)
    b = torch.randint(1, 9, (5, 13)).to(dtype).t()
    for function in BINARY.values():
        check(function, place, a, b)
        check(function, place, a, 3)
    if dtype.is_floating_point:
        for name in FLOATS_ONLY:
            check(getattr(torch, name), place, a, b)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor", "add", "mul"])
def test_bools(place: str, name: str) -> None:
    a, b = torch.rand(5, 11) < 0.5, torch.rand(11) < 0.5
    check(getattr(torch, name), place, a, b)


def test_large_int64(place: str) -> None:
    """Sums carry between words, products and powers wrap around, quotients are exact."""
    a = torch.randint(-(2**62), 2**62, (97,)) >> torch.randint(0, 60, (97,))
    b = torch.randint(1, 2**62, (97,)) >> torch.randint(0, 60, (97,))
    b += b == 0
    for function in BINARY.values():
        check(function, place, a, b)
        check(function, place, a, -b)
    check(torch.abs, place, a)
    check(torch.sign, place, a)
    check(torch.clamp, place, a, -(2**40), 2**40)
    check(torch.pow, place, a, 3)


POWERS = (0, 1, 2, 3, -1, 0.5, -0.5, -2.5, 2.0)


def test_powers(place: str) -> None:
    x = torch.rand(19) + 0.1
    for exponent in POWERS:
        check(torch.pow, place, x, exponent, tolerance=2e-6)
    check(torch.pow, place, torch.randint(-5, 5, (13,)), torch.randint(0, 5, (13,)))
    check(torch.pow, place, 2, torch.randint(0, 5, (13,)))
    check(torch.square, place, torch.tensor([True, False]))


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(1, 3),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every second": lambda x: x[:, :, ::2, 1:],
    "expanded": lambda x: x[:, :1].expand(-1, 5, -1, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_lie_as_their_operands(place: str, layout: str) -> None:
    x = LAYOUTS[layout](torch.randn(2, 3, 8, 7))
    check(torch.tanh, place, x)
    check(torch.add, place, x, x[:, :1])
    check(torch.where, place, x > 0, x, torch.zeros(()))


ZERO_AXES = [torch.tensor(2), torch.tensor(2.5), torch.tensor(3, dtype=torch.int32), torch.tensor(True)]


def test_tensors_without_axes_promote_as_numbers(place: str) -> None:
    """They lie on the device or on the CPU, and count only where no other operand is of as high a kind."""
    for dtype in (torch.float32, torch.int32, torch.int64, torch.bool, torch.float16):
        x = torch.randint(0, 2, (5, 3)).to(dtype)
        for number in ZERO_AXES:
            check(torch.add, place, x, number)
            if number.dtype != torch.int32:  # as a number on the CPU
                check(lambda one, other=number: torch.mul(one, other), place, x)
    double = torch.tensor(2.5, dtype=torch.float64)
    check(lambda one: torch.mul(one, double), place, torch.randn(3))
    check(torch.add, place, torch.tensor(1.5), torch.tensor(2))


def test_promoted_operands_keep_the_kind_of_higher_numbers() -> None:
    three = torch.ones(3, dtype=torch.int32, device="dlall")
    assert promoted_operands([three, torch.tensor(2.5)])[1] == 2.5
    with pytest.raises(NotNative, match="float64"):
        promoted_operands([three, torch.tensor(2.5, dtype=torch.float64)])


def test_forms_in_place_and_into_given_tensors(place: str) -> None:
    x, y = torch.randn(5, 7), torch.randn(7)
    target = x.to(place)
    view = target[1:4]
    assert view.add_(y.to(place), alpha=2) is view
    expected = x.clone()
    expected[1:4].add_(y, alpha=2)
    torch.testing.assert_close(target.cpu(), expected)
    out = torch.empty(5, 7, dtype=torch.float32, device=place)
    assert torch.mul(x.to(place), y.to(place), out=out) is out
    torch.testing.assert_close(out.cpu().float(), x * y)
    dl4all.torch.set_fallback("silent")
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(3, dtype=torch.int32).to(place).add_(0.5)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "celu": lambda x: F.celu(x, 0.7),
    "elu": lambda x: F.elu(x, 1.3),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(x, 1),
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.3, device=x.device)),
    "relu6": F.relu6,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": lambda x: F.softplus(x, 2, 3),
    "softshrink": F.softshrink,
    "tanh": torch.tanh,
    "threshold": lambda x: F.threshold(x, 0.3, -1.0),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(place: str, name: str) -> None:
    function = ACTIVATIONS[name]
    x = (torch.randn(3, 10, 7) * 3).transpose(0, 2)
    results = []
    for where in ("cpu", place):
        leaf = x.detach().to(where).requires_grad_()
        y = function(leaf)
        factor = torch.linspace(-1, 2, y.numel()).reshape(y.shape).to(where)
        (y * factor).sum().backward()
        results.append((y.detach().cpu(), leaf.grad.cpu()))
    for got, want in zip(*reversed(results), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6)
