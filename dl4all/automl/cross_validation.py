"""A trial: a network of some hyperparameters is trained and judged on each fold of the samples."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.trial import FrozenTrial, Trial
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from dl4all import nn
from dl4all.automl.features import SCALERS, features_of
from dl4all.automl.networks import NetworkSpace, training_settings
from dl4all.automl.targets import ClassTargets, NumberTargets
from dl4all.automl.training import outputs, train
from dl4all.io import load, save
from dl4all.ops.random.generator import Generator, drawing_from
from dl4all.search.space import Space

Array = npt.NDArray[Any]
Fold = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
MANY_ROWS = 10_000
"""Samples from which on one part of them judges networks, in place of each part in turn."""
HELD_OUT = 0.2
"""That part."""


def folds_of(y: Array, classes: bool, cv: Any, seed: int) -> list[Fold]:
    """The rows to train on and those held out, for each fold.

    Args:
        y: targets (N,) or (N, outputs).
        classes: whether they are classes, of which each fold is to have the same parts.
        cv: number of folds, or one of scikit-learn's splitters.
        seed: of the order of the rows.
    """
    if not isinstance(cv, int):
        return [(np.asarray(train), np.asarray(held)) for train, held in cv.split(y, y)]
    least = int(np.bincount(y).min()) if classes else len(y)
    stratified = classes and least > 1
    if len(y) >= MANY_ROWS:
        shuffle = StratifiedShuffleSplit if stratified else ShuffleSplit
        splitter = shuffle(1, test_size=HELD_OUT, random_state=seed)
    elif stratified:
        splitter = StratifiedKFold(min(cv, least), shuffle=True, random_state=seed)
    else:
        splitter = KFold(min(cv, len(y)), shuffle=True, random_state=seed)
    return [(train, held) for train, held in splitter.split(y, y)]


@dataclass
class CrossValidation:
    """The objective of a search: the loss of a network on the rows that are held out of its training.

    Args:
        samples: a table or an array.
        targets: that were fitted.
        y: what they made of them: classes (N,), or numbers (N, outputs).
        folds: rows to train on and rows held out.
        folder: for what trials find.
        seed: of random numbers.
        until: time, as `time.monotonic` tells it, when training ends.
    """

    samples: Any
    targets: ClassTargets | NumberTargets
    y: Array
    folds: Sequence[Fold]
    folder: Path
    seed: int
    until: float
    _features: dict[str, tuple[Any, Array]] = field(default_factory=dict)

    def __call__(self, _: Any, trial: Trial) -> float:
        """The loss of a trial, whose networks and predictions are written to its folder."""
        x = self.features(trial.params)[1]
        networks, predicted, loss = [], [], math.nan
        for number, (rows, held) in enumerate(self.folds):
            if number and trial.number and time.monotonic() > self.until:
                raise optuna.TrialPruned
            networks.append(self.trained(trial.params, rows, self.until, number))
            predicted.append(self.targets.predictions(outputs(networks[-1], x[held])))
            judged = np.concatenate([held for _, held in self.folds[: number + 1]])
            loss = self.targets.loss(np.concatenate(predicted), self.y[judged])
            trial.report(loss, number)
            if number + 1 < len(self.folds) and trial.should_prune():
                raise optuna.TrialPruned
        place = self.folder / str(trial.number)
        place.mkdir(parents=True, exist_ok=True)
        for number, network in enumerate(networks):
            save(network.state_dict(), place / f"{number}.safetensors")
        np.save(place / "predictions.npy", np.concatenate(predicted))
        trial.set_user_attr("parameters", sum(p.numel() for p in networks[0].parameters()))
        return loss

    def trained(
        self, values: dict[str, Any], rows: Array, until: float = math.inf, fold: int = 0
    ) -> nn.Module:
        """A network of some hyperparameters, trained on some rows."""
        x = self.features(values)[1]
        seed, settings = self.seed + fold, training_settings(values)
        with drawing_from(Generator().manual_seed(seed)):
            return train(self.space.build(values), x[rows], self.y[rows], settings, seed=seed, until=until)

    def features(self, values: dict[str, Any]) -> tuple[Any, Array]:
        """The transformer of samples that belongs to some hyperparameters, and what it makes of them."""
        scaler = values.get("scaler", SCALERS[0])
        if scaler not in self._features:
            made = features_of(self.samples, scaler)
            self._features[scaler] = made, made.fit_transform(self.samples)
        return self._features[scaler]

    @cached_property
    def networks(self) -> NetworkSpace:
        """The networks for these samples and targets."""
        shape, classes = self.features({})[1].shape[1:], self.y.dtype.kind == "i"
        return NetworkSpace(shape, self.targets.outputs(self.y), classes)

    @cached_property
    def space(self) -> Space:
        """The space of networks, which makes one of its hyperparameters."""
        return Space(self.networks)

    @property
    def held_out(self) -> npt.NDArray[np.int64]:
        """The rows of all predictions of a trial."""
        return np.concatenate([held for _, held in self.folds])

    def held_out_predictions(self, trial: FrozenTrial) -> Array:
        """Predictions of a finished trial for :attr:`held_out`."""
        found: Array = np.load(self.folder / str(trial.number) / "predictions.npy")
        return found

    def fold_networks(self, trial: FrozenTrial) -> list[nn.Module]:
        """The networks of a finished trial, one for each fold."""
        made = []
        for number in range(len(self.folds)):
            network = self.space.build(trial.params)
            network.load_state_dict(load(self.folder / str(trial.number) / f"{number}.safetensors"))
            made.append(network.eval())
        return made
