"""``dl4all run``, ``inspect`` and ``convert``: what they print, write and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli import cli
from dl4all.errors import ArgumentError, FileFormatError
from tests.support.exported_networks import exported
from tests.support.onnx_models import error, model, node, reference, value


def invoke(*arguments: Any) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.fixture
def resnet(tmp_path: Path) -> Path:
    path = tmp_path / "resnet.onnx"
    path.write_bytes(exported("resnet")[0])
    return path


def test_run_computes_times_and_saves(tmp_path: Path, resnet: Path, device: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    printed = invoke(
        "run", resnet, "--input", tmp_path / "x.npy", "--device", device, "--output", tmp_path / "y.npz",
        "--repeat", 3, "--profile",
    )  # fmt: skip
    wanted = reference(resnet.read_bytes(), {"x": x})[0]
    with np.load(tmp_path / "y.npz") as saved:
        assert error(saved[saved.files[0]], wanted) < 5e-6
    assert "(2, 5)" in printed
    assert f"{wanted.max():.4g}"[:4] in printed
    assert re.search(rf"ms a call on {device} \(median of 3; least", printed)
    assert "conv2d" in printed


def test_run_takes_images_arrays_by_name_and_numbers_of_its_own(tmp_path: Path, resnet: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    PIL.Image.fromarray(image).save(tmp_path / "x.png")
    invoke(
        "run", resnet, "--input", f"x={tmp_path / 'x.png'}", "--device", "cpu", "--output", tmp_path / "y.npy"
    )
    scaled = (image / 255 - np.array(dl.data.IMAGENET_MEAN)) / np.array(dl.data.IMAGENET_STD)
    x = scaled.transpose(2, 0, 1)[None].astype(np.float32)
    assert error(np.load(tmp_path / "y.npy"), reference(resnet.read_bytes(), {"x": x})[0]) < 1e-5
    bert = tmp_path / "bert.onnx"
    bert.write_bytes(exported("bert")[0])
    given = {"ids": np.array([[3, 1, 4]]), "mask": np.array([[1, 1, 0]])}
    np.savez(tmp_path / "given.npz", **given)
    invoke("run", bert, "--input", tmp_path / "given.npz", "--device", "cpu", "--output", tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as saved:
        assert error(saved[saved.files[0]], reference(bert.read_bytes(), given)[0]) < 5e-6
    assert "(3, 6, 16)" in invoke("run", bert, "--size", "batch=3", "--size", "length=6", "--device", "cpu")


def test_run_refuses(tmp_path: Path, resnet: Path) -> None:
    image = tmp_path / "a.npy"
    np.save(image, np.zeros((1, 3, 32, 32), np.float32))
    for arguments, kind, expected in (
        (["--input", "none.npy"], FileFormatError, "none.npy: cannot be read"),
        (["--input", "none.png"], FileFormatError, "none.png"),
        (["--size", "batch"], ArgumentError, "expected NAME=NUMBER"),
        (["--input", str(image), "--input", "b.npy"], ArgumentError, "the model has 1 inputs: x"),
        (["--output", str(tmp_path / "none" / "y.npz")], FileFormatError, "cannot be written"),
    ):
        with pytest.raises(kind, match=expected):
            invoke("run", resnet, "--device", "cpu", *arguments)


def test_inspect_counts_without_computing(resnet: Path) -> None:
    report = json.loads(invoke("inspect", resnet, "--size", "batch=2", "--json"))
    module = dl.onnx.load(resnet, device="cpu")
    with dl.no_grad(), dl.profile() as profile:
        module(np.zeros((2, 3, 32, 32), np.float32))
    assert report["flops"] == sum(event.flops for event in profile.events if event.kind == "op") > 0
    assert report["inputs"] == [
        {"name": "x", "kind": "tensor", "dtype": "float32", "shape": ["batch", 3, 32, 32]}
    ]
    assert report["parameters"] == sum(p.numel() for p in module.parameters())
    assert report["operators"]["Conv"] == 9
    assert report["unsupported"] == {}
    assert report["peak_bytes"] > 0
    printed = invoke("inspect", resnet)
    assert "batch, 3, 32, 32" in printed
    assert "all of them are supported" in printed


def test_inspect_names_what_is_not_supported(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    nodes = [node("Frobnicate", "x", "a"), node("Relu", "a", "y")]
    path.write_bytes(model(nodes, [value("x", shape=["n"])], [value("y")]).SerializeToString())
    assert "not supported: Frobnicate 1" in invoke("inspect", path)
    data = model([node("NonZero", "x", "y")], [value("x", shape=["n"])], [value("y", np.int64)])
    path.write_bytes(data.SerializeToString())
    assert "is not known without computing" in invoke("inspect", path)


def test_convert(tmp_path: Path, resnet: Path) -> None:
    weights = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3)}
    dl.save({name: dl.tensor(array) for name, array in weights.items()}, tmp_path / "w.pth")
    printed = invoke("convert", tmp_path / "w.pth", tmp_path / "w.safetensors")
    assert "2 tensors" in printed
    for name, array in dl.io.load_weights(tmp_path / "w.safetensors").items():
        np.testing.assert_array_equal(array, weights[name])
    invoke("convert", resnet, tmp_path / "r.safetensors")
    assert "fc.weight" in dl.io.load_weights(tmp_path / "r.safetensors")
    with pytest.raises(FileFormatError, match=r"written as \.safetensors"):
        invoke("convert", resnet, tmp_path / "r.pth")
