"""Values and gradients of a function beside PyTorch's, on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dl4all as dl
from tests.support.operands import NDArray, close, generator, numbers

# Two float32 results, and gradients, which are sums over more products; see tests/support/operands.py.
TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 2e-5


def compare_with_torch(
    device: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *given: NDArray | None,
    **arguments: Any,
) -> None:
    """Raise unless both functions give the same values, and the same gradients for every array."""
    import torch

    mine: list[Any] = [None if a is None else dl.tensor(a, device=device).requires_grad_() for a in given]
    other: list[Any] = [None if a is None else torch.from_numpy(a.copy()).requires_grad_() for a in given]
    got, expected = ours(*mine, **arguments), theirs(*other, **arguments)
    _agree(got.numpy(), expected.detach().numpy(), TOLERANCE)
    weight = numbers(generator("weight", expected.shape), tuple(expected.shape))
    got.backward(dl.tensor(weight, device=device))
    expected.backward(torch.from_numpy(weight))
    for left, right in zip(mine, other, strict=True):
        if left is not None and right is not None:
            assert left.grad is not None
            _agree(left.grad.numpy(), right.grad.numpy(), GRADIENT_TOLERANCE)


def _agree(got: NDArray, expected: NDArray, tolerance: float) -> None:
    assert got.dtype == expected.dtype
    close(got.astype(np.float64), expected.astype(np.float64), tolerance)
