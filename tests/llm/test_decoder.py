"""The decoder of all families beside transformers, whole and in pieces with a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.errors import ArgumentError, FileFormatError, ShapeError
from dl4all.llm.families import FAMILIES
from tests.llm.conftest import IDX, Folders
from tests.llm.models import CONFIGS, reference

PIECES = ((0, 9), (9, 10), (10, 11), (11, 20), (20, 21))
"""A prompt, tokens one by one, and a second prompt."""


def in_pieces(model: dl.llm.Decoder, idx: dl.Tensor, length: int = 32) -> Any:
    cache = model.make_cache(idx.shape[0], length)
    with dl.no_grad():
        return np.concatenate([model(idx[:, a:b], cache).float().numpy() for a, b in PIECES], 1)


def test_every_family_is_compared() -> None:
    assert {kind.model_type for kind, _ in CONFIGS.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
def test_scores_are_those_of_transformers(folders: Folders, name: str, device: str) -> None:
    folder, expected = folders(name)
    model, tokenizer = dl.llm.load(folder, device=device)
    assert tokenizer is None
    idx = dl.tensor(IDX, device=device)
    with dl.no_grad():
        whole = model(idx).numpy()
        np.testing.assert_allclose(model(idx, last=True).numpy(), whole[:, -1:], rtol=1e-3, atol=1e-4)
    largest = np.abs(expected).max()
    assert np.abs(whole - expected).max() < 3e-5 * largest
    assert np.abs(in_pieces(model, idx) - expected).max() < 3e-5 * largest
    assert expected.std() > 0.1, "scores that are all alike prove nothing"


@pytest.mark.parametrize("name", ["llama-dynamic", "phi3-longrope-partial"])
def test_positions_beyond_the_original_ones(name: str) -> None:
    kind, settings = CONFIGS[name]
    rope = {**settings["rope_parameters"], "original_max_position_embeddings": 16}
    changed = {**settings, "rope_parameters": rope, "original_max_position_embeddings": 16}
    if name == "llama-dynamic":
        changed["max_position_embeddings"] = 16
    CONFIGS["changed"] = kind, changed
    try:
        theirs = reference("changed")
    finally:
        del CONFIGS["changed"]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(IDX)).logits.numpy()
    document = {**theirs.config.to_dict(), "max_position_embeddings": 64}
    if name == "llama-dynamic":
        document["rope_parameters"] = rope
    config = dl.llm.decoder_config(document)
    model = dl.llm.Decoder(config).eval()
    own = model.state_dict()
    from dl4all.llm.weights import renamed

    for key, value in theirs.state_dict().items():
        for ours, part in renamed(config, key, value.numpy()):
            own[ours].copy_(dl.tensor(np.ascontiguousarray(part)))
    with dl.no_grad():
        found = model(dl.tensor(IDX)).numpy()
    assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize("device", ["cpu", "vulkan:0"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_moe"])
def test_weights_of_sixteen_bits(folders: Folders, name: str, device: str) -> None:
    folder, expected = folders(name)
    model, _ = dl.llm.load(folder, device=device, dtype=dl.bfloat16)
    assert str(model.embed_tokens.weight.dtype) == "bfloat16"
    found = in_pieces(model, dl.tensor(IDX, device=device))
    assert np.abs(found - expected).mean() < 0.03 * expected.std()


def test_wider_weights_are_the_same_numbers(folders: Folders, tmp_path: Path) -> None:
    folder, _ = folders("llama")
    weights = dl.io.load_weights(folder / "model.safetensors")
    halves = {name: array.astype(ml_dtypes.bfloat16) for name, array in weights.items()}
    dl.io.save_weights(tmp_path / "model.safetensors", halves)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    model, _ = dl.llm.load(tmp_path, device="cpu", dtype=dl.float32)
    name = "layers.1.mlp.up_proj.weight"
    np.testing.assert_array_equal(
        model.state_dict()[name].numpy(), halves[f"model.{name}"].astype(np.float32)
    )


def test_a_cache_that_grows_is_saved_and_goes_back(folders: Folders, tmp_path: Path) -> None:
    model, _ = dl.llm.load(folders("qwen3")[0], device="cpu")
    idx = dl.tensor(IDX)
    with dl.no_grad():
        expected = model(idx).numpy()
        cache = model.make_cache(2, 11)
        model(idx[:, :11], cache)
        cache.save(tmp_path / "cache.safetensors")
        larger = cache.grown(10, 64)
        assert larger.length >= 21
        np.testing.assert_allclose(model(idx[:, 11:], larger).numpy(), expected[:, 11:], rtol=1e-4, atol=1e-4)
        larger.position = 5  # what comes after is written anew
        np.testing.assert_allclose(model(idx[:, 5:], larger).numpy(), expected[:, 5:], rtol=1e-4, atol=1e-4)
        other = model.make_cache(2, 30)
        other.load(tmp_path / "cache.safetensors")
        np.testing.assert_allclose(model(idx[:, 11:], other).numpy(), expected[:, 11:], rtol=1e-4, atol=1e-4)
    assert cache.grown(0, 64) is cache
    with pytest.raises(ArgumentError, match="beyond the model's 64 positions"):
        cache.grown(60, 64)
    with pytest.raises(FileFormatError, match="the cache has"):
        model.make_cache(2, 10).load(tmp_path / "cache.safetensors")
    dl.io.save_weights(tmp_path / "other.safetensors", {"position": np.array([3])})
    with pytest.raises(FileFormatError, match="no cache of this model"):
        other.load(tmp_path / "other.safetensors")


def test_gradients_flow_through_a_model(folders: Folders) -> None:
    folder, _ = folders("gemma2")
    model, _ = dl.llm.load(folder, device="cpu")
    idx = dl.tensor(IDX)
    loss = dl.nn.functional.cross_entropy(model(idx[:, :-1]).flatten(0, 1), idx[:, 1:].flatten())
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(g is not None and np.abs(g.numpy()).max() > 0 for g in gradients.values())


def test_tokens_that_cannot_be(folders: Folders) -> None:
    model, _ = dl.llm.load(folders("llama")[0], device="cpu")
    cache = model.make_cache(1, 8)
    with pytest.raises(ShapeError, match=r"shape \(N, T\), got \(3,\)"):
        model(dl.tensor([1, 2, 3]))
    with pytest.raises(ArgumentError, match="65 tokens after 0 are more than there is room for: 64"):
        model(dl.ones(1, 65).long())
    with pytest.raises(ArgumentError, match="room for: 8"):
        model(dl.ones(1, 9).long(), cache)
    with pytest.raises(ShapeError, match="2 sequences for a cache of 1"):
        model(dl.ones(2, 3).long(), cache)
    with pytest.raises(ArgumentError, match="97"):
        model(dl.tensor([[97]]))
    with pytest.raises(ArgumentError, match="1 to 64 tokens, got 1 of 65"):
        model.make_cache(1, 65)
