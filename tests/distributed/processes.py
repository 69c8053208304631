"""Processes that a test starts, each with a rank, bounded in time and ended by their process ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.distributed import programs
from tests.support.forked_process import GLOO, ForkedProcess, run_forked

ROOT = Path(__file__).parents[2]
PROGRAMS = *GLOO, programs.__name__
"""The modules that processes have imported when they begin."""

LIMIT = 120.0  # seconds after which whatever still runs is a hang


class Ended(NamedTuple):
    """A process that has ended."""

    status: int
    output: str
    seconds: float


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def variables(rank: int, count: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "LP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }


def command(program: str, *args: str) -> list[str]:
    return [sys.executable, str(Path(programs.__file__)), program, *args]


def run_ranks(count: int, program: str, *args: str, stopped: int | None = None) -> list[Ended]:
    """Run a program of :mod:`tests.distributed.programs` in several processes over gloo.

    Args:
        stopped: a rank that stops itself (SIGSTOP): it is killed when the others have ended.
    """
    return run_commands(count, command(program, *args), ROOT, stopped)


def run_commands(count: int, called: list[str], folder: Path, stopped: int | None = None) -> list[Ended]:
    """Run a command in several processes, in a folder."""
    port, begun = free_port(), time.monotonic()
    running = [
        ForkedProcess(
            called,
            env=variables(rank, count, port),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preload=PROGRAMS,
        )
        for rank in range(count)
    ]
    found: dict[int, Ended] = {}
    try:
        for rank in sorted(range(count), key=lambda rank: rank == stopped):
            if rank == stopped:
                running[rank].kill()
            output, _ = running[rank].communicate(timeout=max(1.0, LIMIT - (time.monotonic() - begun)))
            found[rank] = Ended(running[rank].returncode, output, time.monotonic() - begun)
    finally:
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    return [found[rank] for rank in range(count)]


def run_mpi(count: int, program: str, *args: str) -> Ended:
    """The same over MPI, by `dl4all launch`; the output is that of all."""
    return launched(["--backend", "mpi", "-n", str(count)], command(program, "--backend", "mpi", *args)[1:])


def launched(options: list[str], script: list[str], limit: float = LIMIT) -> Ended:
    """Run `dl4all launch` with a script and its arguments."""
    begun = time.monotonic()
    ended = run_forked(
        [sys.executable, "-m", "dl4all", "launch", *options, *script],
        preload=PROGRAMS,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LP_NUM_THREADS": "1"},
        cwd=ROOT,
        timeout=limit,
    )
    return Ended(ended.returncode, ended.stdout + ended.stderr, time.monotonic() - begun)
