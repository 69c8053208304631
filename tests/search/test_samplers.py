"""Algorithms of search: they find what is good, in one process and from another one's trials."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import dl4all as dl
from dl4all.errors import ArgumentError, BackendMissingError
from dl4all.search.samplers import (
    ALGORITHMS,
    SINGLE,
    LocalSearchSampler,
    RegularizedEvolutionSampler,
    ReinforceSampler,
    sampler_of,
)
from dl4all.search.samplers import reinforce as reinforce_module
from dl4all.search.space import contains

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
OURS: dict[str, Callable[..., Any]] = {
    "evolution": RegularizedEvolutionSampler,
    "local": LocalSearchSampler,
    "reinforce": ReinforceSampler,
}
ours = pytest.mark.parametrize("name", OURS)


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def hills(trial: optuna.Trial) -> float:
    """A value with a best place in a space with conditions: 0, and less elsewhere."""
    loss: float = abs(trial.suggest_int("depth", 1, 6) - 4)
    for number in range(trial.params["depth"]):
        loss += trial.suggest_categorical(f"op {number}", ["c", "a", "b"]) != "ab"[number % 2]
    loss += abs(math.log10(trial.suggest_float("lr", 1e-4, 1.0, log=True)) + 2)
    return -loss


def study_with(sampler: Any, objective: Any = hills, trials: int = 120, direction: Any = "maximize") -> Any:
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.optimize(objective, n_trials=trials)
    return study


@ours
def test_it_is_better_than_random_search(name: str) -> None:
    found = [study_with(OURS[name](seed=seed)).best_value for seed in range(10)]
    at_random = [study_with(optuna.samplers.RandomSampler(seed=seed)).best_value for seed in range(10)]
    assert np.mean(found) > np.mean(at_random) + 0.5
    assert np.sum(np.array(found) > at_random) >= 8


@ours
def test_the_direction_counts(name: str) -> None:
    seeds = range(5)
    most = [study_with(OURS[name](seed=s)).best_value for s in seeds]
    least = [
        study_with(OURS[name](seed=s), lambda t: -hills(t), direction="minimize").best_value for s in seeds
    ]
    assert least == [-value for value in most]


@ours
def test_trials_of_other_processes_count(name: str) -> None:
    """A sampler that begins with a storage's trials plans from them."""
    first = study_with(OURS[name](seed=0))
    first.sampler = OURS[name](seed=1)
    first.optimize(hills, n_trials=30)
    fresh = study_with(OURS[name](seed=1), trials=30)
    assert np.mean([t.value for t in first.trials[-30:]]) > np.mean([t.value for t in fresh.trials]) + 0.5


def test_children_differ_from_a_good_parent_in_one_value() -> None:
    sampler = RegularizedEvolutionSampler(population_size=10, tournament_size=10, seed=3)
    study = study_with(sampler, trials=60)
    for number in range(10, 60):
        child = study.trials[number]
        living = study.trials[number - 10 : number]
        best = [trial.params for trial in living if trial.value == max(t.value for t in living)]
        changes = [{key for key in p if child.params.get(key, p[key]) != p[key]} for p in best]
        new = [child.params.keys() - p.keys() for p in best]
        assert any(c == {"depth"} or (len(c) <= 1 and not n) for c, n in zip(changes, new, strict=True))


def test_evolution_forgets_the_oldest() -> None:
    """One that was lucky once is no parent for ever."""

    def lucky(trial: optuna.Trial) -> float:
        x = trial.suggest_int("x", 0, 1000)
        return 1e9 if trial.number == 2 else float(x)

    study = study_with(RegularizedEvolutionSampler(5, 5, seed=0), lucky, trials=200)
    assert max(trial.params["x"] for trial in study.trials[20:]) > 900


def test_local_search_tries_no_network_twice_and_begins_anew() -> None:
    def flat(trial: optuna.Trial) -> float:
        return float(sum(trial.suggest_categorical(name, [0, 1, 2]) for name in "abc") % 4)

    study = study_with(LocalSearchSampler(patience=6, seed=0), flat, trials=27)
    tried = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(tried)) > 15
    steps = [
        sum(a != b for a, b in zip(left, right, strict=True)) for left, right in itertools.pairwise(tried)
    ]
    assert max(steps) == 3  # from a place drawn at random


def test_the_controller_learns_which_value_brings_reward() -> None:
    sampler = ReinforceSampler(seed=0)
    study = study_with(
        sampler, lambda t: float(t.suggest_categorical("x", ["bad", "good", "fair"]) == "good")
    )
    late = [trial.params["x"] for trial in study.trials[-30:]]
    assert late.count("good") > 24


@pytest.mark.parametrize(
    "made",
    [
        CategoricalDistribution([None, True, 1, 1.5, "1"]),
        IntDistribution(-3, 9, step=3),
        IntDistribution(5, 5),
        IntDistribution(0, 1000),
        IntDistribution(7, 7 + 13 * 99, step=13),
        IntDistribution(1, 100_000, log=True),
        FloatDistribution(-1.0, 2.0),
        FloatDistribution(0.0, 1.0, step=0.001),
        FloatDistribution(1e-6, 1e3, log=True),
    ],
    ids=str,
)
def test_parts_of_a_range_cover_it_and_nothing_else(made: Any) -> None:
    parts = reinforce_module._parts(made)
    assert 1 <= len(parts) <= 64
    space = {"x": made}
    study = optuna.create_study(sampler=ReinforceSampler(warm_up=2, seed=0), direction="maximize")
    drawn = set()
    for _ in range(200):
        trial = study.ask(space)
        value = trial.params["x"]
        assert contains(made, value)
        place = reinforce_module._position(made, parts, value)
        if isinstance(parts[place], (IntDistribution, FloatDistribution)):
            assert parts[place].low <= value <= parts[place].high
        else:
            assert (type(parts[place]), parts[place]) == (type(value), value)
        drawn.add(place)
        study.tell(trial, 0.0)
    assert len(drawn) == len(parts) or len(parts) > 20


def test_algorithms_by_name() -> None:
    for name in ALGORITHMS:
        sampler = sampler_of(name, 0, 1)
        assert isinstance(sampler, optuna.samplers.BaseSampler)
        assert sampler_of(sampler, 1, 2) is sampler
        if name in SINGLE:
            with pytest.raises(ArgumentError, match=f"{name} is for one objective, there are 2; use nsga2"):
                sampler_of(name, 0, 2)
        else:
            sampler_of(name, 0, 2)
    with pytest.raises(ArgumentError, match="no algorithm 'annealing'; there are tpe, evolution"):
        sampler_of("annealing", 0, 1)


@pytest.mark.parametrize(("name", "package"), [("gp", "torch"), ("cmaes", "cmaes")])
def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    monkeypatch.setattr(
        "dl4all.search.samplers.find_spec", lambda wanted: None if wanted == package else wanted
    )
    with pytest.raises(BackendMissingError, match=f"{name} needs a package: pip install {package}"):
        sampler_of(name, 0, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RegularizedEvolutionSampler(5, 6), "6 of 5"),
        (lambda: RegularizedEvolutionSampler(5, 0), "0 of 5"),
        (lambda: LocalSearchSampler(0), "at least 1, got 0"),
        (lambda: ReinforceSampler(learning_rate=-1.0), "learning_rate -1"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@ours
def test_several_objectives_are_refused(name: str) -> None:
    study = optuna.create_study(sampler=OURS[name](), directions=["maximize", "minimize"])
    with pytest.raises(ValueError, match="multi-objective"):
        study.ask()


def test_every_algorithm_runs_on_a_space() -> None:
    def net(s: dl.search.Choices) -> dl.nn.Module:
        return dl.nn.Linear(s.integer("inputs", 1, 30), s.choice("outputs", [1, 2, 3]))

    for name in ALGORITHMS:
        study = dl.search.run(
            net, lambda model, trial: -abs(model.in_features - 17) - model.out_features,
            algorithm=name, devices=["cpu"], trials=25, seed=0,
        )  # fmt: skip
        assert len(study.trials) == 25
        assert study.best_value >= -9
