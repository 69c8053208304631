"""``multi_head_attention_forward`` and gradients of its weights are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl

RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return (0.5 * RNG.standard_normal(shape)).astype(np.float32)


LENGTH, KEYS, BATCH, SIZE, HEADS = 5, 7, 2, 6, 3
MASK = np.triu(np.ones((LENGTH, KEYS), bool), 2)
CASES: dict[str, dict[str, Any]] = {
    "one tensor": {"same": True},
    "three tensors": {},
    "pooling": {"separate": True, "need_weights": False},
    "separate weights of other sizes": {"separate": True, "features": (6, 4, 9)},
    "more keys": {"bias_k": drawn(1, 1, SIZE), "bias_v": drawn(1, 1, SIZE), "add_zero_attn": True},
    "masks": {"attn_mask": MASK, "key_padding_mask": np.arange(KEYS)[None] >= np.array([[6], [4]])},
    "a mask for each head": {"attn_mask": drawn(BATCH * HEADS, LENGTH, KEYS), "average_attn_weights": False},
    "one sequence": {"unbatched": True, "attn_mask": MASK, "is_causal": True},
    "static": {"static_k": drawn(BATCH * HEADS, 4, 2), "static_v": drawn(BATCH * HEADS, 4, 2)},
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name: str, device: str) -> None:
    options = dict(CASES[name])
    features = options.pop("features", (SIZE,) * 3)
    same, separate, unbatched = (options.pop(key, False) for key in ("same", "separate", "unbatched"))
    batch = () if unbatched else (BATCH,)
    operands = [drawn(count, *batch, f) for count, f in zip((LENGTH, KEYS, KEYS), features, strict=True)]
    named: dict[str, Any] = {
        "in_proj_weight": None if separate else drawn(3 * SIZE, SIZE),
        "in_proj_bias": drawn(3 * SIZE),
        "bias_k": None,
        "bias_v": None,
        "out_proj_weight": drawn(4, SIZE),
        "out_proj_bias": drawn(4),
        **(
            {f"{x}_proj_weight": drawn(SIZE, f) for x, f in zip("qkv", features, strict=True)}
            if separate
            else {}
        ),
        "add_zero_attn": False,
        "dropout_p": 0.0,
        "use_separate_proj_weight": separate,
        **options,
    }
    results = []
    for library in (dl, torch):
        leaves = {
            key: leaf(library, value, device) for key, value in named.items() if isinstance(value, np.ndarray)
        }
        q, k, v = (leaf(library, x, device) for x in operands)
        if same:
            k = v = q
        out, weights = library.nn.functional.multi_head_attention_forward(
            q, k, v, embed_dim_to_check=SIZE, num_heads=HEADS, **{**named, **leaves}
        )
        ((out**2).sum() + (0 if weights is None else (weights**2).sum())).backward()
        inputs = {"q": q, "k": k, "v": v, **leaves}
        grads = {key: x.grad for key, x in inputs.items() if x.grad is not None}
        results.append({"out": out, "weights": weights, **grads})
    ours, theirs = results
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if value is None:
            assert ours[key] is None
            continue
        found, expected = ours[key].detach().cpu().numpy(), value.detach().numpy()
        tolerance = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=tolerance, err_msg=key)


def leaf(library: Any, value: Any, device: str) -> Any:
    tensor = library.from_numpy(value.copy())
    tensor = tensor if library is torch else tensor.to(device)
    return tensor.requires_grad_() if value.dtype == np.float32 else tensor


def test_refusals() -> None:
    x, w, out = dl.rand(5, 2, 6), dl.rand(18, 6), dl.rand(6, 6)
    function = dl.nn.functional.multi_head_attention_forward
    rest = (None, None, None, False, 0.0, out, None)
    with pytest.raises(dl.errors.ShapeError, match=r"expected a query of 2 or 3 axes with 8 features"):
        function(x, x, x, 8, 2, w, *rest)
    with pytest.raises(dl.errors.ArgumentError, match="6 features do not split into 4 heads"):
        function(x, x, x, 6, 4, w, *rest)
    with pytest.raises(dl.errors.ArgumentError, match="needs in_proj_weight, got None"):
        function(x, x, x, 6, 2, None, *rest)
    with pytest.raises(dl.errors.ArgumentError, match="is_causal takes the mask too"):
        function(x, x, x, 6, 2, w, *rest, is_causal=True)
