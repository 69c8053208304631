"""Profiles of a block of code: its work on the devices, and its time there."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

from dl4all.errors import DeviceError, FileFormatError
from dl4all.runtime.profiler import recorder
from dl4all.runtime.profiler.recorder import RecordedEvent, Recorder
from dl4all.runtime.profiler.table import table
from dl4all.runtime.profiler.trace import trace
from dl4all.runtime.profiler.utilisation import Utilisation, utilisation
from dl4all.scheduler import listeners
from dl4all.scheduler.device.current import synchronize
from dl4all.scheduler.monitor.op_listeners import OpProfile

WIDTH = 140  # of a printed table where there is no terminal


def profile() -> Profile:
    """Record every op, kernel, transfer, allocation, task and wait of a ``with`` block, of all threads.

    Kernels are timed by the device itself where it can, one at a time: while a profile is active a
    device overlaps nothing, and transfers are waited for. So a kernel's time is its own, and the
    block as a whole may take longer than it does without a profile.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2, 3)
        >>> with dl.profile() as p:
        ...     y = (x @ x.T).relu()
        >>> [event.name for event in p.events if event.kind == "op"]
        ['matmul', 'relu']

    Raises:
        ArgumentError: when the block is entered, if another profile is active.
    """
    return Profile()


class Profile:
    """The record of a block, made by :func:`profile`. ``print`` shows its table."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._block = contextlib.ExitStack()
        self._begun = 0.0
        self.seconds = 0.0
        """Seconds of the block, with the wait for the devices at its end."""
        self._virtual_end = 0.0

    def __enter__(self) -> Profile:
        if recorder.active is None:  # otherwise start() refuses, and there is nothing to wait for
            synchronize()
        self._begun = time.perf_counter()  # before the recorder's zero, or events end past the block
        self._recorder = self._block.enter_context(recorder.recording())
        ops = OpProfile(self._recorder)
        self._block.callback(listeners.leave, ops)
        listeners.listen(ops)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._block.close()
        if self._recorder is not None:
            self._virtual_end = self._recorder.virtual_now()
        try:
            synchronize()  # streams tell when the last kernels ran
        except DeviceError:
            if error is None:  # the block's own error says more
                raise
        finally:
            self.seconds = time.perf_counter() - self._begun

    @property
    def events(self) -> list[RecordedEvent]:
        """Everything that was recorded, in the order in which it began on the host."""
        return [] if self._recorder is None else self._recorder.events

    @property
    def virtual_seconds(self) -> float:
        """Seconds of the block on the virtual clock of simulated devices; 0 where there are none."""
        events = [event for event in self.events if event.clock == "virtual"]
        ended = max([event.end for event in events], default=0.0)
        begun = min([event.start for event in events], default=0.0)  # other threads may be behind this one
        return max(self._virtual_end, ended) - min(0.0, begun)

    @property
    def origin(self) -> float:
        """The ``time.perf_counter()`` from which the events' times count."""
        return 0.0 if self._recorder is None else self._recorder.origin

    def utilisation(self) -> dict[str, Utilisation]:
        """The shares of the time in which each device computed, copied and waited, by its name.

        A device is busy while at least one of its kernels runs. Those of simulated devices are shares of the
        time on the virtual clock.

        Example:
            >>> import dl4all as dl
            >>> x = dl.rand(200, 200, device="cpu")
            >>> with dl.profile() as p:
            ...     y = x @ x
            >>> use = p.utilisation()["cpu"]
            >>> use.kernels, 0 < use.busy <= 1, use.transfers
            (1, True, 0.0)
        """
        return utilisation(self.events, self.seconds, self.virtual_seconds)

    def table(self) -> Table:
        """Calls, time, bandwidth and arithmetic of each kernel, the slowest first, for ``rich``.

        GB/s counts all memory that is bound to a kernel once; GFLOP/s is there for ops that declare
        how many operations they need. Below the table are transfers and allocations, and the
        :meth:`utilisation` where several devices took part.
        """
        return table(self.events, self.seconds, self.virtual_seconds)

    def __str__(self) -> str:
        text = io.StringIO()
        width = shutil.get_terminal_size((WIDTH, 0)).columns
        Console(file=text, width=width).print(self.table())
        return "\n".join(map(str.rstrip, text.getvalue().splitlines()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that https://ui.perfetto.dev and Chrome's ``about:tracing`` open.

        It is compressed where the name ends in ``.gz``.

        Raises:
            FileFormatError: the file cannot be written.
        """
        write_trace(trace(self.events), path)


def write_trace(content: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the object of a trace to a file.

    Raises:
        FileFormatError: the file cannot be written.
    """
    try:
        data = json.dumps(content).encode()
        Path(path).write_bytes(gzip.compress(data) if Path(path).suffix == ".gz" else data)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from None
