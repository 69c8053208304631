"""Ops that networks of other libraries call: weights as lengths times directions, counts, ranges."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

pytestmark = pytest.mark.usefixtures("natively")


@pytest.mark.parametrize(("shape", "dim"), [((5, 7, 3), 2), ((5, 7, 3), 0), ((5, 1), 1)])
def test_weight_norm_and_its_gradients(place: str, shape: tuple[int, ...], dim: int) -> None:
    torch.manual_seed(0)
    lengths = [size if axis == dim else 1 for axis, size in enumerate(shape)]
    operands = torch.randn(shape), torch.randn(lengths)
    grad = torch.randn(shape)

    def step(where: str) -> list[Any]:
        v, g = (one.to(where).requires_grad_() for one in operands)
        weights = torch._weight_norm(v, g, dim)
        weights.backward(grad.to(where))
        return [one.detach().cpu() for one in (weights, v.grad, g.grad)]

    torch.testing.assert_close(step(place), step("cpu"))


def test_histogram_of_integers(place: str) -> None:
    torch.manual_seed(0)
    experts = torch.randint(9, (31,), dtype=torch.int32)
    counts = torch.histc(experts.to(place), bins=9, min=0, max=8)
    assert counts.dtype == torch.int32
    assert counts.tolist() == torch.bincount(experts, minlength=9).tolist()


@pytest.mark.parametrize("numbers", [(0, 33, 2.0), (0.7, 9.5, 2.0), (9.5, -3.7, -2.6)])
def test_range_of_integers_between_fractions(place: str, numbers: tuple[float, ...]) -> None:
    expected = torch.arange(*numbers, dtype=torch.int64)
    assert torch.arange(*numbers, dtype=torch.int64, device=place).tolist() == expected.tolist()
