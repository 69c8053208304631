"""Streams: queues of work for a device, each with a thread of its own."""

from __future__ import annotations

import atexit
import heapq
import itertools
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang
from dl4all.scheduler import profile_events, publisher
from dl4all.scheduler.counters import streams
from dl4all.scheduler.current import device as open_device
from dl4all.scheduler.device import Device
from dl4all.scheduler.event import Event
from dl4all.scheduler.task import Task

LIMIT = 1024  # tasks that wait in a stream, by default

_numbers = itertools.count()


class _Queue:
    """The tasks of a stream and the state of its thread. The thread holds this, not the stream."""

    def __init__(self, device: Device, limit: int) -> None:
        self.device = device
        self.limit = limit
        self.heap: list[tuple[int, int, Task]] = []
        self.priorities: Counter[int] = Counter()  # of what is in the heap
        self.running: Task | None = None
        self.closed = False
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None
        self.virtual_until = 0.0
        self.busy = 0.0  # seconds in which tasks ran
        self.finished = 0  # tasks

    def close(self) -> None:
        """Cancel what waits, and let the thread end after what runs."""
        with self.changed:
            self.closed = True
            for _, _, task in self.heap:
                task.cancel()
            self.heap.clear()
            self.priorities.clear()
            self.changed.notify_all()


class Stream:
    """An in-order queue of functions that give work to a device, run by a thread of its own.

    Tasks run one after the other in the order in which they were submitted; one of higher priority goes
    before those that still wait. While the device works, the thread waits without holding up others. Streams
    of several devices, or of one, run side by side.

    Args:
        device: the device; within tasks, ``device="auto"`` means it.
        limit: how many tasks may wait; :meth:`submit` waits for room beyond that.
        name: of the thread, for debuggers and traces.

    Raises:
        ArgumentError: the limit is below 1.
        UnknownDeviceError, BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> first, second = dl.Stream("cpu"), dl.Stream("cpu#1")
        >>> made = first.submit(dl.ones, 2, 2)
        >>> second.wait_event(first.record_event())
        >>> second.submit(lambda: made.result().to("cpu#1") + 1).result().tolist()
        [[2.0, 2.0], [2.0, 2.0]]
    """

    def __init__(self, device: str | Device = "auto", *, limit: int = LIMIT, name: str = "") -> None:
        if limit < 1:
            raise ArgumentError(f"[Stream] limit must be at least 1, got {limit}")
        self.device = open_device(device)
        self.name = name or f"stream {next(_numbers)} of {self.device}"
        self._queue = _Queue(self.device, limit)
        streams.add(self)
        publisher.start()
        self._finalizer = weakref.finalize(self, self._queue.close)
        self._finalizer.atexit = False  # close_all does it, and waits

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} tasks>"

    def __len__(self) -> int:
        """How many tasks wait or run."""
        queue = self._queue
        with queue.changed:
            return len(queue.heap) + (queue.running is not None)

    @property
    def busy(self) -> float:
        """Seconds in which tasks ran, on the clock of the device."""
        return self._queue.busy

    def busy_until_now(self) -> float:
        """:attr:`busy`, on a real clock with the part of the task that runs."""
        running = self._queue.running
        if running is None or running.done() or running.on_virtual_clock or math.isnan(running.begun):
            return self.busy
        return self.busy + running.seconds() - running.begun

    @property
    def finished(self) -> int:
        """How many tasks have run."""
        return self._queue.finished

    def submit(
        self, function: Callable[..., Any], *args: Any, priority: int = 0, name: str = "", **options: Any
    ) -> Task:
        """Run ``function(*args, **options)`` when its turn comes.

        Waits while the stream has no room, unless called by a task of this stream.

        Raises:
            DeviceError: the stream is closed.
        """
        task = Task(
            lambda: function(*args, **options),
            name or getattr(function, "__name__", ""),
            priority,
            next(_numbers),
            on_virtual_clock=self.device.simulated is not None,
        )
        self._put(task)
        return task

    def _put(self, task: Task) -> None:
        queue = self._queue
        with queue.changed:
            if threading.current_thread() is not queue.thread:
                queue.changed.wait_for(lambda: len(queue.heap) < queue.limit or queue.closed)
            if queue.closed:
                raise DeviceError(f"[Stream] {self.name} is closed; make another one")
            heapq.heappush(queue.heap, (-task.priority, task.number, task))
            queue.priorities[task.priority] += 1
            if queue.thread is None:
                queue.thread = threading.Thread(target=_serve, args=(queue,), name=self.name, daemon=True)
                queue.thread.start()
            queue.changed.notify_all()

    def record_event(self, event: Event | None = None) -> Event:
        """The point behind everything that was submitted so far, and behind what that asked of the device."""
        event = Event() if event is None else event
        queue = self._queue
        with queue.changed:
            lowest = min((p for p, count in queue.priorities.items() if count), default=0)
        event.task = self.submit(event.stamp, self.device, priority=lowest, name="record_event")
        return event

    def wait_event(self, event: Event) -> None:
        """Let what is submitted from now on begin when an event has come, of any device."""
        self.submit(event.synchronize, name="wait_event")

    def wait_stream(self, other: Stream) -> None:
        """Let what is submitted from now on begin when another stream has done what it was given so far."""
        self.wait_event(other.record_event())

    def query(self) -> bool:
        """Whether everything that was submitted has run."""
        return not len(self)

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for everything that was submitted, and for the device; returns whether that has come."""
        return self.record_event().synchronize(timeout)

    def close(self) -> None:
        """Cancel what waits; what runs is finished. Further submissions raise DeviceError."""
        self._queue.close()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread of a closed stream; returns whether it has ended."""
        thread = self._queue.thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()


def _serve(queue: _Queue) -> None:
    """Run tasks until the queue is closed."""
    with queue.device:
        while (task := _next(queue)) is not None:
            _run(queue, task)
            with queue.changed:
                queue.running = None
                queue.changed.notify_all()
            del task  # or it would keep its result alive until the next one comes


def _next(queue: _Queue) -> Task | None:
    with queue.changed:
        queue.changed.wait_for(lambda: queue.heap or queue.closed)
        if queue.closed:
            return None
        task = heapq.heappop(queue.heap)[2]
        queue.priorities[task.priority] -= 1
        queue.running = task
        queue.changed.notify_all()
        return task


def _run(queue: _Queue, task: Task) -> None:
    clock.set_to(max(queue.virtual_until, task.submitted if task.on_virtual_clock else 0.0))
    work = task.begin()
    if work is None:  # cancelled
        return
    begun = task.begun
    task.note_end = profile_events.begin(task, queue.device)
    try:
        result = work()
    except Hang as error:
        task.end("hung", error)
    except BaseException as error:  # noqa: BLE001  # whoever asks for the result gets it
        task.end("failed", error)
    else:
        task.end("finished", result)
    queue.virtual_until = clock.now()
    queue.busy += task.seconds() - begun
    queue.finished += 1


JOIN_SECONDS = 5.0  # that a stream has to end its task when the process ends


def close_all() -> None:
    """Close every stream. Runs at exit, before the devices are closed."""
    closing = list(streams)
    for stream in closing:
        stream.close()
    until = time.monotonic() + JOIN_SECONDS
    for stream in closing:
        stream.join(max(0.0, until - time.monotonic()))


atexit.register(close_all)
