"""Events of the profile that is active, if one is.

Whoever does something worth recording looks at ``recorder.active`` first, and that look is all that
profiling costs while it is off.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.runtime import fork
from dl4all.runtime.profiler import phase
from dl4all.runtime.protocols import Clock, Ran
from dl4all.runtime.simulated import clock
from dl4all.runtime.spirv import Shader

Kind = Literal[
    "op", "kernel", "upload", "download", "allocation", "task", "wait", "fallback", "range", "collective"
]
LONGEST_VALUE = 40  # characters of a define that a kernel's name shows


@dataclass(eq=False)
class RecordedEvent:
    """Something that happened in a profile. Times are seconds since the profile began.

    On a simulated device they are seconds of the virtual clock since the profile began, and ``clock`` is
    ``"virtual"``: nothing relates them to the times of other events.

    * ``op``: the call of an op on the host; on devices that run by themselves, the time to record it.
    * ``kernel``: one dispatch, or on the CPU one run of an op's NumPy body. ``clock`` says where its
      times come from: the device's timestamps, the host's clock around something that was waited
      for, or nowhere, in which case they only say when it was recorded.
    * ``upload``, ``download``: a copy between host and device, without the wait for it to begin.
    * ``allocation``: ``name`` says whether memory came from the ``pool`` or from the ``driver``.
    * ``task``: what a :class:`dl4all.Stream` ran, from begin to end.
    * ``wait``: a stream, or the host where ``stream`` is empty, waited for an event, a task or a device.
    * ``fallback``: the host computed for a device, for want of a kernel; ``nbytes`` were moved for that.
    * ``range``: a part of the program that it named, by :class:`dl4all.profiler.record_function`.
    * ``collective``: arrays on their way between processes, until their end was waited for.
    """

    kind: Kind
    name: str
    device: str
    thread: int  # threading.get_ident() of the thread that asked for it
    start: float
    end: float
    op: str = ""  # the op that caused it
    shapes: tuple[tuple[int, ...], ...] = ()  # of that op's operands
    nbytes: int = 0  # bound to a kernel, moved, or allocated; of an op, its operands and its result
    flops: int = 0  # floating point operations, where the op declares them
    shader: str = ""  # of a kernel: file and all defines
    kernel_class: str = ""  # of an op: which of its kind are equally fast
    reason: str = ""  # of a fallback
    clock: Clock | Literal["none", "virtual"] = "host"
    phase: str = ""  # of the training step, as :mod:`dl4all.runtime.profiler.phase` names it
    stream: str = ""  # that ran the task, or that waited
    number: int = -1  # of the task
    awaits: int = -1  # number of the task that was waited for
    submitted: float = 0.0  # when the task was
    state: str = ""  # how the task ended
    waited: float = 0.0  # seconds of the wait for a collective
    parent: RecordedEvent | None = field(
        default=None, repr=False
    )  # the innermost op or range that it happened in

    @property
    def seconds(self) -> float:
        return self.end - self.start


active: Recorder | None = None
"""The recorder of events, None while nobody profiles."""

_lock = fork.lock()


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """Within the ``with`` block, record what happens. It ends with the block, or with the block's object.

    Raises:
        ArgumentError: somebody does already.
    """
    global active
    made = Recorder()
    try:
        with _lock:
            if active is not None:
                raise ArgumentError(
                    "[profile] another profile is active; profiles cannot be nested, "
                    "and one records the events of every thread"
                )
            active = made
        yield made
    finally:
        if active is made:
            active = None


def short_name(shader: Shader) -> str:
    """A shader's path and what sets the variant apart, for people.

    >>> short_name(Shader("elementwise/unary.comp", (("OP(x)", "(-x)"), ("PARAMS", ""), ("RANK", "4"))))
    'elementwise/unary (-x) RANK=4'
    >>> short_name(Shader("linalg/gemm.comp", (("SHUFFLE", "1"), ("VEC_A", "0"))))
    'linalg/gemm SHUFFLE'
    """
    words = [shader.path.removesuffix(".comp")]
    for name, value in shader.defines:
        if len(value) > LONGEST_VALUE:
            value = value[: LONGEST_VALUE - 3] + "..."
        if name.startswith("OP("):  # the expression says more than its macro
            words.append(value)
        elif value == "1":
            words.append(name)
        elif value not in ("", "0"):
            words.append(f"{name}={value}")
    return " ".join(words)


@dataclass
class OpenEvent:
    """A running op: its event, and its kernels with what each of them writes."""

    event: RecordedEvent
    kernels: list[tuple[RecordedEvent, object]] = field(default_factory=list)

    def finish(self, result: object, flops: int, nbytes: int) -> None:
        """Give the op's floating point operations to the kernels that wrote its result, evenly.

        What only prepares operands, such as the unrolling before a convolution's product, has none.
        """
        self.event.flops, self.event.nbytes = flops, nbytes
        writers = [event for event, written in self.kernels if written is result]
        writers = writers or [event for event, _ in self.kernels]
        for i, event in enumerate(writers):
            event.flops = flops // len(writers) + (i < flops % len(writers))


class Recorder:
    """The events of one profile, in the order in which they began on the host.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []
        self.origin = time.perf_counter()
        """The time from which those of events count."""
        self._virtual_origin = clock.now()
        self._local = threading.local()

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.origin

    def virtual_now(self) -> float:
        """Seconds since the beginning on the virtual clock of this thread."""
        return clock.now() - self._virtual_origin

    @property
    def _spans(self) -> list[OpenEvent]:
        """The ops that this thread is in, the innermost last."""
        spans: list[OpenEvent] | None = getattr(self._local, "spans", None)
        if spans is None:
            spans = self._local.spans = []
        return spans

    @property
    def _parent(self) -> RecordedEvent | None:
        """The innermost op or range that this thread is in."""
        return getattr(self._local, "parent", None)

    def _add(self, kind: Kind, name: str, device: str, **facts: Any) -> RecordedEvent:
        now = self.now()
        facts = {"phase": phase.current(), "parent": self._parent} | facts
        spans = self._spans
        if spans:
            inside = spans[-1].event
            facts = {"op": inside.name, "shapes": inside.shapes} | facts
        event = RecordedEvent(kind, name, device, threading.get_ident(), now, now, **facts)
        self.events.append(event)
        return event

    @contextlib.contextmanager
    def op(
        self, name: str, device: str, shapes: tuple[tuple[int, ...], ...], kernel_class: str = ""
    ) -> Iterator[OpenEvent]:
        """An op from call to return, whether it succeeds or not."""
        span = OpenEvent(self._add("op", name, device, shapes=shapes, kernel_class=kernel_class))
        spans = self._spans
        depth = len(spans)
        try:
            spans.append(span)
            self._local.parent = span.event
            yield span
        finally:
            del spans[depth:]  # with what an exception has kept from ending
            self._local.parent = span.event.parent
            span.event.end = self.now()

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A part of the program that this thread is in, until it leaves it."""
        event = self._add("range", name, "")
        try:
            self._local.parent = event
            yield
        finally:
            self._local.parent = event.parent
            event.end = self.now()

    def kernel(self, device: str, shader: Shader, nbytes: int, written: object) -> Ran:
        """A dispatch about to be recorded; the stream calls what is returned when it has run."""
        event = self._add(
            "kernel", short_name(shader), device, nbytes=nbytes, shader=shader.name, clock="none"
        )
        if self._spans:
            self._spans[-1].kernels.append((event, written))

        def ran(start: float, end: float, clock: Clock) -> None:
            event.start, event.end, event.clock = start - self.origin, end - self.origin, clock

        return ran

    def on_host(
        self, name: str, body: Callable[..., Any], device: str = "cpu", nbytes: int | None = None
    ) -> Callable[..., Any]:
        """An op's NumPy body, made to record itself as a kernel of a device in host memory.

        `nbytes` are those of operands and result, if the body is not given their arrays.
        """

        @functools.wraps(body)
        def recorded(*arrays: Any, **arguments: Any) -> Any:
            event = self._add("kernel", name, device)
            if self._spans:
                self._spans[-1].kernels.append((event, None))
            try:
                result = body(*arrays, **arguments)
            finally:
                event.end = self.now()
            arrays = (*arrays, result)
            event.nbytes = (
                sum(a.nbytes for a in arrays if isinstance(a, np.ndarray)) if nbytes is None else nbytes
            )
            return result

        return recorded

    @contextlib.contextmanager
    def transfer(self, kind: Literal["upload", "download"], device: str, nbytes: int) -> Iterator[None]:
        """A copy between host and device."""
        event = self._add(kind, kind, device, nbytes=nbytes)
        try:
            yield
        finally:
            event.end = self.now()

    def virtual(
        self,
        kind: Literal["kernel", "upload", "download"],
        name: str,
        device: str,
        start: float,
        end: float,
        *,
        nbytes: int,
        flops: int = 0,
    ) -> None:
        """Record work of a simulated device, at these seconds of the virtual clock."""
        event = self._add(kind, name, device, nbytes=nbytes, flops=flops, clock="virtual")
        event.start, event.end = start - self._virtual_origin, end - self._virtual_origin
        if kind == "kernel":
            event.name = event.op or name

    def task(
        self, name: str, device: str, stream: str, thread: int, begun: float, **facts: Any
    ) -> RecordedEvent:
        """A task that a stream begins, to be ended by :meth:`end_task`; `thread` submitted it.

        Times are on the device's clock: ``time.perf_counter``, or the virtual one with ``clock="virtual"``.
        """
        event = self._add("task", name, device, stream=stream, **facts)
        event.thread, origin = thread, self._origin_of(event)
        event.start = event.end = begun - origin
        event.submitted -= origin
        return event

    def end_task(self, event: RecordedEvent, ended: float, state: str) -> None:
        """Say how a task ended, and when."""
        event.state = state
        if math.isfinite(ended):  # a task that hangs never does
            event.end = ended - self._origin_of(event)

    def _origin_of(self, event: RecordedEvent) -> float:
        return self._virtual_origin if event.clock == "virtual" else self.origin

    @contextlib.contextmanager
    def wait(self, name: str, device: str, stream: str, awaits: int, *, virtual: bool) -> Iterator[None]:
        """A stream or the host waiting, on its own clock. What it calls to wait does not count once more."""
        if getattr(self._local, "waits", False):
            yield
            return
        now = self.virtual_now if virtual else self.now
        event = self._add("wait", name, device, stream=stream, awaits=awaits)
        event.start = event.end = now()
        if virtual:
            event.clock = "virtual"
        self._local.waits = True
        try:
            yield
        finally:
            self._local.waits = False
            ended = now()
            if math.isfinite(ended):  # not where a simulated device hangs
                event.end = ended

    def collective(self, name: str, nbytes: int) -> RecordedEvent:
        """A transfer between processes that begins, to be ended by :meth:`end_collective`."""
        return self._add("collective", name, "", nbytes=nbytes)

    @contextlib.contextmanager
    def end_collective(self, event: RecordedEvent) -> Iterator[None]:
        """The wait for a transfer between processes."""
        begun = self.now()
        try:
            with self.wait(event.name, "", "", -1, virtual=False):
                yield
        finally:
            event.end = self.now()
            event.waited = event.end - begun

    def allocation(self, device: str, nbytes: int, source: Literal["pool", "driver"]) -> None:
        """Memory that a device's pool handed out, and where the pool had it from."""
        self._add("allocation", source, device, nbytes=nbytes)

    @contextlib.contextmanager
    def fallback(self, op: str, device: str, reason: str) -> Iterator[RecordedEvent]:
        """Record work of the host for an op because the device cannot; the caller sets the event's bytes."""
        event = self._add("fallback", op, device, op=op, reason=reason)
        try:
            yield event
        finally:
            event.end = self.now()
