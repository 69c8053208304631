"""dl4all beside other libraries on the same Vulkan device, and NumPy and PyTorch on the processor.

    python lab/peers/run.py [--case matmul-512] [--peer ncnn] [--repeat N] [--check-device]

Each peer is a process of its own; the runs go round the peers, and a peer's answer must be right before its
time counts. Each case is printed when it is done, and an interruption keeps the cases that are.
docs/peers.md says what is compared and how.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))

import dl4all as dl
from dl4all.cli.run import run
from lab.peers.cases import CASES
from lab.peers.check_device import check_device
from lab.peers.environment import PEERS
from lab.peers.measure import Entrant, Limits, measure
from lab.peers.serve import DEVICE_VARIABLE
from lab.peers.tables import Lines, cell, check_cell, show, show_check, show_peers


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="All unless given.")
@click.option("--peer", "peers", multiple=True, type=click.Choice(list(PEERS)), help="All unless given.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Timed runs of each."
)
@click.option(
    "--check-device",
    "check",
    is_flag=True,
    help="Show instead who obeys llvmpipe's LP_NUM_THREADS, and so runs on it.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=Limits().answer,
    show_default=True,
    help="Seconds to prepare a case, or for one run; a peer that takes longer is left out of the case.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=Limits().runs,
    show_default=True,
    help="Seconds of runs after which a peer gets no more of a case, but two at least.",
)
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures there as they come.",
)
def benchmark(
    cases: tuple[str, ...],
    peers: tuple[str, ...],
    repeat: int,
    check: bool,
    limit: float,
    budget: float,
    file: Path | None,
) -> None:
    """Compare dl4all with other libraries on the same Vulkan device."""
    chosen = [CASES[name] for name in cases or CASES]
    names = list(peers or PEERS)
    environment = device_environment()
    limits = Limits(limit, budget)
    console = Console(width=None if sys.stdout.isatty() else 190)
    lines = Lines(console, check_cell if check else cell, repeat, file)
    try:
        if check:
            check_device(names, chosen, repeat, environment, limits=limits, tell=lines)
        else:
            entrants = [Entrant(name, name, environment) for name in names]
            measure(entrants, chosen, repeat, limits=limits, tell=lines)
    except KeyboardInterrupt:
        console.print("interrupted; this was done before:")
        raise
    finally:
        if lines.report["cases"]:
            (show_check if check else show)(console, lines.report, repeat)
        show_peers(console, lines.report)


def device_environment() -> dict[str, str]:
    """What makes the others use the device that dl4all calls vulkan:0, where there is one."""
    hardware = [info.hardware for info in dl.devices() if "vulkan:0" in info.names]
    return {DEVICE_VARIABLE: os.environ.get(DEVICE_VARIABLE, hardware[0])} if hardware else {}


if __name__ == "__main__":
    run(benchmark, "run.py")
