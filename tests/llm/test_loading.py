"""Models from folders and repositories, and files that lie."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ConfigError, Dl4allError, FileFormatError, WeightsError
from tests.docs.test_pages import blocks, run
from tests.llm.conftest import IDX, Folders
from tests.llm.speaker import write_speaker


@pytest.fixture
def folder(folders: Folders, tmp_path: Path) -> Path:
    """A copy of a model's folder, to be damaged."""
    return Path(shutil.copytree(folders("llama")[0], tmp_path / "model"))


def scores(folder: Path | str) -> Any:
    model, _ = dl.llm.load(folder, device="cpu")
    with dl.no_grad():
        return model(dl.tensor(IDX)).numpy()


def change(folder: Path, **values: Any) -> None:
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**document, **values}))


def test_weights_in_several_files(folders: Folders, folder: Path) -> None:
    whole = dl.io.load_weights(folder / "model.safetensors")
    names = sorted(whole)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in parts.items():
        dl.io.save_weights(folder / file, {name: whole[name] for name in own})
    (folder / "model.safetensors").unlink()
    np.testing.assert_array_equal(scores(folder), scores(folders("llama")[0]))
    index = {"weight_map": {name: file for file, own in parts.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    dl.io.save_weights(folder / "unrelated.safetensors", {"other": np.zeros(3)})
    np.testing.assert_array_equal(scores(folder), scores(folders("llama")[0]))
    for bad in ('{"weight_map": 3}', "[]", '{"weight_map": {"a": "../../etc/passwd"}}'):
        (folder / "model.safetensors.index.json").write_text(bad)
        with pytest.raises(FileFormatError, match=r"index\.json (is damaged|names files outside)"):
            scores(folder)


def test_weights_that_do_not_fit(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = dl.io.load_weights(file)
    name = "model.layers.1.self_attn.k_proj.weight"
    for changed, match in (
        ({**whole, name: whole[name].T}, r"k_proj.weight of model.safetensors is \(32, 16\), the model's"),
        (
            {**whole, "model.extra.weight": np.zeros(3, np.float32)},
            "model.extra.weight of model.safetensors, which the model has not",
        ),
        (
            {n: a for n, a in whole.items() if n != name},
            r"no file has layers.1.self_attn.k_proj.weight \(1 in all",
        ),
    ):
        dl.io.save_weights(file, changed)
        with pytest.raises(WeightsError, match=match):
            scores(folder)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(FileFormatError, match="truncated or damaged"):
        scores(folder)
    file.unlink()
    with pytest.raises(FileFormatError, match="no safetensors files"):
        scores(folder)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not known; known are llama"),
        ({"model_type": None}, "model_type None"),
        ({"hidden_act": "swish9"}, "activation 'swish9' is not known"),
        ({"rope_parameters": {"rope_type": "magic", "rope_theta": 1e4}}, "rope_type 'magic' is not known"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "of type 'llama3' needs"),
        ({"hidden_size": -32}, "hidden_size must be an integer from 1 to 16777216, got -32"),
        ({"vocab_size": 2**62}, "vocab_size must be an integer from 1 to"),
        ({"num_hidden_layers": "three"}, "num_hidden_layers must be an integer from 1 to 4096, got 'three'"),
        ({"num_key_value_heads": 3}, "4 heads of 8 features cannot share 3"),
        ({"head_dim": 7}, "4 heads of 7 features"),
        ({"dtype": "int32"}, "weights are floats, and dtype is int32"),
        ({"layer_types": ["full_attention"]}, "1 types for 3 layers"),
    ],
)
def test_configurations_that_cannot_be(folder: Path, values: dict[str, Any], match: str) -> None:
    change(folder, **values)
    with pytest.raises(ConfigError, match=match):
        scores(folder)


def test_any_change_of_a_configuration_is_loaded_or_refused(folder: Path) -> None:
    """Whatever a number or a name becomes, there are scores or an error of the library."""
    document = json.loads((folder / "config.json").read_text())
    loaded = 0
    for name in document:
        for value in (None, 0, -1, 2**31, 1.5, "x", [], {}, True, [None], {"rope_theta": "x"}):
            (folder / "config.json").write_text(json.dumps({**document, name: value}))
            try:
                found = scores(folder)
            except Dl4allError:
                continue
            loaded += 1
            assert found.shape == (2, 21, 97)
    assert loaded > 50


def test_matrices_become_few_bits_as_they_are_read(folder: Path) -> None:
    """As in a GGUF file of that kind; what does not fit groups of 32 stays in floats."""
    plain, tokenizer = dl.llm.load(folder, device="cpu")
    for kind in ("q8_0", "q4_0"):
        dl.llm.save_gguf(plain, tokenizer, folder / "model.gguf", kind)
        expected, _ = dl.llm.load(folder / "model.gguf", device="cpu")
        model, _ = dl.llm.load(folder, device="cpu", dtype=kind)
        formats = {
            name: module.format
            for name, module in model.named_modules()
            if isinstance(module, dl.quantization.PackedWeight)
        }
        assert formats.pop("lm_head.weight") == "Q8_0", "the last layer keeps more"
        assert set(formats.values()) == {kind.upper()}
        assert len(formats) == 1 + 3 * 6
        assert model.layers[0].mlp.down_proj.weight.dtype == np.float32, "its rows are of 56"
        with dl.no_grad():
            found, exact = (one(dl.tensor(IDX)).numpy() for one in (model, expected))
        most = 1e-3 if kind == "q8_0" else 0.1  # a few of Q4_0 lie between two numbers
        assert np.abs(found - exact).max() < most * np.abs(exact).max()
        again, _ = dl.llm.load(folder / "model.gguf", device="cpu", dtype="q4_0")
        assert again.layers[0].mlp.up_proj.weight.format == kind.upper(), "few bits stay as they are"
    for dtype, match in (("q4_k", "'q4_k' not understood; use one of .*; or q4_0 or q8_0"), ("int8", "int8")):
        with pytest.raises(Dl4allError, match=match):
            dl.llm.load(folder, device="cpu", dtype=dtype)


def test_folders_that_are_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no folder"):
        dl.llm.load(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match="there is no folder"):
        dl.llm.load(folder / "config.json")
    for text in ("", "[]", "{", "[" * 100_000):
        (folder / "config.json").write_text(text)
        with pytest.raises(FileFormatError, match=r"config\.json"):
            dl.llm.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileFormatError, match=r"config\.json cannot be read"):
        dl.llm.load(folder)


def test_tokenizers_that_are_damaged(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(FileFormatError, match=r"tokenizer\.json is damaged"):
        dl.llm.load(folder)


def test_repositories_are_downloaded(folder: Path, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def download(repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repo, revision, "*.safetensors" in allow_patterns))
        if repo == "some/nothing":
            raise OSError("404")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    np.testing.assert_array_equal(scores("some/model"), scores(folders("llama")[0]))
    assert asked == [("some/model", None, True)]
    with pytest.raises(ArgumentError, match="no such repository: 404"):
        dl.llm.load("some/nothing")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of the guide, with a tiny model in the place of the repository."""
    speaker = write_speaker(tmp_path)
    monkeypatch.chdir(tmp_path)  # where the page writes its adapter
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repo, **_: str(speaker))
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    page = Path(__file__).parents[2] / "docs" / "language-models.md"
    names: dict[str, Any] = {}
    for line, block in blocks(page.read_text("utf-8")):
        run(page, line, block.replace("max_tokens=200", "max_tokens=20"), names)
    assert names["piece"].token
