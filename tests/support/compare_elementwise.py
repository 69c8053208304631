"""Elementwise functions beside PyTorch's: values, special values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from tests.support.operands import close, generator, numbers

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")

TOLERANCE = 1e-5
SPECIAL_VALUES = np.array(
    [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        1e-6,
        -1e-6,
        20.5,
        -20.5,
        3.0,
        -3.0,
    ],
    np.float32,
)


def assert_equals_torch(result: dl.Tensor, expected: Any, label: object = "") -> None:
    """Raise unless a tensor has the dtype, shape and elements of a tensor of PyTorch's."""
    array = expected.detach().numpy()
    assert result.dtype == array.dtype, label
    assert result.shape == array.shape, label
    if kind_of(array.dtype) == "f":
        close(result.numpy().astype(np.float64), array.astype(np.float64), TOLERANCE)
    else:
        np.testing.assert_array_equal(result.numpy(), array, str(label))


def check_elementwise(
    device: str,
    function: Callable[..., Any],
    torch_function: Callable[..., Any],
    *operands: Any,
    gradients: bool = True,
    **arguments: Any,
) -> None:
    """Raise unless a function's values and gradients on a device equal those of PyTorch's function.

    Args:
        device: where the function computes.
        function: the function to test.
        torch_function: PyTorch's, on its tensors.
        operands: arrays, of which both get tensors, and other values, which are passed as they are.
        gradients: whether gradients are compared too.
        arguments: for both functions.
    """
    tensors, torch_tensors = [], []
    for operand in operands:
        if not isinstance(operand, np.ndarray):
            tensors.append(operand)
            torch_tensors.append(operand)
            continue
        x, y = dl.tensor(operand, device=device), torch.from_numpy(operand.copy())
        if kind_of(operand.dtype) == "f" and gradients:
            x.requires_grad_()
            y.requires_grad_()
        tensors.append(x)
        torch_tensors.append(y)
    result, expected = function(*tensors, **arguments), torch_function(*torch_tensors, **arguments)
    assert_equals_torch(result, expected)
    if not gradients or not expected.requires_grad:
        return
    weights = numbers(generator(expected.shape), tuple(expected.shape))
    result.backward(dl.tensor(weights, device=device))
    expected.backward(torch.from_numpy(weights.copy()))
    for x, y in zip(tensors, torch_tensors, strict=True):
        if isinstance(y, torch.Tensor) and y.requires_grad:
            assert_equals_torch(x.grad, torch.zeros_like(y) if y.grad is None else y.grad, "gradient")


def with_number(torch_function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch whose second operand is a number, which not all of them take."""
    return lambda x, number: torch_function(x, torch.tensor(number, dtype=x.dtype))
