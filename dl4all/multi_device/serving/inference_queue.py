"""A queue of inputs that several devices answer in batches."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

import numpy.typing as npt

from dl4all.errors import (
    ArgumentError,
    DeviceError,
    DeviceLostError,
    QueueFullError,
)
from dl4all.multi_device.serving.inference_stats import InferenceStats, InferenceTotals
from dl4all.multi_device.serving.request import Key, Request, SplitRequest, batch_rows, host_array
from dl4all.multi_device.serving.request_buckets import Buckets, choose, fitting
from dl4all.multi_device.serving.served_replica import ServedReplica
from dl4all.nn.module import Module
from dl4all.runtime import fork, threads
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.scheduler.streams.task import State

LOOK_SECONDS = 1.0  # after which the watching thread looks whether there is still something to watch


@dataclass(eq=False)
class _Batch:
    """Requests that a device computes together."""

    requests: list[Request]
    ready: float = 0.0  # virtual time
    key: Key | None = None  # while the requests may still wait under it
    given: bool = False  # to the stream of its device
    taken: bool = False  # by the thread of that stream
    begun: float = math.inf  # by the clock of its device; not yet
    settled: bool = False  # computed, or given to another device
    refused: frozenset[Device] = frozenset()  # lacked memory even for one request


class InferenceQueue:
    """Answer requests with a model on several devices, many at once.

    Requests of equal shapes and dtypes are computed together, on whichever device is free; so faster devices
    answer more. A request is one input, or several rows that stay together as far as a batch has room. Each
    device has a copy of the model, made now and in inference mode. A request that fails does so alone. A
    device that is lost or does not answer within ``group.timeout`` is retired, and others do its work; one
    without memory for a batch gets smaller ones from then on.

    Any number of threads may submit. On simulated devices everything takes its time on the virtual clock; a
    batch that is not full goes there when somebody waits for it, or a request comes later than `max_wait`.

    Args:
        model: takes inputs with a batch axis in front, and returns tensors, or tuples, lists or dicts of
            them, with one too.
        group: the devices.
        max_batch: rows in a batch, at most.
        max_wait: seconds that a request waits for others to fill its batch.
        limit: rows that may wait; :meth:`submit` waits for room beyond that.
        compile: record the model's work for each batch size that occurs, as :func:`dl4all.compile` does.

    Raises:
        ArgumentError: a limit is below 1, or `max_wait` below 0.
        OutOfMemoryError: the model does not fit on a device.

    Example:
        >>> import dl4all as dl
        >>> model = dl.nn.Sequential(dl.nn.Linear(4, 2), dl.nn.Softmax(dim=-1))
        >>> with dl.InferenceQueue(model, dl.DeviceGroup(["cpu", "cpu#1"])) as queue:
        ...     requests = [queue.submit(dl.ones(4, device="cpu")) for _ in range(10)]
        ...     requests[0].result(timeout=10).shape
        (2,)
        >>> queue.stats().requests
        10
    """

    def __init__(
        self,
        model: Module,
        group: DeviceGroup,
        *,
        max_batch: int = 32,
        max_wait: float = 0.002,
        limit: int = 1024,
        compile: bool = False,
    ) -> None:
        for name, value in (("max_batch", max_batch), ("limit", limit)):
            if value < 1:
                raise ArgumentError(f"[InferenceQueue] {name} must be at least 1, got {value}")
        if not max_wait >= 0:
            raise ArgumentError(f"[InferenceQueue] max_wait must be at least 0 seconds, got {max_wait}")
        self.group = group
        self._virtual = all(device.simulated is not None for device in group.devices)
        self._replicas = [ServedReplica(model, device, max_batch, compile) for device in group]
        self._running: dict[ServedReplica, _Batch] = {}
        self._again: deque[_Batch] = deque()  # what a device could not do
        self._buckets = Buckets(max_batch, max_wait, exact=self._virtual)
        self._most = max_batch
        self._window = 2 * max_batch * len(self._replicas)  # that map() is ahead
        # Free ones, by the virtual times at which they became free: as many as those that wait leave.
        self._limit, self._places = limit, deque([0.0] * limit)
        self._closed = False
        self._totals = InferenceTotals()
        self._alarm = math.inf  # when the watching thread looks again
        self._made_in = fork.generation  # what serves it are threads of this process
        self._changed = threads.Condition(fork.rlock())  # room, or nothing left to do
        self._wake: SimpleQueue[None] = SimpleQueue()  # the watching thread
        if not self._virtual:
            arguments = weakref.ref(self), self._wake
            watching = threading.Thread(target=_watch, args=arguments, name="inference queue", daemon=True)
            threads.begin(threads.start, (watching,))

    def __len__(self) -> int:
        """The number of rows that wait for a device."""
        with self._changed.lock:
            return self._waiting()

    def _waiting(self) -> int:
        return len(self._buckets) + sum(r.rows for batch in self._again for r in batch.requests)

    # For callers

    def submit(self, *inputs: Any, timeout: float | None = None, expires: float | None = None) -> Request:
        """Ask for the model's output.

        Args:
            inputs: the model's, without the batch axis: tensors, arrays or numbers. They are copied.
            timeout: seconds to wait for room in the queue; 0 does not wait.
            expires: seconds after which the request fails with ``InferenceTimeoutError`` and leaves the
                queue, if no device has begun with it.

        Returns:
            The request; its ``result()`` is the output without the batch axis, on the CPU.

        Raises:
            ArgumentError: there is no input.
            DTypeError: an input is nothing that a tensor can be made of.
            QueueFullError: there was no room in time.
            DeviceError: the queue is closed, or has no device left.
            ForkError: it was made before this process was forked.
        """
        return self._submit(tuple(host_array(value)[None] for value in inputs), True, timeout, expires)

    def submit_batch(
        self, *inputs: Any, timeout: float | None = None, expires: float | None = None
    ) -> Request:
        """Ask for the model's output for several rows at once.

        Args:
            inputs: the model's, with the batch axis in front; each has the same number of rows. More than
                `max_batch` rows are computed in several batches.
            timeout, expires: as for :meth:`submit`.

        Returns:
            The request; its ``result()`` is the output with the batch axis, on the CPU.

        Raises:
            ShapeError: an input has no batch axis, or inputs differ in rows.
            ArgumentError: there are more rows than the queue holds.
            Dl4allError: as :meth:`submit`.

        Example:
            >>> import dl4all as dl
            >>> with dl.InferenceQueue(dl.nn.ReLU(), dl.DeviceGroup(["cpu"])) as queue:
            ...     queue.submit_batch([[-1.0, 2.0], [3.0, -4.0]]).result(timeout=10).tolist()
            [[0.0, 2.0], [3.0, 0.0]]
        """
        return self._submit(tuple(map(host_array, inputs)), False, timeout, expires)

    def _submit(
        self,
        inputs: tuple[npt.NDArray[Any], ...],
        single: bool,
        timeout: float | None,
        expires: float | None,
    ) -> Request:
        fork.check_own(self._made_in, "InferenceQueue")
        if not inputs:
            raise ArgumentError("[InferenceQueue] expected the model's inputs, got none")
        count = 1 if single else batch_rows(inputs)
        if count > self._limit:
            raise ArgumentError(
                f"[InferenceQueue] {count} rows never fit into a queue of {self._limit}; send fewer at once, "
                "or raise its limit"
            )
        most = self._most
        cut = [inputs]
        if count > most:
            cut = [tuple(array[i : i + most] for array in inputs) for i in range(0, count, most)]
        parts = [Request(part, self, self._virtual, single, expires) for part in cut]
        if not self._changed.wait_for(partial(self._add, parts, count), timeout):
            raise QueueFullError(
                f"[InferenceQueue] no room for another request within {timeout} seconds; submit fewer, or "
                "add devices"
            )
        return parts[0] if len(parts) == 1 else SplitRequest(parts, self)

    def _add(self, parts: list[Request], rows: int) -> bool:
        """Let requests wait with others; returns whether there was room for all of them."""
        if len(self._places) < rows and self._virtual and not self._closed:
            self._buckets.hurry()  # nothing comes that would fill what waits
            self._dispatch()
        if self._closed:
            raise DeviceError("[InferenceQueue] the queue is closed; make another one")
        if len(self._places) < rows:
            return False
        _ = self.group.primary  # or say why there is none
        clock.advance_to(self._places[rows - 1])
        for request in parts:
            request.send()
            if request.expires is not None:
                request.deadline = request.submitted + request.expires
            due = self._buckets.add(request)
            while self._places and len(self._places) + len(self._buckets) > self._limit:
                self._places.popleft()
            self._dispatch()
            # What could go now and does not is begun by the next device that is free.
            alarm = min(due, request.deadline) if due > request.submitted else request.deadline
            if alarm < self._alarm and request.state == "waiting":
                self._wake.put(None)
        return True

    def warm_up(self, *inputs: Any) -> Any:
        """Compute a batch on each device now, so that the first requests do not wait for kernels.

        Args:
            inputs: the model's, with the batch axis in front.

        Returns:
            The output of the first device, on the CPU.

        Raises:
            Exception: what the model or a device raises.

        Example:
            >>> import dl4all as dl
            >>> with dl.InferenceQueue(dl.nn.Linear(4, 2), dl.DeviceGroup(["cpu"])) as queue:
            ...     queue.warm_up(dl.ones(32, 4, device="cpu")).shape
            (32, 2)
        """
        arrays = tuple(map(host_array, inputs))
        batch_rows(arrays)
        request = Request(arrays, self, self._virtual, single=False)
        tasks = [r.stream.submit(r.compute, [request], name="warm-up") for r in self._replicas]
        outputs = [task.result()[0] for task in tasks]
        return outputs[0]

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """The outputs for many inputs, in their order. A tuple stands for several inputs of the model.

        Example:
            >>> import dl4all as dl
            >>> with dl.InferenceQueue(dl.nn.ReLU(), dl.DeviceGroup(["cpu"])) as queue:
            ...     [y.tolist() for y in queue.map([[-1.0, 2.0], [3.0, -4.0]])]
            [[0.0, 2.0], [3.0, 0.0]]
        """
        rest = iter(items)
        pending: deque[Request] = deque()
        try:
            while True:
                for item in itertools.islice(rest, self._window - len(pending)):
                    pending.append(self.submit(*(item if isinstance(item, tuple) else (item,))))
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            for request in pending:
                request.cancel()

    def stats(self) -> InferenceStats:
        """Statistics so far."""
        with self._changed.lock:
            answered = {str(replica.device): replica.requests for replica in self._replicas}
            return self._totals.stats(self._waiting(), answered)

    def close(self, *, cancel: bool = False) -> None:
        """Refuse further requests, and return when those that wait are answered; with `cancel`, drop them."""
        if self._made_in != fork.generation:  # they are the parent's
            return
        with self._changed.lock:
            self._closed = True
            waiting = list(self._buckets) if cancel else []
            self._buckets.hurry()
            self._changed.notify_all()
        for request in waiting:
            request.cancel()
        with self._changed.lock:
            self._dispatch()
        self._changed.wait_for(lambda: not self._running and not self._waiting())
        self._wake.put(None)
        for replica in self._replicas:
            replica.stream.close()

    def __enter__(self) -> InferenceQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close(cancel=error is not None)

    # For requests

    def hasten(self, request: Request) -> None:
        """Somebody waits for it on a virtual clock, which stands still meanwhile."""
        with self._changed.lock:
            self._buckets.hurry(request)
            self._dispatch()

    def forget(self, request: Request) -> None:
        """It was cancelled."""
        with self._changed.lock:
            if self._buckets.remove(request):
                self._free_places(clock.now())

    def _free_places(self, now: float) -> None:
        """Some requests wait no longer."""
        while len(self._places) + len(self._buckets) < self._limit:
            self._places.append(now)
        self._changed.notify_all()

    # Giving work to devices. Whoever calls these holds the lock.

    def _dispatch(self) -> None:
        """Give batches to devices while there are both."""
        for replica, batch in tuple(self._running.items()):
            if not batch.given:
                self._give(replica, batch)
        while True:
            alive = self.group.alive
            if not alive:
                self._fail_all()
                return
            # Computed one after the other, virtual batches still run side by side in virtual time, and
            # when each device is free is known.
            if self._virtual and self._running:
                return
            free = [r for r in self._replicas if r not in self._running and r.device in alive]
            if not free or not self._begin_one(free):
                return

    def _begin_one(self, free: list[ServedReplica]) -> bool:
        """Let one of the free devices begin with something; returns whether there was anything to do."""
        for batch in self._again:
            able = [replica for replica in free if replica.device not in batch.refused]
            if able:
                replica = self._choose(able, batch.ready)
                count = fitting(batch.requests, replica.largest)
                begun = _Batch(batch.requests[:count], batch.ready, refused=batch.refused)
                self._running[replica] = begun
                self._again.remove(batch)
                if len(batch.requests) > count:
                    rest = _Batch(batch.requests[count:], batch.ready, refused=batch.refused)
                    self._again.appendleft(rest)
                self._give(replica, begun)
                return True
        key = self._buckets.due(clock.now() if self._virtual else time.perf_counter())
        if key is None:
            return False
        replica = self._choose(free, 0.0)
        requests, ready = self._buckets.first(key, replica.largest)
        batch = _Batch(requests, ready if self._virtual else clock.now(), key)
        self._running[replica] = batch  # from here on an exception loses nothing: `_dispatch` goes on with it
        self._give(replica, batch)
        return True

    def _give(self, replica: ServedReplica, batch: _Batch) -> None:
        """Let a device begin with its batch. It may be done again, if an exception has cut it short."""
        if batch.key is not None:
            self._buckets.drop(batch.key, batch.requests)
            begun = max(replica.free_at, batch.ready) if self._virtual else clock.now()
            self._free_places(begun)
            batch.requests = _at(begun, partial(_begun, batch.requests))
            batch.key = None
        if batch.requests:
            self._begin(replica, batch)
            batch.given = True
        else:
            del self._running[replica]

    def _choose(self, replicas: list[ServedReplica], ready: float) -> ServedReplica:
        free_times = [max(r.free_at, ready) if self._virtual else 0.0 for r in replicas]
        return replicas[choose(free_times, [r.seconds_per_row for r in replicas])]

    def _begin(self, replica: ServedReplica, batch: _Batch) -> None:
        virtual_begin = max(replica.free_at, batch.ready) if self._virtual else batch.ready
        batch.begun = virtual_begin if self._virtual else time.perf_counter()
        _at(virtual_begin, lambda: replica.stream.submit(self._compute, replica, batch, name="batch"))
        if not self._virtual and batch.begun + self.group.timeout < self._alarm:
            self._wake.put(None)

    def _fail_all(self) -> None:
        """No device is left."""
        batches, self._again = self._again, deque()
        begun = [request for batch in batches for request in batch.requests]
        waiting = list(self._buckets)
        for request in waiting:
            self._buckets.remove(request)
            if request.begin() is not None:
                begun.append(request)
        self._free_places(clock.now())
        try:
            _ = self.group.primary
        except DeviceError as error:
            for request in begun:
                request.end("failed", error)

    # In a device's thread

    def _compute(self, replica: ServedReplica, batch: _Batch) -> None:
        if batch.taken:  # it was given twice, as an exception had cut the first time short
            return
        batch.taken = True
        try:
            outcomes = _outcomes(replica, batch.requests)
        except Hang:
            found_out = batch.begun + self.group.timeout if self._virtual else clock.now()
            self._give_up(replica, batch, self._overdue, found_out)
            raise
        except DeviceLostError as error:
            self._give_up(replica, batch, str(error), clock.now())
        except MemoryError as error:
            self._make_smaller(replica, batch, error)
        else:
            self._answer(replica, batch, outcomes)

    def _answer(self, replica: ServedReplica, batch: _Batch, outcomes: list[tuple[State, Any]]) -> None:
        if not self._settle(batch):
            return
        requests = list(batch.requests)
        rows = sum(request.rows for request in requests)
        with self._changed.lock:  # before anybody hears of it
            seconds = requests[0].seconds() - batch.begun
            self._totals.count(len(requests), rows, seconds)
            replica.took(seconds, len(requests), rows)
        for request, (state, outcome) in zip(requests, outcomes, strict=True):
            request.end(state, outcome)
        with self._changed.lock:
            self._totals.latencies.extend(request.ended - request.submitted for request in requests)
            self._release(replica)

    def _settle(self, batch: _Batch) -> bool:
        """Whether this is the first time that something comes of a batch."""
        with self._changed.lock:
            first, batch.settled = not batch.settled, True
            return first

    def _release(self, replica: ServedReplica) -> None:
        """A device is done with its batch."""
        del self._running[replica]
        replica.free_at = clock.now()
        self._dispatch()
        self._changed.notify_all()

    def _make_smaller(self, replica: ServedReplica, batch: _Batch, error: MemoryError) -> None:
        """A device lacks memory for a batch: give it smaller ones, and this one to whom it fits."""
        rows, refused = min(replica.largest, sum(r.rows for r in batch.requests)), batch.refused
        if rows == 1:
            refused |= {replica.device}
            if not set(self.group.alive) - refused:
                self._answer(replica, batch, [("failed", error)] * len(batch.requests))
                return
        if not self._settle(batch):
            return
        replica.largest = max(1, rows // 2)
        with self._changed.lock:
            self._again.append(_Batch(batch.requests, clock.now(), refused=refused))
            self._release(replica)

    @property
    def _overdue(self) -> str:
        return f"no answer within {self.group.timeout} seconds"

    def _give_up(self, replica: ServedReplica, batch: _Batch, reason: str, ready: float) -> None:
        """Go on without a device; others do its batch, from a virtual time on."""
        if not self._settle(batch):
            return
        self.group.retire(replica.device, reason)
        replica.stream.close()
        with self._changed.lock:
            self._again.append(_Batch(batch.requests, ready, refused=batch.refused))
            self._release(replica)

    # In the watching thread

    def _look(self) -> float:
        """Begin what is due, and give up devices that are overdue; returns when to look again."""
        now = time.perf_counter()
        with self._changed.lock:
            overdue = [
                (replica, batch)
                for replica, batch in self._running.items()
                if batch.begun + self.group.timeout <= now
            ]
        for replica, batch in overdue:
            self._give_up(replica, batch, self._overdue, clock.now())
        with self._changed.lock:
            for request in self._buckets.expired(now):
                request.expire()
                if self._buckets.remove(request):
                    self._free_places(clock.now())
            self._dispatch()
            ends = (batch.begun + self.group.timeout for batch in self._running.values())
            self._alarm = min(self._buckets.next_due(now), *ends, now + LOOK_SECONDS)
            return self._alarm


def _watch(reference: weakref.ref[InferenceQueue], wake: SimpleQueue[None]) -> None:
    """Begin batches that are not full when it is time, until nobody has the queue any more."""
    while True:
        queue = reference()
        if queue is None or (queue._closed and not queue._running and not queue._waiting()):
            return
        alarm = queue._look()
        del queue
        with contextlib.suppress(Empty):
            wake.get(timeout=max(0.0, alarm - time.perf_counter()))


def _begun(requests: list[Request]) -> list[Request]:
    """The requests that begin now, or have begun; the others were cancelled, or it is too late for them."""
    for request in requests:
        if request.deadline < math.inf and request.deadline <= request.seconds():
            request.expire()
    return [request for request in requests if request.begin() is not None or request.state == "running"]


def _outcomes(replica: ServedReplica, requests: list[Request]) -> list[tuple[State, Any]]:
    """The outcome of each request. If something is wrong with one of them, they are tried one by one.

    Raises:
        DeviceLostError, OutOfMemoryError: it is the device that failed.
    """
    try:
        return [("finished", row) for row in replica.compute(requests)]
    except (DeviceLostError, Hang, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001  # whoever asks for the result gets it
        if len(requests) == 1:
            return [("failed", error)]
    return [outcome for request in requests for outcome in _outcomes(replica, [request])]


def _at(seconds: float, function: Any) -> Any:
    """Call a function at another virtual time of this thread."""
    before = clock.now()
    clock.set_to(seconds)
    try:
        return function()
    finally:
        clock.set_to(before)
