"""Steps of inputs that are found beforehand: observers, converted layers, training with them, bad use."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError, WeightsError
from dl4all.nn import functional as F
from dl4all.quantization import (
    EntropyObserver,
    FakeQuantize,
    HistogramObserver,
    Int8StaticWeight,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PercentileObserver,
    QConfig,
    convert,
    fuse_modules,
    prepare,
    prepare_qat,
    quantize_dynamic,
)
from dl4all.quantization.observers import held
from tests.support.subcases import each

OBSERVERS = (
    MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver, EntropyObserver, PercentileObserver,
)  # fmt: skip


# Observers


@each("numbers", [[-1.0, 0.5, 2.0], [0.5, 3.0], [-4.0, -1.0], [0.0, 0.0], [1e-30, 2e-30], [-2e30, 1e30]])
def test_ranges_are_those_of_torch(numbers: list[float]) -> None:
    observers = pytest.importorskip("torch.ao.quantization.observer")
    torch = pytest.importorskip("torch")
    other = observers.MinMaxObserver(dtype=torch.quint8, eps=float(np.finfo(np.float32).tiny))
    mine = MinMaxObserver()
    for part in (numbers[:1], numbers):
        other(torch.tensor(part))
        mine(dl.tensor(part))
    scale, zero_point = other.calculate_qparams()
    if any(numbers):  # of zeros alone any steps will do
        np.testing.assert_allclose(mine.calculate_qparams(), (scale.item(), zero_point.item()), rtol=1e-6)
    np.testing.assert_allclose(mine.range, (min(numbers), max(numbers)), rtol=1e-6)


@pytest.mark.parametrize("kind", OBSERVERS)
def test_observers_hold_a_normal_distribution(kind: Any) -> None:
    observer = kind(0.5) if kind is MovingAverageMinMaxObserver else kind()
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(5000).astype(np.float32) * scale for scale in (0.5, 1.0, 1.0, 1.0)]
    for part in parts:
        assert observer(dl.tensor(part)).shape == (5000,)
    scale, zero_point = observer.calculate_qparams()
    numbers = np.concatenate(parts)
    error = np.abs((np.clip(np.rint(numbers / scale) + zero_point, 0, 255) - zero_point) * scale - numbers)
    assert error.mean() < 0.01


def test_a_histogram_leaves_out_what_is_rare() -> None:
    numbers = np.random.default_rng(1).standard_normal(200_000).astype(np.float32)
    numbers[0] = 30.0
    found = {}
    for kind in (MinMaxObserver, HistogramObserver, PercentileObserver):
        observer = kind()
        observer(dl.tensor(numbers[1:100_000]))
        observer(dl.tensor(numbers[:1]))
        observer(dl.tensor(numbers[100_000:]))
        low, high = observer.chosen_range()
        found[kind.__name__] = float(((held(numbers, (low, high)) - numbers) ** 2).mean())
        assert high == 30.0 or kind is not MinMaxObserver
    assert found["HistogramObserver"] < 0.9 * found["MinMaxObserver"]


def test_histograms_grow() -> None:
    observer, rng = HistogramObserver(bins=512), np.random.default_rng(2)
    parts = [rng.uniform(-size, size, 1000).astype(np.float32) for size in (1.0, 3.0, 20.0)]
    for part in parts:
        observer(dl.tensor(part))
    assert observer.histogram.sum().item() == 3000
    limit = observer.limit.item()
    counts, _ = np.histogram(np.concatenate(parts), 512, (-limit, limit))
    moved = np.abs(counts.cumsum() - observer.histogram.numpy().cumsum()).max()
    assert moved <= 3  # numbers at the edges of bins


# Converted layers


def steps_of(x: Any, weight: Int8StaticWeight) -> Any:
    scale, zero = weight.input_scale.cpu().numpy(), weight.input_zero_point.cpu().numpy()
    return np.clip(np.rint(x / scale) + zero, 0, 255) - zero


CONVOLUTIONS = [  # channels, filters, kernel, stride, padding, dilation, size
    ((3, 5), (3, 3), 1, 1, 1, (7, 6)), ((4, 2), (1, 1), 1, 0, 1, (5, 5)),
    ((1, 3), (2, 3), 2, (1, 0), 1, (9, 8)),
    ((16, 8), (3, 3), 2, 2, 2, (8, 11)), ((2, 3), (5,), 3, 2, 1, (17,)), ((3, 4), (3,), 1, "same", 2, (9,)),
    ((2, 2), (2, 1, 3), 1, 1, 1, (3, 4, 5)),
]  # fmt: skip


@each("case", CONVOLUTIONS)
def test_convolutions_are_exact(case: Any, device: str) -> None:
    channels, kernel, stride, padding, dilation, size = case
    dl.manual_seed(0)
    kind: Any = {1: dl.nn.Conv1d, 2: dl.nn.Conv2d, 3: dl.nn.Conv3d}[len(size)]
    layer = kind(*channels, kernel, stride, padding, dilation).to(device)
    x = dl.randn(2, channels[0], *size, device=device)
    converted = convert(calibrated(prepare(layer, qconfig=QConfig(MinMaxObserver)), x))
    weight = converted.weight
    assert isinstance(weight, Int8StaticWeight)
    integers = dl.tensor(steps_of(x.cpu().numpy(), weight), dtype="float64", device="cpu")
    function: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(size)]
    sums = function(
        integers, weight.qdata.cpu().double().movedim(-1, 1), None, stride, padding, dilation
    ).numpy()
    scales = weight.scale.cpu().double().numpy() * weight.input_scale.item()
    ends = (1,) * len(size)
    bias = layer.bias.detach().cpu().double().numpy().reshape(-1, *ends)
    expected = sums * scales.reshape(-1, *ends) + bias
    result = converted(x)
    assert result.shape == layer(x).shape
    np.testing.assert_allclose(result.detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(converted(x[0]).detach().cpu().numpy(), expected[0], rtol=1e-5, atol=1e-5)
    close = np.abs(result.detach().cpu().numpy() - layer(x).detach().cpu().numpy()).max()
    assert close < 0.03 * float(layer(x).abs().max().item())


@each("lead", [(), (1,), (5,), (2, 3), (0,)])
def test_linear_layers_are_exact(lead: tuple[int, ...], device: str) -> None:
    dl.manual_seed(1)
    layer: Any = dl.nn.Linear(19, 7).to(device)
    converted: Any = convert(calibrated(prepare(layer), dl.randn(64, 19, device=device)))
    x = dl.randn(*lead, 19, device=device)
    weight = converted.weight
    sums = steps_of(x.cpu().numpy(), weight) @ weight.qdata.cpu().double().numpy().T
    expected = sums * weight.scale.cpu().double().numpy() * weight.input_scale.item()
    expected = expected + layer.bias.detach().cpu().double().numpy()
    np.testing.assert_allclose(converted(x).detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-5)


def calibrated(prepared: Any, *inputs: Any) -> Any:
    with dl.no_grad():
        for x in inputs:
            prepared(x)
    return prepared


def network(device: str) -> Any:
    dl.manual_seed(2)
    return dl.nn.Sequential(
        dl.nn.Conv2d(1, 8, 3, padding=1), dl.nn.BatchNorm2d(8), dl.nn.ReLU(), dl.nn.MaxPool2d(2),
        dl.nn.Conv2d(8, 8, 3, groups=2, padding=1), dl.nn.Flatten(), dl.nn.Linear(128, 10),
    ).to(device)  # fmt: skip


def test_networks(device: str, tmp_path: Any) -> None:
    net = network(device).eval()
    x = dl.randn(16, 1, 8, 8, device=device)
    expected = net(x).detach().cpu().numpy()
    prepared = prepare(net)
    np.testing.assert_array_equal(calibrated(prepared, x)(x).detach().cpu().numpy(), expected)
    small = convert(prepared)
    held_ones = [isinstance(small[i].weight, Int8StaticWeight) for i in (0, 4, 6)]
    assert held_ones == [True, False, True]  # two groups
    assert not any("observer" in name for name, _ in small.named_modules())
    assert isinstance(net[0].weight, dl.nn.Parameter)
    result = small(x).detach().cpu().numpy()
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()
    compiled: Any = dl.compile(small)
    with dl.no_grad():
        for _ in range(3):
            np.testing.assert_allclose(compiled(x).cpu().numpy(), result, rtol=1e-5, atol=1e-5)
    dl.io.save_weights(tmp_path / "a.safetensors", small.state_dict())
    other = convert(calibrated(prepare(network(device).eval()), dl.randn(4, 1, 8, 8, device=device)))
    other.load_state_dict(dl.io.load_weights(tmp_path / "a.safetensors"))
    np.testing.assert_array_equal(other(x).detach().cpu().numpy(), result)
    with pytest.raises(WeightsError, match=r"missing keys: 0\.weight\.qdata"):
        other.load_state_dict(net.state_dict())


def test_gradients_flow_through(device: str) -> None:
    net = network(device).eval()
    small = convert(calibrated(prepare(net), dl.randn(16, 1, 8, 8, device=device)))
    x = dl.randn(3, 1, 8, 8, device=device, requires_grad=True)
    small(x).sum().backward()
    other = x.detach().requires_grad_()
    net(other).sum().backward()
    assert x.grad is not None
    assert other.grad is not None
    found, expected = (one.cpu().numpy().ravel() for one in (x.grad, other.grad))
    assert np.corrcoef(found, expected)[0, 1] > 0.95  # some units of ReLU and maxima differ
    assert 0.9 < np.linalg.norm(found) / np.linalg.norm(expected) < 1.1


# Training


def test_fake_quantize_rounds_and_passes_gradients(device: str) -> None:
    fake = FakeQuantize(MinMaxObserver())
    fake(dl.tensor([-1.0, 1.55]))
    fake.eval()
    x = dl.tensor([-3.0, -1.0, 0.014, 0.5, 1.55, 9.0], device=device, requires_grad=True)
    y = fake(x)
    np.testing.assert_allclose(y.detach().cpu().numpy(), [-1.0, -1.0, 0.01, 0.5, 1.55, 1.55], atol=1e-6)
    (y * dl.tensor([1.0, 2, 3, 4, 5, 6], device=device)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 3.0, 4.0, 5.0, 0.0]


def test_what_was_trained_is_what_is_converted(device: str) -> None:
    dl.manual_seed(3)
    net = dl.nn.Sequential(dl.nn.Linear(16, 32), dl.nn.ReLU(), dl.nn.Linear(32, 3)).to(device)
    training = prepare_qat(net)
    x, y = dl.randn(64, 16, device=device), dl.randint(3, (64,), device=device)
    optimizer = dl.optim.Adam(training.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(training(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    training.eval()
    expected = training(x).detach().cpu().numpy()
    result = convert(training)(x).detach().cpu().numpy()
    assert np.abs(result - expected).max() < 2e-3 * np.abs(expected).max()


def test_accuracy_on_digits() -> None:
    dl.manual_seed(4)
    train, test = dl.data.random_split(dl.data.digits(), (0.5, 0.5))
    net = network("cpu")
    fit(net, train, 6, 0.01)
    before = accuracy(net, test)
    assert before > 0.9
    for kind in (MinMaxObserver, HistogramObserver, EntropyObserver, PercentileObserver):
        prepared = prepare(fuse_modules(net.eval(), [["0", "1", "2"]]), qconfig=QConfig(kind))
        for x, _ in dl.data.DataLoader(train, 256, device="cpu"):
            calibrated(prepared, x)
        assert accuracy(convert(prepared), test) >= before - 0.005
    training = prepare_qat(net.train())
    fit(training, train, 1, 0.001)
    assert accuracy(convert(training), test) >= before - 0.002


def fit(net: Any, data: Any, epochs: int, rate: float) -> None:
    optimizer = dl.optim.Adam(net.parameters(), lr=rate)
    for _ in range(epochs):
        for x, y in dl.data.DataLoader(data, 64, shuffle=True, device="cpu"):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()


def accuracy(net: Any, data: Any) -> float:
    net.eval()
    with dl.no_grad():
        right = sum(
            int((net(x).argmax(1) == y).sum().item()) for x, y in dl.data.DataLoader(data, 256, device="cpu")
        )
    return right / len(data)


def test_modules_are_fused() -> None:
    net = network("cpu")
    for x in (dl.randn(16, 1, 8, 8), dl.randn(16, 1, 8, 8) * 3):
        net(x.cpu())
    net.eval()
    x = dl.randn(2, 1, 8, 8, device="cpu")
    for names in (["0", "1"], [["0", "1", "2"]]):
        fused = fuse_modules(net, names)
        assert isinstance(fused[1], dl.nn.Identity)
        np.testing.assert_allclose(fused(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert isinstance(net[1], dl.nn.BatchNorm2d)


def test_dynamic_copies() -> None:
    net = dl.nn.Sequential(dl.nn.Linear(8, 8), dl.nn.MultiheadAttention(8, 2))
    small = quantize_dynamic(net, {dl.nn.Linear})
    assert isinstance(net[0].weight, dl.nn.Parameter)
    assert isinstance(small[0].weight, dl.quantization.Int8DynamicWeight)
    assert isinstance(small[1].in_proj_weight, dl.nn.Parameter)
    quantize_dynamic(net, inplace=True)
    assert isinstance(net[0].weight, dl.quantization.Int8DynamicWeight)


def test_a_script_for_torch() -> None:
    """As PyTorch's tutorials write it, with stubs and a qconfig on the network."""

    class Net(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = dl.ao.quantization.QuantStub(), dl.ao.quantization.DeQuantStub()
            self.fc = dl.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.dequant(self.fc(self.quant(x)))

    net: Any = Net().eval()
    net.qconfig = dl.ao.quantization.get_default_qconfig("fbgemm")
    dl.ao.quantization.prepare(net, inplace=True)
    x = dl.randn(32, 8)
    expected = net(x).detach().cpu().numpy()
    dl.ao.quantization.convert(net, inplace=True)
    assert isinstance(net.fc.weight, Int8StaticWeight)
    assert np.abs(net(x).detach().cpu().numpy() - expected).max() < 0.03
    net.fc = dl.nn.Linear(8, 4)
    net.qconfig = dl.ao.quantization.get_default_qat_qconfig("fbgemm")
    trained = dl.ao.quantization.prepare_qat(net.train())
    assert isinstance(trained.fc.input_observer, FakeQuantize)
    small = dl.quantization.quantize_dynamic(net, {dl.nn.Linear}, dtype=dl.qint8)
    assert isinstance(small.fc.weight, dl.quantization.Int8DynamicWeight)


def test_reports(device: str) -> None:
    net = network(device).eval()
    x = dl.randn(16, 1, 8, 8, device=device)
    small = convert(calibrated(prepare(net), x))
    reports = dl.quantization.layer_reports(net, small, x)
    assert [(layer.name, layer.kind) for layer in reports] == [
        ("0", "Int8StaticWeight"), ("6", "Int8StaticWeight"),
    ]  # fmt: skip
    for layer in reports:
        assert layer.bytes_after < 0.6 * layer.bytes_before
        assert 25 < layer.signal_to_noise < 70
    assert dl.quantization.layer_reports(small, small, x)[0].signal_to_noise == np.inf
    with pytest.raises(ArgumentError, match="has no layer '6'"):
        dl.quantization.layer_reports(net[:3], small, x)


# Bad use


def test_bad_use() -> None:
    net = network("cpu").eval()
    with pytest.raises(ArgumentError, match=r"\[convert\] no layer has an observer; call prepare"):
        convert(net)
    prepared = prepare(net)
    with pytest.raises(ArgumentError, match=r"\[HistogramObserver\] has seen no input.*\(0\)"):
        convert(prepared)
    assert isinstance(prepared[0].weight, dl.nn.Parameter)
    for again in (prepare, prepare_qat):
        with pytest.raises(ArgumentError, match="the network is prepared already"):
            again(prepared)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="which has no steps; look for inf and nan"):
            prepared(dl.full((1, 1, 8, 8), bad, device="cpu"))
    with pytest.raises(ArgumentError, match="no linear layer or convolution"):
        prepare(dl.nn.ReLU())
    with pytest.raises(ArgumentError, match="no linear layer or convolution"):
        prepare(net, filter_fn=lambda layer, name: False)
    small = convert(calibrated(prepared, dl.randn(2, 1, 8, 8, device="cpu")))
    with pytest.raises(ShapeError, match="1 channels and 2 axes between"):
        small[0](dl.ones(1, 2, 8, 8, device="cpu"))
    with pytest.raises(ShapeError, match="does not fit into an input"):
        F.conv2d(dl.ones(1, 1, 2, 2, device="cpu"), small[0].weight)
    with pytest.raises(ArgumentError, match="has one group"):
        F.conv2d(dl.ones(1, 2, 8, 8, device="cpu"), small[0].weight, groups=2)
    with pytest.raises(DTypeError, match="for linear and conv1d and conv2d and conv3d"):
        small[0].weight @ dl.ones(3, 3, device="cpu")
    with pytest.raises(ArgumentError, match=r"quantises GRU, .* to int8, got Conv2d to int8"):
        quantize_dynamic(net, {dl.nn.Conv2d})
    with pytest.raises(ArgumentError, match="no linear layer"):
        quantize_dynamic(net, {dl.nn.LSTM})
    with pytest.raises(ArgumentError, match=r"got GRU, .* to float16"):
        quantize_dynamic(net, dtype="float16")
    for names in (["0", "2"], ["2", "1"]):
        with pytest.raises(ArgumentError, match="expected a linear layer or a convolution and its batch"):
            fuse_modules(net, names)
    with pytest.raises(ArgumentError, match="in evaluation mode"):
        fuse_modules(copy.deepcopy(net).train(), ["0", "1"])
    with pytest.raises(ArgumentError, match=r"averaging_constant must be in \(0, 1\]"):
        MovingAverageMinMaxObserver(0.0)
    with pytest.raises(ArgumentError, match=r"percentile must be in \(50, 100\]"):
        PercentileObserver(20.0)
    with pytest.raises(ArgumentError, match="needs 510 bins or more"):
        HistogramObserver(64)
