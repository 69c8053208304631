"""Networks through ``torch.compile(backend="dl4all")`` train and infer as they do on PyTorch's CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch device needs PyTorch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import dl4all.torch  # noqa: E402
from dl4all.pytorch.device import compiler, devices  # noqa: E402
from tests.conftest import need  # noqa: E402

# PyTorch warns of itself, where Dynamo first looks at an optimizer.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

STEPS = 4  # the third one is the first that is replayed


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled before; no op runs on the CPU."""
    torch.manual_seed(5)
    torch._dynamo.reset()
    compiler.calls.clear()
    dl4all.torch.set_fallback("error")
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    dl4all.torch.set_fallback(None)
    torch._dynamo.reset()


class Residual(nn.Module):
    """A block of ResNet-18, which halves the image."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, 2, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, 2, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class GPT(nn.Module):
    """One block with causal attention and a head that is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(31, 24), nn.Embedding(13, 24)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(24), nn.LayerNorm(24), nn.LayerNorm(24)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.mlp = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24))
        self.head = nn.Linear(24, 31, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        batch, length = tokens.shape
        x = self.embedding(tokens) + self.positions(torch.arange(length, device=tokens.device))
        q, k, v = (
            part.view(batch, length, 3, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        return self.head(self.norm3(x + self.mlp(self.norm2(x))))


class LSTM(nn.Module):
    """Two layers, of which the last output counts."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(7, 11, 2, batch_first=True), nn.Linear(11, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def mlp() -> Any:
    return nn.Sequential(nn.Linear(20, 17), nn.Tanh(), nn.Linear(17, 3))


def residual_network() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.MaxPool2d(3, 2, 1), Residual(5, 7), nn.Flatten(), nn.Linear(63, 3)
    )


CASES: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "mlp": (mlp, lambda batch: torch.randn(batch, 20)),
    "resnet": (residual_network, lambda batch: torch.randn(batch, 3, 11, 11)),
    "gpt": (GPT, lambda batch: torch.randint(0, 31, (batch, 13))),
    "lstm": (LSTM, lambda batch: torch.randn(batch, 4, 7)),
}


def replayed() -> list[bool]:
    """For each graph of torch.compile, whether it has become a recorded call."""
    return [bool(call.recordings()) for call in compiler.calls]


@pytest.mark.parametrize(
    "name", ["gpt", "lstm", *(pytest.param(n, marks=pytest.mark.full) for n in ("mlp", "resnet"))]
)
def test_on_the_cpu(name: str) -> None:
    _train_and_infer(name, torch.device("cpu"))


@pytest.mark.vulkan
@pytest.mark.parametrize(
    "name", ["mlp", "resnet", *(pytest.param(n, marks=pytest.mark.full) for n in ("gpt", "lstm"))]
)
def test_on_vulkan(name: str) -> None:
    need("vulkan:0")
    _train_and_infer(name, torch.device(devices.NAME, devices.names().index("vulkan:0")))


def _train_and_infer(name: str, place: Any) -> None:
    """A few steps of SGD, and inference, with the parameters at a place."""
    make, batch_of = CASES[name]
    own = make()
    other = copy.deepcopy(own)
    with torch.no_grad():
        other = other.to(place)
        if name == "gpt":
            other.head.weight = other.embedding.weight
    compiled = torch.compile(other, backend=compiler.backend, fullgraph=True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9) for m in (own, other)]
    for _ in range(STEPS):
        x = batch_of(5)
        losses = [model(x.to(at)).square().mean() for model, at in ((own, "cpu"), (compiled, place))]
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
        torch.testing.assert_close(losses[1].cpu(), losses[0])
        for expected, got in zip(own.parameters(), other.parameters(), strict=True):
            assert (got.device, got.grad.device) == (place, place)
            torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5)
        for optimizer in optimizers:
            optimizer.step()
    for expected, got in zip(own.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    own.eval()
    other.eval()
    with torch.no_grad():
        for _ in range(STEPS):
            x = batch_of(5)
            result = compiled(x.to(place))
            assert result.device == place
            torch.testing.assert_close(result.cpu(), own(x), rtol=1e-4, atol=1e-5)
    assert replayed() == [True] * 3  # forward, backward, inference


@pytest.mark.parametrize("dynamic", [True, False])
def test_batch_sizes(dynamic: bool) -> None:
    model = mlp()
    compiled = torch.compile(copy.deepcopy(model).to(devices.NAME), backend=compiler.backend, dynamic=dynamic)
    for batch in (4, 7, 3) * (STEPS + 1):
        x = torch.randn(batch, 20)
        torch.testing.assert_close(compiled(x.to(devices.NAME)).cpu(), model(x))
    assert {call.recordings() for call in compiler.calls} - {0} == {3 if dynamic else 1}


def test_a_whole_step_with_its_optimizer() -> None:
    own = mlp()
    other = copy.deepcopy(own).to(devices.NAME)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in (own, other)]

    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(lambda x: step(other, optimizers[1], x), backend=compiler.backend)
    for _ in range(STEPS + 2):
        x = torch.randn(5, 20)
        expected = step(own, optimizers[0], x)
        torch.testing.assert_close(compiled(x.to(devices.NAME)).cpu(), expected, rtol=1e-4, atol=1e-6)
    for expected, got in zip(own.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_an_exported_program() -> None:
    model = GPT().eval()
    tokens = torch.randint(0, 31, (2, 13))
    program = torch.export.export(model, (tokens,))
    compiled = compiler.compile_exported(program)
    for _ in range(STEPS):
        tokens = torch.randint(0, 31, (2, 13))
        result = compiled(tokens.to(devices.NAME))
        assert devices.is_here(result)
        torch.testing.assert_close(result.cpu(), model(tokens), rtol=1e-4, atol=1e-5)
    assert all(replayed())
