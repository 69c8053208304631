"""``dl4all automl``: finds a network for a table, for pictures or for series."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dl4all.cli.processes.trials import live_trials
from dl4all.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd

    from dl4all.automl import AutoClassifier, AutoRegressor

SHOWN = 10
"""Networks in the leaderboard that is printed."""


@click.command()
@click.argument("data", type=click.Path(exists=True))
@click.option("--target", help="The column to be predicted; the array in an .npz file.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Of the search  [default: 10]")
@click.option("--trials", type=click.IntRange(min=1), help="Networks that are tried, in place of minutes.")
@click.option(
    "--task", type=click.Choice(["classification", "regression"]), help="In place of what the targets are."
)
@click.option("--window", type=click.IntRange(min=1), help="Rows, in the order of time, of each series.")
@click.option("--size", type=click.IntRange(min=1), help="Height and width to which pictures are resized.")
@click.option("--folder", default="automl", show_default=True, type=click.Path(file_okay=False))
@click.option("--resume", is_flag=True, help="Go on with the search of the folder.")
@click.option(
    "--device", "devices", multiple=True, default=["auto"], help="One, several by repeating, or all."
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(min=1), help="For each device.")
@click.option("--seed", default=0, show_default=True, help="Of all random numbers.")
@click.option("--predict", type=click.Path(exists=True), help="Samples whose targets are predicted, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def automl(
    data: str,
    target: str | None,
    minutes: float | None,
    trials: int | None,
    task: str | None,
    window: int | None,
    size: int | None,
    folder: str,
    resume: bool,
    devices: tuple[str, ...],
    workers: int,
    seed: int,
    predict: str | None,
    as_json: bool,
) -> None:
    """Find a network for DATA: a table (.csv, .tsv, .parquet), arrays (.npz), or a folder of pictures.

    Pictures lie in a folder for each class. Writes to the folder: report.html, leaderboard.csv, the ensemble
    for dl.automl.load, and the best network alone with the script that trains it again.
    """
    from rich.console import Console
    from rich.table import Table
    from sklearn.model_selection import KFold

    import dl4all as dl

    given = {"target": target, "window": window, "size": size}
    reading: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    x, y = dl.automl.read(data, **reading)
    if y is None:
        raise ArgumentError(
            f"[automl] what is to be predicted? Name the column or array of {data} with --target"
        )
    classes = dl.automl.is_classification(y) if task is None else task == "classification"
    with live_trials(as_json) as show:
        make = dl.automl.AutoClassifier if classes else dl.automl.AutoRegressor
        estimator = make(
            minutes,
            trials,
            seed=seed,
            cv=5 if window is None else KFold(5),  # neighbours in time know of each other
            devices=devices[0] if len(devices) == 1 else devices,
            workers=workers,
            folder=folder,
            resume=resume,
            callback=show,
        ).fit(x, y)
    estimator.save(folder, data=Path(data).resolve(), reading=reading)
    if predict is not None:
        found = _predictions(estimator, predict, target, window, size)
        found.to_csv(Path(folder) / "predictions.csv", index=False)
    board = estimator.leaderboard_
    if as_json:
        print(
            json.dumps(
                {"metric": estimator.targets_.metric, "leaderboard": json.loads(board.to_json())}, indent=2
            )
        )
        return
    out = Console()
    table = Table(title=f"Best networks by loss; score is {estimator.targets_.metric}")
    for heading in ("network", "loss", "score", "weight", "parameters", "s"):
        table.add_column(heading, no_wrap=True)
    for name, row in board.head(SHOWN).iterrows():
        numbers = (row["loss"], row["score"], row["weight"], row["parameters"], row["seconds"])
        cells = ("-" if number != number else f"{number:.4g}" for number in numbers)  # nan of the ensemble
        table.add_row(str(name), *cells)
    out.print(table)
    names = ["report.html", "leaderboard.csv", "winner/train.py", *(["predictions.csv"] if predict else [])]
    print(f"written to {folder}: {', '.join(names)}; dl.automl.load({folder!r}) is the ensemble")


def _predictions(
    estimator: AutoClassifier | AutoRegressor,
    path: str,
    target: str | None,
    window: int | None,
    size: int | None,
) -> pd.DataFrame:
    """Predictions for a file, and the probabilities of classes."""
    import pandas as pd

    from dl4all import automl as library

    x = library.read(path, window=window, size=size).x
    if isinstance(x, pd.DataFrame):
        x = x.drop(columns=target, errors="ignore")
    found = pd.DataFrame({target or "class": estimator.predict(x)})
    if isinstance(estimator, library.AutoClassifier):
        labels = [f"probability of {label}" for label in estimator.classes_]
        found = pd.concat([found, pd.DataFrame(estimator.predict_proba(x), columns=labels)], axis=1)
    return found
