"""Kernels whose loops would be longer than llvmpipe allows: it leaves them after 65535 rounds, silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.kernels import launch

F = dl.nn.functional


def gradient(function: Callable[[Any], Any], x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    function(leaf).sum().backward()
    return leaf.grad


def zeros(count: int, like: Any) -> Any:
    return dl.zeros(count, dtype="int64", device=like.device)


CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "average of an image": (lambda x: F.adaptive_avg_pool2d(x, 1), (1, 2, 300, 300)),
    "average of a window": (lambda x: F.avg_pool2d(x, 260), (1, 2, 300, 300)),
    "largest of an image": (lambda x: F.adaptive_max_pool2d(x, 1), (1, 2, 300, 300)),
    "largest of a window, its gradient": (
        lambda x: gradient(lambda y: F.max_pool2d(y, 260), x),
        (1, 2, 300, 300),
    ),
    "attention to many keys": (
        lambda x: F.scaled_dot_product_attention(x[:, :3], x, x),
        (1, 40_000, 8),
    ),
    "a filter for each channel, as large as the image": (
        lambda x: F.conv2d(x, x.swapaxes(0, 1) * 0.01, groups=2),
        (1, 2, 260, 260),
    ),
    "the gradient of filters of large images": (
        lambda x: gradient(lambda w: F.conv2d(x, w, groups=2) * 1e-3, x[:1, :, :3, :3].swapaxes(0, 1)),
        (13, 2, 600, 600),
    ),
    "a layer norm of long rows": (lambda x: F.layer_norm(x, x.shape[1:]), (2, 3_000_000)),
    "a softmax of long rows": (lambda x: F.softmax(x, 1), (1, 9_000_000)),
    "a product of long rows": (lambda x: x @ x.mT, (3, 300_000)),
    "a layer of many inputs": (lambda x: F.linear(x, x), (2, 200_000)),
    "a softmax of long rows of odd length": (lambda x: F.softmax(x, 1), (1, 3_000_001)),
    "a product of long rows with a vector": (lambda x: x @ x[0], (3, 1_000_000)),
    "a product of vectors": (lambda x: x @ x, (2_000_000,)),
    "the gradient of a layer for many rows": (
        lambda x: gradient(lambda w: F.linear(x, w) * 1e-3, x[:3]),
        (500_000, 4),
    ),
    "one row of a table taken often": (
        lambda x: gradient(lambda table: F.embedding(zeros(100_000, x), table) * x, x[:7]),
        (100_000, 3),
    ),
    "many elements added to one place": (
        lambda x: x[:3].scatter_add(0, zeros(x.numel(), x), x),
        (200_000,),
    ),
    "a sum": (lambda x: x.sum(), (20_000_000,)),
    "a running sum": (lambda x: x.cumsum(1) * 1e-3, (3, 300_000)),
}


@pytest.mark.sampled(3)
@pytest.mark.vulkan
@pytest.mark.parametrize("name", CASES)
def test_long_loops_are_right(name: str) -> None:
    function, shape = CASES[name]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32) + 0.5
    found = function(dl.tensor(values, device="vulkan:0")).numpy()
    expected = function(dl.tensor(values.astype(np.float64), device="cpu")).numpy()  # BLAS may round as much
    scale = np.abs(expected).max()
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 2e-5 * scale


@pytest.mark.vulkan
def test_rows_are_added_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices that occur never, once, as often as a piece has terms, and more often; some are negative."""
    monkeypatch.setattr("dl4all.ops.indexing.rows.MAX_SEQUENTIAL_TERMS", 3)
    rng = np.random.default_rng(1)
    index = rng.permutation(np.repeat([-1, 0, 2, 3, 5, 6], [4, 1, 3, 4, 6, 29]))
    values = rng.standard_normal((2, len(index), 5)).astype(np.float32)
    found = dl.ops.take_rows_backward(dl.tensor(values, device="vulkan:0"), index.tolist(), 8).numpy()
    expected = np.zeros((2, 8, 5))
    for target, row in zip(index, values.swapaxes(0, 1), strict=True):
        if target >= 0:
            expected[:, target] += row
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_only_drivers_with_a_limit_refuse() -> None:
    device = dl.device("cpu")
    launch.check_rounds(device, 10**9)
