"""``dl4all train``: trains a network that a TOML file describes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import dl4all as dl
from dl4all.errors import ConfigError


@click.command()
@click.argument("config", metavar="CONFIG.toml")
@click.option("--device", help="In the place of the file's.")
@click.option("--epochs", type=click.IntRange(min=1), help="In the place of the file's.")
@click.option("--seed", type=click.IntRange(min=0), help="In the place of the file's.")
@click.option("--folder", metavar="DIR", help="Where checkpoints and history.jsonl go; otherwise the file's.")
@click.option("--resume", is_flag=True, help="Go on from the newest good checkpoint of the folder.")
@click.option("--save", metavar="FILE.safetensors", help="Write the trained weights.")
@click.option("--plot", metavar="FILE.png", help="Draw the curves of loss and metrics.")
@click.option("--tensorboard", metavar="DIR", help="Write curves for TensorBoard.")
def train(
    config: str,
    device: str | None,
    epochs: int | None,
    seed: int | None,
    folder: str | None,
    resume: bool,
    save: str | None,
    plot: str | None,
    tensorboard: str | None,
) -> None:
    """Train the network that CONFIG.toml describes; examples/configs has some."""
    configuration = dl.training.read_config(config)
    in_file = configuration.run
    settings = dataclasses.replace(
        in_file,
        epochs=in_file.epochs if epochs is None else epochs,
        seed=in_file.seed if seed is None else seed,
        device=device or in_file.device,
        folder=folder or in_file.folder,
    )
    if resume and settings.folder is None:
        raise ConfigError(f"{config}: --resume needs a folder, in the file or as --folder")
    if settings.folder and not resume and dl.io.checkpoints(settings.folder):
        raise ConfigError(
            f"{settings.folder} holds the checkpoints of an earlier run; --resume goes on with it, and "
            "--folder DIR takes another folder"
        )
    configuration = dataclasses.replace(configuration, run=settings)
    terminal = Console().is_terminal
    callbacks: list[Any] = [] if terminal else [_print_epoch]
    if tensorboard is not None:
        callbacks.append(dl.training.TensorBoard(tensorboard))
    run = dl.training.prepare(configuration, callbacks=callbacks, progress=terminal)
    start = time.perf_counter()
    history = run.fit(resume=resume)
    seconds = time.perf_counter() - start
    if save is not None:
        write_weights(save, run.trainer.model.state_dict())
    if plot is not None:
        history.plot(plot)
    numbers = "  ".join(
        _formatted(name, value) for name, value in history.rows[-1].items() if name != "epoch"
    )
    print(f"{numbers}  after {len(history)} epochs, {seconds:.1f} s on {run.trainer.device}")


def _print_epoch(trainer: dl.Trainer, row: dict[str, Any]) -> None:
    """Print the numbers of an epoch; used if there is no terminal for a progress bar."""
    numbers = "  ".join(_formatted(name, value) for name, value in row.items() if name != "epoch")
    print(f"epoch {row['epoch']}  {numbers}", flush=True)


def _formatted(name: str, value: float) -> str:
    """A number with its name.

    >>> _formatted("val_accuracy", 0.98765), _formatted("loss", 0.012345)
    ('val_accuracy 98.77%', 'loss 0.01235')
    """
    return f"{name} {value:.2%}" if "accuracy" in name else f"{name} {value:.4g}"


def write_weights(path: str, weights: Mapping[str, Any]) -> None:
    """Save a network's weights, arrays or tensors by name.

    Raises:
        FileFormatError: the file cannot be written.
    """
    try:
        dl.io.save_weights(Path(path), weights)
    except OSError as error:
        raise dl.errors.FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
