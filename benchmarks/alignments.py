"""The CTC loss with its gradient: the two kinds of steps of its recursion, and PyTorch's, in turns.

    python benchmarks/alignments.py [--device cpu] [--repeat 9]

*To each state* computes from each state to each, *from three* with more ops; the library chooses by the
number of states. PyTorch computes on the CPU with one thread. Times are medians of processor time in ms.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

import dl4all as dl
from benchmarks.turns import in_turn
from dl4all.ops.loss import ctc

SIZES = ((12, 2, 3, 5), (20, 4, 5, 6), (50, 16, 15, 30), (100, 8, 30, 30), (100, 32, 30, 50))
"""Time steps, sequences, labels of each, classes."""


def calls(size: tuple[int, int, int, int], device: str) -> dict[str, Callable[[], float]]:
    times, count, labels, classes = size
    draw = np.random.default_rng(0)
    scores = draw.standard_normal((times, count, classes)).astype("f4")
    targets = draw.integers(1, classes, (count, labels))
    lengths = np.full(count, times), np.full(count, labels)

    def step(library: Any, x: Any) -> float:
        given = [library.tensor(array) for array in (targets, *lengths)]
        loss = library.nn.functional.ctc_loss(library.nn.functional.log_softmax(x, 2), *given)
        loss.backward()
        return float(loss.item())

    ours = dl.tensor(scores, device=device, requires_grad=True)
    theirs = torch.tensor(scores, requires_grad=True)

    def with_most(elements: int) -> float:
        with patch.object(ctc, "SMALL", elements):
            return step(dl, ours)

    return {
        "torch": lambda: step(torch, theirs),
        "to each state": lambda: with_most(1 << 60),
        "from three": lambda: with_most(0),
    }


@click.command()
@click.option("--device", default="cpu", show_default=True)
@click.option("--repeat", default=9, show_default=True)
def main(device: str, repeat: int) -> None:
    torch.set_num_threads(1)
    shown = Table("steps, sequences, labels, classes", "torch", "to each state", "from three", "chosen")
    for size in SIZES:
        made = calls(size, device)
        losses = [call() for call in made.values()]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
        times = in_turn(made, repeat, warm_up=3, least=10)
        medians = [statistics.median(found.processor) for found in times.values()]
        is_small = size[1] * (2 * size[2] + 1) ** 2 <= ctc.SMALL
        shown.add_row(
            ", ".join(map(str, size)), *(f"{ms:.2f}" for ms in medians),
            "to each state" if is_small else "from three",
        )  # fmt: skip
    Console().print(shown)


if __name__ == "__main__":
    main()
