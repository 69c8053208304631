"""Values, indices and gradients of pooling, compared with PyTorch."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.numpy_bodies import device as device
from tests.support.operands import generator, numbers
from tests.support.torch_cases import compare_with_torch

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
ours = dl.nn.functional
theirs = torch.nn.functional


def windows(seed: int, count: int, *, dilated: bool) -> list[tuple[tuple[int, ...], dict[str, Any]]]:
    """Random shapes of inputs, and arguments of windows that fit into them."""
    rng = random.Random(seed)
    cases: list[Any] = []
    while len(cases) < count:
        kernel = (rng.randint(1, 4), rng.randint(1, 4))
        arguments: dict[str, Any] = {
            "kernel_size": kernel,
            "stride": rng.choice((None, 1, 2, 3, (2, 1))),
            "padding": (rng.randint(0, kernel[0] // 2), rng.randint(0, kernel[1] // 2)),
            "ceil_mode": rng.random() < 0.5,
        }
        dilation = rng.choice((1, 1, 2, (1, 3))) if dilated else 1
        shape = (rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 13), rng.randint(1, 13))
        spaces = dilation if isinstance(dilation, tuple) else (dilation, dilation)
        if all(shape[2 + i] + 2 * arguments["padding"][i] >= spaces[i] * (kernel[i] - 1) + 1 for i in (0, 1)):
            if dilated:
                arguments["dilation"] = dilation
            cases.append((shape, arguments))
    return cases


def test_max_pool2d(device: str) -> None:
    for shape, arguments in windows(43, 30, dilated=True):
        x = numbers(generator(shape), shape) - 3
        compare_with_torch(device, ours.max_pool2d, theirs.max_pool2d, x, **arguments)


@pytest.mark.parametrize("kernel", [(2, 2), (1, 4), (3, 1), (4, 2), (3, 5), (9, 8)])
def test_max_pool2d_with_windows_that_tile_the_image(kernel: tuple[int, int], device: str) -> None:
    """Row lengths that are multiples of four and others, ties and nans, at aligned and unaligned offsets."""
    rng = generator("tiles", kernel)
    for columns, offset in itertools.product((1, 2, 6, 7), (0, 3)):
        shape = (2, 3, 3 * kernel[0], columns * kernel[1])
        x = np.round(2 * numbers(rng, (offset + math.prod(shape),)))
        x[offset + 1 :: 37] = np.nan
        mine, other = dl.tensor(x, device=device).requires_grad_(), torch.from_numpy(x).requires_grad_()
        got = ours.max_pool2d(mine[offset:].reshape(shape), kernel)
        expected = theirs.max_pool2d(other[offset:].reshape(shape), kernel)
        np.testing.assert_array_equal(got.numpy(), expected.detach().numpy())
        slope = numbers(rng, tuple(expected.shape))
        got.backward(dl.tensor(slope, device=device))
        expected.backward(torch.from_numpy(slope))
        np.testing.assert_array_equal(mine.grad.numpy(), other.grad.numpy())


def test_max_pool2d_indices(device: str) -> None:
    for shape, arguments in windows(47, 20, dilated=True):
        x = np.round(numbers(generator(shape), shape))  # with many ties
        values, indices = ours.max_pool2d(dl.tensor(x, device=device), **arguments, return_indices=True)
        expected = theirs.max_pool2d(torch.from_numpy(x), return_indices=True, **arguments)
        np.testing.assert_array_equal(values.numpy(), expected[0].numpy())
        # PyTorch returns an index outside the image where a window holds only padding.
        filled = expected[0].numpy() > -np.inf
        np.testing.assert_array_equal(indices.numpy(), np.where(filled, expected[1].numpy(), -1))
        assert indices.dtype == np.int64


def test_gradient_of_ties(device: str) -> None:
    """Only the first of equal elements gets the gradient."""
    x = np.zeros((1, 2, 5, 5), np.float32)
    compare_with_torch(device, ours.max_pool2d, theirs.max_pool2d, x, kernel_size=3, stride=1, padding=1)
    compare_with_torch(device, ours.adaptive_max_pool2d, theirs.adaptive_max_pool2d, x, output_size=3)


@pytest.mark.parametrize("count_include_pad", [True, False])
def test_avg_pool2d(count_include_pad: bool, device: str) -> None:
    for shape, arguments in windows(53, 30, dilated=False):
        arguments["count_include_pad"] = count_include_pad
        x = numbers(generator(shape), shape)
        compare_with_torch(device, ours.avg_pool2d, theirs.avg_pool2d, x, **arguments)


@pytest.mark.parametrize("divisor", [1, 7, -2])
def test_avg_pool2d_divisor_override(divisor: int, device: str) -> None:
    x = numbers(generator(divisor), (2, 3, 7, 8))
    arguments = {"kernel_size": 3, "stride": 2, "padding": 1, "divisor_override": divisor}
    compare_with_torch(device, ours.avg_pool2d, theirs.avg_pool2d, x, **arguments)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_means_of_integers(axes: int, include: bool, device: str) -> None:
    x = np.random.default_rng(axes).integers(-99, 99, (2, 3, 7, 11, 5)[: axes + 2])
    for arguments in (
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": include},
        *([{"kernel_size": 2, "divisor_override": 3}] if axes > 1 else []),
    ):
        mean = getattr(ours, f"avg_pool{axes}d")(dl.tensor(x, device=device), **arguments)
        expected = getattr(theirs, f"avg_pool{axes}d")(torch.from_numpy(x), **arguments)
        assert (str(mean.dtype), mean.tolist()) == ("int64", expected.tolist())


@pytest.mark.parametrize("name", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_adaptive_pool2d(name: str, device: str) -> None:
    rng = random.Random(59)
    for _ in range(20):
        shape = (rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 13), rng.randint(1, 13))
        size = rng.choice((1, 2, 7, (1, 3), (None, 2), (3, None), (rng.randint(1, 17), rng.randint(1, 17))))
        x = numbers(generator(shape), shape)
        compare_with_torch(device, getattr(ours, name), getattr(theirs, name), x, output_size=size)


def test_adaptive_max_pool2d_indices(device: str) -> None:
    x = numbers(generator("parts"), (2, 3, 7, 5))
    values, indices = ours.adaptive_max_pool2d(dl.tensor(x, device=device), (3, 4), return_indices=True)
    expected = theirs.adaptive_max_pool2d(torch.from_numpy(x), (3, 4), return_indices=True)
    np.testing.assert_array_equal(values.numpy(), expected[0].numpy())
    np.testing.assert_array_equal(indices.numpy(), expected[1].numpy())


POOL1D: list[tuple[str, dict[str, Any]]] = [
    ("max_pool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ("max_pool1d", {"kernel_size": (2,), "ceil_mode": True}),
    ("avg_pool1d", {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
    ("avg_pool1d", {"kernel_size": 4, "stride": (3,), "ceil_mode": True}),
    ("adaptive_avg_pool1d", {"output_size": 4}),
    ("adaptive_max_pool1d", {"output_size": 5}),
]


@pytest.mark.parametrize(("name", "arguments"), POOL1D)
def test_pool1d(name: str, arguments: dict[str, Any], device: str) -> None:
    x = numbers(generator(name), (2, 3, 13))
    compare_with_torch(device, getattr(ours, name), getattr(theirs, name), x, **arguments)


def test_max_pool2d_of_special_values(device: str) -> None:
    nan, inf = np.nan, np.inf
    rows = [[nan, 1, 2, -inf, -inf], [3, -inf, -inf, 4, -inf], [inf, 5, -inf, nan, nan]]
    x = np.array(rows, np.float32).reshape(1, 1, 3, 5)
    for kernel in (1, 2, 3):
        for stride in (1, 2):
            arguments: Any = {"kernel_size": kernel, "stride": stride, "padding": kernel // 2}
            values, indices = ours.max_pool2d(dl.tensor(x, device=device), **arguments, return_indices=True)
            expected = theirs.max_pool2d(torch.from_numpy(x), return_indices=True, **arguments)
            np.testing.assert_array_equal(values.numpy(), expected[0].numpy())
            np.testing.assert_array_equal(indices.numpy(), expected[1].numpy())


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_windows_larger_than_the_image(name: str, device: str) -> None:
    """A single window, of which the image, or what is padded, is a part."""
    for shape, kernel, stride, padding in (
        ((2, 3, 2, 3), (5, 7), None, (1, 0)), ((1, 2, 3, 3), (7, 7), (6, 7), (3, 2)),
        ((2, 1, 5, 2), (2, 1280), None, 0), ((1, 3, 4, 9), (6, 4), (3, 2), (2, 1)),
    ):  # fmt: skip
        x = numbers(generator(shape), shape)
        arguments: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": padding}
        arguments["ceil_mode"] = True
        compare_with_torch(device, getattr(ours, name), getattr(theirs, name), x, **arguments)


INDICES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("max_pool1d", (2, 3, 13), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ("max_pool2d", (2, 3, 7, 6), {"kernel_size": (2, 3), "ceil_mode": True}),
    ("max_pool3d", (2, 3, 4, 5, 4), {"kernel_size": 2}),
    ("adaptive_max_pool1d", (2, 3, 13), {"output_size": 5}),
    ("adaptive_max_pool2d", (2, 3, 7, 6), {"output_size": (3, None)}),
    ("adaptive_max_pool3d", (2, 3, 4, 5, 4), {"output_size": 2}),
]


@pytest.mark.parametrize(("name", "shape", "arguments"), INDICES)
def test_return_indices(name: str, shape: tuple[int, ...], arguments: dict[str, Any], device: str) -> None:
    """The keyword gives the same as PyTorch, and as the function with the long name."""
    x = numbers(generator(name), shape)
    mine = dl.tensor(x, device=device)
    expected = getattr(theirs, name)(torch.from_numpy(x), **arguments, return_indices=True)
    for results in (
        getattr(ours, name)(mine, **arguments, return_indices=True),
        getattr(ours, f"{name}_with_indices")(mine, **arguments),
    ):
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result.numpy(), wanted.numpy())
