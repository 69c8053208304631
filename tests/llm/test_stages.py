"""Layers on several devices: scores are one device's, and each device's memory is held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.llm import layer_devices
from dl4all.llm.layer_devices import WeightBytes
from dl4all.multi_device.placement.stage_costs import RESERVE
from tests.conftest import need
from tests.llm.conftest import IDX, Folders
from tests.llm.test_decoder import in_pieces

pytestmark = pytest.mark.vulkan
MB = 1_000_000


@pytest.fixture
def limited() -> Iterator[Any]:
    """Lets a device have so many bytes more than tensors take."""
    need("vulkan:0")

    def limit(name: str, most: int) -> None:
        dl.memory.trim(name)
        dl.memory.limit(name, dl.memory.stats(name).allocated + most)

    yield limit
    for name in ("cpu", "vulkan:0"):
        dl.memory.limit(name, None)


def larger_model(folder: Path) -> Path:
    """A model whose layers are larger than what memory is taken by."""
    document = {
        "model_type": "llama", "vocab_size": 97, "hidden_size": 512, "intermediate_size": 1536,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "dtype": "float32",
        "max_position_embeddings": 64,
    }  # fmt: skip
    model = dl.llm.Decoder(dl.llm.decoder_config(document))
    dl.save({f"model.{name}": value for name, value in model.state_dict().items()}, folder / "m.safetensors")
    (folder / "config.json").write_text(json.dumps(document))
    return folder


def bytes_of_layers(model: dl.llm.Decoder) -> list[int]:
    return [sum(tensor.nbytes for tensor in layer.state_dict().values()) for layer in model.layers]


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen2", "gpt2"])
def test_scores_and_tokens_are_one_device_s(name: str, folders: Folders, monkeypatch: Any) -> None:
    """Tied embeddings and others, whole and in pieces, plain and compiled."""
    need("vulkan:0")
    folder, expected = folders(name)
    one, _ = dl.llm.load(folder, device="cpu")
    cut = [dl.device("vulkan:0")] + [dl.device("cpu")] * (one.config.layers - 1)
    monkeypatch.setattr("dl4all.llm.model_files.layer_devices", lambda *_: cut)
    two, _ = dl.llm.load(folder, devices=["vulkan:0", "cpu"])
    assert [stage.device.name for stage in two.stages()] == ["vulkan:0", "cpu"]
    assert two.embed_tokens.weight.device.name == "vulkan:0"
    idx = dl.tensor(IDX, device="vulkan:0")
    with dl.no_grad():
        for found in (two(idx).numpy(), in_pieces(two, idx)):
            assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()
    tokens = [5, 6, 7, 8]
    assert dl.llm.generate(two, None, tokens, 30) == dl.llm.generate(one, None, tokens, 30)
    for stage in two.stages():  # each is compiled on its own
        assert [len(step.run.specializations) for step in stage.steps.values()] == [1]
    drafted = dl.llm.generate(two, None, tokens, 30, draft_model=one, num_draft_tokens=3)
    assert drafted == dl.llm.generate(one, None, tokens, 30)
    batcher = dl.llm.CompletionBatcher(two, None, slots=2)
    try:
        request = dl.llm.CompletionRequest(tokens, max_tokens=12)
        answered = [piece.token for piece in batcher.stream(request)]
        assert answered == dl.llm.generate(one, None, tokens, 12)
    finally:
        batcher.stop()


@pytest.mark.parametrize("dtype", ["float32", "q4_0"])
def test_layers_lie_where_memory_is_free(dtype: str, tmp_path: Path, limited: Any) -> None:
    folder = larger_model(tmp_path)
    whole, _ = dl.llm.load(folder, device="cpu", dtype=dtype)
    one, config = bytes_of_layers(whole)[0], whole.config
    first = sum(t.nbytes for t in whole.embed_tokens.state_dict().values())
    cache = config.positions * 2 * config.kv_heads * config.head_dim * 4
    working = layer_devices.working_bytes(config)
    limited("vulkan:0", int((first + 2.5 * (one + cache) + working) / (1 - RESERVE)))
    model, _ = dl.llm.load(folder, devices=["vulkan:0", "cpu"], dtype=dtype)
    assert [(stage.device.name, stage.numbers) for stage in model.stages()] == [
        ("vulkan:0", range(2)),
        ("cpu", range(2, 4)),
    ]
    dl.memory.reset_peak("vulkan:0")
    with dl.no_grad():
        found = in_pieces(model, dl.tensor(IDX[:1], device="vulkan:0"), config.positions)
        expected = in_pieces(whole, dl.tensor(IDX[:1]), config.positions)
    assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()
    stats: Any = dl.memory.stats("vulkan:0")
    assert stats.peak_reserved <= stats.limit


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
@pytest.mark.parametrize("dtype", [None, "float32", "q4_0"])
def test_bytes_are_known_before_a_file_is_read(kind: str, dtype: str | None, tmp_path: Path) -> None:
    """Those of a folder and of a GGUF file, layer by layer, are what the loaded model takes."""
    folder = larger_model(tmp_path)
    plain, _ = dl.llm.load(folder, device="cpu")
    dl.llm.save_gguf(plain, None, folder / "m.gguf", kind)
    for path in (folder, folder / "m.gguf"):
        known: list[WeightBytes] = []

        def noted(config: Any, weights: WeightBytes, *given: Any, known: list[WeightBytes] = known) -> Any:
            known.append(weights)
            return layer_devices.layer_devices(config, weights, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dl4all.llm.model_files.layer_devices", noted)
            model, _ = dl.llm.load(path, devices=["cpu"], dtype=dtype)
        [weights] = known
        assert weights.layers == bytes_of_layers(model)
        ends = [model.embed_tokens, nn.ModuleList([model.norm, model.lm_head])]
        assert [weights.first, weights.last] == [
            sum(tensor.nbytes for tensor in end.state_dict().values()) for end in ends
        ]


def test_models_that_do_not_fit(folders: Folders, limited: Any) -> None:
    folder, _ = folders("llama")
    limited("vulkan:0", 1 << 16)
    limited("cpu", 1 << 17)
    before = dl.memory.stats("vulkan:0").allocated
    with pytest.raises(
        OutOfMemoryError, match=r"tokens take \d+ MB; there is room for 0 MB on vulkan:0, 0 MB on cpu"
    ):
        dl.llm.load(folder, devices=["vulkan:0", "cpu"])
    assert dl.memory.stats("vulkan:0").allocated == before
    for devices, match in (
        ("cpu", "a list of names, got 'cpu'"),
        ([], "each of them once, got none"),
        (["cpu", "cpu"], "got cpu, cpu"),
    ):
        with pytest.raises(ArgumentError, match=match):
            dl.llm.load(folder, devices=devices)


def test_the_cut_follows_bytes(folders: Folders, limited: Any) -> None:
    """Layers of other sizes, a last layer that is large, and devices that have room for none."""
    config = dl.llm.load(folders("smollm3")[0], device="cpu")[0].config
    devices = [dl.device("vulkan:0"), dl.device("cpu")]
    free = 1000 * MB
    limited("vulkan:0", free)
    usable = int(dl.memory.available("vulkan:0") * (1 - RESERVE))
    usable -= layer_devices.working_bytes(config)

    def names(weights: WeightBytes) -> list[str]:
        return [device.name for device in layer_devices.layer_devices(config, weights, 4, devices)]

    large, half = usable // 2, usable // 4
    assert names(WeightBytes(0, [MB] * 5, MB)) == ["vulkan:0"] * 5
    assert names(WeightBytes(half, [half] * 5, 0)) == ["vulkan:0"] * 2 + ["cpu"] * 3
    assert names(WeightBytes(0, [large, half, large, MB, MB], 0)) == ["vulkan:0"] * 2 + ["cpu"] * 3
    assert names(WeightBytes(0, [MB] * 5, usable)) == ["vulkan:0"] * 4 + ["cpu"]
    assert names(WeightBytes(0, [usable + MB] * 2 + [MB] * 3, 0)) == ["cpu"] * 5
    assert names(WeightBytes(usable, [MB] * 5, 0)) == ["cpu"] * 5, "the embedding lies with the first layer"
    limited("cpu", free)  # of the same memory: both together have no more
    assert names(WeightBytes(half, [half] * 2 + [MB] * 3, 0)) == ["vulkan:0"] * 2 + ["vulkan:0"] * 3
    with pytest.raises(OutOfMemoryError):
        names(WeightBytes(half, [half] * 5, 0))
    sizes = {"embed_tokens.weight": 5, "layers.1.mlp.up_proj.weight": 7, "layers.1.x": 1, "norm.weight": 3}
    sizes["layers.5.x"] = 9  # of a file that lies: the model has five
    assert WeightBytes.of(config, sizes) == (5, [0, 8, 0, 0, 0], 3)
