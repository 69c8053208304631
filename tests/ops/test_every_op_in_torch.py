"""Ops beside PyTorch's on the same numbers: what the NumPy bodies and the kernels could both get wrong."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.operands import NDArray, close, generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
ours = dl.nn.functional
theirs = torch.nn.functional

# Two float32 results, each off by what tests/support/operands.py explains.
TOLERANCE = 1e-5
CONVOLUTIONS = {"cpu": 150}
ON_DEVICES = 60


def check(
    device: str, f: Callable[..., Any], g: Callable[..., Any], *given: NDArray | None, **arguments: Any
) -> None:
    """Raise unless ``f`` of tensors on the device gives what ``g`` of PyTorch's tensors gives."""
    got = f(*(None if a is None else dl.tensor(a, device=device) for a in given), **arguments)
    expected = g(*(None if a is None else torch.from_numpy(a.copy()) for a in given), **arguments).numpy()
    assert got.dtype == expected.dtype
    close(got.numpy().astype(np.float64), expected.astype(np.float64), TOLERANCE)


# Elements


@pytest.mark.parametrize("name", ["add", "sub", "mul", "true_divide"])
@pytest.mark.parametrize("shapes", [((7, 5), (7, 5)), ((3, 1, 5), (7, 1)), ((), (5,))], ids=str)
def test_arithmetic(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], device: str) -> None:
    rng = generator(name, shapes)
    a, b = (numbers(rng, shape) for shape in shapes)
    check(device, getattr(dl, name), getattr(torch, name), a, b)


@pytest.mark.parametrize("name", ["relu", "neg", "clone"])
def test_functions_of_one_operand(name: str, device: str) -> None:
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38, 1.5, -2.5], np.float32)
    check(device, getattr(dl, name), getattr(torch, name), numbers(generator(name), (11, 13)))
    check(device, getattr(dl, name), getattr(torch, name), special)


def test_integer_arithmetic_wraps_around(device: str) -> None:
    for dtype in ("uint8", "int8", "int16", "int32", "int64"):
        limits = np.iinfo(dtype)
        a, b = (np.array(v, dtype) for v in ([limits.max, limits.min, 3, 100], [1, limits.max, 7, 100]))
        for name in ("add", "sub", "mul"):
            check(device, getattr(dl, name), getattr(torch, name), a, b)
        check(device, dl.neg, torch.neg, a)


DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
NUMBERS: tuple[bool | int | float, ...] = (True, 2, 2.5)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(DTYPES, repeat=2)))
def test_promotion_of_two_tensors(left: str, right: str) -> None:
    a, b = np.ones(3, left), np.ones(3, right)
    expected = torch.result_type(torch.from_numpy(a), torch.from_numpy(b))
    result = dl.tensor(a, device="cpu") + dl.tensor(b, device="cpu")
    assert f"torch.{result.dtype}" == str(expected)


@pytest.mark.parametrize(("dtype", "number"), list(itertools.product(DTYPES, NUMBERS)))
def test_promotion_of_a_tensor_and_a_number(dtype: str, number: float) -> None:
    array = np.ones(3, dtype)
    expected = torch.result_type(torch.from_numpy(array), number)
    for result in (dl.tensor(array, device="cpu") * number, number * dl.tensor(array, device="cpu")):
        assert f"torch.{result.dtype}" == str(expected)
    quotient = torch.from_numpy(array) / number
    assert f"torch.{(dl.tensor(array, device='cpu') / number).dtype}" == str(quotient.dtype)


# Along an axis


@pytest.mark.parametrize("dim", [-1, 0, 1, 2])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e4])
def test_softmax(dim: int, spread: float, device: str) -> None:
    x = (generator(dim, spread).uniform(-1, 1, (3, 17, 67)) * spread).astype(np.float32)
    check(device, ours.softmax, theirs.softmax, x, dim=dim)


def test_softmax_of_extremes(device: str) -> None:
    inf = np.inf
    rows = [
        [1e4, -1e4, 0], [-1e4, -1e4, -1e4], [88, 89, 90], [3e38, -3e38, 3e38],
        [-inf, 1, 2], [-inf, -inf, -inf], [inf, 1, 2], [np.nan, 1, 2],
    ]  # fmt: skip
    check(device, ours.softmax, theirs.softmax, np.array(rows, np.float32), dim=1)
    check(device, ours.softmax, theirs.softmax, np.array(5.0, np.float32), dim=0)
    row = dl.tensor(np.linspace(-1e4, 1e4, 1000, dtype=np.float32), device=device)
    assert abs(ours.softmax(row, dim=0).numpy().sum() - 1) < 1e-5


@pytest.mark.parametrize("variance", [1e-12, 1e-5, 1.0, 1e8])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(variance: float, affine: bool, device: str) -> None:
    rng = generator(variance, affine)
    x, mean = numbers(rng, (3, 7, 5, 11)), numbers(rng, (7,))
    var = (rng.uniform(0.5, 2, 7) * variance).astype(np.float32)
    weight, bias = (numbers(rng, (7,)), numbers(rng, (7,))) if affine else (None, None)
    check(device, ours.batch_norm, theirs.batch_norm, x, mean, var, weight, bias)


# Windows. Seeded draws of odd configurations; a draw that does not fit is drawn again.


def _convolution(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]:
    groups = rng.choice((1, 1, 1, 2, 3))
    per_group, filters = rng.randint(1, 9), groups * rng.randint(1, 11)
    kernel = rng.choice(
        ((1, 1), (3, 3), (5, 5), (2, 3), (3, 1), (7, 7), (rng.randint(1, 4), rng.randint(1, 4)))
    )
    arguments = {
        "stride": rng.choice((1, 1, 2, 3, (1, 2), (3, 1))),
        "padding": rng.choice((0, 1, 2, 3, (0, 2), (3, 1))),
        "dilation": rng.choice((1, 1, 1, 2, 3, (1, 2), (2, 1))),
        "groups": groups,
    }
    size = rng.randint(1, 31), rng.randint(1, 31)
    return (
        (rng.randint(1, 4), per_group * groups, *size),
        (filters, per_group, *kernel),
        rng.random() < 0.5,
        arguments,
    )


def _fits(size: tuple[int, ...], kernel: tuple[int, ...], arguments: dict[str, Any]) -> bool:
    pairs = {k: v if isinstance(v, tuple) else (v, v) for k, v in arguments.items()}
    return all(
        size[i] + 2 * pairs["padding"][i] >= pairs.get("dilation", (1, 1))[i] * (kernel[i] - 1) + 1
        for i in (0, 1)
    )


def test_conv2d(device: str) -> None:
    rng, values = random.Random(19), generator("conv2d")
    left = CONVOLUTIONS.get(device, ON_DEVICES)
    while left:
        x, w, has_bias, arguments = _convolution(rng)
        if not _fits(x[2:], w[2:], arguments):
            continue
        left -= 1
        bias = numbers(values, w[:1]) if has_bias else None
        try:
            check(
                device, ours.conv2d, theirs.conv2d, numbers(values, x), numbers(values, w), bias, **arguments
            )
        except AssertionError as error:
            raise AssertionError(f"conv2d of {x} with {w}, bias {has_bias}, {arguments}: {error}") from None


@pytest.mark.parametrize(
    ("x", "w", "arguments"),
    [
        ((1, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((2, 64, 28, 31), (128, 64, 1, 1), {"stride": 2}),
        ((1, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
    ],
)
def test_convolutions_of_resnet(x: Any, w: Any, arguments: dict[str, Any], device: str) -> None:
    values = generator(x, w)
    check(device, ours.conv2d, theirs.conv2d, numbers(values, x), numbers(values, w), None, **arguments)


def test_max_pool2d(device: str) -> None:
    rng, values = random.Random(23), generator("max_pool2d")
    left = 40
    while left:
        kernel = (rng.randint(1, 5), rng.randint(1, 5))
        arguments = {
            "stride": rng.choice((None, 1, 2, 3, (2, 1))),
            "padding": (rng.randint(0, kernel[0] // 2), rng.randint(0, kernel[1] // 2)),
            "dilation": rng.choice((1, 1, 2, (1, 3))),
        }
        shape = (rng.randint(1, 3), rng.randint(1, 5), rng.randint(1, 23), rng.randint(1, 23))
        if not _fits(shape[2:], kernel, {k: v for k, v in arguments.items() if k != "stride"}):
            continue
        left -= 1
        x = numbers(values, shape) - 3  # all negative: a padding of zeros would win
        check(device, ours.max_pool2d, theirs.max_pool2d, x, kernel_size=kernel, **arguments)


def test_max_pool2d_of_special_values(device: str) -> None:
    values = [[np.nan, 1, 2, -np.inf], [3, -np.inf, -np.inf, 4], [np.inf, 5, -np.inf, np.nan]]
    x = np.array(values, np.float32).reshape(1, 1, 3, 4)
    for kernel, stride in itertools.product((1, 2, 3, (1, 2)), (1, 2)):
        check(device, ours.max_pool2d, theirs.max_pool2d, x, kernel_size=kernel, stride=stride)
        check(
            device, ours.max_pool2d, theirs.max_pool2d, x[..., ::-1].copy(), kernel_size=kernel, stride=stride
        )


def test_adaptive_avg_pool2d(device: str) -> None:
    rng, values = random.Random(29), generator("adaptive_avg_pool2d")
    for _ in range(40):
        shape = (rng.randint(1, 3), rng.randint(1, 5), rng.randint(1, 23), rng.randint(1, 23))
        size = rng.choice((1, 2, 7, (1, 3), (rng.randint(1, 29), rng.randint(1, 29))))
        check(
            device,
            ours.adaptive_avg_pool2d,
            theirs.adaptive_avg_pool2d,
            numbers(values, shape),
            output_size=size,
        )


# Matrices


def test_matmul(device: str) -> None:
    rng, values = random.Random(31), generator("matmul")
    for _ in range(60):
        m, k, n = (rng.choice((1, 2, 3, 4, 7, 8, 16, 31, 33, 64, 67)) for _ in range(3))
        left, right = rng.choice(
            [
                ((), ()),
                ((3,), ()),
                ((), (5,)),
                ((2, 3), (2, 3)),
                ((2, 1), (3,)),
                ((1,), (4,)),
                ((5, 1), (1, 3)),
            ]
        )
        a, b = numbers(values, (*left, m, k)), numbers(values, (*right, k, n))
        check(device, dl.matmul, torch.matmul, a, b)


@pytest.mark.parametrize(
    "shapes", [((5,), (5,)), ((5,), (5, 3)), ((3, 5), (5,)), ((2, 3, 5), (5,)), ((5,), (2, 5, 3))], ids=str
)
def test_matmul_of_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]], device: str) -> None:
    a, b = (numbers(generator(shapes), shape) for shape in shapes)
    check(device, dl.matmul, torch.matmul, a, b)


@pytest.mark.parametrize("turned", list(itertools.product((False, True), repeat=2)), ids=str)
def test_matmul_of_transposed_matrices(turned: tuple[bool, bool], device: str) -> None:
    values = generator(turned)
    a = numbers(values, (13, 29) if turned[0] else (29, 13))
    b = numbers(values, (17, 13) if turned[1] else (13, 17))
    x, y = (dl.tensor(array, device=device) for array in (a, b))
    mine = (x.T if turned[0] else x) @ (y.T if turned[1] else y)
    p, q = torch.from_numpy(a), torch.from_numpy(b)
    expected = (p.T if turned[0] else p) @ (q.T if turned[1] else q)
    close(mine.numpy().astype(np.float64), expected.numpy().astype(np.float64), TOLERANCE)


def test_linear(device: str) -> None:
    rng, values = random.Random(37), generator("linear")
    for _ in range(40):
        inner, features = rng.randint(1, 130), rng.choice((1, 2, 5, 63, 64, 65, 130))
        front = rng.choice(((), (1,), (3,), (4,), (5,), (2, 3), (67,)))
        bias = numbers(values, (features,)) if rng.random() < 0.5 else None
        check(
            device,
            ours.linear,
            theirs.linear,
            numbers(values, (*front, inner)),
            numbers(values, (features, inner)),
            bias,
        )
