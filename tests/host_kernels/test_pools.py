"""Compiled kernels of pooling beside NumPy's bodies and PyTorch: windows, gradients, indices, nan."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

F: Any = dl.nn.functional
T: Any = torch.nn.functional
SHAPES = [(2, 3, 13, 37), (1, 2, 9, 70), (3, 1, 6, 5), (5, 67, 8, 8)]
MAXIMA: list[dict[str, Any]] = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0), "dilation": (2, 3)},
    {"kernel_size": 5, "stride": 1, "padding": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "dilation": 2, "padding": 1}, {"kernel_size": 1, "stride": 3},
]  # fmt: skip
MEANS: list[dict[str, Any]] = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": 3, "divisor_override": 5},
    {"kernel_size": (2, 3), "stride": (2, 3), "padding": 1, "count_include_pad": False},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
]  # fmt: skip
SIZES: list[Any] = [1, (3, 5), (1, 4), (7, 2), (20, 80)]
CASES = [
    *(("max_pool2d", windows) for windows in MAXIMA),
    *(("avg_pool2d", windows) for windows in MEANS),
    *(
        (name, {"output_size": size})
        for name in ("adaptive_max_pool2d", "adaptive_avg_pool2d")
        for size in SIZES
    ),
]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def both(array: Any) -> tuple[Any, Any]:
    """A tensor of either library that wants a gradient."""
    return dl.tensor(array, device="cpu").requires_grad_(), torch.tensor(array, requires_grad=True)


@pytest.mark.parametrize(("name", "windows"), CASES, ids=str)
def test_pools(name: str, windows: dict[str, Any], launches: HostLaunches) -> None:
    for shape in SHAPES:
        x = draw(*shape)
        a, b = both(x)
        poison_memory(x.nbytes)
        before = launches.count
        result, expected = getattr(F, name)(a, **windows), getattr(T, name)(b, **windows)
        g = draw(*expected.shape, seed=1)
        result.backward(dl.tensor(g, device="cpu"))
        expected.backward(torch.tensor(g))
        assert launches.count >= before + 2
        np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), 1e-5, 1e-6)
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize(("name", "windows"), [case for case in CASES if "max" in case[0]], ids=str)
def test_nan_infinity_and_ties(name: str, windows: dict[str, Any], launches: HostLaunches) -> None:
    """The first of equal elements wins, and the last nan; padding never does."""
    for shape in SHAPES:
        x, rng = draw(*shape), np.random.default_rng(7)
        for value, share in ((0.5, 3), (-np.inf, 2), (np.inf, 50), (np.nan, 40)):
            x[rng.random(shape) < 1 / share] = value
        a, b = both(x)
        before = launches.count
        result, indices = getattr(F, name)(a, **windows, return_indices=True)
        expected, places = getattr(T, name)(b, **windows, return_indices=True)
        assert launches.count >= before + 2
        np.testing.assert_array_equal(result.detach().numpy(), expected.detach().numpy())
        if windows.get("dilation") == 2:  # a window of padding alone has no place, and PyTorch names one
            inside = ~np.isneginf(expected.detach().numpy())
        else:
            inside = np.ones(expected.shape, bool)
        np.testing.assert_array_equal(indices.numpy()[inside], places.numpy()[inside])
        g = draw(*expected.shape, seed=1) * inside
        result.backward(dl.tensor(g, device="cpu"))
        expected.backward(torch.tensor(g))
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 1e-6, 1e-6)


@pytest.mark.parametrize(("name", "windows"), CASES, ids=str)
def test_beside_numpy(name: str, windows: dict[str, Any], launches: HostLaunches) -> None:
    x = dl.tensor(draw(3, 2, 11, 35), device="cpu").permute(1, 0, 2, 3)
    compiled, by_numpy = launches.both(lambda: getattr(F, name)(x, **windows))
    np.testing.assert_allclose(compiled, by_numpy, 1e-5, 1e-6)
    np.testing.assert_array_equal(compiled, getattr(F, name)(x.contiguous(), **windows).numpy())


def test_signals_and_volumes(launches: HostLaunches) -> None:
    for name, shape in (("pool1d", (2, 3, 35)), ("pool3d", (2, 3, 7, 9, 19))):
        x = draw(*shape)
        for kind in ("max_", "avg_"):
            compiled, by_numpy = launches.both(
                partial(getattr(F, kind + name), dl.tensor(x, device="cpu"), 3, 2, 1)
            )
            np.testing.assert_allclose(compiled, by_numpy, 1e-5, 1e-6)
            expected = getattr(T, kind + name)(torch.tensor(x), 3, 2, 1)
            np.testing.assert_allclose(compiled, expected.numpy(), 1e-5, 1e-6)


def test_gradients_of_gradients() -> None:
    x, g = draw(2, 3, 8, 9), draw(2, 3, 4, 5, seed=1)
    a, b = dl.tensor(x, device="cpu").requires_grad_(), torch.tensor(g).requires_grad_()
    v = dl.tensor(g, device="cpu").requires_grad_()
    result = F.max_pool2d(a, 3, 2, 1)
    [gradient] = dl.autograd.grad(result, [a], v, create_graph=True)
    factor = draw(2, 3, 8, 9, seed=2)
    [by_v] = dl.autograd.grad((gradient * dl.tensor(factor, device="cpu")).sum(), [v])
    c = torch.tensor(x, requires_grad=True)
    [gradient_t] = torch.autograd.grad(T.max_pool2d(c, 3, 2, 1), [c], b, create_graph=True)
    [by_b] = torch.autograd.grad((gradient_t * torch.tensor(factor)).sum(), [b])
    np.testing.assert_array_equal(by_v.numpy(), by_b.numpy())
