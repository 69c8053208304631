"""Algorithms of search, side by side on a table of trained networks.

``python benchmarks/search.py --table`` trains all 624 networks of a space on the digits of scikit-learn,
twice each, and writes their accuracies to docs/measured/search_digits.json (some two minutes on two cores).

``python benchmarks/search.py`` lets every algorithm search that table: the simple regret (the best accuracy
of the space less that of the best network found) after 50 and 150 trials, over 30 seeds, with 95 % intervals
of the mean, and the chance that a difference from random search of this size comes about by accident
(Wilcoxon's signed-rank test over seeds).

``python benchmarks/search.py --cheap`` compares what supernets and proxies say of 50 networks with their
accuracies in the table, by Kendall's tau, for each activation with and without batch normalization.

``DL4ALL_THREADS=1 python benchmarks/search.py --workers`` measures what a second worker process gains, and
three devices of which one is four times and one twice as fast as the third.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import optuna
from scipy.stats import kendalltau, wilcoxon
from sklearn.datasets import load_digits

import dl4all as dl
from dl4all.search.samplers import ALGORITHMS, sampler_of
from dl4all.search.trial_outcome import suggested

TABLE = Path(__file__).parents[1] / "docs" / "measured" / "search_digits.json"
TRAINING, EPOCHS, BATCH = 500, 6, 25
AFTER = (50, 150)
SEEDS = 30


def net(s: dl.search.Choices) -> dl.nn.Module:
    """A small CNN: 624 networks."""
    width = s.choice("width", [4, 12])
    acts: dict[str, type[dl.nn.Module]] = {"relu": dl.nn.ReLU, "tanh": dl.nn.Tanh}
    act = s.choice("act", acts)
    norm = s.choice("norm", [False, True])
    s.choice("lr", [0.003, 0.03])
    channels = 1

    def block(s: dl.search.Choices) -> dl.nn.Module:
        nonlocal channels
        op = s.choice("op", ["conv3", "conv1", "pool"])
        parts: list[dl.nn.Module] = [dl.nn.MaxPool2d(2, ceil_mode=True)] if op == "pool" else []
        kernel = 1 if op == "conv1" else 3
        parts.append(dl.nn.Conv2d(channels, width, kernel, padding=kernel // 2))
        channels = width
        if norm:
            parts.append(dl.nn.BatchNorm2d(width))
        return dl.nn.Sequential(*parts, act())

    layers = s.repeat("layers", block, 1, 3)
    return dl.nn.Sequential(*layers, dl.nn.AdaptiveAvgPool2d(2), dl.nn.Flatten(), dl.nn.Linear(4 * width, 10))


@cache
def digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """All 1,797 digits in one order: pictures (N, 1, 8, 8) from 0 to 1, and labels."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    return bunch.images[order, None].astype(np.float32) / 16, bunch.target[order]


def accuracy(make: Any, lr: float, seed: int) -> float:
    """The part of the held-out digits that a network tells after training."""
    dl.manual_seed(seed)
    model = make()
    x, y = digits()
    optimizer = dl.optim.Adam(model.parameters(), lr=lr)
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        for rows in rng.permutation(TRAINING).reshape(-1, BATCH):
            optimizer.zero_grad()
            loss = dl.nn.functional.cross_entropy(model(dl.tensor(x[rows])), dl.tensor(y[rows]))
            loss.backward()
            optimizer.step()
    model.eval()
    with dl.no_grad():
        found = model(dl.tensor(x[TRAINING:])).argmax(1).numpy()
    return float((found == y[TRAINING:]).mean())


def objective(_: Any, trial: optuna.Trial) -> float:
    """The mean accuracy of two trainings."""
    space, values = dl.search.Space(net), dict(trial.params)
    return float(np.mean([accuracy(lambda: space.build(values), values["lr"], seed) for seed in range(2)]))


def key(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def make_table() -> None:
    """Train all networks, on the CPU, two at a time."""
    networks = list(dl.search.Space(net).values())
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name="search", direction="maximize")
    for values in networks:
        study.enqueue_trial(values)
    study = dl.search.run(
        net, objective, algorithm="random", trials=len(networks), devices=["cpu"], workers=2, storage=storage,
        resume=True, callback=lambda study, trial: print(trial.number, trial.value, flush=True),
    )  # fmt: skip
    found = {key(t.params): round(t.value, 4) for t in study.trials if t.value is not None}
    assert found.keys() == {key(values) for values in networks}
    TABLE.write_text(json.dumps(found, indent=0) + "\n")


def regrets(algorithm: str, seed: int, space: dl.search.Space, table: dict[str, float]) -> list[float]:
    """The simple regret after each number of trials."""
    study = optuna.create_study(direction="maximize", sampler=sampler_of(algorithm, seed, 1))

    def value(trial: optuna.Trial) -> float:
        return table[key(space.make({}, suggested(trial)).values)]

    study.optimize(value, n_trials=max(AFTER))
    values = [trial.value or 0.0 for trial in study.trials]
    return [max(table.values()) - max(values[:count]) for count in AFTER]


def compare(algorithms: list[str], seeds: int) -> None:
    table, space = json.loads(TABLE.read_text()), dl.search.Space(net)
    print(f"{len(table)} networks, accuracies {min(table.values())} to {max(table.values())}")
    found = {
        name: np.array([regrets(name, seed, space, table) for seed in range(seeds)]) for name in algorithms
    }
    for name, numbers in found.items():
        cells = []
        for column, count in enumerate(AFTER):
            mean, half = numbers[:, column].mean(), 1.96 * numbers[:, column].std(ddof=1) / seeds**0.5
            chance = ""
            if name != "random" and (numbers[:, column] != found["random"][:, column]).any():
                test = wilcoxon(numbers[:, column], found["random"][:, column], alternative="less")
                chance = f", p = {test.pvalue:.1e}"
            cells.append(f"after {count}: {mean:.4f} ± {half:.4f}{chance}")
        print(f"{name:10} {'; '.join(cells)}", flush=True)


def judge_cheaply(count: int) -> None:
    """Kendall's tau between the table and what supernets and proxies say of some of its networks."""
    table = json.loads(TABLE.read_text())
    x, y = digits()
    pairs = [(dl.tensor(x[n : n + BATCH]), dl.tensor(y[n : n + BATCH])) for n in range(0, TRAINING, BATCH)]
    for act, norm in itertools.product(("relu", "tanh"), (False, True)):
        fixed = {"act": act, "norm": norm, "lr": 0.03}
        space = dl.search.Space(net, fixed)
        networks = list(space.values())
        chosen = [networks[n] for n in np.random.default_rng(1).choice(len(networks), count, replace=False)]
        accuracies = [table[key({**values, **fixed})] for values in chosen]
        print(f"{act}, {'with' if norm else 'without'} batch normalization:", flush=True)
        for sampling in ("uniform", "sandwich"):
            tau = kendalltau(shared(space, chosen, pairs, sampling), accuracies).statistic
            print(f"  supernet, {sampling:8} tau {tau:.2f}", flush=True)
        for name, proxy in PROXIES.items():
            if name == "naswot" and act != "relu":
                continue
            scores = []
            for values in chosen:
                dl.manual_seed(0)
                scores.append(proxy(space.build(values), dl.tensor(x[:64]), dl.tensor(y[:64])))
            print(f"  {name:18} tau {kendalltau(scores, accuracies).statistic:.2f}", flush=True)


def shared(
    space: dl.search.Space, chosen: list[Any], pairs: list[Any], sampling: Literal["uniform", "sandwich"]
) -> list[float]:
    """Accuracies of networks with a supernet's weights."""
    dl.manual_seed(0)
    supernet = dl.search.Supernet(space)
    supernet.fit(pairs, dl.optim.Adam(supernet.parameters(), lr=0.003), epochs=60, sampling=sampling)
    x, y = digits()
    found = []
    for values in chosen:
        network = supernet.subnet(values, pairs).eval()
        with dl.no_grad():
            found.append(float((network(dl.tensor(x[TRAINING:])).argmax(1).numpy() == y[TRAINING:]).mean()))
    return found


PROXIES: dict[str, Callable[..., float]] = {
    "parameters": lambda model, x, y: dl.search.costs(model)["parameters"],
    "grad_norm": dl.search.proxies.grad_norm,
    "snip": dl.search.proxies.snip,
    "synflow": lambda model, x, y: dl.search.proxies.synflow(model, x),
    "jacob_cov": lambda model, x, y: dl.search.proxies.jacob_cov(model, x),
    "naswot": lambda model, x, y: dl.search.proxies.naswot(model, x),
    "zen": lambda model, x, y: dl.search.proxies.zen(model, x),
}


def compare_workers() -> None:
    """Two worker processes beside one, and three devices of unlike speed beside the ideal."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(2):
        for workers, found in seconds.items():
            begun = time.perf_counter()
            options: Any = {"algorithm": "random", "devices": ["cpu"], "seed": 0, "trials": 150}
            dl.search.run(net, objective, workers=workers, **options)
            found.append(time.perf_counter() - begun)
    one, two = (median(found) for found in seconds.values())
    print(f"150 trials: one worker {one:.1f} s, two {two:.1f} s, ratio {one / two:.2f}")
    speeds = {"cpu": 4, "cpu#1": 2, "cpu#2": 1}

    def waits(model: Any, trial: optuna.Trial) -> float:
        time.sleep(2 / speeds[trial.user_attrs["device"]])
        return 0.0

    begun = time.perf_counter()
    dl.search.run(net, waits, algorithm="random", devices=list(speeds), trials=60)
    took, ideal = time.perf_counter() - begun, 60 * 2 / sum(speeds.values())
    print(f"60 trials on devices of speeds 4:2:1: {took:.1f} s, {took / ideal:.2f} of the ideal")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="train the networks of the table")
    parser.add_argument("--cheap", action="store_true", help="compare a supernet and proxies with the table")
    parser.add_argument("--workers", action="store_true", help="compare one worker with two")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    if options.table:
        make_table()
    elif options.workers:
        compare_workers()
    elif options.cheap:
        judge_cheaply(50)
    else:
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        compare(options.algorithms, options.seeds)
