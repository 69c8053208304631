"""REINFORCE: a controller that learns which values bring reward."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import Study
from optuna.trial import FrozenTrial

from dl4all.errors import ArgumentError
from dl4all.search.samplers.history_sampler import HistorySampler, score
from dl4all.search.space import at_random, cardinality, contains, values_of

BINS = 8
"""Ranges into which numbers are cut that have more values than :data:`MOST`."""
MOST = 64
Logits = npt.NDArray[np.float64]


class ReinforceSampler(HistorySampler):
    """Policy gradients on a controller with a distribution of its own for each hyperparameter.

    Rewards are a trial's values, less their moving mean, over their moving deviation. Large ranges of numbers
    are cut into 8 parts.

    Args:
        learning_rate: of the controller's gradient ascent.
        entropy: weight of the distributions' entropy, which keeps them from settling early.
        warm_up: trials that are drawn at random, and learnt from.
        seed: of its random numbers.

    Raises:
        ArgumentError: a setting is negative.

    Source:
        R. J. Williams, Simple Statistical Gradient-Following Algorithms, 1992; the controller as in G. Bender
        et al., Can Weight Sharing Outperform Random Architecture Search? An Investigation With TuNAS, 2020.

    Example:
        >>> import dl4all as dl, optuna
        >>> study = optuna.create_study(sampler=dl.search.samplers.ReinforceSampler(seed=0))
        >>> study.optimize(lambda trial: trial.suggest_int("x", 0, 20) ** 2, n_trials=100)
        >>> study.best_value < 4
        True
    """

    def __init__(
        self,
        learning_rate: float = 0.3,
        entropy: float = 0.01,
        warm_up: int = 10,
        seed: int | None = None,
    ) -> None:
        if min(learning_rate, entropy, warm_up) < 0:
            raise ArgumentError(
                f"[ReinforceSampler] expected settings of at least 0, got learning_rate {learning_rate}, "
                f"entropy {entropy}, warm_up {warm_up}"
            )
        super().__init__(seed)
        self._rate, self._entropy, self._warm_up = learning_rate, entropy, warm_up
        self._controller: dict[str, Logits] = {}
        self._learnt: set[int] = set()
        self._mean, self._square = 0.0, 0.0

    def plan(self, study: Study, finished: Sequence[FrozenTrial]) -> dict[str, Any]:
        for trial in finished:
            if trial.number not in self._learnt:
                self._learnt.add(trial.number)
                self._learn(trial, score(study, trial))
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        parts = _parts(param_distribution)
        logits = self._controller.get(param_name)
        if logits is None or len(logits) != len(parts) or len(self._learnt) < self._warm_up:
            return at_random(self.rng)(param_name, param_distribution)
        part = parts[int(self.rng.choice(len(parts), p=_softmax(logits)))]
        return at_random(self.rng)(param_name, part) if isinstance(part, BaseDistribution) else part

    def _learn(self, trial: FrozenTrial, reward: float) -> None:
        """One step up along the gradient of the expected reward and the entropy."""
        count = len(self._learnt)
        weight = max(1 / count, 0.05)
        before = self._mean
        self._mean += weight * (reward - self._mean)
        self._square += weight * ((reward - before) * (reward - self._mean) - self._square)
        advantage = (reward - before) / (self._square**0.5 + 1e-12) if count > 1 else 0.0
        advantage = float(
            np.clip(advantage, -3, 3)
        )  # a network that fails to learn tells nothing of the others
        for name, made in trial.distributions.items():
            parts = _parts(made)
            logits = self._controller.get(name)
            if logits is None or len(logits) != len(parts):
                logits = np.zeros(len(parts))
            chances = _softmax(logits)
            taken = np.arange(len(parts)) == _position(made, parts, trial.params[name])
            surprise = -np.log(np.maximum(chances, 1e-12))
            gradient = advantage * (taken - chances)
            gradient += self._entropy * chances * (surprise - chances @ surprise)
            self._controller[name] = logits + self._rate * gradient


def _softmax(logits: Logits) -> Logits:
    exponents = np.exp(logits - logits.max())
    return np.asarray(exponents / exponents.sum())


def _parts(made: BaseDistribution) -> Sequence[Any]:
    """Every value, or, of many numbers, ranges of them."""
    if isinstance(made, CategoricalDistribution):
        return made.choices
    assert isinstance(made, (IntDistribution, FloatDistribution))
    kind: Any = type(made)
    count = cardinality(made)
    if count <= MOST:
        return values_of(made)
    if made.step is not None and not made.log:
        steps = np.linspace(0, int(count), BINS + 1).astype(int).tolist()
        return [
            kind(made.low + made.step * a, made.low + made.step * (b - 1), step=made.step)
            for a, b in itertools.pairwise(steps)
        ]
    ends = (
        np.geomspace(made.low, made.high, BINS + 1)
        if made.log
        else np.linspace(made.low, made.high, BINS + 1)
    )
    ends[0], ends[-1] = made.low, made.high
    if kind is IntDistribution:
        ends = np.round(ends)
    return [kind(a, b, log=made.log) for a, b in itertools.pairwise(ends.tolist())]


def _position(made: BaseDistribution, parts: Sequence[Any], value: Any) -> int:
    for number, part in enumerate(parts):
        if contains(part, value) if isinstance(part, BaseDistribution) else _same(part, value):
            return number
    return len(parts) - 1


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right
