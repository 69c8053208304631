"""Clipped gradients against PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GradientError
from dl4all.nn.utils import clip_grad_norm_, clip_grad_value_
from tests.support.operands import generator

torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")

SHAPES = ((7, 5), (13,), (), (0, 3), (1031,))


def pairs(device: str, *names: object) -> tuple[list[dl.Tensor], list[Any]]:
    """Parameters with gradients, and one without, here and in PyTorch."""
    rng = generator("clipping", *names)
    arrays = [np.asarray(rng.standard_normal(shape), np.float32) for shape in SHAPES]
    mine = [dl.tensor(a, device=device) for a in (*arrays, arrays[0])]
    theirs = [torch.from_numpy(a) for a in (*arrays, arrays[0])]
    for p, q, a in zip(mine, theirs, arrays, strict=False):
        g = np.asarray(a * 3, np.float32)
        p.grad, q.grad = dl.tensor(g, device=device), torch.from_numpy(g)
    return mine, theirs


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_norms(max_norm: float, norm_type: float, device: str) -> None:
    mine, theirs = pairs(device, norm_type)
    memory = [p.grad.storage for p in mine[:-1]]
    norm = clip_grad_norm_(mine, max_norm, norm_type)
    filled = [q for q in theirs if q.numel()]  # PyTorch has no largest element of nothing
    expected = torch.nn.utils.clip_grad_norm_(filled, max_norm, norm_type)
    assert norm.item() == pytest.approx(expected.item(), rel=1e-5)
    for p, q in zip(mine[:-1], theirs, strict=False):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5)
    assert [p.grad.storage for p in mine[:-1]] == memory
    assert mine[-1].grad is None


def test_one_parameter_and_none(device: str) -> None:
    mine, theirs = pairs(device)
    norm = clip_grad_norm_(mine[0], 1.0)
    torch.nn.utils.clip_grad_norm_(theirs[0], 1.0)
    np.testing.assert_allclose(mine[0].grad.numpy(), theirs[0].grad.numpy(), rtol=1e-5)
    assert norm.shape == ()
    assert clip_grad_norm_([mine[-1]], 1.0).item() == 0
    assert clip_grad_norm_([], 1.0).item() == 0


def test_norms_of_large_and_of_other_tensors(device: str) -> None:
    """More elements than workgroups take at once, other layouts, and float64 beside float32."""
    large = generator("large").standard_normal((1031, 1033)).astype(np.float32)
    exact = large.astype(np.float64)
    length = np.linalg.norm(exact)  # PyTorch's own is off by 1e-5 here
    narrow, wide = dl.tensor(large, device=device), dl.tensor(exact, device=device)
    narrow.grad = dl.tensor(large.T.copy(), device=device).T
    assert clip_grad_norm_([narrow, wide], 2.0).item() == pytest.approx(length, rel=1e-6)
    np.testing.assert_allclose(narrow.grad.numpy(), exact * 2 / length, rtol=1e-6)
    narrow.grad, wide.grad = narrow.clone(), wide.clone()
    assert clip_grad_norm_([narrow, wide], 1.0).item() == pytest.approx(length * math.sqrt(2), rel=1e-5)
    assert wide.grad.dtype == np.float64
    np.testing.assert_allclose(wide.grad.numpy(), exact / (length * math.sqrt(2)), rtol=1e-5)


def test_values(device: str) -> None:
    mine, theirs = pairs(device)
    clip_grad_value_(mine, 0.7)
    torch.nn.utils.clip_grad_value_(theirs, 0.7)
    for p, q in zip(mine[:-1], theirs, strict=False):
        np.testing.assert_array_equal(p.grad.numpy(), q.grad.numpy())


def test_refusals(device: str) -> None:
    w = dl.tensor([0.0, 0.0], device=device)
    w.grad = dl.tensor([1.0, math.inf], device=device)
    with pytest.raises(GradientError, match="norm is inf"):
        clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
    assert w.grad.tolist() == [1, math.inf]
    with pytest.raises(ArgumentError, match="must be positive, got 0"):
        clip_grad_norm_([w], 1.0, 0)
