"""Weights in ggml's blocks: numbers, products, embeddings, gradients, files and bad use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.nn import functional as F
from dl4all.ops.linalg import packed_product
from dl4all.ops.linalg.packed_formats import FORMATS, PackedFormat
from dl4all.quantization import PackedWeight
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler import fallback

ROWS = ((1,), (2,), (3,), (4,), (7,), (16,), (17,), (2, 3), ())
names = pytest.mark.parametrize("name", list(FORMATS))


def blocks_of(format: PackedFormat, n: int, k: int) -> Any:
    """Rows of a file with random bytes, whose scales are finite."""
    rng = np.random.default_rng(n + k)
    count = n * k // format.weights
    raw = rng.integers(0, 256, (count, format.size + 2 * format.scales), np.uint8)
    at = 0 if format.scales_first else format.size
    scales = rng.standard_normal((count, format.scales)).astype("<f2")
    raw[:, at : at + 2 * format.scales] = scales.view(np.uint8).reshape(count, -1)
    return raw.reshape(n, -1)


def weight_of(name: str, n: int, k: int, device: str) -> tuple[PackedWeight, Any]:
    """A weight, and its numbers by the package gguf."""
    format = FORMATS[name]
    raw = blocks_of(format, n, k)
    data, scales = (dl.tensor(np.ascontiguousarray(part), device=device) for part in format.split(raw))
    expected = gguf.dequantize(raw, GGMLQuantizationType(format.number)).reshape(n, k)
    return PackedWeight(data, scales, name), expected


def check(name: str, device: str) -> None:
    rng = np.random.default_rng(0)
    for n, k in ((33, 512), (1, 256), (130, 768)):
        weight, expected = weight_of(name, n, k, device)
        with fallback.policy("error"):
            np.testing.assert_array_equal(weight.dequantized().numpy(), expected)
            for lead in ROWS:
                x = rng.standard_normal((*lead, k)).astype(np.float32)
                result = F.linear(dl.tensor(x, device=device), weight)  # type: ignore[arg-type]
                exact = x.astype(np.float64) @ expected.T.astype(np.float64)
                assert result.shape == exact.shape
                assert np.abs(result.numpy() - exact).max() <= 1e-5 * np.abs(exact).max()


def test_formats_are_those_of_the_package() -> None:
    for format in FORMATS.values():
        kind = GGMLQuantizationType(format.number)
        assert kind.name == format.name
        assert GGML_QUANT_SIZES[kind] == (format.weights, format.size + 2 * format.scales)
        assert format.size % 4 == 0
        assert format.weights % 32 == 0


@names
def test_numbers_and_products(name: str, device: str) -> None:
    check(name, device)


def test_numbers_and_products_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "enabled", False)
    dl.device("cpu").plans.clear()
    for name in FORMATS:
        check(name, "cpu")
    dl.device("cpu").plans.clear()


@names
def test_embeddings_and_parts(name: str, device: str) -> None:
    weight, expected = weight_of(name, 41, 512, device)
    index = np.array([[3, 40, 0], [7, 7, 12]])
    with fallback.policy("error"):
        rows: Any = F.embedding(dl.tensor(index, device=device), weight)  # type: ignore[arg-type]
        np.testing.assert_array_equal(rows.numpy(), expected[index])
        part = weight[3:20]
        assert (type(part), part.shape) == (PackedWeight, (17, 512))
        np.testing.assert_array_equal(part.dequantized().numpy(), expected[3:20])
        x = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
        result = F.linear(dl.tensor(x, device=device), part)  # type: ignore[arg-type]
        exact = x.astype(np.float64) @ expected[3:20].T.astype(np.float64)
        assert np.abs(result.numpy() - exact).max() <= 1e-5 * np.abs(exact).max()


@names
def test_gradients_and_compiled_calls(name: str, device: str) -> None:
    weight, expected = weight_of(name, 24, 256, device)
    layer: Any = dl.nn.Linear(256, 24, bias=False).to(device)
    layer.weight = weight
    factors = np.random.default_rng(9).standard_normal((2, 24)).astype(np.float32)
    given_factors = dl.tensor(factors, device=device)

    def call(x: Any) -> Any:
        return (layer(x) * given_factors).sum()

    step: Any = dl.compile(call)
    exact = factors.astype(np.float64) @ expected.astype(np.float64)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((2, 256)).astype(np.float32)
        for function in (call, step):
            given = dl.tensor(x, device=device, requires_grad=True)
            result = function(given)
            result.backward()
            sums = (x.astype(np.float64) @ expected.T.astype(np.float64)) * factors
            assert abs(result.item() - sums.sum()) <= 1e-5 * np.abs(sums).sum()
            assert np.abs(given.grad.numpy() - exact).max() <= 1e-5 * np.abs(exact).max()


def test_large_matrices_are_unpacked_in_parts(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products and their gradients are those of the whole matrix, of which compiled calls keep nothing."""
    monkeypatch.setattr(packed_product, "MOST_UNPACKED", 256 * 32)
    for name, rows in (("Q4_K", 650), ("Q8_0", 32), ("Q4_0", 33)):
        weight, expected = weight_of(name, rows, 256, device)
        x = np.random.default_rng(2).standard_normal((3, 7, 256)).astype(np.float32)

        def call(x: Any, weight: Any = weight) -> Any:
            return F.linear(x, weight).square().sum()

        step: Any = dl.compile(call)
        before = dl.memory.stats(device).allocated
        for function in (call, step, step, step):
            given = dl.tensor(x, device=device, requires_grad=True)
            result = function(given)
            result.backward()
            products = x.astype(np.float64) @ expected.T.astype(np.float64)
            exact = 2 * products @ expected.astype(np.float64)
            assert abs(result.item() - (products**2).sum()) <= 1e-4 * (products**2).sum()
            assert np.abs(given.grad.numpy() - exact).max() <= 1e-4 * np.abs(exact).max()
        arenas = dl.memory.stats(device).allocated - before
        assert name != "Q4_K" or arenas < 0.7 * expected.nbytes


def test_graphs_keep_no_floats_of_weights_in_few_bits() -> None:
    weight, _ = weight_of("Q4_0", 512, 512, "vulkan:0")
    step: Any = dl.compile(lambda x: F.linear(F.linear(x, weight), weight))  # type: ignore[arg-type]
    with dl.no_grad():
        for seed in range(3):
            dl.manual_seed(seed)
            step(dl.rand(64, 512, device="vulkan:0")).numpy()
    [[found]] = step.specializations.values()
    assert not found.graph.preamble
    assert "packed_unpack" in str(found.graph)


def test_the_nearest_weights_are_those_of_the_package() -> None:
    floats = np.random.default_rng(4).standard_normal((40, 96)).astype(np.float32)
    floats[3] = 0
    floats[4, :32] = np.arange(-16, 16) / 2  # halves
    for name, most in (("Q8_0", 0.0), ("Q4_0", 0.01)):  # of Q4_0 a few lie between two numbers
        weight = PackedWeight.nearest(dl.tensor(floats), name)
        assert (type(weight), weight.format, weight.shape) == (PackedWeight, name, (40, 96))
        data, scales = FORMATS[name].split(gguf.quantize(floats, GGMLQuantizationType[name]))
        np.testing.assert_array_equal(weight.scale.numpy(), scales)
        assert (weight.qdata.numpy() != data).mean() <= most
        assert np.abs(weight.dequantized().numpy() - floats).max() < 0.2 * np.abs(floats).max()
    for wrong, name, match in (
        (floats[:, :33], "Q8_0", "groups of 32 do not fit 33"),
        (floats * 1e30, "Q8_0", "beyond float16"),
        (floats * np.nan, "Q4_0", "infinite or nan"),
    ):
        with pytest.raises(ArgumentError, match=match):
            PackedWeight.nearest(dl.tensor(wrong), name)
    with pytest.raises(DTypeError, match="expected a format of Q4_0, Q8_0, got 'Q6_K'"):
        PackedWeight.nearest(dl.tensor(floats), "Q6_K")


@names
def test_files_and_copies(name: str, tmp_path: Path) -> None:
    weight, expected = weight_of(name, 5, 256, "cpu")
    layer: Any = dl.nn.Linear(256, 5)
    layer.weight = weight
    dl.save(layer.state_dict(), tmp_path / "layer.safetensors")
    other: Any = dl.nn.Linear(256, 5)
    other.weight = PackedWeight(weight.qdata.clone() * 0, weight.scale.clone() * 0, name)
    other.load_state_dict(dl.load(tmp_path / "layer.safetensors"))
    np.testing.assert_array_equal(other.weight.dequantized().numpy(), expected)
    assert f"format={name}" in repr(layer)


def test_bad_use() -> None:
    weight, _ = weight_of("Q4_K", 4, 256, "cpu")
    with pytest.raises(DTypeError, match="expected a format of Q4_0, Q8_0, Q4_K, Q6_K, got 'Q3_K'"):
        PackedWeight(weight.qdata, weight.scale, "Q3_K")
    for scale in (weight.scale[:3], weight.scale[:, :1], weight.scale.reshape(-1)):
        with pytest.raises(ShapeError, match=r"expected weights of shape \(n, 140 for each 256 of k\)"):
            PackedWeight(weight.qdata, scale, "Q4_K")
    with pytest.raises(ShapeError, match=r"an input of shape \(\.\.\., 256\), got \(1, 255\)"):
        F.linear(dl.ones(1, 255, device="cpu"), weight)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="weights of uint8 and scales of float16"):
        PackedWeight(weight.qdata, weight.scale.float(), "Q4_K")
    table: Any = dl.quantization.Int8Weight.of(dl.randn(3, 4, device="cpu"))
    with pytest.raises(DTypeError, match=r"\[embedding\] a Int8Weight is no table of embeddings"):
        F.embedding(dl.tensor([0], device="cpu"), table)
