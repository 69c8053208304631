"""Regularized evolution: the youngest trials are the population, and the oldest ones leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial

from dl4all.errors import ArgumentError
from dl4all.search.samplers.history_sampler import HistorySampler, another, score


class RegularizedEvolutionSampler(HistorySampler):
    """Regularized (aging) evolution.

    The population are the last trials that have a value. A new trial is the best of some of them, with one
    hyperparameter drawn anew; those that come into being by it are drawn, too.

    Args:
        population_size: how many trials are in the population; the first ones are drawn at random.
        tournament_size: of how many of them, drawn at random, the best is the parent.
        seed: of its random numbers.

    Raises:
        ArgumentError: a size is below 1, or the tournament larger than the population.

    Source:
        E. Real et al., Regularized Evolution for Image Classifier Architecture Search, 2019.

    Example:
        >>> import dl4all as dl, optuna
        >>> study = optuna.create_study(sampler=dl.search.samplers.RegularizedEvolutionSampler(seed=0))
        >>> study.optimize(lambda trial: trial.suggest_int("x", 0, 100) ** 2, n_trials=60)
        >>> study.best_value < 25
        True
    """

    def __init__(self, population_size: int = 20, tournament_size: int = 5, seed: int | None = None) -> None:
        if not 1 <= tournament_size <= population_size:
            raise ArgumentError(
                f"[RegularizedEvolutionSampler] expected a tournament of at least 1 of the population, got "
                f"{tournament_size} of {population_size}"
            )
        super().__init__(seed)
        self._population, self._tournament = population_size, tournament_size

    def plan(self, study: Study, finished: Sequence[FrozenTrial]) -> dict[str, Any]:
        if len(finished) < self._population:
            return {}
        living = finished[-self._population :]
        chosen = self.rng.choice(len(living), self._tournament, replace=False)
        parent = max((living[number] for number in chosen), key=lambda trial: score(study, trial))
        if not parent.params:
            return {}
        name = str(self.rng.choice([*parent.params]))
        return {**parent.params, name: another(self.rng, parent, name)}
