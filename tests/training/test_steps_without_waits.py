"""What a training step asks of its device: no download, no wait, and no upload but the batch.

The null device counts commands. It computes nothing, which makes no difference here: what a step asks for
does not depend on numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.nn import functional as F
from dl4all.runtime.null.backend import NullBackend
from dl4all.scheduler import fallback
from tests.support.operands import generator

WARM = 3  # steps until what is made once has been made
CLASSES = 5


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory, which would be counted."""


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    with fallback.policy("error"):
        yield


class SequenceClassifier(nn.Module):
    """An embedding with padding, a recurrent layer, and a layer on its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: dl.Tensor) -> Any:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class LanguageModel(nn.Module):
    """A GPT with the scores of all tokens in one axis of classes, as losses take them."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = dl.models.GPT(vocab_size=11, block_size=6, n_layer=2, n_head=2, n_embd=8, dropout=0.1)

    def forward(self, x: dl.Tensor) -> Any:
        return self.gpt(x).transpose(1, 2)


random = generator("steps")
IMAGES = random.normal(size=(8, 3, 32, 32)).astype(np.float32)
VECTORS = random.normal(size=(8, 12)).astype(np.float32)
TOKENS, WORDS = random.integers(0, 11, (8, 6)), random.integers(0, 20, (8, 7))
LABELS = random.integers(0, CLASSES, 8)
MODELS: dict[str, tuple[Callable[[], nn.Module], Any, Any]] = {
    "MLP": (lambda: dl.models.MLP(12, (16,), CLASSES), VECTORS, LABELS),
    "ResNet-18": (lambda: dl.models.resnet18(num_classes=CLASSES), IMAGES, LABELS),
    "LSTM": (SequenceClassifier, WORDS, LABELS),
    "GPT": (LanguageModel, TOKENS, TOKENS),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "AdamW": lambda parameters: dl.optim.AdamW(parameters, lr=1e-3),
    "SGD": lambda parameters: dl.optim.SGD(parameters, lr=1e-3, momentum=0.9),
}
WAITS = ("download", "synchronize", "event", "wait")


def device() -> tuple[dl.Device, Counter[str]]:
    backend = NullBackend()
    return dl.Device.of_backend("null:0", backend), backend.counts


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step(model: str, optimizer: str) -> None:
    place, counts = device()
    make, inputs, targets = MODELS[model]
    net = make().to(place)
    stepper = OPTIMIZERS[optimizer](net.parameters())
    for step in range(WARM + 3):
        x, y = dl.tensor(inputs, device=place), dl.tensor(targets, device=place)
        before = counts.copy()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        stepper.step()
        stepper.zero_grad()
        if step >= WARM:
            made = counts - before
            assert made["dispatch"] > 10
            assert {name: made[name] for name in WAITS} == dict.fromkeys(WAITS, 0)
            # Tables of where small gradients lie, if they moved: for the norm, its factor and the optimizer.
            assert made["upload"] <= 3
            assert made["upload bytes"] <= 2**13
    before = counts.copy()
    loss.item()
    assert (counts - before)["download"] == 1


@pytest.mark.parametrize("model", MODELS)
def test_an_epoch_of_a_trainer(model: str) -> None:
    """Each batch is uploaded, and its loss is downloaded; the metrics are read once for the epoch."""
    place, counts = device()
    make, inputs, targets = MODELS[model]
    net = make()
    optimizer = dl.optim.AdamW(net.parameters(), lr=1e-3)
    trainer = dl.Trainer(net, F.cross_entropy, optimizer, ["accuracy"], place, progress=False)
    batches = [(inputs[i : i + 2], targets[i : i + 2]) for i in range(0, 8, 2)]
    trainer.fit(batches, epochs=1)
    before = counts.copy()
    trainer.fit(batches, epochs=2)
    made = counts - before
    assert made["download"] == len(batches) + 1  # each loss, and at the end the accuracies
    assert made["synchronize"] + made["event"] + made["wait"] == 0
    assert made["upload"] <= 3 * len(batches)  # inputs, targets, a table
