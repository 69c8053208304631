"""The language model beside the same network written with PyTorch's own layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from tests.conftest import need
from tests.support.operands import close, generator

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
F = torch.nn.functional

SIZES: dict[str, Any] = {"vocab_size": 13, "block_size": 7, "n_layer": 2, "n_head": 2, "n_embd": 6}


def reference(state: dict[str, Any], tokens: Any, blocks: int) -> Any:
    """Pre-norm blocks with causal attention, as GPT-2 has them."""

    def linear(name: str, x: Any) -> Any:
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    steps = tokens.shape[1]
    table = state["transformer.wte.weight"]
    x = table[tokens] + state["transformer.wpe.weight"][:steps]
    for k in range(blocks):
        block = f"transformer.h.{k}"
        parts = linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x)).chunk(3, -1)
        q, key, v = (p.unflatten(-1, (SIZES["n_head"], -1)).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + linear(f"{block}.attn.c_proj", y)
        y = F.gelu(linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x)), approximate="tanh")
        x = x + linear(f"{block}.mlp.c_proj", y)
    return F.linear(norm("transformer.ln_f", x), table)


def test_scores_and_gradients(device: str) -> None:
    blocks = 2 if device == "cpu" else 1  # where a launch takes long, one will do
    net = dl.models.GPT(**{**SIZES, "n_layer": blocks})
    rng = generator("gpt")
    dl.manual_seed(1)
    for parameter in net.parameters():  # larger than the initial ones, which leave attention uniform
        dl.nn.init.uniform_(parameter, -0.5, 0.5)
    arrays = {name: p.detach().numpy().copy() for name, p in net.named_parameters()}
    net.to(device)
    state = {name: torch.from_numpy(a).requires_grad_() for name, a in arrays.items()}
    tokens, target = rng.integers(0, 13, (2, 5)), rng.integers(0, 13, (10,))
    scores = net(dl.tensor(tokens, device=device))
    expected = reference(state, torch.from_numpy(tokens), blocks)
    close(scores.detach().numpy().astype(np.float64), expected.detach().numpy(), 2e-5)
    longer = net.generate(dl.tensor(tokens, device=device), 1, temperature=0)
    assert (str(longer.dtype), str(longer.device)) == ("int64", device)
    assert longer[:, 5].tolist() == expected[:, -1].argmax(-1).tolist()
    dl.nn.functional.cross_entropy(scores.reshape(10, 13), dl.tensor(target, device=device)).backward()
    F.cross_entropy(expected.reshape(10, 13), torch.from_numpy(target)).backward()
    for name, parameter in net.named_parameters():
        close(parameter.grad.numpy().astype(np.float64), state[name].grad.numpy(), 1e-4)


def test_the_head_is_the_embedding() -> None:
    net = dl.models.GPT(**SIZES)
    assert net.lm_head.weight is net._part("wte").weight
    names = [name for name, _ in net.named_parameters()]
    assert "lm_head.weight" not in names
    state = net.state_dict()
    assert {"lm_head.weight", "transformer.wte.weight", "transformer.h.1.attn.c_attn.bias"} <= set(state)
    again = dl.models.GPT(**SIZES)
    again.load_state_dict({name: tensor.numpy() for name, tensor in state.items()})
    assert again.lm_head.weight is again._part("wte").weight
    assert again.lm_head.weight.tolist() == net.lm_head.weight.tolist()


def test_nothing_looks_ahead() -> None:
    net = dl.models.GPT(**SIZES)
    tokens = generator("ahead").integers(0, 13, (1, 7))
    changed = tokens.copy()
    changed[0, 4:] = (changed[0, 4:] + 1) % 13
    first, second = (net(dl.tensor(t, device="cpu")).detach().numpy() for t in (tokens, changed))
    np.testing.assert_array_equal(first[:, :4], second[:, :4])
    assert (first[:, 4:] != second[:, 4:]).all()


def spread_out() -> Any:
    """A network whose next token depends on all before it: the initial one's hardly does."""
    net = dl.models.GPT(**{**SIZES, "n_embd": 12}).eval()
    dl.manual_seed(1)
    for parameter in net.parameters():
        if parameter.ndim == 2:
            dl.nn.init.normal_(parameter)
    return net


@pytest.mark.parametrize("begin", [4, 9])
@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_what_is_remembered_changes_no_token(begin: int, device: str) -> None:
    """Beside the whole sequence put through the network for each token, up to and beyond the longest."""
    need(device)
    net = spread_out().to(device)
    start = generator("start", begin).integers(0, 13, (4, begin))
    count = 10 - begin
    greedy = net.generate(dl.tensor(start, device=device), count, temperature=0)
    tokens = greedy.numpy()
    np.testing.assert_array_equal(tokens[:, :begin], start)
    for t in range(begin, begin + count):
        scores = net(dl.tensor(tokens[:, max(0, t - 7) : t], device=device))[:, -1].detach().numpy()
        assert tokens[:, t].tolist() == scores.argmax(-1).tolist()
        assert np.diff(np.sort(scores, -1)[:, -2:]).min() > 1e-4  # no tie that rounding decides


def test_each_token_goes_through_the_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net = spread_out()
    rows: list[int] = []
    net._part("h")[0].register_forward_hook(lambda module, inputs, output: rows.append(output.shape[1]))
    net.generate(dl.tensor([[1, 2, 3]], device="cpu"), 7, temperature=0)
    assert rows == [3, 1, 1, 1, 1, 7, 7]


def test_generate() -> None:
    net = spread_out()
    start = dl.tensor([[1, 2], [3, 4]], device="cpu")
    greedy = net.generate(start, 8, temperature=0)  # beyond the longest sequence
    assert (greedy.shape, str(greedy.dtype)) == ((2, 10), "int64")
    assert net.generate(start, 3, top_k=1).tolist() == greedy[:, :5].tolist()
    drawn = [net.generate(start, 5, generator=dl.Generator(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_it_learns_a_pattern() -> None:
    dl.manual_seed(0)
    net = dl.models.GPT(5, 8, n_layer=1, n_head=2, n_embd=16)
    optimizer = dl.optim.AdamW(net.parameters(), lr=1e-2)
    words = np.array([[(i + s) % 5 for i in range(9)] for s in range(5)])
    for _ in range(60):
        optimizer.zero_grad()
        scores = net(dl.tensor(words[:, :-1], device="cpu"))
        target = dl.tensor(words[:, 1:].reshape(-1), device="cpu")
        loss = dl.nn.functional.cross_entropy(scores.reshape(40, 5), target)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
    found = net.generate(dl.tensor([[2]], device="cpu"), 6, temperature=0)
    assert found.tolist() == [[2, 3, 4, 0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net, x: dl.models.GPT(5, 5, n_head=5, n_embd=6), ArgumentError, r"\[GPT\] 6 features do not"),
        (lambda net, x: net(x(8)), ShapeError, r"\[GPT\] expected ints of shape \(N, up to 7\), got"),
        (lambda net, x: net(x(2) + 20), ArgumentError, r"\[embedding\] index 20 is out of range"),
        (lambda net, x: net.generate(x(2), 1, temperature=-1), ArgumentError, r"\[generate\] expected"),
        (lambda net, x: net.generate(x(2), 1, top_k=0), ArgumentError, r"\[generate\] expected .* and 0"),
        (lambda net, x: net.generate(x(0), 1), ShapeError, r"\[generate\] expected ints .* got \(1, 0\)"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(dl.models.GPT(**SIZES), lambda n: dl.zeros(1, n, dtype="int64", device="cpu"))
