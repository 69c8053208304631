"""Values and gradients of convolutions agree with PyTorch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv import algorithms, direct, im2col
from dl4all.ops.conv.on_host import im2col as host_im2col
from tests.support.numpy_bodies import device as device
from tests.support.operands import generator, numbers
from tests.support.torch_cases import compare_with_torch

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
ours = dl.nn.functional
theirs = torch.nn.functional

DRAWS = {1: 12, 2: 20, 3: 10}
# Each algorithm runs every n-th case, because most compile a pipeline each. Winograd has test_winograd.py.
CASE_STRIDE = {"im2col": 1, "direct": 3, "implicit_gemm": 4}


def drawn(
    axes: int, *, transposed: bool
) -> list[tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]]:
    """Odd configurations that fit: shapes of input and weight, whether there is a bias, and arguments."""
    rng = random.Random(41 + axes + 10 * transposed)
    cases: list[Any] = []
    while len(cases) < DRAWS[axes]:
        groups = rng.choice((1, 1, 2, 3))
        inside, outside = rng.randint(1, 4), rng.randint(1, 5)
        kernel = tuple(rng.randint(1, 4) for _ in range(axes))
        stride, padding = (tuple(rng.choice(c) for _ in range(axes)) for c in ((1, 1, 2, 3), (0, 1, 2)))
        dilation = tuple(rng.choice((1, 1, 2)) for _ in range(axes))
        size = tuple(rng.randint(1, 9) for _ in range(axes))
        arguments: dict[str, Any] = {
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups
        }  # fmt: skip
        parts = zip(size, kernel, stride, padding, dilation, strict=True)
        if transposed:
            extra = tuple(rng.randrange(step) for step in stride)
            arguments["output_padding"] = extra
            sizes = (
                (n - 1) * s - 2 * p + d * (k - 1) + more + 1
                for (n, k, s, p, d), more in zip(parts, extra, strict=True)
            )
            if min(sizes) < 1:
                continue
            weight = (inside * groups, outside, *kernel)
        else:
            if any(n + 2 * p < d * (k - 1) + 1 for n, k, s, p, d in parts):
                continue
            weight = (outside * groups, inside, *kernel)
        cases.append(((rng.randint(1, 3), inside * groups, *size), weight, rng.random() < 0.5, arguments))
    return cases


def check(name: str, case: Any, device: str) -> None:
    x, w, has_bias, arguments = case
    rng = generator(name, x, w)
    filters = w[1] * arguments["groups"] if "transpose" in name else w[0]
    bias = numbers(rng, (filters,)) if has_bias else None
    try:
        compare_with_torch(
            device,
            getattr(ours, name),
            getattr(theirs, name),
            numbers(rng, x),
            numbers(rng, w),
            bias,
            **arguments,
        )
    except AssertionError as error:
        raise AssertionError(f"{name} of {x} with {w}, bias {has_bias}, {arguments}: {error}") from None


@pytest.fixture(params=CASE_STRIDE)
def algorithm(request: pytest.FixtureRequest, device: str) -> Iterator[str]:
    """Each algorithm of devices that run kernels."""
    if request.param != "im2col" and dl.device(device).is_host:
        pytest.skip("the CPU has algorithms of its own")
    with algorithms.forced(request.param):
        yield request.param


@pytest.mark.sampled(2)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolution(axes: int, algorithm: str, device: str) -> None:
    for case in drawn(axes, transposed=False)[:: CASE_STRIDE[algorithm]]:
        check(f"conv{axes}d", case, device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolution(axes: int, algorithm: str, device: str) -> None:
    for case in drawn(axes, transposed=True)[:: CASE_STRIDE[algorithm]]:
        check(f"conv_transpose{axes}d", case, device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("x", "w", "arguments"),
    [
        ((2, 3, 32, 32), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((2, 16, 14, 14), (32, 16, 3, 3), {"padding": 1}),
        ((2, 16, 14, 14), (32, 16, 1, 1), {"stride": 2}),
        ((3, 16, 7, 7), (8, 16, 1, 1), {}),
        ((2, 12, 9, 9), (12, 1, 3, 3), {"padding": 1, "groups": 12}),
        ((2, 12, 9, 9), (24, 1, 5, 5), {"padding": 2, "stride": 2, "groups": 12}),
        ((5, 1, 28, 28), (17, 1, 3, 3), {"padding": 1}),
        ((2, 5, 12, 16), (67, 5, 3, 5), {"padding": (3, 2)}),
    ],
)
def test_convolutions_of_networks(
    x: Any, w: Any, arguments: dict[str, Any], algorithm: str, device: str
) -> None:
    check("conv2d", (x, w, True, {"groups": 1, **arguments}), device)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [(1, 1), (2, 3), (4, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("dilation", [1, (2, 1), 3])
@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
def test_named_padding(padding: str, kernel: tuple[int, int], dilation: Any, device: str) -> None:
    arguments = {"padding": padding, "dilation": dilation, "groups": 1}
    check("conv2d", ((2, 3, 11, 13), (4, 3, *kernel), True, arguments), device)


@pytest.mark.parametrize("nbytes", [4, 1000, 5000])
def test_gradients_in_portions(
    nbytes: int, algorithm: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With memory for the columns of only a few pixels, channels or images."""
    for module, name in (
        (im2col, "COLUMN_BYTES"),
        (im2col, "SLOT_BYTES"),
        (direct, "SLOT_BYTES"),
        (host_im2col, "COLUMN_BYTES"),
    ):
        monkeypatch.setattr(module, name, nbytes)
    for arguments in ({"padding": 1, "groups": 2}, {"stride": 2, "groups": 1}):
        w = (6, 6 // arguments["groups"], 3, 3)
        check("conv2d", ((5, 6, 13, 11), w, True, arguments), device)
    check("conv2d", ((5, 6, 8, 8), (4, 6, 1, 1), False, {"groups": 1}), device)


def test_infinity_and_nan_spread_as_in_pytorch(algorithm: str, device: str) -> None:
    """Though vectors of four reach past the end of a row into the next row."""
    rng = generator("undefined")
    x, w, g = (numbers(rng, shape) for shape in ((2, 2, 7, 7), (3, 2, 3, 3), (2, 3, 5, 5)))
    x[0, 1, 3, 5], x[1, 0, 2, 0], g[0, 2, 1, 4] = np.nan, np.inf, -np.inf
    compare_with_torch(device, ours.conv2d, theirs.conv2d, x, w)
    conv_weight: Any = dl.ops.conv_weight
    mine = conv_weight(*(dl.tensor(a, device=device) for a in (g, x)), (3, 3)).numpy()
    other = torch.nn.grad.conv2d_weight(torch.from_numpy(x), w.shape, torch.from_numpy(g)).numpy()
    np.testing.assert_array_equal(np.isfinite(mine), np.isfinite(other))


def test_gradients_are_the_same_each_time(algorithm: str, device: str) -> None:
    rng = generator("again")
    x, w = (numbers(rng, shape) for shape in ((7, 4, 13, 13), (5, 4, 3, 3)))

    def gradients() -> list[Any]:
        operands = [dl.tensor(a, device=device).requires_grad_() for a in (x, w)]
        result = ours.conv2d(operands[0], operands[1], padding=1)
        result.backward(dl.ones(*result.shape, device=device))
        return [operand.grad.numpy() for operand in operands]

    for first, second in zip(gradients(), gradients(), strict=True):
        np.testing.assert_array_equal(first, second)


def test_second_derivative_of_a_network(device: str) -> None:
    """The gradient's length as a loss, as in gradient penalties."""
    rng = generator("penalty")
    arrays = [numbers(rng, shape) / 4 for shape in ((2, 3, 6, 6), (4, 3, 3, 3), (5, 4))]

    def penalty(library: Any, functional: Any, tensors: list[Any]) -> list[Any]:
        x, w, last = tensors
        hidden = functional.max_pool2d(functional.conv2d(x, w, padding=1), 2)
        mean = functional.adaptive_avg_pool2d(hidden * hidden, 1).reshape(2, 4)
        out = functional.linear(mean, last)
        (slope,) = library.autograd.grad([(out * out).sum()], [x], create_graph=True)
        (slope * slope).sum().backward()
        return [tensor.grad for tensor in tensors]

    mine = penalty(dl, ours, [dl.tensor(a, device=device).requires_grad_() for a in arrays])
    other = penalty(torch, theirs, [torch.from_numpy(a).requires_grad_() for a in arrays])
    for got, expected in zip(mine, other, strict=True):
        scale = float(expected.abs().max())
        np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=2e-5 * scale)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"output_padding": 2, "stride": 2}, ArgumentError),
        ({"padding": "same"}, ArgumentError),
        ({"groups": 3}, ArgumentError),
        ({"padding": 9}, ShapeError),
        ({"bias": (3,)}, ShapeError),
        ({"stride": (1, 2, 3)}, ArgumentError),
    ],
)
def test_transposed_convolution_refuses(arguments: dict[str, Any], error: Any) -> None:
    if "bias" in arguments:
        arguments = {"bias": dl.ones(*arguments["bias"], device="cpu")}
    x, w = dl.ones(1, 4, 5, 5, device="cpu"), dl.ones(4, 2, 3, 3, device="cpu")
    with pytest.raises(error, match=r"^\[conv_transpose2d\] "):
        ours.conv_transpose2d(x, w, **arguments)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    ("shapes", "groups", "error", "message"),
    [
        (((1, 4), (6, 4), (5,)), 1, ShapeError, r"bias must have shape \(6,\), got \(5,\)"),
        (((1, 4), (6, 4), (7,)), 1, ShapeError, "bias must have shape"),
        (((1, 4), (6, 4), (6, 1)), 1, ShapeError, "bias must have shape"),
        (((1, 4), (6, 3), None), 1, ShapeError, "takes 3 channels, the input .* has 4"),
        (((1, 4), (6, 2), (6,)), 3, ShapeError, "3 groups takes 6 channels"),
        (((1, 4), (5, 2), (5,)), 2, ArgumentError, "5 filters do not split into 2 groups"),
        (((1, 4), (6, 4), None), 0, ArgumentError, "6 filters do not split into 0 groups"),
    ],
)
def test_convolution_refuses(
    shapes: Any, groups: int, error: type[Exception], message: str, axes: int, device: str
) -> None:
    """Operands that a kernel would read beyond."""
    x, w, b = shapes
    images, weight = dl.ones(*x, *(5,) * axes, device=device), dl.ones(*w, *(3,) * axes, device=device)
    bias = None if b is None else dl.ones(*b, device=device)
    with pytest.raises(error, match=rf"^\[conv{axes}d\] .*({message})"):
        getattr(ours, f"conv{axes}d")(images, weight, bias, groups=groups)


def test_same_padding_takes_stride_1() -> None:
    x, w = dl.ones(1, 4, 5, 5, device="cpu"), dl.ones(4, 4, 3, 3, device="cpu")
    with pytest.raises(ArgumentError, match=r"^\[conv2d\] padding='same' takes stride 1"):
        ours.conv2d(x, w, padding="same", stride=2)
    with pytest.raises(ArgumentError, match=r"^\[conv2d\] padding must be ints, 'same' or 'valid'"):
        ours.conv2d(x, w, padding="reflect")
