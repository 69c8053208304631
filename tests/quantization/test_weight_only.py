"""Weights of int8 and of 4 bits: products, networks, attention, gradients, files and bad use."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.nn import functional as F
from dl4all.ops.linalg.int8_product import int8_product
from dl4all.ops.linalg.packed_product import int4_quantized, packed_product, unpacked_matrix
from dl4all.quantization import (
    Int4Weight,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8Weight,
    Int8WeightOnlyConfig,
    QuantizedWeight,
    quantize_,
)
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler import fallback
from tests.support.subcases import each

SHAPES = [  # rows, columns, terms: for each kernel of few rows and of many, with odd sizes
    ((1,), 512, 256), ((3,), 7, 13), ((4,), 33, 1021), ((40,), 33, 67), ((2, 3, 5), 64, 64),
    ((130,), 128, 96), ((0,), 3, 4), ((2,), 3, 0), ((), 5, 8), ((5,), 1, 1),
]  # fmt: skip
GROUPED = [  # rows, columns, terms, group size
    ((1,), 512, 256, 32), ((2,), 7, 32, 32), ((3,), 9, 96, 96), ((4,), 33, 128, 64), ((5,), 3, 64, 32),
    ((8,), 17, 1024, 256), ((2, 3, 5), 64, 64, 32), ((0,), 3, 32, 32), ((), 5, 160, 32), ((1,), 1, 32, 32),
]  # fmt: skip
CONFIGS = {
    "int8": Int8WeightOnlyConfig(),
    "int4": Int4WeightOnlyConfig(),
    "dynamic": Int8DynamicActivationInt8WeightConfig(),
}
ERRORS = {"int8": 0.02, "int4": 0.3, "dynamic": 0.05}  # of a network's results, relative to the largest
configs = pytest.mark.parametrize("kind", list(CONFIGS))


def unpacked(packed: Any, scales: Any) -> Any:
    """The matrix of 4-bit weights, number by number."""
    n, groups = scales.shape
    size = 2 * packed.shape[1] // groups
    out = np.empty((n, 2 * packed.shape[1]))
    for row, column in np.ndindex(out.shape):
        block, place = divmod(column, 32)
        byte = int(packed[row, block * 16 + place % 16])
        number = byte >> 4 if place >= 16 else byte & 15
        out[row, column] = (number - 8) * float(scales[row, column // size])
    return out


@each("case", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_products_of_int8_are_those_of_float64(case: Any, dtype: str, device: str) -> None:
    lead, n, k = case
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((*lead, k)).astype(dtype)
    w = rng.integers(-128, 128, (n, k)).astype(np.int8)
    with fallback.policy("error"):
        result = int8_product(dl.tensor(x, device=device), dl.tensor(w, device=device))
    agree(result, x, w)


@each("case", GROUPED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_products_of_4_bits_are_those_of_float64(case: Any, dtype: str, device: str) -> None:
    check_4_bits(case, dtype, device)


def test_products_of_4_bits_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "enabled", False)
    dl.device("cpu").plans.clear()
    for case in GROUPED:
        check_4_bits(case, "float32", "cpu")
    dl.device("cpu").plans.clear()


def check_4_bits(case: Any, dtype: str, device: str) -> None:
    lead, n, k, group_size = case
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((*lead, k)).astype(dtype)
    packed = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    scales = rng.standard_normal((n, k // group_size)).astype(np.float16)
    given: list[Any] = [dl.tensor(values, device=device) for values in (x, packed, scales)]
    with fallback.policy("error"):
        result: Any = packed_product(given[0], given[1], given[2])
        matrix: Any = unpacked_matrix(given[1], given[2])
    weight = unpacked(packed, scales)
    np.testing.assert_array_equal(matrix.numpy(), weight.astype(np.float32))
    agree(result, x, weight)


def agree(result: Any, x: Any, w: Any) -> None:
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
    packed = rng.integers(0, 256, (9, 70)).astype(np.uint8)
    scales = rng.standard_normal((7, 9)).astype(np.float16)
    x = rng.standard_normal((4, 101)).astype("f4")
    mine = packed_product(
        dl.tensor(x, device=device)[1:, 5:],
        dl.tensor(packed, device=device)[1:8, 3:51],
        dl.tensor(scales, device=device)[:, 5:8],
    )
    agree(mine, x[1:, 5:], unpacked(packed[1:8, 3:51], scales[:, 5:8]))


def test_weights_of_int8_are_within_half_a_step() -> None:
    dl.manual_seed(0)
    weight = dl.randn(12, 32, device="cpu")
    steps = np.abs(weight.numpy()).max(1) / 127
    error = np.abs(Int8Weight.of(weight).dequantized().numpy() - weight.numpy())
    assert (error <= 0.5001 * steps[:, None]).all()


@pytest.mark.parametrize("group_size", [32, 64, 96])
def test_weights_of_4_bits_are_within_a_step(group_size: int) -> None:
    weight = np.random.default_rng(group_size).standard_normal((5, 192)).astype(np.float32)
    held = unpacked(*int4_quantized(weight, group_size)).reshape(5, -1, group_size)
    groups = weight.reshape(held.shape)
    step = np.abs(groups).max(-1, keepdims=True) / 8
    assert (np.abs(held - groups) <= 1.001 * step).all()
    assert np.abs(held - groups).mean() < 0.3 * step.mean()
    largest = np.abs(groups).argmax(-1)[..., None]
    np.testing.assert_allclose(
        np.take_along_axis(held, largest, -1), np.take_along_axis(groups, largest, -1), rtol=1e-3
    )


@configs
def test_layers_compute_with_their_numbers(kind: str, device: str) -> None:
    dl.manual_seed(0)
    layer: Any = dl.nn.Linear(64, 12).to(device)
    quantize_(layer, CONFIGS[kind])
    x = dl.randn(5, 64, device=device)
    assert layer(x[:0]).shape == (0, 12)
    if kind == "dynamic":
        scale = x.abs().amax(-1, keepdim=True) / 127
        x = (x / scale).round() * scale
    expected = x.double().cpu().numpy() @ layer.weight.dequantized().double().cpu().numpy().T
    expected = expected + layer.bias.detach().double().cpu().numpy()
    np.testing.assert_allclose(layer(x).detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
    for half in ("float16", "bfloat16"):
        assert layer(x.to(half)).dtype == np.dtype(half)
    with dl.autocast(device.partition(":")[0], dtype="bfloat16"):
        assert layer(x).dtype == dl.bfloat16


@pytest.mark.parametrize(
    ("config", "share"),
    [(CONFIGS["int8"], 0.26), (CONFIGS["int4"], 0.15), (Int4WeightOnlyConfig(128), 0.135)],
)
def test_bytes(config: Any, share: float) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(256, 512), dl.nn.Linear(512, 256))
    before = sum(t.numel() * t.dtype.itemsize for t in net.state_dict().values())
    quantize_(net, config)
    after = sum(t.numel() * t.dtype.itemsize for t in net.state_dict().values())
    assert after <= share * before


def test_what_is_shared_stays_shared() -> None:
    layer, tied = dl.nn.Linear(32, 32), dl.nn.Linear(32, 32)
    tied.weight = layer.weight
    net = dl.nn.Sequential(layer, dl.nn.Sequential(dl.nn.ReLU(), layer), tied)
    quantize_(net.eval(), Int8WeightOnlyConfig())
    assert isinstance(net[0].weight, Int8Weight)
    assert net[0] is net[1][1]
    assert net[2].weight is net[0].weight
    assert not net[0].weight.training


@configs
def test_networks_and_filters(kind: str, device: str) -> None:
    dl.manual_seed(1)
    net = dl.nn.Sequential(
        dl.nn.Linear(32, 64), dl.nn.ReLU(), dl.nn.Sequential(dl.nn.Linear(64, 64)), dl.nn.Linear(64, 4)
    ).to(device)
    x = dl.randn(8, 32, device=device)
    expected = net(x).detach().cpu().numpy()
    asked: list[str] = []

    def chosen(module: Any, name: str) -> bool:
        asked.append(name)
        return name != "3"

    quantize_(net, CONFIGS[kind], chosen)
    assert asked == ["0", "2.0", "3"]
    assert [isinstance(net[i].weight, QuantizedWeight) for i in (0, 3)] == [True, False]
    assert isinstance(net[2][0].weight, QuantizedWeight)
    assert np.abs(net(x).detach().cpu().numpy() - expected).max() < ERRORS[kind] * np.abs(expected).max()
    compiled: Any = dl.compile(net)
    with dl.no_grad():
        for _ in range(3):
            np.testing.assert_allclose(compiled(x).cpu().numpy(), net(x).cpu().numpy(), rtol=1e-6, atol=1e-6)


@configs
@pytest.mark.parametrize("same", [True, False])
def test_attention(kind: str, same: bool, device: str) -> None:
    dl.manual_seed(2)
    layer = dl.nn.MultiheadAttention(32, 4, kdim=None if same else 64, batch_first=True).to(device).eval()
    x, keys = dl.randn(2, 5, 32, device=device), dl.randn(2, 7, 32 if same else 64, device=device)
    calls = [(x, keys, dl.randn(2, 7, 32, device=device)), *([(x, x, x)] if same else [])]
    float_layer = copy.deepcopy(layer)
    quantize_(layer, CONFIGS[kind])
    names = ("in_proj_weight",) if same else ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    for place, name in [(layer.out_proj, "weight"), *((layer, name) for name in names)]:
        weight = getattr(place, name)
        assert isinstance(weight, QuantizedWeight)
        other = float_layer.out_proj if place is layer.out_proj else float_layer
        setattr(other, name, dl.nn.Parameter(weight.dequantized()))
    for operands in calls:
        for mine, expected in zip(layer(*operands), float_layer(*operands), strict=True):
            error = np.abs(mine.detach().cpu().numpy() - expected.detach().cpu().numpy()).max()
            assert error < (0.05 if kind == "dynamic" else 1e-5)


@configs
def test_gradients_flow_through(kind: str, device: str) -> None:
    dl.manual_seed(3)
    layer: Any = dl.nn.Linear(32, 4).to(device)
    quantize_(layer, CONFIGS[kind])
    x = dl.randn(3, 32, device=device, requires_grad=True)
    factors = dl.randn(3, 4, device=device)
    (layer(x) * factors).sum().backward()
    other = x.detach().requires_grad_()
    (F.linear(other, layer.weight.dequantized(), layer.bias.detach()) * factors).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), other.grad.cpu().numpy(), rtol=1e-4, atol=1e-5)
    assert layer.bias.grad is not None
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


@configs
def test_samples_of_vmap(kind: str, device: str) -> None:
    dl.manual_seed(4)
    layer: Any = dl.nn.Linear(32, 4).to(device)
    quantize_(layer, CONFIGS[kind])
    for shape in ((3, 32), (2, 5, 32)):
        x = dl.randn(*shape, device=device)
        expected = layer(x).detach().cpu().numpy()
        result = dl.vmap(layer)(x).detach().cpu().numpy()
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    gradients = dl.vmap(dl.func.grad(lambda row: layer(row).sum()))(x.reshape(-1, 32))
    row = layer.weight.dequantized().sum(0).cpu().numpy()
    np.testing.assert_allclose(gradients.cpu().numpy(), np.tile(row, (10, 1)), rtol=1e-4, atol=1e-5)


@configs
def test_files_copies_and_conversions(kind: str, tmp_path: Path, device: str) -> None:
    def network(seed: int) -> Any:
        dl.manual_seed(seed)
        net = dl.nn.Sequential(dl.nn.Linear(32, 32), dl.nn.Linear(32, 2)).to(device)
        quantize_(net, CONFIGS[kind])
        return net

    one, other, x = network(0), network(1), dl.randn(3, 32, device=device)
    expected = one(x).detach().cpu().numpy()
    dl.io.save_weights(tmp_path / "a.safetensors", one.state_dict())
    other.load_state_dict(dl.io.load_weights(tmp_path / "a.safetensors"))
    assert sorted(one.state_dict())[:3] == ["0.bias", "0.weight.qdata", "0.weight.scale"]
    for copied in (other, copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        np.testing.assert_array_equal(copied(x).detach().cpu().numpy(), expected)
    scales = one[0].weight.scale.numpy()
    one.bfloat16()
    assert one[0].bias.dtype == dl.bfloat16
    np.testing.assert_array_equal(one[0].weight.scale.numpy(), scales)
    assert one(x.bfloat16()).dtype == dl.bfloat16


def test_a_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    nets = [dl.nn.Sequential(dl.nn.Linear(32, 4, device="cpu")) for _ in range(3)]
    quantize_(nets[1], CONFIGS["int8"])
    quantize_(nets[2], CONFIGS["int4"])
    with pytest.raises(dl.errors.WeightsError, match=r"missing keys: 0\.weight\.qdata, 0\.weight\.scale"):
        nets[1].load_state_dict(nets[0].state_dict())
    with pytest.raises(dl.errors.WeightsError, match=r"misshapen keys: 0\.weight\.qdata"):
        nets[1].load_state_dict(nets[2].state_dict())


def test_rows_of_zeros_and_of_tiny_numbers() -> None:
    layer: Any = dl.nn.Linear(32, 3, device="cpu")
    with dl.no_grad():
        layer.weight[0] = 0.0
        layer.weight[1] = 1e-45
    for config in CONFIGS.values():
        own = copy.deepcopy(layer)
        quantize_(own, config)
        result = own(dl.ones(1, 32, device="cpu"))
        assert result[0, :2].tolist() == layer.bias[:2].tolist()
        assert np.isfinite(result.detach().numpy()).all()


@configs
def test_bad_weights_change_nothing(kind: str) -> None:
    net = dl.nn.Sequential(dl.nn.Linear(32, 32), dl.nn.Linear(32, 2))
    with dl.no_grad():
        net[1].weight[1, 1] = float("nan")
    with pytest.raises(ArgumentError, match=r"a weight is infinite or nan.*\(1\.weight\)"):
        quantize_(net, CONFIGS[kind])
    assert isinstance(net[0].weight, dl.nn.Parameter)


def test_bad_use() -> None:
    layer: Any = dl.nn.Linear(32, 32, device="cpu")
    with pytest.raises(ArgumentError, match="groups of 32 do not fit 10 input features; take a multiple"):
        quantize_(dl.nn.Linear(10, 2), Int4WeightOnlyConfig())
    for size in (0, -32, 16, 48, 64):
        with pytest.raises(ArgumentError, match=f"groups of {size} do not fit 32"):
            quantize_(layer, Int4WeightOnlyConfig(size))
    with pytest.raises(ArgumentError, match="no linear layer"):
        quantize_(dl.nn.ReLU(), Int8WeightOnlyConfig())
    with pytest.raises(ArgumentError, match="expected a config such as"):
        quantize_(layer, "int8")  # type: ignore[arg-type]
    large = Int4Weight.of
    with pytest.raises(ArgumentError, match="a scale beyond float16"):
        large(dl.full((1, 32), 1e9, device="cpu"))
    quantize_(layer, Int8WeightOnlyConfig())
    with pytest.raises(ArgumentError, match="no linear layer"):  # it is quantised already
        quantize_(layer, Int8WeightOnlyConfig())
    with pytest.raises(DTypeError, match=r"\[matmul\] a Int8Weight holds a weight in few bits"):
        dl.matmul(dl.ones(2, 32, device="cpu"), layer.weight)
    with pytest.raises(DTypeError, match=r"\[linear\] a Int8Weight"):
        F.linear(layer.weight, dl.ones(2, 32, device="cpu"))
    with pytest.raises(ShapeError, match=r"\(32,\) and \(32, 33\)|an input of shape"):
        layer(dl.ones(2, 33, device="cpu"))
    with pytest.raises(DTypeError, match="a weight of int8"):
        int8_product(dl.ones(2, 3), dl.ones(2, 3))
    with pytest.raises(ShapeError, match=r"an input of shape \(\.\.\., k\)"):
        int8_product(dl.ones(2, 3), dl.ones(2, 4, dtype="int8"))
    packed, scales = (dl.tensor(part) for part in int4_quantized(np.ones((2, 64), np.float32), 32))
    with pytest.raises(DTypeError, match="weights of uint8 and scales of float16"):
        packed_product(dl.ones(1, 64), packed, scales.float())
    with pytest.raises(DTypeError, match="floats of at most 32 bits"):
        packed_product(dl.ones(1, 64, dtype="float64"), packed, scales)
    with pytest.raises(ShapeError, match=r"expected an input of shape \(\.\.\., 64\)"):
        packed_product(dl.ones(1, 32), packed, scales)
    with pytest.raises(ShapeError, match=r"scales of \(n, 1 for each of these blocks\)"):
        packed_product(dl.ones(1, 64), packed, scales[:1])
