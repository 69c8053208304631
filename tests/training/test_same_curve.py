"""Training beside PyTorch: the same weights, batches and optimizer give the same losses, step for step.

Everything is float32. A network that amplifies a rounding error by more than 1e-4 / 6e-8 within the run is
chaotic for this purpose: two runs of PyTorch in float32 and float64 go apart in it, too. That is so for
ResNet-18, whose last normalisations see few numbers. It is compared by single steps instead, each from
PyTorch's weights: the loss, and all gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.operands import NDArray, generator

torch = pytest.importorskip("torch", reason="losses are compared with PyTorch's")
torch_resnet = pytest.importorskip("benchmarks.torch_resnet")

TOLERANCE = 1e-4
SINGLE = 1e-5
GRADIENT = (
    3e-5  # of the largest element: PyTorch's own float32 gradients are off by 7e-6 after these 20 layers
)
BATCH = 8
CLASSES = 3


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory: here are many thousand allocations."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For PyTorch, whose threads wait for each other longer than they work on networks so small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 3 * 3, CLASSES),
    )  # fmt: skip


def recurrent(kind: str, nn: Any) -> Any:
    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(nn, kind)(3, 6)
            self.head = nn.Linear(6, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0][-1])

    return Net()


def transformer(nn: Any) -> Any:
    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x).mean(1))

    return Net()


NETS: dict[str, tuple[Any, tuple[int, ...]]] = {  # how to build it, and the input
    "mlp": (mlp, (BATCH, 10)),
    "cnn": (cnn, (BATCH, 2, 7, 7)),
    "lstm": (functools.partial(recurrent, "LSTM"), (4, BATCH, 3)),
    "gru": (functools.partial(recurrent, "GRU"), (4, BATCH, 3)),
    "transformer": (transformer, (BATCH, 5, 4)),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "AdamW": {"lr": 1e-2, "weight_decay": 1e-2},
}


def batches(shape: tuple[int, ...]) -> list[tuple[NDArray, NDArray]]:
    """Five batches in turn, with classes that can be learned from them."""
    rng = generator(shape)
    made = []
    for _ in range(5):
        x = rng.standard_normal(shape).astype(np.float32)
        made.append((x, rng.integers(0, CLASSES, BATCH)))
    return made


def step(lib: Any, net: Any, optimizer: Any, x: Any, target: Any) -> float:
    optimizer.zero_grad()
    loss = lib.nn.functional.cross_entropy(net(x), target)
    loss.backward()
    optimizer.step()
    return float(loss.detach().item())


@functools.cache
def reference(name: str, optimizer: str) -> tuple[dict[str, NDArray], list[float]]:
    """PyTorch's first weights and its losses."""
    torch.manual_seed(1)
    make, shape = NETS[name]
    net = make(torch.nn)
    first = {key: tensor.numpy().copy() for key, tensor in net.state_dict().items()}
    descent = getattr(torch.optim, optimizer)(net.parameters(), **OPTIMIZERS[optimizer])
    given = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches(shape)]
    return first, [step(torch, net, descent, *given[i % 5]) for i in range(100)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETS)
def test_losses(name: str, optimizer: str, device: str) -> None:
    first, expected = reference(name, optimizer)
    assert np.ptp(expected) > 0.1  # or there would be nothing to compare
    make, shape = NETS[name]
    net = make(dl.nn)
    net.load_state_dict(first)
    net.to(device)
    descent = getattr(dl.optim, optimizer)(net.parameters(), **OPTIMIZERS[optimizer])
    given = [(dl.tensor(x, device=device), dl.tensor(y, device=device)) for x, y in batches(shape)]
    steps = 100 if device == "cpu" else 20
    losses = [step(dl, net, descent, *given[i % 5]) for i in range(steps)]
    off = np.abs(np.array(losses) / expected[:steps] - 1)
    assert off.max() <= TOLERANCE, f"step {off.argmax()} is off by {off.max():.1e}"


# A network that is compared step by step


class TorchResNet(torch.nn.Module):  # type: ignore[misc, name-defined]
    """torch_resnet's with 4 channels instead of 64."""

    def __init__(self) -> None:
        super().__init__()
        block, nn = torch_resnet.BasicBlock, torch.nn
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
        for stage, channels in enumerate((4, 8, 16, 32)):
            before = channels if stage == 0 else channels // 2
            blocks = nn.Sequential(block(before, channels, min(stage, 1) + 1), block(channels, channels, 1))
            setattr(self, f"layer{stage + 1}", blocks)
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_single_steps_of_resnet18(optimizer: str, device: str) -> None:
    torch.manual_seed(2)
    theirs = TorchResNet()
    ours = dl.models.resnet18(CLASSES, base_channels=4).to(device)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    options = OPTIMIZERS[optimizer]
    their_descent = getattr(torch.optim, optimizer)(theirs.parameters(), **options)
    shape = (BATCH, 3, 33, 33)
    for i in range(5 if device == "cpu" else 1):
        x, y = batches(shape)[i % 5]
        ours.load_state_dict({key: tensor.numpy() for key, tensor in theirs.state_dict().items()})
        plain = dl.optim.SGD(
            ours.parameters(), lr=1.0
        )  # the optimizer's state is PyTorch's: see the gradients
        loss = step(dl, ours, plain, dl.tensor(x, device=device), dl.tensor(y, device=device))
        expected = step(torch, theirs, their_descent, torch.from_numpy(x), torch.from_numpy(y))
        assert abs(loss / expected - 1) <= SINGLE
        for key, parameter in ours.named_parameters():
            want = theirs.get_parameter(key).grad.numpy()
            off = np.abs(parameter.grad.numpy() - want).max() / np.abs(want).max()
            assert off <= GRADIENT, (i, key, off)
