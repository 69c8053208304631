"""Which requests make up the next batch, and which device gets it. Nothing here knows of threads."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dl4all.multi_device.serving.request import Key, Request


def choose(free_times: Sequence[float], costs: Sequence[float]) -> int:
    """The index of the device that takes a batch: the first to be free; of several, the fastest.

    So each device always has work, and those that are fast have more of it. Graham, "Bounds on
    Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17:2 (1969).

    Args:
        free_times: when each device could begin.
        costs: how long each would take.

    >>> choose([3.0, 1.0, 1.0], [0.1, 0.3, 0.2])
    2
    """
    return min(range(len(free_times)), key=lambda i: (free_times[i], costs[i]))


def fitting(requests: Sequence[Request], most: int) -> int:
    """The number of requests, from the first on, that have at most so many rows together; at least one."""
    rows = itertools.accumulate(request.rows for request in requests)
    return max(1, bisect.bisect_right(list(rows), most))


class Chosen(NamedTuple):
    """Requests that go together, and since when that could be."""

    requests: list[Request]
    ready: float


@dataclass
class _Forming:
    """Requests of one key that will go together."""

    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    hurried: bool = False  # it may go before its time
    closed: bool = False  # it takes no more requests

    def due(self, patience: float) -> float:
        """When the first request has waited long enough."""
        return self.requests[0].submitted + patience


class Buckets:
    """Requests that wait for others of their shapes and dtypes.

    Args:
        most: rows in a batch. A request that does not fit into the batch that is forming begins another one.
        patience: seconds after which a request goes with those that are there.
        exact: what goes together follows from the times of the requests alone. Otherwise those that are
            here when a device is free go too, even if the batch could have begun before they came. When
            it is exact, nobody sees time pass but by requests that come later.
    """

    def __init__(self, most: int, patience: float, *, exact: bool = False) -> None:
        self._most = most
        self._patience = patience
        self._exact = exact
        self._buckets: dict[Key, deque[_Forming]] = {}
        self._expiring: set[Request] = set()  # few have a deadline, and looking through all takes long

    def __len__(self) -> int:
        """The number of rows that wait."""
        return sum(forming.rows for bucket in self._buckets.values() for forming in bucket)

    def __iter__(self) -> Iterator[Request]:
        for bucket in self._buckets.values():
            for forming in bucket:
                yield from forming.requests

    def add(self, request: Request) -> float:
        """Add a request; returns when it is due at the latest."""
        self._tidy()
        bucket = self._buckets.setdefault(request.key, deque())
        if bucket and self._exact and request.submitted > bucket[-1].due(self._patience):
            bucket[-1].hurried = bucket[-1].closed = True
        if not bucket or bucket[-1].closed:
            bucket.append(_Forming())
        elif bucket[-1].rows + request.rows > self._most:
            bucket[-1].hurried |= bucket[-1].rows < self._most  # nothing will fill it
            bucket.append(_Forming())
        if request.deadline < math.inf:
            self._expiring.add(request)
        bucket[-1].requests.append(request)
        bucket[-1].rows += request.rows
        return bucket[-1].due(self._patience)

    def _tidy(self) -> None:
        """Take out what is empty, as an exception has cut short who changed it."""
        for key, bucket in tuple(self._buckets.items()):
            while bucket and not bucket[0].requests:
                bucket.popleft()
            if not bucket:
                del self._buckets[key]

    def remove(self, request: Request) -> bool:
        """Take a request out; returns whether it was there."""
        self._expiring.discard(request)
        bucket = self._buckets.get(request.key, deque())
        for forming in bucket:
            if request in forming.requests:
                if len(forming.requests) == 1:
                    bucket.remove(forming)
                else:
                    forming.requests.remove(request)
                    forming.rows -= request.rows
                if not bucket:
                    del self._buckets[request.key]
                return True
        return False

    def hurry(self, request: Request | None = None) -> None:
        """Let a request and those of its key before it go now, or everything."""
        buckets = self._buckets.values() if request is None else [self._buckets.get(request.key, ())]
        for bucket in buckets:
            if request is None or any(request in forming.requests for forming in bucket):
                for forming in bucket:
                    forming.hurried = True
                    forming.closed = self._exact
                    if request in forming.requests:
                        break

    def due(self, now: float) -> Key | None:
        """The key under which a batch can go: of several, that of the request that came first."""
        self._tidy()
        ready = [key for key, bucket in self._buckets.items() if self._is_due(bucket[0], now)]
        return min(ready, key=lambda key: self._buckets[key][0].requests[0].submitted, default=None)

    def _is_due(self, forming: _Forming, now: float) -> bool:
        if forming.hurried or forming.rows >= self._most:
            return True
        return not self._exact and forming.due(self._patience) <= now

    def next_due(self, now: float) -> float:
        """When something that cannot go yet can, or is too late."""
        self._tidy()
        waiting = (bucket[0] for bucket in self._buckets.values() if not self._is_due(bucket[0], now))
        due = min((forming.due(self._patience) for forming in waiting), default=math.inf)
        return min([due, *(request.deadline for request in self._expiring)])

    def expired(self, now: float) -> list[Request]:
        """The requests for which it is too late."""
        return [request for request in self._expiring if request.deadline <= now]

    def first(self, key: Key, most: int) -> Chosen:
        """The first requests of a key, those of a batch and at most `most` rows, but at least one of them."""
        forming = self._buckets[key][0]
        ready = max(request.submitted for request in forming.requests)
        if forming.rows < self._most:
            ready = max(ready, forming.due(self._patience))
        return Chosen(forming.requests[: fitting(forming.requests, most)], ready)

    def pop(self, key: Key, most: int) -> Chosen:
        """Take what :meth:`first` gives."""
        chosen = self.first(key, most)
        self.drop(key, chosen.requests)
        return chosen

    def drop(self, key: Key, requests: Sequence[Request]) -> None:
        """Take requests of a key out that :meth:`first` has given; those that are out already stay out."""
        self._expiring.difference_update(requests)
        bucket = self._buckets.get(key)
        if not bucket:
            return
        forming = bucket[0]
        left = [request for request in forming.requests if request not in requests]
        forming.hurried |= len(left) < len(forming.requests)
        forming.requests, forming.rows = left, sum(request.rows for request in left)
        if not left:
            bucket.popleft()
        if not bucket:
            del self._buckets[key]
