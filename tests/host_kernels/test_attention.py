"""Compiled attention of the CPU beside the NumPy body and PyTorch: masks, causal, blocks, gradients, nan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

NDArray = np.ndarray[Any, Any]

CASES = [
    (1, 1, 1, 1, 1, None, False), (2, 13, 11, 3, 5, None, True), (4, 5, 7, 3, 37, (2, 5, 7), False),
    (4, 11, 7, 3, 5, (2, 11, 1), False), (2, 70, 300, 33, 65, None, True), (1, 65, 128, 8, 16, None, False),
    (2, 131, 67, 16, 8, (1, 1, 67), False), (3, 200, 259, 17, 19, (3, 200, 259), False),
    (2, 130, 129, 300, 5, None, True),
]  # fmt: skip
"""Batch, queries, keys, features, columns, the mask's shape, causal."""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def numbers(*shape: int, seed: int = 0) -> NDArray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def on_cpu(array: NDArray | None) -> Any:
    return None if array is None else dl.tensor(array, device="cpu")


def operands_of(case: Any) -> tuple[list[NDArray], NDArray | None]:
    """Queries, keys and values of a case, and its mask: it hides some keys, and all from the first query."""
    batch, queries, keys, features, columns, mask_shape, _ = case
    q, k, v = (
        numbers(batch, queries, features),
        numbers(batch, keys, features, seed=1),
        numbers(batch, keys, columns),
    )
    if mask_shape is None:
        return [q, k, v], None
    mask = numbers(*mask_shape, seed=2)
    mask[mask > 1] = -np.inf
    if mask_shape[1] > 1:
        mask[:, 0] = -np.inf
    return [q, k, v], mask


def parts_of(flat: NDArray, rows: int) -> tuple[NDArray, NDArray]:
    """The results, and the logsumexps with what rounding took from them."""
    logsumexp, rest = flat[-2 * rows :].reshape(2, rows).astype(np.float64)
    return flat[: -2 * rows], logsumexp + rest


@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradient(case: Any, launches: HostLaunches) -> None:
    arrays, mask = operands_of(case)
    q, k, v, m = (*map(on_cpu, arrays), on_cpu(mask))
    options: dict[str, Any] = {"scale": case[3] ** -0.5, "causal": case[-1]}

    def forward() -> dl.Tensor:
        return dl.ops.flash_attention(q, k, v, m, **options)

    expected = launches.by_numpy(forward)
    poison_memory(expected.nbytes)
    count = launches.count
    flat = forward()
    assert launches.count == count + 1
    rows = case[0] * case[1]
    for got, wanted in zip(parts_of(flat.numpy(), rows), parts_of(expected, rows), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 2e-6)
    for size in (rows * case[4], rows * (case[4] + 2)):
        grad = numbers(size, seed=3)
        grad[rows * (case[4] + 1) :] = 0

        def backward(grad: NDArray = grad) -> dl.Tensor:
            return dl.ops.flash_attention_backward(on_cpu(grad), q, k, v, m, saved=flat, **options)

        expected = launches.by_numpy(backward)
        poison_memory(expected.nbytes)
        count = launches.count
        got = backward().numpy()
        assert launches.count == count + 1
        np.testing.assert_allclose(got, expected, 2e-5, 1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(3, 2, 70, 33), (1, 5, 200, 16), (2, 3, 1, 8)])
def test_beside_torch(shape: tuple[int, ...], causal: bool) -> None:
    """Operands as heads lie in memory: views of (batch, time, heads, features)."""
    batch, heads, time, features = shape
    arrays = [numbers(batch, time, heads, features, seed=seed) for seed in range(4)]
    own = [dl.tensor(x, device="cpu", requires_grad=True) for x in arrays[:3]]
    other = [torch.tensor(x, requires_grad=True) for x in arrays[:3]]
    q, k, v = (x.transpose(1, 2) for x in own)
    result = dl.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    result.backward(dl.tensor(arrays[3], device="cpu").transpose(1, 2))
    heads_first = [x.transpose(1, 2) for x in other]
    expected = torch.nn.functional.scaled_dot_product_attention(
        heads_first[0], heads_first[1], heads_first[2], is_causal=causal
    )
    expected.backward(torch.tensor(arrays[3]).transpose(1, 2))  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), 1e-5, 2e-6)
    for x, y in zip(own, other, strict=True):
        assert x.grad is not None
        assert y.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 2e-5, 1e-5)


def test_large_scores_and_nan(launches: HostLaunches) -> None:
    """Scores beyond what exp takes give weights all the same; nan stays in the rows that see it."""
    q, k, v = (numbers(2, 70, 16, seed=seed) for seed in range(3))
    q, k = q * 40, k * 40
    q[0, 3, 5] = np.nan
    k[1, 60] = np.inf
    a, b, c = map(on_cpu, (q, k, v))

    got, expected = launches.both(lambda: dl.ops.flash_attention(a, b, c, scale=1.0, causal=True))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(got[finite], expected[finite], 1e-5, 1e-4)
