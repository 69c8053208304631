"""Search a convolutional network for digits that takes less than a millisecond on this machine's devices.

python examples/search_digits.py, or dl4all search examples/search_digits.py
"""

from __future__ import annotations

import functools
from typing import Any

import click
import numpy as np

import dl4all as dl
from dl4all.cli.run import run

MILLISECONDS = 1.0
EPOCHS = 8


@functools.cache
def digits() -> tuple[Any, ...]:
    """Pictures and labels to learn from, and others."""
    learned, held_out = dl.data.random_split(dl.data.digits(), (0.8, 0.2))
    parts = []
    for split in (learned, held_out):
        x, y = (np.stack(column) for column in zip(*(split[n] for n in range(len(split))), strict=True))
        parts += [x.astype(np.float32).reshape(-1, 1, 8, 8), y]
    return tuple(parts)


def net(s: dl.search.Choices) -> dl.nn.Module:
    """A few convolutions, with a limit on the predicted time of a call."""
    s.require(milliseconds=MILLISECONDS, inputs=(1, 1, 8, 8))
    width, norm = s.integer("width", 4, 32, log=True), s.choice("norm", [False, True])
    s.floating("lr", 1e-3, 3e-2, log=True)

    def block(s: dl.search.Choices, number: int) -> dl.nn.Module:
        kernel = s.choice("kernel", [3, 5])
        conv = dl.nn.Conv2d(width if number else 1, width, kernel, padding=kernel // 2)
        return dl.nn.Sequential(conv, dl.nn.BatchNorm2d(width) if norm else dl.nn.Identity(), dl.nn.ReLU())

    blocks = s.repeat("blocks", block, 1, 4)
    return dl.nn.Sequential(*blocks, dl.nn.MaxPool2d(2), dl.nn.Flatten(), dl.nn.Linear(16 * width, 10))


def objective(model: dl.nn.Module, trial: Any) -> float:
    """Accuracy on digits that it has not seen."""
    x, y, held_x, held_y = digits()
    optimizer = dl.optim.AdamW(model.parameters(), lr=trial.params["lr"])
    draw = np.random.default_rng(0)
    for _ in range(EPOCHS):
        order = draw.permutation(len(x))
        for start in range(0, len(x) - 31, 32):
            rows = order[start : start + 32]
            optimizer.zero_grad()
            dl.nn.functional.cross_entropy(model(dl.tensor(x[rows])), dl.tensor(y[rows])).backward()
            optimizer.step()
    trial.set_user_attr("measured", dl.search.latency(model, (1, 1, 8, 8), device=trial.user_attrs["device"]))
    model.eval()
    with dl.no_grad():
        return float((model(dl.tensor(held_x)).argmax(1).numpy() == held_y).mean())


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", "devices", multiple=True, default=["all"], help="One, several by repeating, or all."
)
@click.option("--trials", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--algorithm", default="evolution", show_default=True)
def main(devices: tuple[str, ...], trials: int, algorithm: str) -> None:
    """Search, and print the best network."""
    chosen = "all" if "all" in devices else devices
    space = dl.search.Space(net)
    print(space)
    study = dl.search.run(space, objective, algorithm=algorithm, trials=trials, devices=chosen, seed=0)
    best = study.best_trial
    milliseconds = best.user_attrs["measured"]
    print(f"test accuracy {best.value:.2%} by {best.params}")
    print(f"{milliseconds:.2f} ms a call on {best.user_attrs['device']}, {len(study.trials)} networks in all")


if __name__ == "__main__":
    run(main, "search_digits.py")
