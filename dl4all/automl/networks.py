"""The networks that are searched, with the settings of their training, and their source."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, fields
from typing import Any

from dl4all import nn
from dl4all.automl.features import SCALERS
from dl4all.automl.layers import LastState, PeriodicEmbedding, Residual
from dl4all.automl.training import CRITERIA, OPTIMIZERS, SCHEDULES, TrainingSettings
from dl4all.search.choices import Choices
from dl4all.search.spaces import ACTIVATIONS

MOST_EMBEDDED = 128
"""Features of a table up to which they may be embedded."""
MOST_HALVINGS = 4
"""Stages of a convolutional network, at most."""


@dataclass(frozen=True)
class NetworkSpace:
    """The space of networks for some samples: called with choices, it makes one.

    Args:
        shape: of a sample's features: (features,) of a table, (C, steps) of series, (C, height, width).
        outputs: of the network: classes, or numbers.
        classes: whether they are classes.

    Example:
        >>> import dl4all as dl
        >>> space = dl.search.Space(dl.automl.NetworkSpace((30,), 2, True))
        >>> network = space.build(space.draw(seed=0)).eval()
        >>> network(dl.rand(5, 30)).shape
        (5, 2)
    """

    shape: tuple[int, ...]
    outputs: int
    classes: bool

    def __call__(self, s: Choices) -> nn.Module:
        """Ask for the hyperparameters of the training, and of a network, and make it."""
        self._ask_for_training(s)
        match len(self.shape):
            case 1:
                return self._perceptron(s)
            case 2 if s.choice("family", ["convolutional", "recurrent"]) == "recurrent":
                return self._recurrent(s)
            case _:
                return self._convolutional(s)

    def first(self) -> list[dict[str, Any]]:
        """Values that are likely to be good, which are tried before others."""
        steady = {"optimizer": "adamw", "schedule": "cosine", "lr": 3e-3, "weight_decay": 1e-2, "steps": 600}
        if len(self.shape) > 1:
            return [{**steady, "weight_decay": 1e-3, **({"mixup": 0.0} if self.classes else {})}]
        plain = {**steady, "depth": 2, "norm": False, "residual": False}
        embedded, beside = ({"embedding": True}, {"embedding": False}) if self._may_embed() else ({}, {})
        return [
            {**steady, "depth": 0, "scaler": "standard", "weight_decay": 0.1, "lr": 3e-2, "noise": 0.0},
            {**plain, **beside, "scaler": "robust", "width": 128, "dropout": 0.15, "activation": "silu"},
            {**plain, **embedded, "scaler": "quantile", "width": 64, "dropout": 0.1, "activation": "relu"},
        ]

    def _may_embed(self) -> bool:
        return self.shape[0] <= MOST_EMBEDDED

    def _ask_for_training(self, s: Choices) -> None:
        s.choice("optimizer", list(OPTIMIZERS))
        s.floating("lr", 3e-4, 3e-2, log=True)
        s.floating("weight_decay", 1e-5, 1.0, log=True)
        s.choice("schedule", list(SCHEDULES))
        s.choice("batch", [16, 32, 64, 128, 256])
        s.integer("steps", 100, 1600, log=True)
        if self.classes:
            s.floating("label_smoothing", 0.0, 0.1)
        else:
            s.choice("criterion", list(CRITERIA))
        if len(self.shape) == 1:
            s.choice("scaler", SCALERS)
            s.floating("noise", 0.0, 0.3)
        else:
            s.integer("shift", 0, max(1, min(self.shape[1:]) // 8))
        if len(self.shape) == 3:
            s.choice("flip", [False, True])
        s.choice("mixup", [0.0, 0.2, 0.8])

    def _perceptron(self, s: Choices) -> nn.Module:
        (before,) = self.shape
        layers: list[nn.Module] = []
        depth = s.integer("depth", 0, 4)
        if depth:
            if self._may_embed() and s.choice("embedding", [False, True]):
                width, scale = (
                    s.choice("embedding width", [4, 8, 16]),
                    s.floating("embedding scale", 0.02, 2.0, log=True),
                )
                layers.append(PeriodicEmbedding(before, 16, width, scale))
                before *= width
            act, dropout = s.choice("activation", ACTIVATIONS), s.floating("dropout", 0.0, 0.5)
            norm, residual = s.choice("norm", [False, True]), s.choice("residual", [False, True])
            width = s.integer("width", 16, 256, log=True)
            for number in range(depth):
                block = [
                    nn.Linear(before, width),
                    *([nn.BatchNorm1d(width)] if norm else []),
                    act(),
                    nn.Dropout(dropout),
                ]
                layers += [Residual(*block)] if residual and number else block
                before = width
        return nn.Sequential(*layers, nn.Linear(before, self.outputs))

    def _convolutional(self, s: Choices) -> nn.Module:
        channels, *places = self.shape
        conv, norm, pool, mean = (
            (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d)
            if len(places) == 2
            else (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d)
        )
        width, kernel = s.choice("width", [8, 16, 32]), s.choice("kernel", [3, 5])
        act, dropout = s.choice("activation", ACTIVATIONS), s.floating("dropout", 0.0, 0.5)
        residual = s.choice("residual", [False, True])
        halvings = max(0, min(MOST_HALVINGS, min(places).bit_length() - 2))

        def block(inputs: int, outputs: int) -> list[nn.Module]:
            return [conv(inputs, outputs, kernel, padding=kernel // 2, bias=False), norm(outputs), act()]

        layers = block(channels, width)
        for stage in range(s.integer("stages", 1, 1 + halvings)):
            if stage:
                layers += [pool(2), *block(width, 2 * width)]
                width *= 2
            layers += [Residual(*block(width, width))] if residual else block(width, width)
        head = s.choice("head", ["mean", "flat"]) if max(places) <= 64 else "mean"
        left = 1
        if head == "mean":
            layers.append(mean(1))
        else:
            for place in places:
                left *= place >> stage
        return nn.Sequential(
            *layers, nn.Flatten(), nn.Dropout(dropout), nn.Linear(width * left, self.outputs)
        )

    def _recurrent(self, s: Choices) -> nn.Module:
        kind = s.choice("cell", {"gru": nn.GRU, "lstm": nn.LSTM})
        width, layers = s.choice("width", [8, 16, 32]), s.integer("layers", 1, 2)
        cell = kind(self.shape[0], width, layers, batch_first=True)
        return nn.Sequential(
            LastState(cell), nn.Dropout(s.floating("dropout", 0.0, 0.5)), nn.Linear(width, self.outputs)
        )


def training_settings(values: dict[str, Any]) -> TrainingSettings:
    """The settings of a training among the hyperparameters of a network.

    Example:
        >>> import dl4all as dl
        >>> dl.automl.training_settings({"lr": 0.01, "depth": 3}).lr
        0.01
    """
    names = {field.name for field in fields(TrainingSettings)}
    return TrainingSettings(**{name: value for name, value in values.items() if name in names})


def source(network: nn.Module, indent: str = "") -> str:
    """The expression that makes a network, of layers of `dl.nn` and `dl.automl`.

    Example:
        >>> import dl4all as dl
        >>> print(dl.automl.source(dl.nn.Sequential(dl.nn.Linear(2, 3), dl.nn.ReLU())))
        dl.nn.Sequential(
            dl.nn.Linear(2, 3),
            dl.nn.ReLU(),
        )
    """
    name = f"dl.{'automl' if type(network).__module__.startswith('dl4all.automl') else 'nn'}."
    if not isinstance(network, (nn.Sequential, LastState)):
        return name + _without_defaults(network)
    within = indent + "    "
    layers = "".join(f"{within}{source(layer, within)},\n" for layer in network.children())
    return f"{name}{type(network).__name__}(\n{layers}{indent})"


def _without_defaults(layer: nn.Module) -> str:
    """The call that makes a layer, as it prints itself, without arguments that have their default."""
    call = ast.parse(f"{type(layer).__name__}({layer.extra_repr()})", mode="eval").body
    assert isinstance(call, ast.Call)
    defaults = {name: known.default for name, known in inspect.signature(type(layer)).parameters.items()}

    def is_default(keyword: ast.keyword) -> bool:
        value, default = ast.literal_eval(keyword.value), defaults.get(keyword.arg or "")
        return value == default or (isinstance(value, tuple) and all(part == default for part in value))

    call.keywords = [keyword for keyword in call.keywords if not is_default(keyword)]
    return ast.unparse(call)
