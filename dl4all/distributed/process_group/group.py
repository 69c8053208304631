"""Process groups: collectives on arrays of the host, which all processes call in the same order."""

from __future__ import annotations

import functools
import hashlib
import pickle
import re
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from dl4all.distributed.process_group.transport import Array, ArrayTransfer, ReduceOp, Transport
from dl4all.errors import ArgumentError, DistError, DistNetworkError, Dl4allError
from dl4all.ops.core.dtypes import HALVES
from dl4all.runtime.profiler import recorder
from dl4all.runtime.profiler.recorder import RecordedEvent

T = TypeVar("T")

TEXT = 192  # bytes of a call's description that processes compare
NUMBERS = 4  # that they exchange with it


class ProcessGroup:
    """Processes that compute together.

    Arrays go from host to host. What collectives of tensors, modules and trainers need from a group is here,
    so that errors of transports come out as this library's.

    Args:
        transport: carries the arrays.
        backend: its name.
        timeout: after which an answer is given up.
        ranks: of the processes among all.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group(rank=0, world_size=1, init_method="tcp://127.0.0.1:29517")
        >>> group = dl.distributed.new_group()
        >>> group.rank(), group.size()
        (0, 1)
        >>> dl.distributed.destroy_process_group()
    """

    def __init__(self, transport: Transport, backend: str, timeout: timedelta, ranks: Sequence[int]) -> None:
        self.transport, self.backend, self.timeout = transport, backend, timeout
        self.ranks = tuple(ranks)
        self._subgroups: list[ProcessGroup] = []
        self._broken: BaseException | None = None

    def rank(self) -> int:
        """The number of this process within the group."""
        return self.transport.rank

    def size(self) -> int:
        """The number of processes."""
        return self.transport.world_size

    def __repr__(self) -> str:
        return f"ProcessGroup({self.backend}, rank {self.rank()} of {self.size()})"

    def rank_of(self, name: str, rank: int) -> int:
        """The number within the group of a process with this rank among all.

        Raises:
            ArgumentError: it is none of the group's.
        """
        if rank not in self.ranks:
            raise ArgumentError(f"[{name}] rank {rank} is not in the group of ranks {list(self.ranks)}")
        return self.ranks.index(rank)

    def connect(self, transport: Transport) -> None:
        """Go on with other processes, over another transport."""
        self.transport, self.ranks, self._broken = transport, tuple(range(transport.world_size)), None

    # Collectives. Each takes a name for its errors.

    def agree(self, name: str, call: str, numbers: Sequence[int] = ()) -> list[list[int]]:
        """Wait until all processes are at the same call; returns the numbers of each.

        Args:
            name: of the function that the user called.
            call: what has to be the same everywhere.
            numbers: up to 4 ints from 0 to 2^64 - 1, which may differ.

        Raises:
            DistError: the calls differ; the message has those of all.
            DistNetworkError: a process has ended or does not come in time.
        """
        if self.size() == 1:
            return [[*numbers, *[0] * (NUMBERS - len(numbers))]]
        text = f"{name} of {call}".encode() if call else name.encode()
        if len(text) > TEXT:
            text = text[: TEXT - 20] + b"..." + hashlib.sha256(text).hexdigest()[:16].encode()
        record = np.zeros(TEXT + 8 * NUMBERS, np.uint8)
        record[: len(text)] = np.frombuffer(text, np.uint8)
        record[TEXT:].view(np.uint64)[: len(numbers)] = numbers
        records = self.all_gather(name, record)
        texts = [bytes(one[:TEXT]).rstrip(b"\0").decode(errors="replace") for one in records]
        if len(set(texts)) > 1:
            lines = "".join(f"\n  rank {rank}: {own}" for rank, own in zip(self.ranks, texts, strict=True))
            raise DistError(
                f"[{name}] the processes are at different calls; all must make the same ones in the same "
                f"order, with the same shapes and dtypes:{lines}"
            )
        return [one[TEXT:].view(np.uint64).tolist() for one in records]

    def begin(
        self,
        name: str,
        start: Callable[[], ArrayTransfer],
        finish: Callable[[], None] = lambda: None,
        *,
        way: str = "",
        nbytes: int = 0,
    ) -> Pending:
        """Begin what a transport does; a group of one needs none. Profiles show its `way`, and the bytes."""
        if self.size() == 1:
            return Pending(self, name, DONE, finish)
        active = recorder.active
        event = None if active is None else active.collective(way or name, nbytes)
        return Pending(self, name, self.guarded(name, start), finish, event)

    def all_reduce(
        self, name: str, array: Array, op: ReduceOp = ReduceOp.SUM, finish: Callable[[], None] = lambda: None
    ) -> Pending:
        """Begin to reduce an array with one axis, in place; `finish` is called when it has ended."""
        wide, plain, scale = self._computed(name, array, op)

        def narrow() -> None:
            if wide is not array or scale != 1:
                array[...] = wide if scale == 1 else wide / scale
            finish()

        start = functools.partial(self.transport.all_reduce, wide, plain)
        return self.begin(name, start, narrow, way="all_reduce", nbytes=wide.nbytes)

    def reduce_scatter(
        self, name: str, parts: Array, op: ReduceOp, finish: Callable[[Array], None]
    ) -> Pending:
        """Begin to reduce an array with an axis of ranks; `finish` gets this process's part at the end."""
        wide, plain, scale = self._computed(name, parts, op)
        into = np.empty_like(wide[0])
        if self.size() == 1:
            into[...] = wide[0]
        return self.begin(
            name,
            lambda: self.transport.reduce_scatter(into, wide, plain),
            lambda: finish(np.asarray(into if scale == 1 else into / scale, parts.dtype)),
            way="reduce_scatter",
            nbytes=wide.nbytes,
        )

    def _computed(self, name: str, array: Array, op: ReduceOp) -> tuple[Array, ReduceOp, int]:
        """The array in a dtype that the transport reduces, its op, and what results are to be divided by."""
        wide = array if array.dtype in self.transport.computes else array.astype(_wider(name, array.dtype))
        return (wide, ReduceOp.SUM, self.size()) if op is ReduceOp.AVG else (wide, op, 1)

    def all_gather(self, name: str, array: Array) -> list[Array]:
        """The arrays of all processes, in the order of the ranks. They have one shape and dtype."""
        flat = np.ascontiguousarray(array).reshape(-1)
        parts = np.empty((self.size(), flat.size), flat.dtype)
        if self.size() == 1:
            parts[0] = flat
        else:
            start = functools.partial(self.transport.all_gather, flat, parts)
            self.begin(name, start, way="all_gather", nbytes=parts.nbytes).wait()
        return [part.reshape(array.shape) for part in parts]

    def broadcast(self, name: str, array: Array, source: int = 0) -> None:
        """Fill a contiguous array with that of a process."""
        start = functools.partial(self.transport.broadcast, array.reshape(-1), source)
        self.begin(name, start, way="broadcast", nbytes=array.nbytes).wait()

    def gather_objects(self, name: str, value: Any) -> list[Any]:
        """Values of all processes, by pickle."""
        data = pickle.dumps(value)
        lengths = [counts[0] for counts in self.agree(name, "an object of each process", [len(data)])]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        parts = self.all_gather(name, padded)
        return [pickle.loads(part[:length].tobytes()) for part, length in zip(parts, lengths, strict=True)]

    def broadcast_object(self, name: str, value: Any, source: int = 0, *, wanted: bool = True) -> Any:
        """The value of one process, by pickle; None where it is not `wanted`."""
        data = pickle.dumps(value) if self.rank() == source else b""
        length = self.agree(name, f"an object of rank {self.ranks[source]}", [len(data)])[source][0]
        array = np.frombuffer(data, np.uint8).copy() if data else np.empty(length, np.uint8)
        self.broadcast(name, array, source)
        if not wanted:
            return None
        return value if self.rank() == source else pickle.loads(array.data)

    def by_first(self, name: str, function: Callable[[], T]) -> T:
        """Call a function in the first process; returns its value, or raises its error, in all of them."""
        outcome: tuple[Any, Exception | None] = None, None
        error: Exception | None = None
        if self.rank() == 0:
            try:
                outcome = function(), None
            except Exception as raised:  # noqa: BLE001  # raised below, when the others know of it
                error = raised
                outcome = None, raised if isinstance(raised, Dl4allError) else DistError(str(raised))
        value, told = self.broadcast_object(name, outcome)
        if told is not None:
            raise error or told
        given: T = value
        return given

    def subgroup(self, name: str, ranks: Sequence[int], timeout: timedelta | None = None) -> ProcessGroup:
        """A group of some of these processes, all of which call this; ranks are those among all."""
        own = [self.rank_of(name, rank) for rank in ranks]
        limit = timeout or self.timeout
        transport = self.guarded(name, lambda: self.transport.subgroup(own, limit))
        made = ProcessGroup(transport, self.backend, limit, ranks)
        self._subgroups.append(made)
        return made

    def beside(self, name: str) -> ProcessGroup:
        """A group of the same processes, whose collectives have an order of their own."""
        return self if self.size() == 1 else self.subgroup(name, self.ranks)

    def close(self) -> None:
        """Give up the connections, those of groups that were made of this one first."""
        while self._subgroups:
            self._subgroups.pop().close()
        self.transport.close()

    # Errors

    def guarded(self, name: str, function: Callable[[], T]) -> T:
        """Call a function of the transport.

        Raises:
            DistNetworkError: it has failed, or had before.
        """
        if self._broken is not None:
            raise self._error(name, self._broken) from self._broken
        begun = time.monotonic()
        try:
            return function()
        except Exception as error:
            self._broken = error
            raise self._error(name, error, time.monotonic() - begun) from error

    def _error(self, name: str, error: BaseException, waited: float = 0.0) -> DistNetworkError:
        # Of gloo's messages, neither the line of its source nor its guess.
        first = re.sub(r"^\[\S+\] ", "", str(error).strip()).partition("\n")[0].partition(". This is ")[0]
        return DistNetworkError(
            f"[{name}] rank {self.rank()} of {self.size()}: another process has ended, cannot be reached, or "
            f"did not answer within {self.timeout.total_seconds():g} seconds (waited {waited:.1f}): {first}"
        )


class Pending:
    """A transfer under way, and what is done once when it has ended."""

    def __init__(
        self,
        group: ProcessGroup,
        name: str,
        work: ArrayTransfer,
        finish: Callable[[], None],
        event: RecordedEvent | None = None,
    ) -> None:
        self._group, self._name, self._work, self._finish = group, name, work, finish
        self._event = event  # of a profile
        self._waited = False

    def is_completed(self) -> bool:
        """Whether it has ended, or has failed; never waits."""
        return self._waited or self._group.guarded(self._name, self._work.is_completed)

    def wait(self, timeout: Any = None) -> bool:
        """Wait for its end, within the group's timeout; returns True.

        Raises:
            DistNetworkError
        """
        if not self._waited:
            active, event = recorder.active, self._event
            with nullcontext() if active is None or event is None else active.end_collective(event):
                self._group.guarded(self._name, self._work.wait)
            self._waited = True
            self._finish()
        return True


class _Done:
    """The transfer of a group of one."""

    def is_completed(self) -> bool:
        return True

    def wait(self) -> None:
        pass


DONE = _Done()


def _wider(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a transport computes what it has no op for."""
    if dtype in HALVES:
        return np.dtype(np.float32)
    if dtype.kind == "i":
        return np.dtype(np.int64)
    raise ArgumentError(f"[{name}] expected floats or ints, got {dtype}; convert with .to(dtype)")
