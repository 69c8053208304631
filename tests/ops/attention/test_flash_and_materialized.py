"""Flash and materialized attention, whichever of them the device would choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops import REGISTRY
from dl4all.ops.attention import materialized
from dl4all.ops.core.op import Example
from tests.support.operands import CASES, close, compare, operands_of, reference, strided

ATTENTION = [
    (op.name, case) for op, case in CASES if op.name in ("flash_attention", "flash_attention_backward")
]
IDS = [f"{name}-{case}" for name, case in ATTENTION]


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
