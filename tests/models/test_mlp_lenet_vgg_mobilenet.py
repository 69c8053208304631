"""Networks beside their twins in PyTorch, and torchvision's numbers of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.models import init

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")
twins = pytest.importorskip("tests.support.torch_models")

# As in test_resnet: rounding through some fifty layers, while an error in kind shows at 1e-3 and above.
TOLERANCE = 1e-4

# Ours, the twin, and the shape of a batch; in small widths, so that the tests are quick.
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "resnet18": (
        lambda: dl.models.resnet18(7, 2, 8),
        lambda: twins.ResNet([2, 2, 2, 2], False, 7, 2, 8),
        (3, 2, 33, 41),
    ),
    "resnet34": (
        lambda: dl.models.resnet34(7, 3, 4),
        lambda: twins.ResNet([3, 4, 6, 3], False, 7, 3, 4),
        (2, 3, 33, 41),
    ),
    "resnet50": (
        lambda: dl.models.resnet50(7, 3, 4),
        lambda: twins.ResNet([3, 4, 6, 3], True, 7, 3, 4),
        (2, 3, 33, 41),
    ),
    "vgg11": (lambda: dl.models.vgg11(7, 1, 4), lambda: twins.Vgg(11, False, 7, 1, 4), (2, 1, 32, 37)),
    "vgg13_bn": (lambda: dl.models.vgg13_bn(7, 3, 2), lambda: twins.Vgg(13, True, 7, 3, 2), (2, 3, 37, 32)),
    "vgg16": (lambda: dl.models.vgg16(7, 3, 2), lambda: twins.Vgg(16, False, 7, 3, 2), (2, 3, 32, 32)),
    "mobilenet_v2": (
        lambda: dl.models.mobilenet_v2(7, 3, 0.25),
        lambda: twins.MobileNetV2([8, 8, 8, 8, 16, 24, 40, 80, 1280], 7, 3),
        (2, 3, 64, 49),
    ),
    "lenet": (lambda: dl.models.LeNet(), lambda: twins.LeNet(), (3, 1, 28, 28)),
    "mlp": (lambda: dl.models.MLP(12, [7, 5], 3), lambda: twins.mlp(), (5, 12)),
}

# torchvision's, for 1000 classes.
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "mobilenet_v2": 3_504_872,
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_the_twin_s(name: str) -> None:
    compare(name, "cpu")


@pytest.mark.parametrize("name", ["resnet50", "vgg11", "mobilenet_v2"])  # among them they have every layer
def test_outputs_are_the_same_on_every_device(name: str, device: str) -> None:
    compare(name, device)


def compare(name: str, device: str) -> None:
    ours, theirs, shape = CASES[name]
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    twin = twins.lively(theirs(), x)
    net = ours().eval()
    mine, state = net.state_dict(), {key: value.numpy() for key, value in twin.state_dict().items()}
    assert {key: value.shape for key, value in mine.items()} == {k: v.shape for k, v in state.items()}
    assert list(mine) == list(state)
    net.load_state_dict(state)
    net.to(device)
    with torch.no_grad():
        expected = twin(x).numpy()
    assert expected.std() > 0.05
    assert np.abs(expected[0] - expected[1]).max() > 0.01 * np.abs(expected).max()
    with dl.no_grad():
        got = net(dl.from_numpy(x.numpy(), device)).numpy()
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vgg11", "mobilenet_v2", "lenet", "mlp"])
def test_gradients_are_the_twin_s(name: str) -> None:
    """Of every parameter; in inference mode, because statistics of a small batch amplify rounding."""
    ours, theirs, shape = CASES[name]
    # Not any input: with some, rounding takes an element of MobileNet's over the kink of a rectifier.
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(5))
    twin = twins.lively(theirs(), x)
    net = ours().eval()
    net.load_state_dict({key: value.numpy() for key, value in twin.state_dict().items()})
    weights = torch.randn(twin(x).shape, generator=torch.Generator().manual_seed(5))
    (twin(x) * weights).sum().backward()
    (net(dl.from_numpy(x.numpy())) * dl.from_numpy(weights.numpy())).sum().backward()
    theirs_by_name = dict(twin.named_parameters())
    for key, parameter in net.named_parameters():
        expected = theirs_by_name[key].grad.numpy()
        assert parameter.grad is not None, key
        difference = np.abs(parameter.grad.numpy() - expected).max()
        assert np.abs(expected).max() > 0, key
        assert difference <= 1e-3 * np.abs(expected).max(), key


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_many_as_torchvision_s(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Their values do not count, and half a gigabyte of random numbers takes long.
    monkeypatch.setattr(dl.nn.init, "kaiming_uniform", lambda shape: dl.nn.init.zeros(shape))
    for module in ("resnet", "vgg", "mobilenet"):
        monkeypatch.setattr(f"dl4all.models.{module}.initialize", lambda *_, **__: None)
    net = getattr(dl.models, name)()
    assert sum(parameter.numel() for parameter in net.parameters()) == PARAMETERS[name]


def test_beginnings_are_torchvision_s() -> None:
    """Convolutions are drawn for rectifiers going backwards, and VGG's linear layers narrow."""
    dl.manual_seed(0)
    net = dl.models.vgg11(10, 3, 16)
    conv = net.features[0]
    assert float(conv.weight.detach().numpy().std()) == pytest.approx((2 / (16 * 9)) ** 0.5, rel=0.1)
    assert not conv.bias.detach().numpy().any()
    assert float(net.classifier[0].weight.detach().numpy().std()) == pytest.approx(0.01, rel=0.02)
    before = net.classifier[0].weight.detach().numpy().copy()
    init.initialize(net, "fan_in", linear_std=None)
    assert float(conv.weight.detach().numpy().std()) == pytest.approx((2 / 27) ** 0.5, rel=0.1)
    np.testing.assert_array_equal(net.classifier[0].weight.detach().numpy(), before)


def test_a_folded_bottleneck_computes_the_same() -> None:
    ours, theirs, shape = CASES["resnet50"]
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    net = ours().eval()
    net.load_state_dict({k: v.numpy() for k, v in twins.lively(theirs(), x).state_dict().items()})
    with dl.no_grad():
        expected = net(dl.from_numpy(x.numpy())).numpy()
        folded = net.fold_batch_norm()
        assert not any(isinstance(module, dl.nn.BatchNorm2d) for module in folded.modules())
        got = folded(dl.from_numpy(x.numpy())).numpy()
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dl.models.resnet18(base_channels=0), r"^\[ResNet\] .*base_channels 0 must be at least 1"),
        (lambda: dl.models.MLP(4, [0], 2), r"^\[MLP\] sizes must be at least 1, got \[4, 0, 2\]"),
        (lambda: dl.models.MLP(4, [3], 2, dropout=1.5), r"^\[Dropout\] expected a probability"),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()
