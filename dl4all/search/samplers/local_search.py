"""Local search: neighbours of the best network until none is better, then from another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial

from dl4all.errors import ArgumentError
from dl4all.search.samplers.history_sampler import HistorySampler, another, score

TRIES = 50
"""Neighbours that are drawn for one that was not tried yet."""


class LocalSearchSampler(HistorySampler):
    """Climbing from a network to one that differs in one hyperparameter and is better.

    After `patience` neighbours of which none is better, or when all have been tried, it begins anew from a
    network drawn at random.

    Args:
        patience: neighbours that are tried in vain.
        seed: of its random numbers.

    Raises:
        ArgumentError: `patience` is below 1.

    Source:
        C. White et al., Exploring the Loss Landscape in Neural Architecture Search, 2021.

    Example:
        >>> import dl4all as dl, optuna
        >>> study = optuna.create_study(sampler=dl.search.samplers.LocalSearchSampler(seed=0))
        >>> study.optimize(lambda trial: trial.suggest_int("x", 0, 100) ** 2, n_trials=60)
        >>> study.best_value < 25
        True
    """

    def __init__(self, patience: int = 20, seed: int | None = None) -> None:
        if patience < 1:
            raise ArgumentError(f"[LocalSearchSampler] patience must be at least 1, got {patience}")
        super().__init__(seed)
        self._patience = patience

    def plan(self, study: Study, finished: Sequence[FrozenTrial]) -> dict[str, Any]:
        best, vain = self._climb(study, finished)
        if best is None or vain >= self._patience or not best.params:
            return {}
        tried = {_key(trial.params) for trial in study.get_trials(deepcopy=False)}
        for _ in range(TRIES):
            name = str(self.rng.choice([*best.params]))
            values = {**best.params, name: another(self.rng, best, name)}
            if _key(values) not in tried:
                return values
        return {}

    def _climb(self, study: Study, finished: Sequence[FrozenTrial]) -> tuple[FrozenTrial | None, int]:
        """The top of the present climb, and how many neighbours of it are no better."""
        best: FrozenTrial | None = None
        vain = 0
        for trial in finished:
            if best is None or vain >= self._patience or score(study, trial) > score(study, best):
                best, vain = trial, 0
            else:
                vain += 1
        return best, vain


def _key(values: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(values.items()))
