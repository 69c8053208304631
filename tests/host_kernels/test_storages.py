"""Kernels of lines in 16 bits: what they give is float32's result of the same numbers, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.nn import functional as F
from tests.support.subcases import each

SHAPES = [(3, 7), (5, 16), (4, 33), (2, 1000), (2, 5000), (3, 5, 4), (2, 6, 3, 5), (1, 2, 1, 1)]
HALVES = ("float16", "bfloat16")


def weights(x: Any) -> tuple[Any, Any]:
    """Of numbers that all three dtypes have."""
    size = x.shape[-1]
    numbers = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32)
    first, second = (dl.tensor(row, device="cpu").bfloat16().to(x.dtype) for row in numbers)
    return first, second


def statistics(x: Any) -> tuple[Any, Any]:
    mean = np.random.default_rng(1).standard_normal(x.shape[1]).astype(np.float32)
    first, second = (
        dl.tensor(numbers, device="cpu").bfloat16().to(x.dtype) for numbers in (mean, np.abs(mean) + 0.5)
    )
    return first, second


FORWARD: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax across": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], *weights(x)),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], weights(x)[0], 1e-5),
    "group_norm": lambda x: F.group_norm(x, 1 if x.shape[1] % 2 else 2),
    "batch_norm": lambda x: F.batch_norm(x, *statistics(x)),
}


@each("name", FORWARD)
@each("shape", SHAPES)
@pytest.mark.parametrize("dtype", HALVES)
def test_results_are_rounded_once(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) * 3
    x = dl.tensor(numbers, device="cpu").to(dtype)
    result, expected = FORWARD[name](x), FORWARD[name](x.float())
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.float().numpy(), expected.to(dtype).float().numpy())


@each("name", ["softmax", "log_softmax", "layer_norm", "group_norm"])
@each("shape", SHAPES)
@pytest.mark.parametrize("dtype", HALVES)
def test_gradients(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    """Intermediate gradients are rounded, too."""
    rng = np.random.default_rng(len(shape))
    numbers, factors = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    gradients = []
    for kind in (dtype, "float32"):
        x = dl.tensor(numbers, device="cpu").to(dtype).to(kind).requires_grad_()
        y = dl.tensor(factors, device="cpu").to(dtype).to(kind)
        (FORWARD[name](x) * y).float().sum().backward()
        gradients.append(x.grad.float().numpy())
    largest = max(np.abs(gradients[1]).max(), 1e-3)
    assert (
        np.abs(gradients[0] - gradients[1]).max() <= (2**-7 if dtype == "bfloat16" else 2**-10) * largest * 2
    )
