"""Algorithms of search by name: Optuna's samplers, and three of ours.

├── regularized_evolution.py   RegularizedEvolutionSampler
├── reinforce.py               ReinforceSampler
└── local_search.py            LocalSearchSampler
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec

import optuna
from optuna.samplers import BaseSampler

from dl4all.errors import ArgumentError, BackendMissingError
from dl4all.search.samplers.local_search import LocalSearchSampler
from dl4all.search.samplers.regularized_evolution import RegularizedEvolutionSampler
from dl4all.search.samplers.reinforce import ReinforceSampler

__all__ = ["LocalSearchSampler", "RegularizedEvolutionSampler", "ReinforceSampler"]

ALGORITHMS: dict[str, Callable[[int | None], BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "evolution": lambda seed: RegularizedEvolutionSampler(seed=seed),
    "reinforce": lambda seed: ReinforceSampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "local": lambda seed: LocalSearchSampler(seed=seed),
}
NEEDED = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",)}
"""Packages that only this algorithm needs."""
SINGLE = frozenset({"evolution", "reinforce", "cmaes", "local"})
"""Algorithms for one objective."""


def sampler_of(algorithm: str | BaseSampler, seed: int | None, objectives: int) -> BaseSampler:
    """The sampler of an algorithm by name, or the given one.

    Args:
        seed: of its random numbers.
        objectives: how many numbers a trial has.

    Raises:
        ArgumentError: there is no such algorithm, or it is for one objective only.
        BackendMissingError: it needs a package that is not installed.
    """
    if isinstance(algorithm, BaseSampler):
        return algorithm
    if algorithm not in ALGORITHMS:
        raise ArgumentError(f"[search] no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if objectives > 1 and algorithm in SINGLE:
        raise ArgumentError(
            f"[search] {algorithm} is for one objective, there are {objectives}; use nsga2, tpe or gp"
        )
    missing = [package for package in NEEDED.get(algorithm, ()) if find_spec(package) is None]
    if missing:
        raise BackendMissingError(f"[search] {algorithm} needs a package: pip install {' '.join(missing)}")
    with warnings.catch_warnings():  # Optuna's word that an interface may change: it is called here only
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return ALGORITHMS[algorithm](seed)
