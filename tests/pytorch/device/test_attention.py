"""Scaled dot-product attention and the layers on it against PyTorch's on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import dl4all.torch  # noqa: E402, F401 - registers the device

attention = torch.nn.functional.scaled_dot_product_attention

FUSED = "ScaledDotProductFusedAttentionOverrideableBackward0"

# Shapes of query, key and value, that of a mask with its dtype, and arguments.
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Any, dict[str, Any]]] = {
    "plain": (((2, 3, 7, 5), (2, 3, 11, 5), (2, 3, 11, 4)), None, {"scale": 0.3}),
    "causal": (((2, 3, 7, 4), (2, 3, 7, 4), (2, 3, 7, 4)), None, {"is_causal": True}),
    "bools": (((2, 3, 7, 5), (2, 3, 11, 5), (2, 3, 11, 5)), ((2, 1, 7, 11), torch.bool), {}),
    "floats": (((2, 3, 7, 5), (2, 3, 11, 5), (2, 3, 11, 5)), ((7, 11), torch.float32), {}),
    "padding": (((2, 3, 7, 5), (2, 3, 11, 5), (2, 3, 11, 5)), ((2, 1, 1, 11), torch.bool), {}),
    "groups of queries": (((2, 6, 7, 5), (2, 2, 11, 5), (2, 2, 11, 5)), None, {"enable_gqa": True}),
    "no keys": (((1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)), None, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_attention(case: str, place: str, natively: None) -> None:
    shapes, mask_kind, arguments = CASES[case]
    torch.manual_seed(1)
    operands = [torch.randn(shape) for shape in shapes]
    mask = None
    if mask_kind is not None:
        mask = torch.randn(mask_kind[0])
        mask = mask > 0 if mask_kind[1] == torch.bool else mask
        if mask.dtype == torch.bool:
            mask[..., 0, :] = False  # this query attends to no key
    results = []
    for where in ("cpu", place):
        leaves = [one.to(where).requires_grad_() for one in operands]
        output = attention(*leaves, attn_mask=None if mask is None else mask.to(where), **arguments)
        if where == place:
            assert output.grad_fn.name() == FUSED
        results.append([output, *torch.autograd.grad((output**2).sum(), leaves)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_operands_of_any_strides(place: str, natively: None) -> None:
    torch.manual_seed(2)
    projected = torch.randn(2, 7, 3, 3, 4)
    results = []
    for where in ("cpu", place):
        leaf = projected.to(where).requires_grad_()
        output = attention(*(one.transpose(1, 2) for one in leaf.unbind(2)), is_causal=True)
        output = output.transpose(1, 2).flatten(2)
        results.append([output, *torch.autograd.grad((output**2).sum(), leaf)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_what_flash_attention_does_not_compute_is_composed(natively: None) -> None:
    torch.manual_seed(3)
    q, mask = torch.randn(1, 2, 3, 4).to("dlall"), torch.randn(3, 3).to("dlall").requires_grad_()
    assert attention(q, q, q, attn_mask=mask).grad_fn.name() != FUSED
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        leaf = q.clone().requires_grad_()
        assert attention(leaf, leaf, leaf).grad_fn.name() != FUSED


def test_wrong_operands_raise_as_on_the_cpu() -> None:
    q = torch.randn(1, 2, 3, 4).to("dlall")
    with pytest.raises(RuntimeError, match="is_causal"):
        attention(q, q, q, attn_mask=torch.ones(3, 3).to("dlall"), is_causal=True)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masks", [(), ("src_key_padding_mask",), ("mask", "src_key_padding_mask")])
def test_encoders_without_gradients(norm_first: bool, masks: tuple[str, ...]) -> None:
    torch.manual_seed(4)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    host = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    device = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval().to("dlall")
    device.load_state_dict(host.state_dict())
    x = torch.randn(2, 5, 8)
    kinds = {
        "mask": torch.ones(5, 5).triu(1).bool(),
        "src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2]),
    }
    with torch.no_grad():
        expected = host(x, **{name: kinds[name] for name in masks})
        got = device(x.to("dlall"), **{name: kinds[name].to("dlall") for name in masks})
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
