"""Flash and materialized attention, whichever of them the device would choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY
from dl4all.ops.attention import materialized
from dl4all.ops.core.op import Example
from dl4all.runtime.null.backend import NullBackend
from tests.ops.test_on_null import KINDS
from tests.support.operands import CASES, close, compare, operands_of, reference, strided
from tests.support.subcases import each

ATTENTION = [
    (op.name, case) for op, case in CASES if op.name in ("flash_attention", "flash_attention_backward")
]
IDS = [f"{name}-{case}" for name, case in ATTENTION]


@pytest.mark.sampled(3)
@pytest.mark.vulkan
@pytest.mark.parametrize(("name", "case"), ATTENTION, ids=IDS)
@pytest.mark.parametrize("products", [False, True], ids=["tiles", "products"])
def test_flash_and_materialized_agree_with_the_reference(
    name: str, case: Example, products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materialized, "applies", lambda *_: products)
    monkeypatch.setattr(materialized, "MAX_SCORE_BYTES", 4 * 7 * 13)  # one batch at a time
    op = REGISTRY[name]
    tensors, elements = operands_of(op, case, strided, "vulkan:0")
    result = op(*tensors, **dict(case.arguments))
    compare(result, reference(op, list(elements), **dict(case.arguments)))


@pytest.mark.sampled(2)
@pytest.mark.vulkan
@pytest.mark.parametrize("products", [False, True], ids=["tiles", "products"])
@pytest.mark.parametrize("keys", [64, 67])
def test_masks_special_values_and_gradients(
    products: bool, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fully masked rows, large scores and a query with nan give the same results as on the CPU."""
    monkeypatch.setattr(materialized, "applies", lambda *_: products)
    rng = np.random.default_rng(keys)
    q, k, v = (rng.standard_normal((2, 3, n, 16)).astype(np.float32) for n in (21, keys, keys))
    mask = rng.random((2, 1, 21, keys)) > 0.3
    mask[0, 0, 5] = False
    k[1, 2, 7] = 30  # scores far above the others
    q[0, 1, 3, 2] = np.nan

    def computed(device: str) -> list[Any]:
        tensors = [dl.tensor(a, device=device).requires_grad_() for a in (q, k, v)]
        allowed = dl.tensor(mask, device=device)
        y = dl.nn.functional.scaled_dot_product_attention(
            tensors[0], tensors[1], tensors[2], attn_mask=allowed
        )
        weights = np.cos(np.arange(y.numel())).reshape(y.shape).astype(np.float32)
        y.nan_to_num().backward(dl.tensor(weights, device=device))
        return [y.detach().numpy(), *(tensor.grad.numpy() for tensor in tensors)]

    for result, expected in zip(computed("vulkan:0"), computed("cpu"), strict=True):
        close(result.astype(np.float64), expected, 2e-5)


@pytest.mark.parametrize("products", [False, True], ids=["tiles", "products"])
@pytest.mark.parametrize("keys", [64, 67])
def test_gradients_of_large_scores(
    products: bool, keys: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of scores around -1e9, one float has no digits left for the logarithm of their sum."""
    monkeypatch.setattr(materialized, "applies", lambda *_: products)
    rng = np.random.default_rng(keys)
    arrays = [rng.standard_normal((1, n, 16)).astype(np.float32) for n in (21, keys, keys)]
    mask = np.where(rng.random((21, keys)) > 0.3, 0.0, -1e9)
    mask[3], mask[5] = -1e9, float(np.finfo(np.float32).min)  # as other libraries mask whole rows
    mask[7] = 1e6

    def gradients(operands: list[Any], attention: Any, mask: Any) -> list[Any]:
        attention(*operands, attn_mask=mask).square().sum().backward()
        return [operand.grad.numpy() for operand in operands]

    tensors = [dl.tensor(a, device=device).requires_grad_() for a in arrays]
    ours = dl.nn.functional.scaled_dot_product_attention
    results = gradients(tensors, ours, dl.tensor(mask.astype(np.float32), device=device))
    torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")
    mask[5] = -1e9  # exactly, all weights of a masked row are those without the mask
    rounded = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    scores = (arrays[0][0] @ arrays[1][0].T / 4 + mask).astype(np.float32)
    exact = gradients(rounded, _attention_of_rounded_scores(torch, scores), torch.tensor(mask))
    for result, expected in zip(results, exact, strict=True):
        close(result.astype(np.float64), expected, 1e-4)


def _attention_of_rounded_scores(torch: Any, scores: Any) -> Any:
    """Attention whose scores are rounded, and whose gradient is that of scores that are not."""

    def attention(q: Any, k: Any, v: Any, attn_mask: Any) -> Any:
        products = q @ k.transpose(1, 2) / 4 + attn_mask
        rounded = products + (torch.tensor(scores, dtype=torch.float64) - products).detach()
        return torch.softmax(rounded, 2) @ v

    return attention


@pytest.mark.parametrize("products", [False, True], ids=["tiles", "products"])
@pytest.mark.parametrize("length", [8, 37, 40])
def test_an_overflowing_query_keeps_from_later_keys(
    products: bool, length: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A causal query does not attend to later keys: the nan of its weights reaches no gradient of theirs."""
    monkeypatch.setattr(materialized, "applies", lambda *_: products)
    rng = np.random.default_rng(length)
    q, k, v = (
        dl.tensor(rng.standard_normal((2, length, 16)).astype(np.float32), device=device).requires_grad_()
        for _ in range(3)
    )
    row = length // 2 + 1
    query = dl.where(dl.tensor(np.arange(length)[:, None] == row, device=device), 3e38, q)
    dl.nn.functional.scaled_dot_product_attention(query, k, v, is_causal=True).sum().backward()
    for tensor in (k, v):
        finite = np.isfinite(tensor.grad.numpy()).all((0, 2))
        assert finite.tolist() == [i > row for i in range(length)]


# Rows of vec4s and of single elements; each number of columns that an invocation keeps, and several passes
# over them; one query, and more than a workgroup has.
@pytest.mark.vulkan
@each(
    "sizes, causal",
    [
        ((1, 70, 12, 20), False),
        ((70, 131, 16, 36), False),
        ((67, 70, 9, 63), True),
        ((130, 66, 20, 68), True),
        ((65, 33, 68, 132), False),
        ((33, 65, 5, 133), True),
    ],
)
def test_tiles_of_all_sizes(
    sizes: tuple[int, int, int, int], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materialized, "applies", lambda *_: False)
    queries, keys, features, columns = sizes
    rng = np.random.default_rng(queries)
    shapes = ((2, queries, features), (2, keys, features), (2, keys, columns), (2, queries, columns))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    q, k, v, g = (a.astype(np.float64) for a in arrays)
    scale = features**-0.5
    scores = q @ k.swapaxes(1, 2) * scale
    if causal:
        scores[:, np.arange(keys) > np.arange(queries)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    grad_weights = g @ v.swapaxes(1, 2)
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(2, keepdims=True)) * scale
    expected = (weights @ v, grad_scores @ k, grad_scores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ g)

    tensors = [dl.tensor(a, device="vulkan:0").requires_grad_() for a in arrays[:3]]
    y = dl.nn.functional.scaled_dot_product_attention(tensors[0], tensors[1], tensors[2], is_causal=causal)
    y.backward(dl.tensor(arrays[3], device="vulkan:0"))
    found = (y.detach(), *(tensor.grad for tensor in tensors))
    for result, exact in zip(found, expected, strict=True):
        close(result.numpy().astype(np.float64), exact, 2e-5)


def test_products_need_no_launches_for_row_terms() -> None:
    """Five products, and one kernel between them."""
    device = dl.Device.of_backend("null:0", NullBackend(*KINDS["shuffle"]))
    q, k, v, result = (dl.empty(*shape, device=device) for shape in ((2, 7, 4), (2, 8, 4), (2, 8, 4), (84,)))
    before = device.counters.launches
    dl.ops.flash_attention_backward(dl.empty(56, device=device), q, k, v, saved=result)
    assert device.counters.launches - before == 6


@pytest.mark.parametrize("products", [False, True], ids=["tiles", "products"])
def test_gradients_without_those_of_logsumexps(
    products: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They and their own gradients are those with zeros."""
    monkeypatch.setattr(materialized, "applies", lambda *_: products)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, n, 4)).astype(np.float32) for n in (5, 7, 7, 5)]
    u = dl.tensor(rng.standard_normal(2 * 19 * 4).astype(np.float32), device=device)

    def computed(zeros: int) -> list[Any]:
        q, k, v, g = (dl.tensor(a, device=device).requires_grad_() for a in arrays)
        grad = dl.cat([g.reshape(40), dl.zeros(zeros, device=device)]) if zeros else g.reshape(40)
        y = dl.ops.flash_attention_backward(grad, q, k, v, None, scale=0.5)
        (y * u).sum().backward()
        return [y.detach(), *(tensor.grad for tensor in (q, k, v, g))]

    for short, long in zip(computed(0), computed(20), strict=True):
        close(short.numpy().astype(np.float64), long.numpy(), 1e-6)
