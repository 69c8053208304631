"""Search the width, the depth and the heads of a transformer whose weights take less than 2 MB.

python examples/search_transformer.py, or dl4all search examples/search_transformer.py

It reads a digit as a sequence of eight rows of eight pixels.
"""

from __future__ import annotations

import functools
from typing import Any

import click

import dl4all as dl
from dl4all.cli.run import run

MEGABYTES = 2.0
EPOCHS = 6


@functools.cache
def digits() -> tuple[dl.data.DataLoader, dl.data.DataLoader]:
    """Batches to learn from, and others."""
    pictures, labels = dl.data.digits().arrays
    learned, held_out = dl.data.random_split(dl.data.TensorDataset(pictures[:, 0], labels), (0.8, 0.2))
    return (
        dl.data.DataLoader(learned, 64, shuffle=True, drop_last=True, device=None),
        dl.data.DataLoader(held_out, 359, device=None),
    )


def net(s: dl.search.Choices) -> dl.nn.Module:
    """An encoder of the rows, with a limit on the bytes of its float32 parameters."""
    s.require(parameters=int(MEGABYTES * 2**20 / 4))
    s.floating("lr", 3e-4, 1e-2, log=True)
    return dl.search.spaces.transformer(8, 10, layers=(1, 4), widths=(32, 64, 96, 128, 192), longest=8)(s)


def objective(model: dl.nn.Module, trial: Any) -> float:
    """Accuracy on digits that it has not seen."""
    learned, held_out = digits()
    optimizer = dl.optim.AdamW(model.parameters(), lr=trial.params["lr"])
    loss = dl.nn.CrossEntropyLoss()
    trainer = dl.Trainer(model, loss, optimizer, metrics=["accuracy"], progress=False)
    trainer.fit(learned, EPOCHS)
    return trainer.evaluate(held_out)["accuracy"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", "devices", multiple=True, default=["all"], help="One, several by repeating, or all."
)
@click.option("--trials", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--algorithm", default="evolution", show_default=True)
def main(devices: tuple[str, ...], trials: int, algorithm: str) -> None:
    """Search, and print the best network."""
    chosen = "all" if "all" in devices else devices
    study = dl.search.run(net, objective, algorithm=algorithm, trials=trials, devices=chosen, seed=0)
    best = study.best_trial
    megabytes = best.user_attrs["costs"]["parameters"] * 4 / 2**20
    infeasible = sum("infeasible" in trial.user_attrs for trial in study.trials)
    print(f"test accuracy {best.value:.2%} by {best.params}")
    print(f"{megabytes:.2f} MB; {infeasible} networks were larger than {MEGABYTES} MB, and not trained")


if __name__ == "__main__":
    run(main, "search_transformer.py")
