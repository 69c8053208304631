"""The group of all processes: made, asked for, and given up."""

from __future__ import annotations

import atexit
import logging
import os
from datetime import timedelta
from importlib import import_module

from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.distributed.process_group.launch_variables import LIGHTHOUSE, Membership
from dl4all.errors import ArgumentError, BackendMissingError, DistError
from dl4all.lazy_names import install_command
from dl4all.scheduler.monitor import publisher

DEFAULT_TIMEOUT = timedelta(minutes=5)

ELASTIC_TIMEOUT = timedelta(seconds=30)
"""The default where others go on without a process that does not answer."""

EXTRAS = {"gloo": ("torch", "dist"), "mpi": ("mpi4py", "mpi"), "torchft": ("torchft", "ft")}
"""The package behind a backend, and the extra of dl4all that brings it."""

ALIASES = {
    None: "gloo",
    "nccl": "gloo",
    "cpu:gloo": "gloo",
    "cpu:gloo,cuda:nccl": "gloo",
    "cuda:nccl": "gloo",
}
"""Backends that scripts for PyTorch name, and what carries arrays in their place."""

logger = logging.getLogger("dl4all")

_world: ProcessGroup | None = None
_member: Membership | None = None


def connect(
    backend: str | None,
    timeout: timedelta | None,
    rank: int = -1,
    world_size: int = -1,
    address: str | None = None,
) -> ProcessGroup:
    """Make the group of all processes, when all have come.

    Raises:
        ArgumentError: the backend is unknown, or nothing tells the rank.
        BackendMissingError: a package is missing; the message names the command that installs it.
        DistError: there is a group already.
        DistNetworkError: the others did not come in time.
    """
    global _world, _member  # one group of all processes, as in PyTorch
    if _world is not None:
        raise DistError(
            "[init_process_group] there is a group already: call destroy_process_group() before another"
        )
    name = "torchft" if backend is None and LIGHTHOUSE in os.environ else ALIASES.get(backend, backend)
    if name not in EXTRAS:
        known = " or ".join(map(repr, EXTRAS))
        raise ArgumentError(f"[init_process_group] expected a backend, {known}, got {backend!r}")
    if "nccl" in (backend or ""):
        logger.warning(
            "[init_process_group] nccl is NVIDIA's: arrays go over gloo, through the hosts' memory"
        )
    package, extra = EXTRAS[name]
    try:
        module = import_module(f"dl4all.distributed.process_group.{name}")  # first: it silences torchft's log
        import_module(package)
    except (ImportError, RuntimeError) as error:  # mpi4py raises the latter where there is no MPI
        raise BackendMissingError(
            f"[init_process_group] the backend {name!r} needs {package}: {install_command(extra)} ({error})"
        ) from error
    limit = timeout or (ELASTIC_TIMEOUT if name == "torchft" else DEFAULT_TIMEOUT)
    _world, _member = module.connected(rank, world_size, address, limit)
    publisher.rank = f"{_world.rank()}/{_world.size()}"  # what dl4all top shows
    # A process must not end while threads of a transport run: C++ would abort it.
    atexit.register(disconnect)
    return _world


def disconnect() -> None:
    """Give up the group of all processes, and those that were made of it."""
    global _world, _member
    atexit.unregister(disconnect)
    closing, _world, _member = _world, None, None
    publisher.rank = ""
    if closing is not None:
        closing.close()


def world() -> ProcessGroup | None:
    """The group of all processes, if there is one."""
    return _world


def member_of_world() -> Membership | None:
    """The part of this process in it."""
    return _member
