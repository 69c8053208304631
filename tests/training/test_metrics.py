"""Metrics: their values, where they are computed, and when the Trainer reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader
from dl4all.errors import ShapeError
from tests.conftest import need


def trainer(device: str, metrics: Any) -> dl.Trainer:
    net = dl.nn.Sequential(dl.nn.Linear(2, 16), dl.nn.ReLU(), dl.nn.Linear(16, 3))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    return dl.Trainer(net, dl.nn.CrossEntropyLoss(), optimizer, metrics, device, progress=False)


def test_metrics() -> None:
    scores = dl.tensor(np.arange(21, dtype=np.float32).reshape(3, 7) % 5)
    assert dl.training.accuracy(scores, dl.tensor([4, 2, 1])).item() == pytest.approx(2 / 3)
    # Of seven places, the two lowest are outside: 0 and 0; 1 and 1; 0 and 1 by the order of places.
    assert dl.training.top5_accuracy(scores, dl.tensor([0, 1, 1])).item() == pytest.approx(1 / 3)
    logits = dl.tensor([[0.2], [-0.3], [0.0]])
    assert dl.training.binary_accuracy(logits, dl.tensor([[1.0], [1.0], [0.0]])).item() == pytest.approx(
        2 / 3
    )
    for function in (dl.training.accuracy, dl.training.top5_accuracy, dl.training.binary_accuracy):
        with pytest.raises(ShapeError, match=rf"^\[{function.__name__}\] outputs of shape \(3, 7\)"):
            function(scores, dl.tensor([1, 2]))


@pytest.mark.parametrize("shape", [(37, 11), (5, 3), (3, 7, 2, 5)])
def test_metrics_on_devices(shape: tuple[int, ...], device: str) -> None:
    """With equal outputs, and classes that are none, such as those that a loss ignores."""
    rng = np.random.default_rng(shape[0])
    scores = rng.integers(-3, 4, shape).astype(np.float32)
    classes = rng.integers(-1, shape[1] + 1, (shape[0], *shape[2:]))
    outputs, targets = dl.tensor(scores, device=device), dl.tensor(classes, device=device)
    found = dl.training.accuracy(outputs, targets)
    assert (str(found.device), found.shape) == (device, ())
    assert found.item() == pytest.approx(np.mean(scores.argmax(1) == classes))
    if len(shape) == 2:
        best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        expected = np.mean((best == classes[:, None]).any(1))
        assert dl.training.top5_accuracy(outputs, targets).item() == pytest.approx(expected)
    right = dl.training.binary_accuracy(outputs, (outputs + 1 > 0).float())
    assert right.item() == pytest.approx(np.mean((scores > 0) == (scores > -1)))


def test_nan_is_not_among_the_best(device: str) -> None:
    outputs = dl.tensor([[np.nan] * 7, [1.0, np.inf, 3.0, -np.inf, 4.0, 2.0, 0.0]], device=device)
    assert dl.training.top5_accuracy(outputs, dl.tensor([0, 0], device=device)).item() == 0.5
    assert dl.training.top5_accuracy(outputs, dl.tensor([6, 3], device=device)).item() == 0
    assert np.isnan(dl.training.accuracy(outputs[:0], dl.zeros(0, dtype="int64", device=device)).item())


@pytest.mark.vulkan
def test_metrics_are_not_read_before_the_epoch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch only the loss is, to stop in time; and no fallback takes the outputs to the host."""
    need("vulkan:0")
    sizes: list[int] = []
    download = dl.Device.download

    def noted(self: dl.Device, storage: Any, out: Any, start: int = 0) -> None:
        sizes.append(out.nbytes)
        download(self, storage, out, start)

    monkeypatch.setattr(dl.Device, "download", noted)
    training = trainer("vulkan:0", ["accuracy", "top5_accuracy"])
    training.loss = lambda outputs, targets: (outputs * outputs).mean()  # cross entropy checks the targets
    training.fit(DataLoader(dl.data.spiral(90), 13, device="vulkan:0"), epochs=2)
    assert sizes == ([4] * 7 + [4 * 7] * 2) * 2
    sizes.clear()
    training.evaluate(DataLoader(dl.data.spiral(90), 13, device="vulkan:0"))
    assert sizes == [4 * 7] * 3


def test_metrics_may_be_numbers_or_tensors(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a float, a tensor that changes later, or now one and now the other; more than wait at a time."""
    monkeypatch.setattr(dl.training.totals, "CAPACITY", 3)
    count = dl.zeros((), device=device)
    numbers = iter(range(5))

    def counting(outputs: Any, targets: Any) -> dl.Tensor:
        return count.add_(1)

    def mixed(outputs: Any, targets: Any) -> float | dl.Tensor:
        number = next(numbers)
        return float(number) if number % 3 == 1 else dl.tensor([number], device=device)

    metrics = {"float": lambda outputs, targets: 0.25, "counting": counting, "mixed": mixed}
    values = trainer(device, metrics).evaluate(DataLoader(dl.data.spiral(90), 20, device=None))
    weights = [20, 20, 20, 20, 10]
    assert values["float"] == 0.25
    assert values["counting"] == np.average([1, 2, 3, 4, 5], weights=weights)
    assert values["mixed"] == np.average(range(5), weights=weights)
