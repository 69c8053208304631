"""Linear layers with weights of int8: products, networks, gradients, files and bad use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.linalg.int8_product import int8_product
from dl4all.quantization import Int8WeightOnlyConfig, QuantizedLinear, quantize_
from dl4all.scheduler import fallback
from tests.support.subcases import each

SHAPES = [  # rows, columns, terms: for each kernel of few rows and of many, with odd sizes
    ((1,), 512, 256), ((3,), 7, 13), ((4,), 33, 1021), ((40,), 33, 67), ((2, 3, 5), 64, 64),
    ((130,), 128, 96), ((0,), 3, 4), ((2,), 3, 0), ((), 5, 8), ((5,), 1, 1),
]  # fmt: skip


@each("case", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_products_are_those_of_float64(case: Any, dtype: str, device: str) -> None:
    lead, n, k = case
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((*lead, k)).astype(dtype)
    w = rng.integers(-128, 128, (n, k)).astype(np.int8)
    with fallback.policy("error"):
        result = int8_product(dl.tensor(x, device=device), dl.tensor(w, device=device))
    expected = x.astype(np.float64) @ w.T.astype(np.float64)
    assert (result.dtype, result.shape) == (dl.float32, expected.shape)
    if expected.size:
        most = max(np.abs(expected).max(), 1.0)
        assert np.abs(result.numpy() - expected).max() <= 1e-5 * most


def test_operands_with_gaps_and_offsets(device: str) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((9, 24)).astype("f4"), rng.integers(-128, 128, (24, 11)).astype("i1")
    mine = int8_product(dl.tensor(x, device=device)[1::2, 3:21], dl.tensor(w, device=device).T[2:, 3:21])
    expected = x[1::2, 3:21].astype(np.float64) @ w.T[2:, 3:21].T.astype(np.float64)
    np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-5, atol=1e-3)


def test_layers_are_within_half_a_step(device: str) -> None:
    dl.manual_seed(0)
    layer: Any = dl.nn.Linear(32, 12).to(device)
    small = QuantizedLinear(layer)
    weight = layer.weight.detach().cpu().numpy()
    steps = np.abs(weight).max(1) / 127
    error = np.abs(small.dequantized().cpu().numpy() - weight)
    assert (error <= 0.5001 * steps[:, None]).all()
    x = dl.randn(5, 32, device=device)
    expected = x.double().cpu().numpy() @ small.dequantized().double().cpu().numpy().T
    expected = expected + layer.bias.detach().double().cpu().numpy()
    np.testing.assert_allclose(small(x).detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
    for half in ("float16", "bfloat16"):
        assert small(x.to(half)).dtype == np.dtype(half)


def test_bytes_are_a_quarter() -> None:
    net = dl.nn.Sequential(dl.nn.Linear(256, 512), dl.nn.Linear(512, 256))
    before = sum(t.numel() * t.dtype.itemsize for t in net.state_dict().values())
    quantize_(net, Int8WeightOnlyConfig())
    after = sum(t.numel() * t.dtype.itemsize for t in net.state_dict().values())
    assert after <= 0.26 * before


def test_a_layer_of_several_names_is_one_afterwards() -> None:
    layer = dl.nn.Linear(3, 3)
    net = dl.nn.Sequential(layer, dl.nn.Sequential(dl.nn.ReLU(), layer), layer)
    quantize_(net.eval(), Int8WeightOnlyConfig())
    assert isinstance(net[0], QuantizedLinear)
    assert net[0] is net[1][1] is net[2]
    assert not net[0].training


def test_networks_and_filters(device: str) -> None:
    dl.manual_seed(1)
    net = dl.nn.Sequential(
        dl.nn.Linear(16, 32), dl.nn.ReLU(), dl.nn.Sequential(dl.nn.Linear(32, 32)), dl.nn.Linear(32, 4)
    ).to(device)
    x = dl.randn(8, 16, device=device)
    expected = net(x).detach().cpu().numpy()
    asked: list[str] = []

    def chosen(module: Any, name: str) -> bool:
        asked.append(name)
        return name != "3"

    quantize_(net, Int8WeightOnlyConfig(), chosen)
    assert asked == ["0", "2.0", "3"]
    assert [type(net[0]), type(net[2][0]), type(net[3])] == [QuantizedLinear, QuantizedLinear, dl.nn.Linear]
    assert np.abs(net(x).detach().cpu().numpy() - expected).max() < 0.02 * np.abs(expected).max()
    compiled: Any = dl.compile(net)
    with dl.no_grad():
        for _ in range(3):
            np.testing.assert_allclose(compiled(x).cpu().numpy(), net(x).cpu().numpy(), rtol=1e-6, atol=1e-6)


def test_attention_keeps_its_output_projection(device: str) -> None:
    dl.manual_seed(2)
    layer = dl.nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True).to(device).eval()
    x = dl.randn(2, 5, 16, device=device)
    expected = layer(x).detach().cpu().numpy()
    quantize_(layer, Int8WeightOnlyConfig())
    assert isinstance(layer.linear1, QuantizedLinear)
    assert not isinstance(layer.self_attn.out_proj, QuantizedLinear)
    assert np.abs(layer(x).detach().cpu().numpy() - expected).max() < 0.05


def test_gradients_flow_through(device: str) -> None:
    dl.manual_seed(3)
    layer: Any = dl.nn.Linear(6, 4).to(device)
    small = QuantizedLinear(layer)
    x = dl.randn(3, 6, device=device, requires_grad=True)
    (small(x) ** 2).sum().backward()
    other = x.detach().requires_grad_()
    (dl.nn.functional.linear(other, small.dequantized(), layer.bias.detach()) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), other.grad.cpu().numpy(), rtol=1e-4, atol=1e-5)
    assert small.bias is not None
    assert small.bias.grad is not None


def test_files(tmp_path: Path, device: str) -> None:
    def network(seed: int) -> Any:
        dl.manual_seed(seed)
        net = dl.nn.Sequential(dl.nn.Linear(8, 8), dl.nn.Linear(8, 2)).to(device)
        quantize_(net, Int8WeightOnlyConfig())
        return net

    one, other, x = network(0), network(1), dl.randn(3, 8, device=device)
    dl.io.save_weights(tmp_path / "a.safetensors", one.state_dict())
    other.load_state_dict(dl.io.load_weights(tmp_path / "a.safetensors"))
    np.testing.assert_array_equal(other(x).detach().cpu().numpy(), one(x).detach().cpu().numpy())
    assert other[0].int8_weight.dtype == np.int8


def test_rows_of_zeros_and_bad_use() -> None:
    layer: Any = dl.nn.Linear(3, 2, device="cpu")
    with dl.no_grad():
        layer.weight[0] = 0.0
    assert QuantizedLinear(layer)(dl.ones(1, 3, device="cpu"))[0, 0].item() == layer.bias[0].item()
    with pytest.raises(DTypeError, match="int8 steps of a scale"):
        _ = QuantizedLinear(layer).weight
    net = dl.nn.Sequential(dl.nn.Linear(3, 3), layer)
    with dl.no_grad():
        layer.weight[1, 1] = float("nan")
    with pytest.raises(ArgumentError, match="a weight is infinite or nan"):
        quantize_(net, Int8WeightOnlyConfig())
    assert isinstance(net[0], dl.nn.Linear)  # nothing was replaced
    with pytest.raises(ArgumentError, match="has no place for another layer"):
        quantize_(dl.nn.Linear(2, 2), Int8WeightOnlyConfig())
    with pytest.raises(ArgumentError, match=r"expected Int8WeightOnlyConfig\(\)"):
        quantize_(net, "int8")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="a weight of int8"):
        int8_product(dl.ones(2, 3), dl.ones(2, 3))
    with pytest.raises(ShapeError, match=r"an input of shape \(\.\.\., k\)"):
        int8_product(dl.ones(2, 3), dl.ones(2, 4, dtype="int8"))
