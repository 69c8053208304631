"""Activation functions beside PyTorch's: values, special values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from tests.support.compare_elementwise import (
    SPECIAL_VALUES,
    check_elementwise,
    torch,
)
from tests.support.numpy_bodies import device as device
from tests.support.operands import generator, numbers

functional, torch_functional = dl.nn.functional, torch.nn.functional

ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.3}), ("elu", {}), ("elu", {"alpha": 1.7}),
    ("selu", {}), ("celu", {}), ("celu", {"alpha": 0.4}), ("gelu", {}), ("gelu", {"approximate": "tanh"}),
    ("silu", {}), ("mish", {}), ("softplus", {}), ("softplus", {"beta": 3.0, "threshold": 2.0}),
    ("softsign", {}), ("hardswish", {}), ("hardsigmoid", {}), ("hardtanh", {}),
    ("hardtanh", {"min_val": -0.3, "max_val": 1.2}), ("relu6", {}), ("logsigmoid", {}), ("sigmoid", {}),
    ("threshold", {"threshold": 0.4, "value": 7.0}), ("tanh", {}), ("relu", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), ACTIVATIONS, ids=str)
def test_activations(name: str, arguments: dict[str, Any], device: str) -> None:
    x = generator(name).uniform(-7, 7, (11, 13)).astype(np.float32)
    check_elementwise(device, getattr(functional, name), getattr(torch_functional, name), x, **arguments)
    # PyTorch's gelu(inf) is nan, where it computes in vectors.
    special = SPECIAL_VALUES[np.inf != SPECIAL_VALUES] if name == "gelu" else SPECIAL_VALUES
    check_elementwise(
        device,
        getattr(functional, name),
        getattr(torch_functional, name),
        special,
        gradients=False,
        **arguments,
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_clamps_of_integers(dtype: str, device: str) -> None:
    values = generator(dtype).integers(0, 100, (7, 5)).astype(dtype)
    for name, limits in (("relu6", ()), ("hardtanh", (3, 41)), ("hardtanh", (2.7, 9.2))):
        result = getattr(functional, name)(dl.tensor(values, device=device), *limits)
        expected = getattr(torch_functional, name)(torch.tensor(values), *limits)
        assert result.dtype == dtype
        assert result.tolist() == expected.tolist()
    if dtype in ("uint8", "int8"):
        with pytest.raises(ArgumentError, match=rf"\[hardtanh\] the number -300 does not fit into {dtype}"):
            functional.hardtanh(dl.tensor(values, device=device), -300, 7)


@pytest.mark.parametrize(("shape", "weights"), [((5, 3, 7), 3), ((5, 3), 1), ((4, 3), 3), ((7,), 1), ((), 1)])
def test_prelu(shape: tuple[int, ...], weights: int, device: str) -> None:
    x, w = numbers(generator(shape), shape), numbers(generator(weights), (weights,))
    check_elementwise(device, functional.prelu, torch_functional.prelu, x, w)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_glu(dim: int, device: str) -> None:
    check_elementwise(
        device, functional.glu, torch_functional.glu, numbers(generator(dim), (4, 6, 10)), dim=dim
    )


def test_activation_errors(device: str) -> None:
    x = dl.zeros(3, 5, device=device)
    with pytest.raises(ShapeError, match=r"\[glu\] axis -1 of shape \(3, 5\) has no halves"):
        functional.glu(x)
    with pytest.raises(ShapeError, match=r"\[prelu\] expected a weight of shape \(1,\) or \(5,\)"):
        functional.prelu(x, dl.zeros(3, device=device))
    with pytest.raises(ArgumentError, match=r"\[gelu\] approximate must be 'none' or 'tanh', got 'sigmoid'"):
        functional.gelu(x, approximate="sigmoid")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"\[celu\] alpha must not be 0"):
        functional.celu(x, 0)
