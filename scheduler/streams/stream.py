"""Streams: queues of work for a device, each with a thread of its own."""

from __future__ import annotations

import atexit
import heapq
import itertools
import math
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime import fork, registry, threads
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor import profile_events, publisher
from dl4all.scheduler.monitor.counters import streams
from dl4all.scheduler.streams.event import Event, wait_for
from dl4all.scheduler.streams.task import State, Task

LIMIT = 1024  # tasks that wait in a stream, by default
LAST = math.inf  # sorts behind every priority

_numbers = itertools.count()


class _Queue:
    """The tasks of a stream and the state of its thread. The thread holds this, not the stream."""

    def __init__(self, device: Device, limit: int, name: str) -> None:
        self.device = device
        self.name = name
        self.limit = limit
        # In the order of (section, priority, number). Events divide the sections: none moves across them.
        self.heap: list[tuple[int, float, int, Task]] = []
        self.section = 0
        # Free ones, by the virtual times at which they became free: as many as the heap leaves.
        self.places = deque([0.0] * limit)
        self.enough = limit // 4  # free places, for which blocked threads are worth waking
        self.running: Task | None = None
        self.closed = False
        self.abandoned = False  # nobody can submit any more
        self.idle = False  # the thread waits for a signal
        self.changed = threads.Condition(fork.rlock())
        self.signals: SimpleQueue[object] = SimpleQueue()  # None, or the reference to a stream that is gone
        self.thread: threading.Thread | None = None
        self.started = 0  # not 0 when it was
        self.owner = 0  # the thread's number
        self.stream: weakref.ref[Stream] | None = None
        self.hang: Hang | None = None
        self.virtual_until = 0.0
        self.busy = 0.0  # seconds in which tasks ran
        self.finished = 0  # tasks

    # For those who submit

    def put(self, task: Task, timeout: float | None = None, *, last: bool = False) -> bool:
        """Add a task when there is a place; returns whether one came within `timeout` real seconds.

        `last`: behind all that waits, and before all that comes.
        """
        with self.changed.lock:
            if self._put(task, last):
                return True
        return self.changed.wait_for(partial(self._put, task, last), timeout)

    def _put(self, task: Task, last: bool) -> bool:
        """Add a task; returns whether there was a place. An exception comes before that or after it."""
        if self.closed:
            raise DeviceError(f"[Stream] {self.name} is closed; make another one")
        if not self.places and threading.get_ident() != self.owner:
            return False
        if not self.started:
            self._start()
        if self.places:
            clock.advance_to(self.places[0])
        task.send()
        task.number, task.device = next(_numbers), self.device.name
        heapq.heappush(self.heap, (self.section, LAST if last else -task.priority, task.number, task))
        self.section += last
        while self.places and len(self.places) + len(self.heap) > self.limit:
            self.places.popleft()
        if self.idle:
            self.signals.put(None)  # before the note: to be woken twice does no harm
            self.idle = False
        return True

    def _start(self) -> None:
        self.device.check()
        self.thread = threading.Thread(target=_serve, args=(self,), name=self.name, daemon=True)
        _serving.add(self)  # first, for a child that is forked meanwhile
        [self.started] = map(threads.begin, [threads.start], [(self.thread,)])

    def close(self) -> None:
        """Cancel what waits, and let the thread end after what runs."""
        self.closed = True
        self.signals.put(None)  # before the rest, which the thread does if this one is interrupted
        self.cancel_all()

    def cancel_all(self) -> None:
        """Cancel what waits in a closed queue."""
        with self.changed.lock:
            for *_, task in self.heap:
                if not task.cancel() and task.state == "waiting":  # another's cancel() was cut short
                    task.end("cancelled", None)
            self.heap.clear()
            self.changed.notify_all()

    def begin_anew(self) -> None:
        """In a forked child, which has neither the thread nor those who waited: be as without tasks."""
        self.heap.clear()
        self.places = deque([self.virtual_until] * self.limit)
        self.started = self.owner = 0
        self.running = self.thread = None
        self.idle = False
        self.signals = SimpleQueue()
        self.changed = threads.Condition(fork.rlock())
        stream = None if self.stream is None else self.stream()
        self.stream = None if stream is None else weakref.ref(stream, self.signals.put)

    # For the thread

    def take(self) -> Task | None:
        """The next task, when there is one; None when there will be none any more."""
        while True:
            with self.changed.lock:
                self.running = None
                if self.closed:
                    self.cancel_all()
                    return None
                if self.heap:
                    task = self.running = heapq.heappop(self.heap)[3]
                    while len(self.places) + len(self.heap) < self.limit:
                        self.places.append(max(self.virtual_until, task.virtual_submitted))
                    if self.changed.waiting and (len(self.places) >= self.enough or not self.heap):
                        self.changed.notify_all()
                    return task
                if self.abandoned:
                    return None
                self.idle = True
            if self.signals.get() is not None:
                self.abandoned = True

    def run(self, task: Task) -> None:
        """Run a task, unless it was cancelled."""
        clock.set_to(max(self.virtual_until, task.virtual_submitted))
        work = task.begin()
        if work is None:
            return
        task.note_end = profile_events.begin(task, self.device)
        if self.hang is not None:
            task.end("hung", self.hang)
            return
        state, outcome = _call(work)
        if state == "hung":
            self.hang = outcome
        self.virtual_until = clock.now()
        self.busy += task.seconds() - task.begun
        self.finished += 1
        task.end(state, outcome)


def _call(work: Callable[[], Any]) -> tuple[State, Any]:
    """The outcome of a function. Apart, so that an error's traceback does not hold the task that holds it."""
    try:
        return "finished", work()
    except Hang as error:
        return "hung", error
    except BaseException as error:  # noqa: BLE001  # whoever asks for the result gets it
        return "failed", error


def _serve(queue: _Queue) -> None:
    """Run tasks until the queue is closed, or nobody can give it any more."""
    queue.owner = threading.get_ident()
    _serving.add(queue)
    try:
        with queue.device:
            while (task := queue.take()) is not None:
                queue.run(task)
                del task  # or it would keep its result alive until the next one comes
    finally:
        _serving.discard(queue)


_serving: set[_Queue] = set()
"""The queues with a thread that runs."""


class Stream:
    """An in-order queue of functions that give work to a device, run by a thread of its own.

    Tasks run one after the other in the order in which they were submitted; one of higher priority goes
    before those that still wait, but not across an event. While the device works, the thread waits without
    holding up others. Streams of several devices, or of one, run side by side. A stream that nobody holds any
    more ends when it has done what it was given.

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
        self._virtual = self.device.simulated is not None
        self._queue = _Queue(self.device, limit, self.name)
        streams.add(self)
        publisher.start()
        # When nobody has the stream any more, the thread ends after what waits. The interpreter itself tells
        # it so: a line of Python here could be interrupted, and would swallow the interrupt.
        self._queue.stream = weakref.ref(self, self._queue.signals.put)

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} tasks>"

    def __len__(self) -> int:
        """The number of tasks that wait or run."""
        queue = self._queue
        with queue.changed.lock:
            return len(queue.heap) + (queue.running is not None and not queue.running.done())

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
        """The number of tasks that have run."""
        return self._queue.finished

    def submit(
        self, function: Callable[..., Any], *args: Any, priority: int = 0, name: str = "", **options: Any
    ) -> Task:
        """Run ``function(*args, **options)`` when its turn comes.

        Waits while the stream has no room, unless called by a task of this stream. Threads that submit to
        each other's full streams wait for each other for ever: let the work flow one way. In a forked child
        a stream of the CPU has a new thread; what was submitted before is left to the parent.

        Raises:
            DeviceError: the stream is closed.
            ForkError: the process was forked from the one that opened the device, which is not the CPU.
        """
        work = partial(function, *args, **options) if args or options else function
        task = Task(work, name or getattr(function, "__name__", ""), priority, on_virtual_clock=self._virtual)
        self._queue.put(task)
        return task

    def record_event(self, event: Event | None = None) -> Event:
        """The point behind everything that was submitted so far, and behind what that asked of the device."""
        event = Event() if event is None else event
        self._record(event)
        return event

    def _record(self, event: Event, timeout: float | None = None) -> bool:
        task = Task(partial(event.stamp, self.device), "record_event", on_virtual_clock=self._virtual)
        recorded = self._queue.put(task, timeout, last=True)
        if recorded:
            event.task = task
        return recorded

    def wait_event(self, event: Event) -> None:
        """Let what is submitted from now on begin when an event has come, of any device.

        What counts is where the event is recorded now; one that is not recorded is not waited for.
        """
        if event.task is not None:
            task = Task(partial(wait_for, event.task), "wait_event", on_virtual_clock=self._virtual)
            self._queue.put(task, last=True)

    def wait_stream(self, other: Stream) -> None:
        """Let what is submitted from now on begin when another stream has done what it was given so far."""
        self.wait_event(other.record_event())

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._queue.closed

    def query(self) -> bool:
        """Whether everything that was submitted has run."""
        return not len(self) and self._queue.hang is None

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for everything that was submitted, and for the device; returns whether that has come.

        Raises:
            DeviceError: the stream is closed, or the caller is one of its tasks.
        """
        if threading.get_ident() == self._queue.owner:
            raise DeviceError(f"[Stream] a task of {self.name} waits for itself; let another thread wait")
        event = Event()
        if timeout is None or self._virtual:
            self._record(event)
            return event.synchronize(timeout)
        until = time.perf_counter() + timeout
        return self._record(event, timeout) and event.synchronize(max(0.0, until - time.perf_counter()))

    def close(self) -> None:
        """Cancel what waits; what runs is finished. Further submissions raise DeviceError."""
        self._queue.close()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread of a closed stream; returns whether it has ended."""
        return _join(self._queue, timeout)


def _join(queue: _Queue, timeout: float | None) -> bool:
    thread = queue.thread
    if thread is None or not queue.started or thread is threading.current_thread():
        return True
    return threads.ended(thread, timeout)


JOIN_SECONDS = 5.0  # that streams have to end their tasks when the process ends


def close_all() -> None:
    """Close every stream. Runs at exit, before the devices are closed.

    Tasks that run have some seconds to end, unless an interrupt ended the program.
    """
    closing = list(_serving)
    for queue in closing:
        queue.close()
    interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
    until = time.monotonic() + (0.0 if interrupted else JOIN_SECONDS)
    for queue in closing:
        _join(queue, max(0.0, until - time.monotonic()))
        _serving.discard(queue)  # whom one wait was not enough for gets no second one


def _forked() -> None:
    """Streams of a child start threads of their own; tasks are left to the parent."""
    for queue in list(_serving):
        queue.begin_anew()
    _serving.clear()


fork.in_child(_forked)
registry.before_closing.append(close_all)
atexit.register(close_all)  # where no device is closed at exit, as none was opened
