"""``torch.profiler`` as scripts use it, on top of :func:`dl4all.profile`: schedules, ranges, averages of ops.

``print`` of a :func:`dl4all.profile` shows kernels; here are ops and ranges, as in PyTorch, with their names:
``conv2d`` where PyTorch has ``aten::conv2d``.

Source: https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from dl4all.errors import ArgumentError
from dl4all.runtime.profiler import recorder
from dl4all.runtime.profiler.averages import Averages, averages
from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.scheduler.monitor.profile import Profile

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """The kinds of events that PyTorch records. Here all devices are recorded, whichever are named.

    Example:
        >>> import dl4all as dl
        >>> dl.profiler.ProfilerActivity.CPU.name
        'CPU'
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """The action of a profile in a step: nothing, nothing yet, record, or record and then hand out.

    Example:
        >>> import dl4all as dl
        >>> dl.profiler.schedule(wait=0, warmup=0, active=1)(0)
        <ProfilerAction.RECORD_AND_SAVE: 3>
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """The activities that name what there is: the CPU, and all other devices.

    Example:
        >>> import dl4all as dl
        >>> dl.profiler.ProfilerActivity.CPU in dl.profiler.supported_activities()
        True
    """
    return {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """The function that says what :class:`profile` does in each step.

    Args:
        wait: steps of a cycle in which nothing is recorded.
        warmup: steps after these in which nothing is recorded yet, while kernels are compiled.
        active: steps that are recorded.
        repeat: number of cycles; 0 for no end.
        skip_first: steps before the first cycle.
        skip_first_wait: if not 0, the first cycle leaves out its `wait` steps.

    Raises:
        ArgumentError: a number is negative, or `active` is 0.

    Example:
        >>> import dl4all as dl
        >>> action_in = dl.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
        >>> [action_in(step).name for step in range(5)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first, active - 1) < 0:
        raise ArgumentError(
            f"[profiler.schedule] expected numbers of at least 0, and active of at least 1, got wait={wait}, "
            f"warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )

    def action_in(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        cycle, place = divmod(step + (wait if skip_first_wait else 0), wait + warmup + active)
        if place < wait or (repeat and cycle >= repeat):
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action_in


class record_function(contextlib.ContextDecorator):
    """A part of the program with a name, which profiles show: a ``with`` block, or a decorated function.

    Without a profile it costs next to nothing.

    Args:
        name: of the part.
        args: accepted for PyTorch's sake, without effect.

    Example:
        >>> import dl4all as dl
        >>> with dl.profile() as p, dl.profiler.record_function("forward"):
        ...     y = dl.ones(3).relu()
        >>> [event.name for event in p.events if event.kind == "range"]
        ['forward']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._range: contextlib.AbstractContextManager[None] = contextlib.nullcontext()

    def _recreate_cm(self) -> record_function:
        """Of its own for each call of a function, which may call itself."""
        return record_function(self.name, self.args)

    def __enter__(self) -> record_function:
        active = recorder.active
        self._range = contextlib.nullcontext() if active is None else active.range(self.name)
        self._range.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._range.__exit__(kind, error, where)


class profile:
    """A profile with PyTorch's arguments and methods.

    Args:
        activities: accepted for PyTorch's sake: the host and all devices are recorded.
        schedule: what to do in which step, by the step's number, such as :func:`schedule` returns. Then
            :meth:`step` is to be called at the end of each step. By default all is recorded.
        on_trace_ready: called with this object when a recording is complete.
        record_shapes, profile_memory, with_flops: accepted: shapes, memory and operations are always there.
        with_stack, with_modules: accepted, without effect: the profile has neither stacks nor modules.
        experimental_config, acc_events, use_cuda, custom_trace_id_callback, post_processing_timeout_s:
            accepted, without effect.
        execution_trace_observer: refused.

    Raises:
        ArgumentError: an `execution_trace_observer` is given; or, when it starts to record, another profile
            does already.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.profiler import ProfilerActivity, profile, record_function
        >>> x = dl.rand(50, 50)
        >>> with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        ...     with record_function("product"):
        ...         y = (x @ x).relu()
        >>> sorted(row.key for row in prof.key_averages() if row.count == 1)
        ['matmul', 'product', 'relu']
        >>> text = prof.key_averages().table(sort_by="cpu_time_total", row_limit=10)
        >>> [line.split()[0] for line in text.splitlines()[3:4]]
        ['product']
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        if execution_trace_observer is not None:
            raise ArgumentError(
                "[profiler.profile] execution_trace_observer: dl4all has none; export_chrome_trace(path) "
                "writes what was recorded"
            )
        self.step_num = 0
        self.current_action: ProfilerAction = ProfilerAction.NONE
        self.on_trace_ready = on_trace_ready
        self._schedule = schedule
        self._profile: Profile | None = None  # the newest
        self._step: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._begin_step()

    def step(self) -> None:
        """Say that a step is over and the next one begins."""
        self.step_num += 1
        self._end_step(self._action_in(self.step_num))
        self._begin_step()

    def stop(self) -> None:
        """End; a recording that is under way is complete with this."""
        self._end_step(None)
        self.current_action = ProfilerAction.NONE

    def _action_in(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self._schedule is None else self._schedule(step)

    def _begin_step(self) -> None:
        action = self._action_in(self.step_num)
        if action in RECORDING and self.current_action is not ProfilerAction.RECORD:
            made = Profile()
            made.__enter__()
            self._profile = made
        self.current_action = action
        if self._schedule is not None:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self, following: ProfilerAction | None) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        goes_on = self.current_action is ProfilerAction.RECORD and following in RECORDING
        if self.current_action in RECORDING and not goes_on and self._profile is not None:
            ready = self.current_action is ProfilerAction.RECORD_AND_SAVE or following is None
            self.current_action = ProfilerAction.NONE
            self._profile.__exit__(None, None, None)
            if ready and self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def _recorded(self) -> Profile:
        if self._profile is None:
            raise ArgumentError(
                "[profiler.profile] nothing was recorded; use it as a with block, and with a schedule call "
                "step() at the end of each step, as often as wait, warmup and active are together"
            )
        return self._profile

    def events(self) -> list[RecordedEvent]:
        """The recorded events, as ``events`` of a ``dl.profile()``.

        Raises:
            ArgumentError: nothing was.
        """
        return self._recorded().events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Averages:
        """A row for each op and range, whose ``table()`` is to be printed.

        Args:
            group_by_input_shape: calls with operands of other shapes have a row of their own.
            group_by_stack_n: accepted for PyTorch's sake, without effect: no stacks are recorded.

        Raises:
            ArgumentError: nothing was recorded.
        """
        return averages(self.events(), by_shape=group_by_input_shape)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that https://ui.perfetto.dev opens, compressed if the name ends in ``.gz``.

        Raises:
            FileFormatError: the file cannot be written.
            ArgumentError: nothing was recorded.
        """
        self._recorded().save(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> NoReturn:
        """
        Raises:
            ArgumentError: always, no stacks are recorded.
        """
        raise ArgumentError(
            "[profiler.profile] export_stacks: no stacks are recorded; name parts by record_function, "
            "or run py-spy"
        )

    def export_memory_timeline(self, path: str, device: str | None = None) -> NoReturn:
        """
        Raises:
            ArgumentError: always; the message says what shows memory.
        """
        raise ArgumentError(
            "[profiler.profile] export_memory_timeline: not in a profile; use dl.memory.trace(device) or "
            "dl.memory.summary(device)"
        )


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each trace into a folder, as a file that https://ui.perfetto.dev opens.

    Args:
        dir_name: the folder, which is made.
        worker_name: how the files' names begin; by default host and process.
        use_gzip: compress them.

    Example:
        >>> import dl4all as dl, os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> handler = dl.profiler.tensorboard_trace_handler(folder, "worker")
        >>> with dl.profiler.profile(on_trace_ready=handler):
        ...     y = dl.ones(3).relu()
        >>> [name.split(".")[0] for name in os.listdir(folder)]
        ['worker']
    """

    def write(prof: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(
            folder / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        )

    return write
