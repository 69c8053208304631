"""Compiled interpolation of the CPU beside PyTorch's and NumPy's: modes, sizes, gradients of any order."""

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
CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7, 5), {"scale_factor": 2, "mode": "bilinear"}),
    ((2, 3, 7, 37), {"size": (3, 19), "mode": "bilinear", "align_corners": True}),
    ((2, 3, 7, 35), {"size": (5, 67), "mode": "bicubic"}),
    ((2, 3, 13), {"scale_factor": 2.5, "mode": "linear"}),
    ((1, 2, 4, 5, 6), {"size": (7, 3, 5), "mode": "trilinear"}),
    ((33, 9, 5, 4), {"size": (1, 1), "mode": "bilinear"}),
]


@pytest.mark.parametrize(("shape", "arguments"), CASES, ids=str)
def test_interpolation(shape: Any, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    launches = HostLaunches(monkeypatch)
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x: Any = dl.tensor(array, device="cpu").requires_grad_()
    y: Any = torch.tensor(array, requires_grad=True)
    poison_memory(array.nbytes)
    compiled, by_numpy = launches.both(lambda: F.interpolate(x, **arguments).detach())
    np.testing.assert_allclose(compiled, by_numpy, 1e-5, 1e-5)
    result, expected = F.interpolate(x, **arguments), T.interpolate(y, **arguments)
    np.testing.assert_allclose(compiled, expected.detach().numpy(), 2e-5, 2e-5)
    g = np.random.default_rng(2).standard_normal(expected.shape).astype(np.float32)
    poison_memory(array.nbytes)
    result.backward(dl.tensor(g, device="cpu"))
    expected.backward(torch.tensor(g))
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 2e-5, 2e-5)


def test_gradients_of_gradients() -> None:
    array = np.random.default_rng(3).standard_normal((2, 3, 5, 7)).astype(np.float32)
    resize = {"size": (9, 4), "mode": "bilinear"}
    x: Any = dl.tensor(array, device="cpu").requires_grad_()
    y: Any = torch.tensor(array, requires_grad=True)
    results = []
    for tensor, grad, interpolate in (
        (x, dl.autograd.grad, partial(F.interpolate, **resize)),
        (y, torch.autograd.grad, partial(T.interpolate, **resize)),
    ):
        of_tensor: Any = grad
        [first] = of_tensor((interpolate(tensor) ** 3).sum(), [tensor], create_graph=True)
        [second] = of_tensor((first * first).sum(), [tensor])
        results.append(second.numpy())
    np.testing.assert_allclose(results[0], results[1], 1e-3, 1e-3)


def test_operands_that_are_not_contiguous() -> None:
    array = np.random.default_rng(4).standard_normal((7, 6, 5, 4)).astype(np.float32)
    x = dl.tensor(array, device="cpu").permute(3, 2, 0, 1)
    found = F.interpolate(x, scale_factor=3, mode="bilinear")
    np.testing.assert_array_equal(
        found.numpy(), F.interpolate(x.contiguous(), scale_factor=3, mode="bilinear").numpy()
    )
