"""Transport over MPI, whichever mpi4py was built for or finds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from mpi4py import MPI

from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.distributed.process_group.launch_variables import DEFAULT_PORT, Membership, membership
from dl4all.distributed.process_group.transport import Array, ArrayTransfer, ReduceOp
from dl4all.errors import DistError

COMPUTES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8")
OPS = {
    ReduceOp.SUM: MPI.SUM,
    ReduceOp.PRODUCT: MPI.PROD,
    ReduceOp.MIN: MPI.MIN,
    ReduceOp.MAX: MPI.MAX,
    ReduceOp.BAND: MPI.BAND,
    ReduceOp.BOR: MPI.BOR,
    ReduceOp.BXOR: MPI.BXOR,
}
QUICK = 200  # tests in a row before a wait sleeps between them
PAUSE = 5e-5  # seconds between later tests: MPI makes progress only within its calls


class _Request:
    """A request of MPI, which by itself would wait for ever."""

    def __init__(self, request: Any, timeout: float) -> None:
        self._request, self._timeout = request, timeout

    def is_completed(self) -> bool:
        return bool(self._request.Test())

    def wait(self) -> None:
        """
        Raises:
            TimeoutError: the others did not come in time.
        """
        for _ in range(QUICK):
            if self._request.Test():
                return
        end = time.monotonic() + self._timeout
        while not self._request.Test():
            if time.monotonic() > end:
                raise TimeoutError(f"no answer within {self._timeout:g} seconds")
            time.sleep(PAUSE)


def connected(
    rank: int, world_size: int, address: str | None, timeout: timedelta
) -> tuple[ProcessGroup, Membership]:
    """The group of all processes, and the part of this one; MPI counts them.

    Raises:
        DistError: the launcher's variables are not MPI's, or two threads must not call it at once.
    """
    transport = MpiTransport(MPI.COMM_WORLD.Dup(), timeout)
    own = transport.rank, transport.world_size
    told = int(os.environ.get("RANK", own[0])), int(os.environ.get("WORLD_SIZE", own[1]))
    if told != own:
        raise DistError(
            f"[init_process_group] MPI counts rank {own[0]} of {own[1]}, RANK and WORLD_SIZE say "
            f"{told[0]} of {told[1]}; start the script by mpirun, or `dl4all launch --backend mpi`"
        )
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DistError(
            "[init_process_group] MPI must be initialized with THREAD_MULTIPLE, as mpi4py does by default"
        )
    group = ProcessGroup(transport, "mpi", timeout, range(transport.world_size))
    return group, membership(*own, address or f"127.0.0.1:{DEFAULT_PORT}")


class MpiTransport:
    """A communicator of MPI."""

    computes = frozenset(map(np.dtype, COMPUTES))

    def __init__(self, communicator: Any, timeout: timedelta) -> None:
        communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self._communicator, self._timeout = communicator, timeout
        self.rank, self.world_size = communicator.rank, communicator.size

    def all_reduce(self, array: Array, op: ReduceOp) -> ArrayTransfer:
        return self._begun(self._communicator.Iallreduce(MPI.IN_PLACE, array, OPS[op]))

    def all_gather(self, array: Array, parts: Array) -> ArrayTransfer:
        return self._begun(self._communicator.Iallgather(_bytes(array), _bytes(parts)))

    def broadcast(self, array: Array, source: int) -> ArrayTransfer:
        return self._begun(self._communicator.Ibcast(_bytes(array), source))

    def gather(self, array: Array, parts: Array | None, destination: int) -> ArrayTransfer:
        into = None if parts is None else _bytes(parts)
        return self._begun(self._communicator.Igather(_bytes(array), into, destination))

    def scatter(self, array: Array, parts: Array | None, source: int) -> ArrayTransfer:
        given = None if parts is None else _bytes(parts)
        return self._begun(self._communicator.Iscatter(given, _bytes(array), source))

    def reduce_scatter(self, array: Array, parts: Array, op: ReduceOp) -> ArrayTransfer:
        return self._begun(self._communicator.Ireduce_scatter_block(parts, array, OPS[op]))

    def send(self, array: Array, destination: int, tag: int) -> ArrayTransfer:
        return self._begun(self._communicator.Isend(_bytes(array), destination, tag))

    def receive(self, array: Array, source: int, tag: int) -> ArrayTransfer:
        return self._begun(self._communicator.Irecv(_bytes(array), source, tag))

    def subgroup(self, ranks: Sequence[int], timeout: timedelta) -> MpiTransport:
        if len(ranks) == self.world_size:
            return MpiTransport(self._communicator.Dup(), timeout)
        chosen = self._communicator.Get_group().Incl(list(ranks))
        return MpiTransport(self._communicator.Create_group(chosen), timeout)

    def close(self) -> None:
        if self._communicator != MPI.COMM_NULL and not MPI.Is_finalized():
            self._communicator.Free()

    def _begun(self, request: Any) -> _Request:
        return _Request(request, self._timeout.total_seconds())


def _bytes(array: Array) -> Array:
    """The memory of an array of any dtype, as MPI knows no bfloat16 and no float16."""
    return array.view(np.uint8)
