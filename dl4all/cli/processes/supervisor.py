"""The processes of an elastic launch on a host, each started again when it fails, and the lighthouse."""

from __future__ import annotations

import ctypes
import functools
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dl4all.distributed.process_group.launch_variables import LIGHTHOUSE
from dl4all.errors import ArgumentError, BackendMissingError
from dl4all.lazy_names import install_command

RESTARTS = 3
"""The number of times that a process is started again which fails."""

PATIENCE = 30.0  # seconds that processes have to end after a signal
TICK = 0.1  # seconds between two looks at the processes
SOON, QUICK_ENDS = 5.0, 3  # seconds, and how often a lighthouse may end that soon
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def host_and_port(endpoint: str) -> tuple[str, str]:
    """The parts of an address.

    Raises:
        ArgumentError: it has others.
    """
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise ArgumentError(f"[launch] expected --rdzv-endpoint HOST:PORT, got {endpoint!r}")
    return host, port


def supervise(
    worker: list[str],
    environment: Mapping[str, str],
    processes: int,
    node_rank: int,
    endpoint: str | None,
    restarts: int,
    log_dir: str | None,
) -> int:
    """Run a host's processes until all have ended.

    Args:
        worker: the arguments of Python for each process.
        environment: the variables of all.
        processes: how many.
        node_rank: the number of this host; host 0 has the lighthouse.
        endpoint: the lighthouse's address; by default one of this host alone.
        restarts: how often each process is started again that fails. None is once one has succeeded: what it
            would compute is done.
        log_dir: a folder for each process's output.

    Returns:
        The status of the first process that was given up before any had succeeded, or 0.

    Raises:
        ArgumentError: the address has not the form of one.
        BackendMissingError: torchft is not installed.
    """
    if find_spec("torchft") is None:
        raise BackendMissingError(
            f"[launch] --elastic needs torchft, which is there for Linux on x86-64: {install_command('ft')}"
        )
    host, port = ("127.0.0.1", _free_port()) if endpoint is None else host_and_port(endpoint)
    variables = {
        **environment,
        LIGHTHOUSE: f"http://{host}:{port}",
        "GROUP_RANK": str(node_rank),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    told: list[int] = []
    with ExitStack() as stack:
        for number in SIGNALS:
            before = signal.signal(number, lambda got, _: told.append(got))
            stack.callback(signal.signal, number, before)
        running: list[_Process] = []
        stack.callback(_end, running)
        if node_rank == 0:
            bound = f"{_every_address(host) if endpoint else host}:{port}"
            running.append(_Process(["-m", "dl4all.cli.processes.lighthouse", bound], variables, None, ""))
        workers = []
        for rank in range(processes):
            log = None if log_dir is None else Path(log_dir, f"{node_rank}-{rank}.log")
            own = {**variables, "LOCAL_RANK": str(rank)}
            workers.append(_Process(worker, own, log, f"process {rank} of host {node_rank}"))
        running += workers
        return _watched(running, workers, restarts, told)


def _watched(running: list[_Process], workers: list[_Process], restarts: int, told: list[int]) -> int:
    """Look after processes until all workers have ended, or a signal tells this one to."""
    status = 0
    going = list(workers)
    while going:
        if told:
            return 128 + told[0]
        for one in [one for one in running if one not in workers or one in going]:
            code = one.process.poll()
            if code is None:
                continue
            succeeded = one in workers and code == 0
            done = any(other.process.poll() == 0 for other in workers)
            if one not in workers and one.fails_at_once():
                print(
                    "dl4all launch: the lighthouse cannot serve at its address", file=sys.stderr, flush=True
                )
                return code or 1
            if one not in workers or not (succeeded or done or one.restarts >= restarts):
                one.start_again()
                continue
            going.remove(one)
            if not succeeded:
                end = "has ended behind the others" if done else "is given up"
                print(f"dl4all launch: {one.name} {end}, with status {code}", file=sys.stderr, flush=True)
                if not done:
                    status = status or (code if code > 0 else 128 - code)
        time.sleep(TICK)
    return status


def _end(running: list[_Process]) -> None:
    """Have all end at once, and wait for that."""
    for one in running:
        one.tell(signal.SIGTERM)
    for one in running:
        one.wait()


class _Process:
    """A process that can be started again, with its output in a file as well."""

    def __init__(self, command: list[str], variables: Mapping[str, str], log: Path | None, name: str) -> None:
        self._command, self._variables, self._log, self.name = command, variables, log, name
        self.restarts = 0
        self._quick_ends = 0  # in a row
        self._start()

    def _start(self) -> None:
        self._begun = time.monotonic()
        self.process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, *self._command],
            env={**self._variables, "TORCHELASTIC_RESTART_COUNT": str(self.restarts)},
            stdout=None if self._log is None else subprocess.PIPE,
            stderr=None if self._log is None else subprocess.STDOUT,
            start_new_session=True,  # signals come from here
            preexec_fn=_end_with_parent(),
        )
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            threading.Thread(target=_copy_lines, args=(self.process.stdout, self._log), daemon=True).start()

    def fails_at_once(self) -> bool:
        """Whether it has just ended for the third time in a row soon after its start."""
        self._quick_ends = self._quick_ends + 1 if time.monotonic() - self._begun < SOON else 0
        return self._quick_ends >= QUICK_ENDS

    def start_again(self) -> None:
        self.restarts += 1
        if self.name:
            print(
                f"dl4all launch: {self.name} has ended with status {self.process.returncode} and is started "
                f"again ({self.restarts})",
                file=sys.stderr,
                flush=True,
            )
        self._start()

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def wait(self) -> None:
        """Wait for its end, for a while."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _copy_lines(lines: Any, log: Path) -> None:
    """Show what a process says, and keep it."""
    with log.open("ab") as file:
        for line in lines:
            file.write(line)
            file.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _end_with_parent() -> Callable[[], Any] | None:
    """A function by which a process ends when its parent does, however that ends (``PR_SET_PDEATHSIG``).

    Linux alone has it. What it needs is loaded here: a child of a process with threads must load nothing.
    """
    if sys.platform != "linux":
        return None
    return functools.partial(ctypes.CDLL(None).prctl, 1, int(signal.SIGTERM))


def _every_address(host: str) -> str:
    """The address of all interfaces, for those that reach this host by a name or address.

    Raises:
        ArgumentError: the name has no address.
    """
    try:
        family = socket.getaddrinfo(host, None)[0][0]
    except OSError as error:
        raise ArgumentError(f"[launch] {host!r} of --rdzv-endpoint has no address: {error}") from error
    return "[::]" if family == socket.AF_INET6 else "0.0.0.0"


def _free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])
