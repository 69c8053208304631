"""AutoML beside scikit-learn's models on the six tables that scikit-learn ships, on the same five folds.

python benchmarks/automl.py [--trials 25] [--table NAME]...
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from scipy.stats import rankdata
from sklearn import datasets
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dl4all as dl

TABLES = {name: getattr(datasets, f"load_{name}") for name in
          ("iris", "wine", "breast_cancer", "digits", "diabetes", "linnerud")}  # fmt: skip
MODELS = ("automl", "gradient boosting", "random forest", "linear")


def models(classes: bool, trials: int, seed: int, device: str) -> dict[str, Callable[[], Any]]:
    """Each model, untrained."""
    if classes:
        return {
            "automl": lambda: dl.automl.AutoClassifier(trials=trials, seed=seed, devices=device),
            "gradient boosting": lambda: GradientBoostingClassifier(random_state=seed),
            "random forest": lambda: RandomForestClassifier(random_state=seed),
            "linear": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        }
    return {
        "automl": lambda: dl.automl.AutoRegressor(trials=trials, seed=seed, devices=device),
        "gradient boosting": lambda: MultiOutputRegressor(GradientBoostingRegressor(random_state=seed)),
        "random forest": lambda: RandomForestRegressor(random_state=seed),
        "linear": lambda: make_pipeline(StandardScaler(), Ridge()),
    }


def scores(name: str, trials: int, seed: int, device: str) -> dict[str, Any]:
    """The score of each model on each fold of a table, and the seconds of its fits."""
    x, y = TABLES[name](return_X_y=True)
    classes = y.ndim == 1 and y.dtype.kind == "i"
    folds = (StratifiedKFold if classes else KFold)(5, shuffle=True, random_state=seed)
    found: dict[str, Any] = {"score": {m: [] for m in MODELS}, "seconds": dict.fromkeys(MODELS, 0.0)}
    for train, test in folds.split(x, y if classes else None):
        for model, make in models(classes, trials, seed, device).items():
            begun = time.perf_counter()
            target = (
                y[train][:, None]
                if model == "gradient boosting" and not classes and y.ndim == 1
                else y[train]
            )
            predicted = make().fit(x[train], target).predict(x[test])
            score = accuracy_score(y[test], predicted) if classes else r2_score(y[test], predicted)
            found["score"][model].append(float(score))
            found["seconds"][model] += time.perf_counter() - begun
    return found


@click.command()
@click.option("--trials", default=25, show_default=True, help="Of each search.")
@click.option("--table", "tables", multiple=True, type=click.Choice([*TABLES]), default=[*TABLES])
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(trials: int, tables: tuple[str, ...], seed: int, device: str, as_json: bool) -> None:
    """Print the mean score of each model: accuracy of classes, R² of numbers."""
    warnings.simplefilter("ignore")
    results = {}
    if not as_json:
        print(f"{'table':14}" + "".join(f"{model:>19}" for model in MODELS))
    for table in tables:
        results[table] = scores(table, trials, seed, device)
        means = {model: float(np.mean(results[table]["score"][model])) for model in MODELS}
        if not as_json:
            print(
                f"{table:14}"
                + "".join(f"{means[m]:12.4f} {results[table]['seconds'][m]:5.0f}s" for m in MODELS),
                flush=True,
            )
    ranks = [rankdata([-np.mean(r["score"][m]) for m in MODELS]) for r in results.values()]
    mean_ranks = dict(zip(MODELS, np.mean(ranks, 0).tolist(), strict=True))
    if as_json:
        print(json.dumps({"tables": results, "mean rank": mean_ranks}, indent=1))
    else:
        print(f"{'mean rank':14}" + "".join(f"{mean_ranks[m]:19.2f}" for m in MODELS))


if __name__ == "__main__":
    main()
