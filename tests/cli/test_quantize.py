"""``dl4all quantize``: what it prints, and the file that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli import cli
from dl4all.errors import ConfigError

CONFIG = """
epochs = 6
device = "cpu"
data = {name = "digits", batch_size = 64}
model = {name = "mlp", hidden = [32]}
optimizer = {name = "AdamW", lr = 0.01}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantize")
    (path / "run.toml").write_text(CONFIG)
    run = dl.training.prepare(dl.training.read_config(path / "run.toml"), progress=False)
    run.fit()
    dl.io.save_weights(path / "w.safetensors", run.trainer.model.state_dict())
    return path


def invoke(folder: Path, *arguments: str) -> str:
    given = ["quantize", str(folder / "run.toml"), str(folder / "w.safetensors"), *arguments]
    result = CliRunner().invoke(cli, given)
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.mark.parametrize(
    ("kind", "weight", "share", "lost"),
    [("static", "Int8Static", 0.35, 0.01), ("int4", "Int4", 0.2, 0.02), ("int8", "Int8", 0.3, 0.01)],
)
def test_numbers(folder: Path, kind: str, weight: str, share: float, lost: float) -> None:
    found = json.loads(invoke(folder, "--to", kind, "--json", "--save", str(folder / "small.safetensors")))
    assert [layer["kind"] for layer in found["layers"]] == [f"{weight}Weight"] * 2
    before, after = found["float32"], found[kind]
    assert before["accuracy"] > 0.85
    assert after["accuracy"] >= before["accuracy"] - lost
    assert after["loss"] != before["loss"]
    assert after["bytes"] < share * before["bytes"]
    weights = dl.io.load_weights(folder / "small.safetensors")
    assert sum(values.nbytes for values in weights.values()) == after["bytes"]


def test_tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = invoke(folder, "--to", "dynamic")
    assert "Int8DynamicWeight" in text
    assert all(label in text for label in ("accuracy", "kB in all", "ms for", "dB"))
    assert max(map(len, text.splitlines())) <= 80


def test_bad_use(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(dl.errors.ArgumentError, match="groups of 48 do not fit"):
        invoke(folder, "--to", "int4", "--group-size", "48")
    with pytest.raises(dl.errors.FileFormatError, match="cannot be written"):
        invoke(folder, "--to", "int8", "--save", str(tmp_path / "none" / "w.safetensors"))
    (tmp_path / "run.toml").write_text(CONFIG.replace("batch_size = 64", "batch_size = 64, test = 0.0"))
    (tmp_path / "w.safetensors").write_bytes((folder / "w.safetensors").read_bytes())
    with pytest.raises(ConfigError, match="there is no test data to measure with"):
        invoke(tmp_path)


def test_its_help() -> None:
    result: Any = CliRunner().invoke(cli, ["quantize", "--help"])
    assert "Example: dl4all quantize examples/configs/digits_mlp.toml" in result.output
