"""Batches that threads make ahead of their use, and that can be left while a thread hangs.

The threads are daemons, and nothing here waits for one of them without a bound: a read that never returns
holds up neither Ctrl-C nor the end of the process. They talk through ``queue.SimpleQueue`` only, which no
exception between two lines of Python leaves locked.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.data.batch import map_arrays
from dl4all.errors import DataError, DataTimeoutError
from dl4all.runtime import fork, registry
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Indices = npt.NDArray[np.int64]

LEAVE_SECONDS = 0.1
"""Seconds that a loop that is left waits for threads to end their batches. After an interrupt it does not."""

EXIT_SECONDS = 1.0
"""The same for a process that ends, where devices that threads may be using are closed next."""


class Reading:
    """The state of a batch in preparation.

    Args:
        number: the batch's number in its epoch, from 0.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.sample: int | None = None  # the index of the data set that is being read


class BatchJob(Reading):
    """A batch that a thread makes.

    Args:
        number: the batch's number in its epoch, from 0.
        work: is called with this job by the thread, and returns the batch.
    """

    def __init__(self, number: int, work: Callable[[Reading], Any]) -> None:
        super().__init__(number)
        self._work = work
        self.worker = ""  # the name of the thread, once it has begun
        self.done = False
        self._outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run(self, worker: str, begin: Callable[[], None] | None = None) -> None:
        """Make the batch in this thread, after `begin`, whose errors are the batch's."""
        self.worker = worker
        outcome: tuple[Any, BaseException | None]
        try:
            if begin is not None:
                begin()
            outcome = self._work(self), None
        except BaseException as error:  # noqa: BLE001  # whoever waits for the batch raises it
            outcome = None, error
        self.done = True
        self._outcome.put(outcome)
        del outcome  # an error's traceback has this frame

    def abandon(self) -> None:
        """Let a thread that waits for this batch go on: nobody wants it any more."""
        self._outcome.put((None, DataError("[DataLoader] the loop over the batches was left")))

    def result(self, timeout: float | None = None) -> Any:
        """The batch, once.

        Raises:
            queue.Empty: it did not come within `timeout` seconds.
        """
        value, error = self._outcome.get(timeout=timeout)
        if error is None:
            return value
        try:
            raise error
        finally:
            del self, error  # the traceback would hold itself, and with it the batch


class Worker(threading.Thread):
    """A thread that does jobs until it is given None; before the first one it calls `begin`."""

    def __init__(
        self, jobs: queue.SimpleQueue[BatchJob | None], name: str, begin: Callable[[], None] | None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._jobs, self._begin = jobs, begin

    def run(self) -> None:
        while (job := self._jobs.get()) is not None:
            begin, self._begin = self._begin, None
            job.run(self.name, begin)
            del job  # it holds a batch


class Workers:
    """Threads that do jobs in the order in which they were given; they are started as jobs come.

    Args:
        count: how many threads there are at most.
        name: their names begin with it.
        begin: is called by each thread with its number when it starts.
        first: the number of the first thread.
    """

    def __init__(
        self, count: int, name: str, begin: Callable[[int], None] | None = None, first: int = 0
    ) -> None:
        self._count, self._name, self._begin, self._first = count, name, begin, first
        self._jobs: queue.SimpleQueue[BatchJob | None] = queue.SimpleQueue()
        self._threads: list[Worker] = []

    def submit(self, job: BatchJob) -> BatchJob:
        """Give the threads a job.

        Raises:
            DataError: the system starts no more threads.
        """
        self._jobs.put(job)
        if len(self._threads) < self._count:
            number = self._first + len(self._threads)
            begin = None if self._begin is None else partial(self._begin, number)
            worker = Worker(self._jobs, f"{self._name}_{number}", begin)
            self._threads.append(worker)
            try:
                worker.start()
            except RuntimeError as error:
                self._threads.pop()
                raise DataError(
                    f"[DataLoader] the system started {len(self._threads)} of {self._count} threads and no "
                    f"more ({error}); use fewer num_workers"
                ) from error
        return job

    def leave(self) -> None:
        """Let the threads end after the job that each of them is at."""
        try:
            while True:
                self._jobs.get_nowait()
        except queue.Empty:
            pass
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the threads, at most so long."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))


class Prefetch:
    """The batches of one iteration in order, made by threads.

    Args:
        make: makes a batch from the samples' indices, and notes which one it reads.
        batches: the samples of each batch, or with `pinned` the number of the worker that makes it.
        first: the number of the first batch.
        workers: how many threads make batches.
        limit: how many batches are asked for before they are used.
        device: where another thread uploads each batch while the one before it is used; None leaves them
            NumPy arrays.
        timeout: how many seconds to wait for a batch; None waits for ever.
        begin: is called by each thread that makes batches with its number when it starts.
        pinned: whether each batch has a worker of its own.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        batches: Iterable[Any],
        first: int,
        workers: int,
        limit: int,
        device: Device | None,
        timeout: float | None,
        begin: Callable[[int], None] | None = None,
        pinned: bool = False,
    ) -> None:
        self._make, self._batches = make, enumerate(batches, first)
        self._limit, self._timeout = limit, timeout
        name = "dl4all-data"
        if pinned:
            self._makers = [Workers(1, name, begin, number) for number in range(workers)]
        else:
            self._makers = [Workers(workers, name, begin)]
        self._uploader = None if device is None else Workers(1, "dl4all-upload")
        self._upload = None if device is None else Upload(device)
        self._waiting: deque[BatchJob] = deque()  # asked for and not used, the next one first
        self._made: BatchJob | None = None  # the one that the uploader waits for
        self._made_in = fork.generation
        _live.add(self)

    def __iter__(self) -> Generator[Any, None, None]:
        seconds = LEAVE_SECONDS
        try:
            coming = self._next()
            while coming is not None:
                batch = self._result(*coming)
                # With an uploader, the next one goes to the device while this one is used.
                coming = None if self._uploader is None else self._next()
                yield batch
                coming = self._next() if coming is None else coming
        except (KeyboardInterrupt, DataTimeoutError):
            seconds = 0.0
            raise
        finally:
            self.leave()
            # The uploader is not waited for: the garbage collector may close this generator while the
            # device's lock is held, which that thread needs.
            until = time.monotonic() + seconds
            for maker in self._makers:
                maker.join(max(0.0, until - time.monotonic()))

    def leave(self) -> None:
        """Let all threads end, also one that waits for another."""
        for maker in self._makers:
            maker.leave()
        if self._uploader is not None:
            self._uploader.leave()
        if self._made is not None:
            self._made.abandon()

    def _next(self) -> tuple[BatchJob, BatchJob] | None:
        """The next batch: the job that makes it, and the one whose result it is; None after the last."""
        while len(self._waiting) < self._limit and (entry := next(self._batches, None)) is not None:
            number, indices = entry
            job = BatchJob(number, partial(self._make, indices=indices))
            maker = self._makers[indices if len(self._makers) > 1 else 0]
            self._waiting.append(maker.submit(job))
        if not self._waiting:
            return None
        made = self._waiting.popleft()
        if self._uploader is None or self._upload is None:
            return made, made
        self._made, upload = made, self._upload
        return made, self._uploader.submit(BatchJob(made.number, lambda _: map_arrays(made.result(), upload)))

    def _result(self, made: BatchJob, job: BatchJob) -> Any:
        fork.check_own(self._made_in, "DataLoader")
        try:
            return job.result(self._timeout)
        except queue.Empty:
            raise DataTimeoutError(
                f"[DataLoader] batch {made.number} did not come within the timeout of {self._timeout:g} "
                f"seconds: {_whereabouts(made, job)}. Look there for what hangs, or pass a longer timeout"
            ) from None


def _whereabouts(made: BatchJob, job: BatchJob) -> str:
    """Who is at a batch that does not come."""
    if job is not made and job.worker and made.done:
        return f"worker {job.worker} uploads it"
    if not made.worker:
        return "no worker has begun it"
    place = "collate_fn" if made.sample is None else f"sample {made.sample} of the data set"
    return f"worker {made.worker} is at {place}"


class Upload:
    """Uploads arrays through pinned memory, from which the device can copy while it computes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned: npt.NDArray[np.uint8] | None = None  # as large as the largest array so far

    def __call__(self, array: npt.NDArray[Any] | Tensor) -> Tensor:
        if isinstance(array, Tensor):
            return array.to(self._device)
        if self._pinned is None or self._pinned.size < array.nbytes or array.dtype.hasobject:
            tensor = from_numpy(np.ascontiguousarray(array), self._device)
            if tensor.storage.buffer.mapped is None:  # the host cannot write to the device's memory
                self._pinned = self._device.copies.pin(np.empty(array.nbytes, np.uint8))
            return tensor
        pinned = self._pinned[: array.nbytes].view(array.dtype).reshape(array.shape)
        pinned[...] = array
        return from_numpy(pinned, self._device)  # waits for the copy, so the memory may be overwritten


_live: weakref.WeakSet[Prefetch] = weakref.WeakSet()


def _leave_all() -> None:
    """Let the threads end before devices are closed: one of them may be using one."""
    for prefetch in list(_live):
        prefetch.leave()
    until = time.monotonic() + EXIT_SECONDS
    with contextlib.suppress(KeyboardInterrupt):  # one more Ctrl-C: the devices are closed all the same
        for thread in threading.enumerate():
            if isinstance(thread, Worker):
                thread.join(max(0.0, until - time.monotonic()))


registry.before_closing.append(_leave_all)
