"""The time until a program has begun: imports, the first tensor, and the command's help.

    python benchmarks/start.py [--repeat N]

Each line is a process of its own; they take turns, and the medians are compared with ``import torch`` and
``import numpy`` in the same run. Python's compiled files are there already.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

PROGRAMS = {
    "import numpy": ["-c", "import numpy"],
    "import torch": ["-c", "import torch"],
    "import dl4all": ["-c", "import dl4all"],
    "import dl4all.nn": ["-c", "import dl4all.nn"],
    "a tensor of dl4all": ["-c", "import dl4all as dl; dl.ones(2, device='cpu') + 1"],
    "a tensor of torch": ["-c", "import torch; torch.ones(2) + 1"],
    "import click": ["-c", "import click"],
    "dl4all --help": ["-m", "dl4all", "--help"],
    "dl4all --version": ["-m", "dl4all", "--version"],
}


@click.command()
@click.option("--repeat", default=9, show_default=True, help="Runs of each.")
def main(repeat: int) -> None:
    """Measure how long programs take to begin."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        for turn in range(repeat + 1):
            for name, arguments in PROGRAMS.items():
                begin = time.perf_counter()
                subprocess.run(
                    [sys.executable, *arguments], env=environment, cwd=Path(__file__).parents[1],
                    stdout=subprocess.DEVNULL, check=True,
                )  # fmt: skip
                if turn:  # the first one compiles
                    seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(runs) for name, runs in seconds.items()}
    print("| program | ms | of import torch | of import click |\n|---|--:|--:|--:|")
    for name, median in medians.items():
        ratios = (median / medians[other] for other in ("import torch", "import click"))
        print(f"| {name} | {median * 1e3:.0f} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")


if __name__ == "__main__":
    main()
