"""Comparison of the values and gradients of a function with PyTorch's, on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dl4all as dl
from tests.support.operands import NDArray, close, generator, numbers

# For float32, see tests/support/operands.py; gradients are sums of more products.
TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 2e-5


def compare_with_torch(
    device: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *arrays: NDArray | None,
    **arguments: Any,
) -> None:
    """Raise unless both functions give the same values, and the same gradients for every array."""
    import torch

    our_inputs: list[Any] = [
        None if a is None else dl.tensor(a, device=device).requires_grad_() for a in arrays
    ]
    torch_inputs: list[Any] = [
        None if a is None else torch.from_numpy(a.copy()).requires_grad_() for a in arrays
    ]
    result, expected = ours(*our_inputs, **arguments), theirs(*torch_inputs, **arguments)
    _check(result.numpy(), expected.detach().numpy(), TOLERANCE)
    weight = numbers(generator("weight", expected.shape), tuple(expected.shape))
    result.backward(dl.tensor(weight, device=device))
    expected.backward(torch.from_numpy(weight))
    for our_input, torch_input in zip(our_inputs, torch_inputs, strict=True):
        if our_input is not None and torch_input is not None:
            assert our_input.grad is not None
            _check(our_input.grad.numpy(), torch_input.grad.numpy(), GRADIENT_TOLERANCE)


def _check(result: NDArray, expected: NDArray, tolerance: float) -> None:
    assert result.dtype == expected.dtype
    close(result.astype(np.float64), expected.astype(np.float64), tolerance)
