"""Groups of processes under PyTorch's names: made, left, and asked who is in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec

from dl4all.distributed.process_group import world as groups
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import ArgumentError, DistError


def is_available() -> bool:
    """Whether groups of processes can be made; True.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_available()
        True
    """
    return True


def is_backend_available(backend: str) -> bool:
    """Whether the package behind a backend, ``"gloo"``, ``"mpi"`` or ``"torchft"``, is installed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_backend_available("carrier pigeons")
        False
    """
    package, _ = groups.EXTRAS.get(backend.lower(), ("", ""))
    return bool(package) and find_spec(package) is not None


def is_gloo_available() -> bool:
    """Whether the backend ``"gloo"`` can be used.

    Example:
        >>> import dl4all as dl
        >>> available = dl.distributed.is_gloo_available()
    """
    return is_backend_available("gloo")


def is_mpi_available() -> bool:
    """Whether the backend ``"mpi"`` can be used.

    Example:
        >>> import dl4all as dl
        >>> available = dl.distributed.is_mpi_available()
    """
    return is_backend_available("mpi")


def is_nccl_available() -> bool:
    """Whether NVIDIA's backend is here; False.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_nccl_available()
        False
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether torchrun, or `dl4all launch`, has started this process.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_torchelastic_launched()
        False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_initialized() -> bool:
    """Whether this process is in a group.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_initialized()
        False
    """
    return groups.world() is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
) -> None:
    """Make the group of all processes of a launch. All of them call this, and it returns when all have come.

    The rank and the number of processes come from the variables of the launcher: torchrun's or those of
    `dl4all launch` (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``), Open MPI's, PMI's or
    SLURM's.

    Args:
        backend: ``"gloo"`` (the default; the extra ``dist``), ``"mpi"`` (``mpi``), or
            ``"torchft"`` (``ft``; the default in an elastic launch), whose processes come and go: a
            process is alone until :class:`dl4all.Trainer` meets others. All carry arrays through the memory
            of the hosts.
        init_method: ``"env://"``, or ``"tcp://host:port"`` of rank 0.
        timeout: how long, as a timedelta or in seconds, a process waits for others before it raises an
            error; 5 minutes by default, 30 seconds where others go on without it.
        world_size, rank: in place of the launcher's.

    Raises:
        ArgumentError: nothing tells the rank, or an argument is out of range.
        BackendMissingError: a package is missing; the message names the command that installs it.
        DistError: there is a group already.
        DistNetworkError: the others did not come in time.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> dl.distributed.get_rank(), dl.distributed.get_world_size()
        (0, 1)
        >>> dl.distributed.destroy_process_group()
    """
    if init_method not in (None, "env://") and not init_method.startswith("tcp://"):
        raise ArgumentError(
            f"[init_process_group] expected init_method 'env://' or 'tcp://host:port', got {init_method!r}"
        )
    limit = timeout if timeout is None or isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit is not None and limit <= timedelta():
        raise ArgumentError(f"[init_process_group] timeout must be more than 0 seconds, got {timeout}")
    address = None if init_method in (None, "env://") else init_method[len("tcp://") :]
    groups.connect(backend, limit, rank, world_size, address)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group; by default that of all processes, if there is one.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.destroy_process_group()
    """
    if group is None or group is groups.world():
        groups.disconnect()
    else:
        group.close()


def new_group(
    ranks: Sequence[int] | None = None, timeout: timedelta | None = None, backend: str | None = None
) -> ProcessGroup | None:
    """A group of some of the processes.

    Args:
        ranks: theirs; by default all.
        timeout: as of :func:`init_process_group`; by default that of all.
        backend: that of all processes.

    Returns:
        The group; None in processes that are not in it.

    Raises:
        ArgumentError: a rank is there twice, or there is no such process.
        DistError: there is no group of all processes.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> dl.distributed.new_group([0])
        ProcessGroup(gloo, rank 0 of 1)
        >>> dl.distributed.destroy_process_group()
    """
    whole = group_of("new_group", None)
    if backend not in (None, whole.backend):
        raise ArgumentError(
            f"[new_group] expected the backend of all processes, {whole.backend!r}, got {backend!r}"
        )
    chosen = list(whole.ranks) if ranks is None else sorted(ranks)
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ArgumentError(f"[new_group] expected different ranks, got {chosen}")
    for rank in chosen:
        whole.rank_of("new_group", rank)
    return whole.subgroup("new_group", chosen, timeout) if whole.rank() in chosen else None


def get_rank(group: ProcessGroup | None = None) -> int:
    """The number of this process in a group, by default among all.

    Raises:
        DistError: there is no group.

    Example:
        >>> import dl4all as dl
        >>> rank = dl.distributed.get_rank() if dl.distributed.is_initialized() else 0
    """
    return group_of("get_rank", group).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of processes in a group, by default of all.

    Raises:
        DistError: there is no group.

    Example:
        >>> import dl4all as dl
        >>> count = dl.distributed.get_world_size() if dl.distributed.is_initialized() else 1
    """
    return group_of("get_world_size", group).size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """The name of what carries a group's arrays: ``"gloo"``, ``"mpi"`` or ``"torchft"`` (gloo, too).

    Raises:
        DistError: there is no group.

    Example:
        >>> import dl4all as dl
        >>> name = dl.distributed.get_backend() if dl.distributed.is_initialized() else None
    """
    return group_of("get_backend", group).backend


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """The ranks, among all processes, of those in a group.

    Raises:
        DistError: there is no group.

    Example:
        >>> import dl4all as dl
        >>> ranks = dl.distributed.get_process_group_ranks() if dl.distributed.is_initialized() else [0]
    """
    return list(group_of("get_process_group_ranks", group).ranks)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process among those of its host.

    Args:
        fallback_rank: the answer where there is no group.

    Raises:
        DistError: there is no group, and no `fallback_rank`.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.get_node_local_rank(fallback_rank=0)
        0
    """
    member = groups.member_of_world()
    if member is not None:
        return member.local_rank
    if fallback_rank is None:
        group_of("get_node_local_rank", None)
    assert fallback_rank is not None
    return fallback_rank


def group_of(name: str, group: ProcessGroup | None) -> ProcessGroup:
    """A group, or that of all processes.

    Raises:
        DistError: there is none.
    """
    found = groups.world() if group is None else group
    if found is None:
        raise DistError(
            f"[{name}] there is no group of processes: call dl.distributed.init_process_group(), in a script "
            "that `dl4all launch` or another launcher starts"
        )
    return found
