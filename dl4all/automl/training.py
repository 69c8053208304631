"""Training of a network with given settings, and its predictions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all import nn, optim
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.optim import lr_scheduler
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.training import Trainer

Floats = npt.NDArray[np.float32]
MOST_ROWS = 1024
"""Samples of a batch of predictions."""

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adamw": optim.AdamW,
    "nadam": lambda parameters, **settings: optim.NAdam(parameters, decoupled_weight_decay=True, **settings),
    "sgd": lambda parameters, **settings: optim.SGD(parameters, momentum=0.9, nesterov=True, **settings),
}
SCHEDULES: dict[str, Callable[[Any, float, int], Any]] = {
    "cosine": lambda optimizer, _, steps: lr_scheduler.CosineAnnealingLR(optimizer, steps),
    "one-cycle": lr_scheduler.OneCycleLR,
    "constant": lambda *_: None,
}
CRITERIA: dict[str, Callable[[], nn.Module]] = {"mse": nn.MSELoss, "huber": nn.HuberLoss}


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training of a network.

    Args:
        lr: the learning rate, the highest one of its schedule.
        optimizer: ``"adamw"``, ``"nadam"`` or ``"sgd"`` (with Nesterov's momentum).
        weight_decay: of the optimizer.
        schedule: of the learning rate: ``"cosine"``, ``"one-cycle"`` or ``"constant"``.
        batch: samples of a step.
        steps: of the optimizer.
        criterion: of numbers: ``"mse"`` or ``"huber"``; of classes it is the cross-entropy.
        label_smoothing: of classes.
        mixup: parameter of the Beta distribution by which two samples, and their targets, are mixed; 0 for
            none. Source: H. Zhang et al., mixup: Beyond Empirical Risk Minimization, 2018.
        noise: deviation of normal noise that is added to the samples.
        shift: most pixels, or steps, by which pictures and series are moved; zeros come in.
        flip: whether each other picture is seen in the mirror.

    Example:
        >>> import dl4all as dl
        >>> dl.automl.TrainingSettings(lr=0.01, steps=100).optimizer
        'adamw'
    """

    lr: float = 3e-3
    optimizer: str = "adamw"
    weight_decay: float = 1e-2
    schedule: str = "cosine"
    batch: int = 64
    steps: int = 500
    criterion: str = "mse"
    label_smoothing: float = 0.0
    mixup: float = 0.0
    noise: float = 0.0
    shift: int = 0
    flip: bool = False


def train(
    network: nn.Module,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    settings: TrainingSettings,
    *,
    seed: int = 0,
    device: str | Device = "auto",
    until: float = math.inf,
) -> nn.Module:
    """Train a network on samples, and leave it ready for inference.

    Args:
        network: gives logits of classes, or numbers.
        x: samples (N, ...) in float32.
        y: classes (N,) in int64, or numbers (N, outputs) in float32.
        settings: of the training.
        seed: of the order of the samples, and of what is drawn for them.
        device: on which it is trained.
        until: time, as `time.monotonic` tells it, after which no step begins but the first.

    Returns:
        The network.

    Raises:
        ArgumentError: a setting is out of its range, or there are other targets than samples.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
        >>> y = (x[:, 0] > x[:, 1]).astype(np.int64)
        >>> settings = dl.automl.TrainingSettings(lr=0.1, steps=100)
        >>> network = dl.automl.train(dl.nn.Linear(2, 2), x, y, settings, device="cpu")
        >>> bool((dl.automl.outputs(network, x, device="cpu").argmax(1) == y).mean() > 0.95)
        True
    """
    for name, known in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("criterion", CRITERIA)):
        if getattr(settings, name) not in known:
            raise ArgumentError(
                f"[automl] {name} is one of {', '.join(known)}, got {getattr(settings, name)!r}"
            )
    if settings.steps < 1 or settings.batch < 1:
        raise ArgumentError(f"[automl] expected at least one step of one sample, got {settings}")
    if not len(x) or len(x) != len(y):
        raise ArgumentError(f"[automl] expected as many targets as samples, got {len(y)} for {len(x)}")
    place = open_device(device)
    network.to(place)
    optimizer = OPTIMIZERS[settings.optimizer](
        network.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
    )
    classes = y.dtype.kind == "i"
    loss = (
        nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
        if classes
        else CRITERIA[settings.criterion]()
    )
    trainer = Trainer(
        network,
        loss,
        optimizer,
        device=place,
        scheduler=SCHEDULES[settings.schedule](optimizer, settings.lr, settings.steps),
        scheduler_interval="step",
        stop_on_nan=False,
        progress=False,
        compile=True,
    )
    if classes and settings.mixup:
        y = np.eye(outputs(network, x[:1], device=place).shape[1], dtype=np.float32)[y]
    trainer.fit(_Batches(x, y, settings, np.random.default_rng(seed), until), 1)
    network.eval()
    return network


def outputs(network: nn.Module, x: npt.NDArray[Any], *, device: str | Device = "auto") -> Floats:
    """The outputs (N, ...) of a network for samples (N, ...).

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> dl.automl.outputs(dl.nn.Linear(2, 3), np.ones((5, 2), np.float32), device="cpu").shape
        (5, 3)
    """
    place = open_device(device)
    network.to(place).eval()
    with no_grad():
        parts = [
            network(from_numpy(x[start : start + MOST_ROWS], place)).numpy()
            for start in range(0, len(x), MOST_ROWS)
        ]
    return np.concatenate(parts)


class _Batches:
    """Batches of one size for all steps: random orders of the samples one after the other."""

    def __init__(
        self,
        x: npt.NDArray[Any],
        y: npt.NDArray[Any],
        settings: TrainingSettings,
        rng: np.random.Generator,
        until: float,
    ) -> None:
        self.x, self.y, self.settings, self.rng, self.until = x, y, settings, rng, until

    def __len__(self) -> int:
        return self.settings.steps

    def __iter__(self) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        rows, size = np.empty(0, np.int64), min(self.settings.batch, len(self.x))
        for step in range(self.settings.steps):
            if step and time.monotonic() > self.until:
                return
            if len(rows) < size:
                rows = np.concatenate([rows, self.rng.permutation(len(self.x))])
            taken, rows = rows[:size], rows[size:]
            yield self._augmented(self.x[taken], self.y[taken])

    def _augmented(
        self, x: npt.NDArray[Any], y: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        settings, rng = self.settings, self.rng
        if settings.flip:
            mirrored = rng.random(len(x)) < 0.5
            x[mirrored] = x[mirrored, ..., ::-1]
        if settings.shift:
            x = _shifted(x, settings.shift, rng)
        if settings.noise:
            x = x + np.float32(settings.noise) * rng.standard_normal(x.shape, np.float32)
        if settings.mixup:
            part, other = np.float32(rng.beta(settings.mixup, settings.mixup)), rng.permutation(len(x))
            x, y = part * x + (1 - part) * x[other], part * y + (1 - part) * y[other]
        return x, y


def _shifted(x: npt.NDArray[Any], most: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Samples (N, C, ...), each moved along its axes by up to `most` places."""
    places = x.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), *[(most, most)] * len(places)])
    view: Any = np.lib.stride_tricks.sliding_window_view
    views = view(padded, places, tuple(range(2, x.ndim)))
    moves = (rng.integers(0, 2 * most + 1, len(x)) for _ in places)
    return np.ascontiguousarray(views[(np.arange(len(x)), slice(None), *moves)])
