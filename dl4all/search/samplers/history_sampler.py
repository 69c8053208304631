"""Samplers that plan a whole trial from those that are finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from dl4all.search.space import at_random, contains

Values = dict[str, Any]


class HistorySampler(BaseSampler):
    """A sampler with a plan for each trial, and even draws for hyperparameters that the plan does not have.

    Plans follow from the trials in the study's storage alone, so that several processes share them.

    Args:
        seed: of its random numbers.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self._plans: dict[int, Values] = {}

    def plan(self, study: Study, finished: Sequence[FrozenTrial]) -> Values:
        """Values for a new trial, after those that have a value, in the order in which they began."""
        raise NotImplementedError

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._raise_error_if_multi_objective(study)
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        self._plans[trial.number] = self.plan(study, finished)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Values:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        planned = self._plans.get(trial.number, {})
        if param_name in planned and contains(param_distribution, planned[param_name]):
            return planned[param_name]
        return at_random(self.rng)(param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._plans.pop(trial.number, None)

    def reseed_rng(self) -> None:
        self.rng = np.random.default_rng()


def score(study: Study, trial: FrozenTrial) -> float:
    """A trial's value; larger is better."""
    assert trial.value is not None
    return trial.value if study.direction == StudyDirection.MAXIMIZE else -trial.value


def another(rng: np.random.Generator, trial: FrozenTrial, name: str) -> Any:
    """Another value for one of a trial's hyperparameters, drawn evenly; the same where there is no other."""
    draw, made = at_random(rng), trial.distributions[name]
    for _ in range(100):
        value = draw(name, made)
        if value != trial.params[name] or made.single():
            break
    return value
