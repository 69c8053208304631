"""Convolutional classifiers of images and of signals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

import dl4all as dl
from benchmarks.networks.case import Batch, Case, images, supervised
from benchmarks.torch_resnet import ResNet18

CLASSES = 10


def cnn(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, CLASSES),
    )  # fmt: skip


def resnet18(lib: Any) -> Any:
    """Each library's own, with the same names of weights."""
    return ResNet18(CLASSES) if lib is torch else dl.models.resnet18(CLASSES)


def separable(lib: Any) -> Any:
    """MobileNet's blocks: a depthwise convolution, then one of 1x1, each with batch norm and ReLU6."""
    nn = lib.nn
    layers = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    for before, after, stride in ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)):
        layers += [
            nn.Conv2d(before, before, 3, stride, padding=1, groups=before, bias=False),
            nn.BatchNorm2d(before), nn.ReLU6(),
            nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU6(),
        ]  # fmt: skip
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES))


def cifar_resnet(lib: Any) -> Any:
    """ResNet-20 of the original paper's experiments with CIFAR-10, its shortcuts convolutions."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            stride = after // before
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            shortcut = nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            self.shortcut = nn.Sequential(*shortcut if stride > 1 else ())

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))

    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    blocks = [Block(*pair) for pair in itertools.pairwise(widths)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def dilated(lib: Any) -> Any:
    """A classifier of signals: residual blocks of dilated convolutions with a gate, as in WaveNet."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.both = nn.Conv1d(32, 64, 3, padding=dilation, dilation=dilation)
            self.norm = nn.GroupNorm(8, 64)
            self.out = nn.Conv1d(32, 32, 1)

        def forward(self, x: Any) -> Any:
            signal, gate = self.norm(self.both(x)).chunk(2, 1)
            return x + self.out(signal.tanh() * gate.sigmoid())

    blocks = [Block(1 << exponent) for exponent in range(6)]
    return nn.Sequential(
        nn.Conv1d(1, 32, 7, padding=3), *blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(32, CLASSES),
    )  # fmt: skip


def signals(rng: np.random.Generator) -> Batch:
    return rng.standard_normal((16, 1, 512)).astype(np.float32), rng.integers(0, CLASSES, 16)


CASES = {
    "cnn": Case(cnn, images(64, 1, 28), supervised()),
    "separable": Case(separable, images(32, 3, 32), supervised(optimizer="RMSprop", lr=1e-4, momentum=0.9)),
    "cifar-resnet": Case(cifar_resnet, images(32, 3, 32), supervised(weight_decay=1e-4, nesterov=True)),
    "resnet18": Case(resnet18, images(8, 3, 224), supervised()),
    "dilated": Case(dilated, signals, supervised(optimizer="Adam", lr=1e-3)),
}
