"""Steps on adapters: scores in pieces, layers computed again, and the memory that they take."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.llm import tuned_decoder
from tests.conftest import need
from tests.llm.conftest import IDX, Folders

VULKAN = pytest.param("vulkan:0", marks=pytest.mark.vulkan)


def tuned(folder: Any, device: str, dropout: float = 0.0, **settings: Any) -> dl.llm.TunedDecoder:
    """A model of a folder, with adapters far from those they begin with."""
    model, _ = dl.llm.load(folder, device=device, **settings)
    config = dl.llm.LoraConfig(4, 8, "all-linear", dropout)
    made = dl.llm.TunedDecoder(dl.llm.get_lora_model(model, config)).train()
    draw = np.random.default_rng(5)
    with dl.no_grad():
        for parameter in made.parameters():
            numbers = draw.normal(0, 0.1, parameter.shape).astype(np.float32)
            parameter.copy_(dl.tensor(numbers, device=device))
    return made


def gradients(model: dl.llm.TunedDecoder, seed: int, loss: Any) -> list[Any]:
    """The loss, and the gradients of all adapters, but for those of experts that were not chosen."""
    dl.manual_seed(seed)
    value = loss()
    value.backward()
    learned = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    made = [value.detach().numpy(), *(gradient.numpy() for gradient in learned)]
    for parameter in model.parameters():
        parameter.grad = None
    return made


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen2", "qwen3_moe"])
@pytest.mark.parametrize("device", ["cpu", VULKAN])
def test_pieces_and_layers_again_change_nothing(
    name: str, device: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(device)
    model = tuned(folders(name)[0], device, dropout=0.3)
    wanted = IDX[:, 1:].copy()
    wanted[0, :7] = -100
    x, y = dl.tensor(IDX[:, :-1], device=device), dl.tensor(wanted, device=device)

    def whole() -> dl.Tensor:
        scores = model.decoder(x).flatten(0, 1)
        return dl.nn.functional.cross_entropy(scores, y.flatten(), ignore_index=-100)

    def in_pieces() -> dl.Tensor:
        return model.loss(model(x), y)

    expected = gradients(model, 1, whole)
    assert np.abs(np.concatenate([g.ravel() for g in expected[1:]])).max() > 0.01
    again = gradients(model, 2, whole)
    assert again[0] != expected[0], "dropout"
    for most in (1 << 23, 97 * 7):
        monkeypatch.setattr(tuned_decoder, "MOST_SCORES", most)
        for checkpointing in (False, True):
            model.decoder.gradient_checkpointing = checkpointing
            for found, exact in zip(gradients(model, 1, in_pieces), expected, strict=True):
                assert np.abs(found - exact).max() <= 1e-5 * np.abs(exact).max()


def test_the_state_is_that_of_adapters(folders: Folders) -> None:
    folder = folders("llama")[0]
    model = tuned(folder, "cpu")
    state = model.state_dict()
    assert len(state) == 2 * 7 * 3
    assert all("lora" in name for name in state)
    other = tuned(folder, "cpu")
    with dl.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(state)
    idx = dl.tensor(IDX)
    np.testing.assert_array_equal(other(idx).detach().numpy(), model(idx).detach().numpy())
    assert not model.eval().decoder.training
    for tokens, batch in ((0, 1), (65, 1), (8, 0)):
        with pytest.raises(
            ArgumentError, match=f"of 1 to 64 tokens and at least one, got {batch} of {tokens}"
        ):
            dl.llm.tuning_memory(model.decoder, tokens, batch)
    with pytest.raises(ArgumentError, match="no adapters"):
        dl.llm.TunedDecoder(dl.llm.load(folder, device="cpu")[0])


def bytes_of_steps(model: dl.llm.TunedDecoder, tokens: int, batch: int, device: str, compiled: bool) -> int:
    """The most that four steps take."""
    draw = np.random.default_rng(0)
    x, y = (dl.tensor(draw.integers(0, 97, (batch, tokens)), device=device) for _ in range(2))
    optimizer = dl.optim.AdamW(list(model.parameters()), lr=1e-3)

    def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        loss = model.loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = dl.compile(step) if compiled else step
    dl.memory.reset_peak(device)
    for _ in range(4):
        run(x, y).item()
    return dl.memory.stats(device).peak


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("device", "dtype", "changes"),
    [
        ("cpu", "q4_0", {}),
        ("cpu", "q4_0", {"vocab_size": 5000, "intermediate_size": 2048}),
        ("cpu", "float32", {"num_attention_heads": 32}),
        pytest.param("vulkan:0", "q4_0", {"num_hidden_layers": 2}, marks=pytest.mark.vulkan),
    ],
)
def test_memory_is_within_a_tenth_of_the_account(
    device: str, dtype: str, changes: dict[str, int], tmp_path: Path
) -> None:
    need(device)
    document = {
        "model_type": "llama", "vocab_size": 97, "hidden_size": 384, "intermediate_size": 1024,
        "head_dim": 64,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "dtype": "float32",
        **changes,
    }  # fmt: skip
    model = dl.llm.Decoder(dl.llm.decoder_config(document))
    dl.save(
        {f"model.{name}": value for name, value in model.state_dict().items()}, tmp_path / "m.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps(document))
    del model
    gc.collect()
    for checkpointing, batch, compiled in ((True, 1, False), (False, 1, True), (True, 2, True)):
        before = dl.memory.stats(device).allocated
        made = tuned(tmp_path, device, dtype=dtype)
        made.decoder.gradient_checkpointing = checkpointing
        state = dl.get_rng_state()
        account = dl.llm.tuning_memory(made.decoder, 192, batch)
        assert dl.get_rng_state() == state
        assert all(parameter.grad is None for parameter in made.parameters())
        peak = bytes_of_steps(made, 192, batch, device, compiled) - before
        assert abs(account.total / peak - 1) < 0.1, (str(account), peak)
        assert str(account).startswith(f"{account.total / 1e6:.0f} MB: weights ")
        del made
        gc.collect()
