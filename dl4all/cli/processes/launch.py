"""``dl4all launch``: starts a script in several processes that train together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

from dl4all.cli.processes.supervisor import RESTARTS, host_and_port, supervise
from dl4all.errors import ArgumentError, BackendMissingError
from dl4all.lazy_names import install_command

WORKER = ("-m", "dl4all.cli.processes.worker")

OPEN_MPI = ("--oversubscribe", "--mca", "mpi_yield_when_idle", "1")
"""Flags without which processes that wait for messages keep the cores from those that compute."""

ETHERNET = ("--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp")
"""Flags by which Open MPI takes plain sockets between hosts, and does not look for other networks first."""


# Options before SCRIPT belong to this command, and those after it to the script, as with python itself.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "processes", type=click.IntRange(min=1), default=1, help="How many on each host.")
@click.option("--nnodes", type=click.IntRange(min=1), default=1, help="How many hosts there are.")
@click.option("--node-rank", type=click.IntRange(min=0), help="The number of this one, from 0.")
@click.option("--rdzv-endpoint", metavar="HOST:PORT", help="Where host 0 listens for the others.")
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    help="How often to start all anew, 0 by default; with --elastic each process, 3.",
)
@click.option("--elastic", is_flag=True, help="Go on without processes that end, and with those that come.")
@click.option("--log-dir", metavar="DIR", help="Where each process's output goes, as well.")
@click.option("--backend", type=click.Choice(["gloo", "mpi"]), default="gloo", help="Who starts them.")
@click.option("--hosts", metavar="A,B", help="With mpi: the hosts, which mpirun reaches by ssh.")
def launch(
    script: str,
    args: tuple[str, ...],
    processes: int,
    nnodes: int,
    node_rank: int | None,
    rdzv_endpoint: str | None,
    max_restarts: int | None,
    elastic: bool,
    log_dir: str | None,
    backend: str,
    hosts: str | None,
) -> NoReturn:
    """Run a Python SCRIPT with its ARGS in several processes.

    Options go before SCRIPT. Processes of a host get its GPUs one by one, and the CPU where there are no
    more; a device that the script, DL4ALL_DEVICE or dl4all.toml names goes before. If one fails, all end, and
    start anew as often as --max-restarts says: Trainer(folder=..., distributed=True).fit(..., resume=True)
    goes on from its checkpoint then. With --elastic the others go on without it, and it is started again:
    Trainer gives it what it has missed. Any number of hosts may join, each by this command with the
    --rdzv-endpoint of host 0 and a --node-rank of its own.
    """
    worker = [*WORKER, script, *args]
    environment = {
        # Its share of the cores, unless somebody knows better: in each process libraries would take all.
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes)),
        **os.environ,
        # A restarted process could not bind the port that the one before it shared.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    if backend == "mpi":
        if nnodes > 1 or max_restarts or rdzv_endpoint or log_dir or elastic:
            raise ArgumentError(
                "[launch] mpirun takes --hosts A,B in place of --nnodes, and does not restart"
            )
        command = [*_mpirun(processes, hosts), sys.executable, *worker]
    elif hosts is not None:
        raise ArgumentError(
            "[launch] --hosts is mpirun's; without it run this command on each host, with --nnodes"
        )
    elif elastic:
        if nnodes > 1 or (rdzv_endpoint is None) != (node_rank is None):
            raise ArgumentError(
                "[launch] any number of hosts may join an elastic launch: leave out --nnodes, and give every "
                "host a --node-rank and the --rdzv-endpoint of host 0"
            )
        restarts = RESTARTS if max_restarts is None else max_restarts
        sys.exit(supervise(worker, environment, processes, node_rank or 0, rdzv_endpoint, restarts, log_dir))
    else:
        restarts = max_restarts or 0
        command = [*_torchrun(processes, nnodes, node_rank, rdzv_endpoint, restarts, log_dir), *worker]
    sys.stdout.flush()
    os.execve(command[0], command, environment)  # signals and the exit status are the launcher's


def _torchrun(
    processes: int,
    nnodes: int,
    node_rank: int | None,
    endpoint: str | None,
    max_restarts: int,
    log_dir: str | None,
) -> list[str]:
    """The command of PyTorch's launcher, up to the program.

    Raises:
        ArgumentError: hosts are not told apart.
        BackendMissingError: PyTorch is not installed.
    """
    if find_spec("torch") is None:
        raise BackendMissingError(
            f"[launch] processes are started by PyTorch's torchrun: {install_command('dist')}"
        )
    if nnodes > 1 and (node_rank is None or endpoint is None or node_rank >= nnodes):
        raise ArgumentError(
            f"[launch] with --nnodes {nnodes}, every host needs --node-rank, from 0 to {nnodes - 1}, and the "
            "--rdzv-endpoint of host 0, such as host-a:29500"
        )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--max-restarts", str(max_restarts)]
    if endpoint is None:
        command += ["--standalone"]
    else:
        host, port = host_and_port(endpoint)
        command += ["--nnodes", str(nnodes), "--node-rank", str(node_rank or 0)]
        command += ["--master-addr", host, "--master-port", port]
    if log_dir is not None:
        command += ["--log-dir", log_dir, "--tee", "3"]
    return command


def _mpirun(processes: int, hosts: str | None) -> list[str]:
    """The command of MPI's launcher, up to the program.

    Raises:
        BackendMissingError: mpi4py or mpirun is not installed.
    """
    beside = Path(sys.executable).with_name("mpirun")  # as the wheel of Open MPI puts it
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None or find_spec("mpi4py") is None:
        raise BackendMissingError(
            f"[launch] --backend mpi needs mpi4py and an MPI with its mpirun: {install_command('mpi')}"
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    command = [found, "-n", str(processes * (1 if hosts is None else len(hosts.split(","))))]
    if "Open MPI" in version or "prte" in version.lower():
        command += OPEN_MPI
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command += ["--allow-run-as-root"]
        if hosts is not None:
            slots = ",".join(f"{host}:{processes}" for host in hosts.split(","))
            command += ["--host", slots, *ETHERNET]
    elif hosts is not None:
        command += ["-hosts", hosts]
    return command
