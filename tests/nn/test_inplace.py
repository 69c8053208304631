"""Layers and functions with `inplace`, against PyTorch's: results, gradients and refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import GradientError
from dl4all.nn import functional
from tests.conftest import need
from tests.support.compare_torch import compare_libraries, values

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

RANDOM: dict[str, Callable[..., Any]] = {
    "Dropout": lambda m, inplace: m.Dropout(0.4, inplace),
    "Dropout1d": lambda m, inplace: m.Dropout1d(0.4, inplace),
    "Dropout2d": lambda m, inplace: m.Dropout2d(0.4, inplace),
    "Dropout3d": lambda m, inplace: m.Dropout3d(0.4, inplace),
    "AlphaDropout": lambda m, inplace: m.AlphaDropout(0.4, inplace),
    "FeatureAlphaDropout": lambda m, inplace: m.FeatureAlphaDropout(0.4, inplace),
    "RReLU": lambda m, inplace: m.RReLU(0.1, 0.6, inplace),
}
LAYERS: dict[str, Callable[..., Any]] = {
    "ReLU": lambda m, inplace: m.ReLU(inplace),
    "ReLU6": lambda m, inplace: m.ReLU6(inplace),
    "SELU": lambda m, inplace: m.SELU(inplace),
    "SiLU": lambda m, inplace: m.SiLU(inplace),
    "Mish": lambda m, inplace: m.Mish(inplace),
    "Hardswish": lambda m, inplace: m.Hardswish(inplace),
    "Hardsigmoid": lambda m, inplace: m.Hardsigmoid(inplace),
    "LeakyReLU": lambda m, inplace: m.LeakyReLU(0.2, inplace),
    "ELU": lambda m, inplace: m.ELU(1.7, inplace),
    "CELU": lambda m, inplace: m.CELU(0.6, inplace),
    "Hardtanh": lambda m, inplace: m.Hardtanh(-0.7, 1.2, inplace),
    "Threshold": lambda m, inplace: m.Threshold(0.3, -7.0, inplace),
    "RReLU": lambda m, inplace: m.RReLU(0.1, 0.6, inplace).eval(),
    "Dropout": lambda m, inplace: m.Dropout(0.5, inplace).eval(),
}
LIKE_PLAIN = set(LAYERS) - {"SiLU", "Mish", "Hardswish", "Hardsigmoid", "Threshold"}
"""Whose gradient needs no copy of the elements that are overwritten."""


SHAPES = {"Dropout1d": (5, 7, 9), "Dropout2d": (5, 7, 3, 3)}  # the others take five axes


def with_inplace(space: Any) -> set[str]:
    """The names of functions and classes with a parameter `inplace`."""
    found = set()
    for name in set(dir(space)) - {"typing"}:
        try:
            parameters = inspect.signature(getattr(space, name)).parameters
        except (TypeError, ValueError):
            continue
        if "inplace" in parameters and not name.startswith("_"):
            found.add(name)
    return found


def test_who_has_inplace() -> None:
    assert with_inplace(nn) == set(RANDOM) | set(LAYERS)
    assert with_inplace(nn) == with_inplace(torch.nn)
    theirs = with_inplace(torch.nn.functional)
    assert with_inplace(functional) >= {name for name in theirs if hasattr(functional, name)}


def run(layer: Callable[..., Any], x: Any) -> tuple[Any, Any]:
    """The result of a layer, and the tensor that it was given, which has a history."""
    given = x * 2
    return layer(given), given


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, device: str) -> None:
    """The tensor holds the result; an element on each limit, and a tail that fills no vector of four."""
    x = values(5, 7)
    x[0, :4] = 0, 3, -3, 0.15

    def changed(m: Any, x: Any) -> tuple[Any, ...]:
        result, given = run(LAYERS[name](m.nn, True), x)
        assert result is given
        return result, result * result

    compare_libraries(device, changed, x)


@pytest.mark.parametrize("name", RANDOM)
def test_random_layers(name: str, device: str) -> None:
    found = []
    for inplace in (False, True):
        dl.manual_seed(4)
        x = dl.tensor(values(*SHAPES.get(name, (3, 5, 2, 3, 3))), device=device, requires_grad=True)
        result, given = run(RANDOM[name](nn, inplace), x)
        assert (result is given) == inplace
        result.backward(x.detach() + 1)
        found.append((result.detach().numpy(), x.grad.numpy()))
    for plain, changed in zip(*found, strict=True):
        np.testing.assert_array_equal(changed, plain)
    assert len(np.unique(found[0][0])) > 9


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda F, x: F.relu(x, True),
    "leaky_relu": lambda F, x: F.leaky_relu(x, 0.3, True),
    "elu": lambda F, x: F.elu(x, 1.3, True),
    "celu": lambda F, x: F.celu(x, 0.4, True),
    "selu": lambda F, x: F.selu(x, True),
    "relu6": lambda F, x: F.relu6(x, True),
    "hardtanh": lambda F, x: F.hardtanh(x, -1.0, 0.5, True),
    "threshold": lambda F, x: F.threshold(x, 0.2, 3.0, True),
    "silu": lambda F, x: F.silu(x, inplace=True),
    "mish": lambda F, x: F.mish(x, inplace=True),
    "hardswish": lambda F, x: F.hardswish(x, inplace=True),
    "hardsigmoid": lambda F, x: F.hardsigmoid(x, inplace=True),
    "rrelu": lambda F, x: F.rrelu(x, 0.25, 0.25, True, True),
    "dropout": lambda F, x: F.dropout(x, 1.0, True, True),
    "a view": lambda F, x: F.relu(x[:, 1:], inplace=True),
    "a transposed tensor": lambda F, x: F.elu(x.T, inplace=True),
    "without": lambda F, x: F.relu(x, inplace=False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, device: str) -> None:
    """By place and by name, on what others see too: what was given has the result and its gradient."""
    compare_libraries(
        device,
        lambda m, x: (lambda given: (FUNCTIONS[name](m.nn.functional, given), given * given))(x * 2),
        values(5, 7),
    )


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "celu"])
def test_where_the_result_does_not_tell_the_gradient(name: str, device: str) -> None:
    """With a negative slope, which PyTorch refuses in place, the elements are kept."""
    function = getattr(functional, name)
    found = []
    for inplace in (False, True):
        x = dl.tensor(values(5, 7), device=device, requires_grad=True)
        result = function(x * 2, -0.5, inplace=inplace)
        result.backward(x.detach())
        found.append((result.detach().numpy(), x.grad.numpy()))
    for plain, changed in zip(*found, strict=True):
        np.testing.assert_array_equal(changed, plain)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "Dropout"])
def test_second_derivatives(name: str) -> None:
    """The same in place as elsewhere, in float64."""
    found = []
    for inplace in (False, True):
        x = dl.tensor(values(4, 5).astype(np.float64), device="cpu", requires_grad=True)
        y = LAYERS[name](nn, inplace)(x * 1.5)
        (first,) = dl.autograd.grad((y * y).sum(), x, create_graph=True)
        (second,) = dl.autograd.grad((first * first).sum(), x)
        found.append((first.detach().numpy(), second.numpy()))
    for plain, changed in zip(*found, strict=True):
        np.testing.assert_allclose(changed, plain, rtol=1e-9, atol=1e-12)


def test_refusals(device: str) -> None:
    """Where PyTorch refuses too: a leaf, a view of one, and a value that a gradient needs."""
    x = dl.tensor(values(3, 4), device=device, requires_grad=True)
    y = torch.tensor(values(3, 4), requires_grad=True)
    cases: list[Callable[[Any, Any], Any]] = [
        lambda F, x: F.relu(x, inplace=True),
        lambda F, x: F.relu(x[1:], inplace=True),
        lambda F, x: (lambda e: F.relu(e, inplace=True) + e)(x.exp()).sum().backward(),
        lambda F, x: (lambda h: (h * h + F.dropout(h, inplace=True)).sum().backward())(x * 1),
        lambda F, x: F.dropout(F.relu(x * 1), inplace=True).sum().backward(),
    ]
    for case in cases:
        with pytest.raises(GradientError, match="in place"):
            case(functional, x)
        with pytest.raises(RuntimeError, match=r"in-place|inplace"):
            case(torch.nn.functional, y)
    with dl.no_grad():
        functional.relu(x, inplace=True)
    np.testing.assert_array_equal(x.detach().numpy(), np.maximum(values(3, 4), 0))


BEFORE: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "convolution": (lambda m: m.Conv2d(4, 6, 3, padding=1), (2, 4, 7, 7)),
    "pointwise convolution": (lambda m: m.Conv2d(4, 6, 1), (2, 4, 7, 7)),
    "depthwise convolution": (lambda m: m.Conv2d(4, 4, 3, groups=4), (2, 4, 7, 7)),
    "winograd": (lambda m: m.Conv2d(32, 32, 3, padding=1), (1, 32, 16, 16)),
    "1d": (lambda m: m.Conv1d(4, 6, 3), (2, 4, 7)),
    "transposed": (lambda m: m.ConvTranspose2d(4, 6, 3), (2, 4, 5, 5)),
    "linear": (lambda m: m.Linear(5, 6), (3, 5)),
    "linear of sequences": (lambda m: m.Linear(5, 6), (2, 3, 5)),
    "batch norm": (lambda m: m.BatchNorm2d(4), (2, 4, 5, 5)),
    "batch norm in inference": (lambda m: m.BatchNorm2d(4).eval(), (2, 4, 5, 5)),
    "layer norm": (lambda m: m.LayerNorm(5), (2, 4, 5)),
    "group norm": (lambda m: m.GroupNorm(2, 4), (2, 4, 5)),
    "instance norm": (lambda m: m.InstanceNorm2d(4), (2, 4, 5, 5)),
    "max pooling": (lambda m: m.MaxPool2d(3, 2, 1), (2, 4, 7, 7)),
    "average pooling": (lambda m: m.AvgPool2d(2), (2, 4, 6, 6)),
    "global pooling": (lambda m: m.AdaptiveAvgPool2d(1), (2, 4, 5, 5)),
    "flatten": (lambda m: m.Flatten(), (2, 4, 5)),
    "upsampling": (lambda m: m.Upsample(scale_factor=2), (1, 2, 3, 3)),
    "in place": (lambda m: m.ReLU(True), (3, 5)),
    "dropout": (lambda m: m.Dropout(0.3), (3, 5)),
    "padding": (lambda m: m.ZeroPad2d(1), (1, 2, 3, 3)),
    "pixel shuffle": (lambda m: m.PixelShuffle(2), (1, 4, 3, 3)),
    "exponential": (lambda m: m.Sigmoid(), (3, 5)),
    "softmax": (lambda m: m.Softmax(-1), (3, 5)),
    "gelu": (lambda m: m.GELU(), (3, 5)),
}


@pytest.mark.parametrize("before", BEFORE)
def test_after_other_layers(before: str, device: str) -> None:
    """The gradient is computed where PyTorch computes one, and refused where it refuses."""

    def refused(m: Any, x: Any) -> bool:
        layer = BEFORE[before][0](m.nn)
        layer = layer.to(device) if m is dl else layer
        try:
            m.nn.ReLU(inplace=True)(layer(x * 1)).sum().backward()
        except (GradientError, RuntimeError):
            return True
        return False

    array = values(*BEFORE[before][1])
    theirs = refused(torch, torch.tensor(array, requires_grad=True))
    assert refused(dl, dl.tensor(array, device=device, requires_grad=True)) == theirs


class Block(nn.Module):
    """A residual block as torchvision writes it."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=inplace)
        self.conv2 = nn.Conv2d(8, 3, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(3)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(48, 9), nn.Dropout(0.2, inplace), nn.Hardswish(inplace), nn.Linear(9, 2)
        )

    def forward(self, x: Any) -> Any:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.head(self.relu(out))


def test_a_model_trains_as_without(device: str) -> None:
    """To the last bit."""
    found = []
    for inplace in (False, True):
        dl.manual_seed(3)
        net = Block(inplace).to(device)
        optimizer = dl.optim.SGD(net.parameters(), lr=0.1)
        x = dl.tensor(values(5, 3, 4, 4), device=device)
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(net(x * 1), dl.tensor([0, 1, 1, 0, 1], device=device)).backward()
            optimizer.step()
        found.append({name: value.numpy().tobytes() for name, value in net.state_dict().items()})
    assert found[0] == found[1]


@pytest.mark.vulkan
@pytest.mark.parametrize("name", sorted(LIKE_PLAIN | set(RANDOM)))
def test_it_costs_no_more_than_out_of_place(name: str) -> None:
    """As many kernels forward and backward, and no memory for the result."""
    need("vulkan:0")
    kernels, allocated = [], []
    make = RANDOM.get(name, LAYERS.get(name))
    assert make is not None
    for inplace in (False, True):
        x = dl.tensor(values(*SHAPES.get(name, (3, 5, 2, 3, 3))), device="vulkan:0", requires_grad=True)
        given = x * 2
        layer = make(nn, inplace)
        with dl.profile() as forward:
            result = layer(given)
        with dl.profile() as both:
            result.sum().backward()
        kernels.append([[e.name for e in p.events if e.kind == "kernel"] for p in (forward, both)])
        allocated.append(sum(e.nbytes for e in forward.events if e.kind == "allocation"))
    (plain, plain_backward), (changed, changed_backward) = kernels
    assert len(changed) <= len(plain)
    assert len(changed_backward) == len(plain_backward)
    assert allocated[1] < allocated[0]


def test_samples_of_vmap(device: str) -> None:
    x = dl.tensor(values(4, 5), device=device)
    found = dl.vmap(lambda row: functional.elu(row * 2, inplace=True))(x)
    np.testing.assert_array_equal(found.numpy(), functional.elu(x * 2).numpy())
    changed = dl.vmap(lambda row: functional.dropout(row * 2, 0.5, inplace=True))(x)
    assert set(np.unique(changed.numpy() / (x * 4).numpy())) == {0.0, 1.0}
