"""Fractional pooling beside PyTorch's, by the same random samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

CASES = [
    ("FractionalMaxPool2d", (2, 3, 9, 7), {"kernel_size": 2, "output_ratio": (0.5, 0.7)}),
    ("FractionalMaxPool2d", (3, 9, 7), {"kernel_size": (2, 3), "output_size": (4, 3)}),
    ("FractionalMaxPool3d", (2, 3, 9, 7, 8), {"kernel_size": (2, 3, 1), "output_size": (4, 1, 5)}),
]


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_results_and_gradients(name: str, shape: Any, options: Any, device: str) -> None:
    numbers = np.random.default_rng(len(shape))
    axes = int(name[-2])
    x = numbers.normal(size=shape).astype(np.float32)
    samples = numbers.random((shape[0] if len(shape) == axes + 2 else 1, 3, axes)).astype(np.float32)
    results = []
    for library, place in ((dl, {"device": device}), (torch, {})):
        given = library.tensor(x, **place).requires_grad_()
        pool = getattr(library.nn, name)(
            return_indices=True, _random_samples=library.tensor(samples), **options
        )
        maxima, places = pool(given)
        (maxima**2).sum().backward()
        results.append([maxima.detach(), places, given.grad])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_random_windows_and_bad_arguments() -> None:
    x = dl.rand(2, 3, 8, 6, device="cpu")
    assert dl.nn.FractionalMaxPool2d(2, output_ratio=0.5)(x).shape == (2, 3, 4, 3)
    with pytest.raises(dl.errors.ShapeError, match="an axis of 6 has no 6 windows of 2 elements"):
        dl.nn.FractionalMaxPool2d(2, output_size=(3, 6))(x)
    with pytest.raises(dl.errors.ArgumentError, match="either output_size or output_ratio"):
        dl.nn.FractionalMaxPool2d(2)
