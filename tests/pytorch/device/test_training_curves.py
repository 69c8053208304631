"""Networks of PyTorch that train on ``dlall`` take the steps that they take on PyTorch's CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks are PyTorch's")
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

import dl4all.torch  # noqa: E402 - not without PyTorch
from examples.char_lstm import documentation  # noqa: E402
from examples.torch_gpt import BLOCK, GPT, loss_of  # noqa: E402
from examples.torch_resnet import digits, resnet18  # noqa: E402

STEPS = 50
BATCH = 8


class LSTMClassifier(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Reads a digit row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 24, batch_first=True)
        self.linear = torch.nn.Linear(24, 10)

    def forward(self, images: Any) -> Any:
        return self.linear(self.lstm(images[:, 0])[0].mean(1))


def digit_batches(size: int, dtype: Any = torch.float32) -> list[tuple[Any, Any]]:
    images, labels, _, _ = digits()
    images = torch.nn.functional.adaptive_avg_pool2d(images, size).to(dtype)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    parts = order[: STEPS * BATCH].split(BATCH)
    return [(images[part], labels[part]) for part in parts]


def text_batches() -> list[tuple[Any, Any]]:
    tokens = torch.frombuffer(bytearray(documentation()), dtype=torch.uint8).long()
    starts = np.random.default_rng(0).integers(len(tokens) - BLOCK, size=(STEPS, BATCH // 2, 1))
    windows = tokens[torch.from_numpy(starts + np.arange(BLOCK + 1))]
    return [(window[:, :-1], window[:, 1:]) for window in windows]


def curve(net: Any, batches: list[tuple[Any, Any]], device: str) -> list[float]:
    """The loss of each step, with clipped gradients."""
    loss_function = loss_of if isinstance(net, GPT) else torch.nn.functional.cross_entropy
    net = copy.deepcopy(net).to(device)
    if isinstance(net, LSTMClassifier):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    else:  # Adam steps by the signs of gradients, and in these networks some are nothing but rounding errors
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, y in batches:
        loss = loss_function(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("make", "data"),
    [
        # Rectifiers and pooling make its float32 curve jump: PyTorch's own loss moves by up to 7 % within 50
        # steps when its parameters differ by 1e-7 at the start.
        (lambda: resnet18(base=4).double(), lambda: digit_batches(16, torch.float64)),
        (lambda: GPT(width=32, layers=2), text_batches),
        (LSTMClassifier, lambda: digit_batches(8)),
    ],
    ids=["resnet18", "gpt", "lstm"],
)
def test_fifty_steps(make: Callable[[], Any], data: Callable[[], list[tuple[Any, Any]]]) -> None:
    torch.manual_seed(0)
    net = make()
    dl4all.torch.fallbacks.clear()
    expected, computed = (curve(net, data(), device) for device in ("cpu", "dlall"))
    assert not dl4all.torch.fallbacks
    assert np.mean(expected[-10:]) < 0.99 * np.mean(expected[:10])
    np.testing.assert_allclose(computed, expected, rtol=1e-4)
