"""The rank of this process, from the variables of whatever launched it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from dl4all.errors import ArgumentError

DEFAULT_PORT = 29500
"""The port of rank 0 where no launcher names one; PyTorch's."""

LIGHTHOUSE = "TORCHFT_LIGHTHOUSE"
"""The variable with the address of the lighthouse, by which processes that come and go find each other."""

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "PMI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}
"""The variables of launchers: of the rank, the number of processes, and both within the host."""


class Membership(NamedTuple):
    """The part of a process in a group of all processes."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int


def membership(
    rank: int = -1,
    world_size: int = -1,
    address: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Membership:
    """The part of this process, by arguments or else by the variables of a launcher.

    Args:
        rank, world_size: -1 asks the launcher.
        address: of rank 0, ``"host:port"``.
        environment: the variables; by default the process's.

    Raises:
        ArgumentError: nothing tells the rank, or a number is none, or out of range.

    >>> membership(environment={"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "x[07-08]"})
    Membership(rank=3, world_size=4, local_rank=0, local_world_size=1, master_addr='x07', master_port=29500)
    """
    variables = os.environ if environment is None else environment
    launcher, names = next(
        (
            (name, names)
            for name, names in LAUNCHERS.items()
            if names[0] in variables and names[1] in variables
        ),
        ("", LAUNCHERS["torchrun"]),
    )
    if not launcher and (rank < 0 or world_size < 0):
        raise ArgumentError(
            "[init_process_group] nothing tells the rank of this process: expected the variables "
            f"{'; '.join(f'{a} and {b} ({name})' for name, (a, b, *_) in LAUNCHERS.items())}. Start the "
            "script by `dl4all launch -n 2 SCRIPT`, or pass rank=, world_size= and init_method='tcp://host:port'"
        )
    given = [rank, world_size, -1, -1]
    for index, (name, default) in enumerate(zip(names, (0, 1, 0, 1), strict=True)):
        if given[index] < 0:
            given[index] = _number(name, variables.get(name, str(default)))
    if not 0 <= given[0] < given[1]:
        raise ArgumentError(
            f"[init_process_group] the rank must be from 0 to {given[1] - 1} for {given[1]} processes, got "
            f"{given[0]}"
        )
    host, port = (
        _address(variables, alone=given[1] <= given[3] or given[1] == 1)
        if address is None
        else _split(address)
    )
    return Membership(given[0], given[1], given[2], given[3], host, port)


def _number(name: str, text: str) -> int:
    leading = re.match(r"\d+", text)  # SLURM_NTASKS_PER_NODE may be "2(x3)"
    if leading is None:
        raise ArgumentError(f"[init_process_group] expected a number in the variable {name}, got {text!r}")
    return int(leading.group())


def _address(variables: Mapping[str, str], *, alone: bool) -> tuple[str, int]:
    """The host and port of rank 0."""
    port = _number("MASTER_PORT", variables.get("MASTER_PORT", str(DEFAULT_PORT)))
    if host := variables.get("MASTER_ADDR"):
        return host, port
    if nodes := variables.get("SLURM_JOB_NODELIST", variables.get("SLURM_NODELIST")):
        return _first_host(nodes), port
    if alone:
        return "127.0.0.1", port
    raise ArgumentError(
        "[init_process_group] the processes are on several hosts, and nothing names that of rank 0: set "
        "MASTER_ADDR, or pass init_method='tcp://host:port'"
    )


def _first_host(nodes: str) -> str:
    """The first host of a list of SLURM's.

    >>> _first_host("a1,b"), _first_host("gpu[07-09,11],x"), _first_host("r[2]n[01-04]")
    ('a1', 'gpu07', 'r2n01')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first.group() if first else nodes)


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ArgumentError(f"[init_process_group] expected init_method='tcp://host:port', got {address!r}")
    return host.strip("[]"), int(port)
