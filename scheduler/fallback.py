"""The CPU fallback: what runs on the host because its device has no kernel for it.

Every such call is counted, and logged once for each op, device and reason; so is data that comes
along from the CPU to a device (:mod:`dl4all.ops.core.arguments.named_cpu`). :func:`report` shows the counts,
:func:`policy` forbids the fallback or only counts it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dl4all import config
from dl4all.config import FallbackMode
from dl4all.errors import ArgumentError, FallbackError, PipelineError, TooLargeError
from dl4all.runtime import fork
from dl4all.runtime.profiler import recorder
from dl4all.runtime.scopes import Undo
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.transfers import traffic
from dl4all.scheduler.index_errors import calling_line

__all__ = ["Report", "Row", "policy", "report", "reset"]

logger = logging.getLogger("dl4all")

WIDTH = 120  # of a printed table where there is no terminal


@dataclasses.dataclass
class Row:
    """All calls of one op that ran on the host for one reason.

    ``seconds`` pass on the host from the first download to the last upload, with the wait for the device.
    """

    op: str
    device: str
    reason: str
    dtype: str
    message: str
    """The log's message of the first call; of a driver that refused a kernel, the driver's own words."""
    calls: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0


class Report(tuple[Row, ...]):
    """The rows of a :func:`report`, the one that took longest first. ``print`` shows them as a table."""

    __slots__ = ()

    def table(self) -> Table:
        """The rows for ``rich``, the messages of the drivers below them."""
        refusals = dict.fromkeys(row.message for row in self if row.reason == NO_PIPELINE)
        shown = Table(caption=Text("\n".join(refusals)) if refusals else None, caption_justify="left")
        for heading in ("op", "device", "reason", "dtype"):
            shown.add_column(heading, overflow="fold")
        for heading in ("calls", "MB down", "MB up", "ms"):
            shown.add_column(heading, justify="right", no_wrap=True)
        for row in self:
            megabytes = (f"{nbytes / 1e6:.3f}" for nbytes in (row.bytes_down, row.bytes_up))
            words = map(Text, (row.op, row.device, row.reason, row.dtype))
            shown.add_row(*words, str(row.calls), *megabytes, f"{row.seconds * 1e3:.2f}")
        return shown

    def __str__(self) -> str:
        text = io.StringIO()
        width = shutil.get_terminal_size((WIDTH, 0)).columns
        Console(file=text, width=width).print(self.table())
        return "\n".join(map(str.rstrip, text.getvalue().splitlines()))


class Cause(NamedTuple):
    """Why an op runs on the host; its words make ``[op] {problem} and runs on the CPU{rest}``.

    ``reason`` names it in reports. It holds no sizes, so that calls with other shapes share a row.
    """

    reason: str
    dtype: str
    problem: str
    rest: str = ""


NO_KERNEL, NO_LAYOUT = "no kernel", "no kernel for this layout"
NO_PIPELINE, TOO_LARGE, REFUSED = "no pipeline", "operand too large", "refused by the kernel"
FASTER_ON_HOST = "faster on the host"
CAME_ALONG = "data came from the CPU"


def no_kernel(device: Device, dtype: str) -> Cause:
    """The op has no kernel at all."""
    return Cause(NO_KERNEL, dtype, f"has no kernel for {device}")


def no_dtype(device: Device, dtype: str) -> Cause:
    """The op has kernels, but none of this dtype."""
    advice = "; convert with .float() to stay there"
    return Cause(f"no {dtype} kernel", dtype, f"has no {dtype} kernel for {device}", advice)


def no_layout(device: Device, dtype: str) -> Cause:
    """The op has kernels of this dtype, but none for these strides."""
    problem = f"has no kernel for {device} that takes these strides of {dtype}"
    return Cause(NO_LAYOUT, dtype, problem, "; use .contiguous() to stay there")


def too_large(device: Device, dtype: str) -> Cause:
    """An operand has more bytes than a kernel can bind."""
    limit = device.info.limits.storage_buffer_range
    problem = f"has operands of more than the {limit} bytes that {device} can bind"
    return Cause(TOO_LARGE, dtype, problem, "; use a smaller batch to stay there")


def faster_on_host(device: Device, dtype: str) -> Cause:
    """The op has kernels, which take longer on this device than the host does."""
    return Cause(FASTER_ON_HOST, dtype, f"has kernels for {device} that are slower than the host")


def refused(device: Device, error: Exception, dtype: str) -> Cause:
    """A kernel was about to be launched, and this error said that it cannot run."""
    reason = REFUSED
    if isinstance(error, PipelineError):
        reason = NO_PIPELINE
    elif isinstance(error, TooLargeError):
        reason = TOO_LARGE
    return Cause(reason, dtype, f"cannot run on {device}", f": {error}")


_lock = fork.lock()
_mode: FallbackMode | None = None  # what the settings say, until they are looked at or policy() is called
_rows: dict[tuple[str, str, str, str], Row] = {}
_logged: set[tuple[str, str, str]] = set()  # op, device and reason


def report() -> Report:
    """The ops that have run on the host since the last :func:`reset`, of all threads.

    Example:
        >>> import dl4all as dl
        >>> dl.fallback.reset()
        >>> x = dl.ones(2, 3, device="cpu") + 1  # the CPU's own ops are no fallback
        >>> len(dl.fallback.report())
        0
    """
    with _lock:
        rows = [dataclasses.replace(row) for row in _rows.values()]
    return Report(sorted(rows, key=lambda row: -row.seconds))


def reset() -> None:
    """Forget all counts, and what was logged.

    Example:
        >>> import dl4all as dl
        >>> dl.fallback.reset()
        >>> list(dl.fallback.report())
        []
    """
    with _lock:
        _rows.clear()
        _logged.clear()


def policy(mode: FallbackMode) -> AbstractContextManager[None]:
    """Say what a fallback does, in all threads from now on, or in a ``with`` block.

    Args:
        mode: ``"warn"`` logs it once for each op, device and reason; ``"silent"`` only counts it; ``"error"``
            raises a FallbackError instead. ``DL4ALL_FALLBACK`` or ``fallback`` in ``dl4all.toml`` says what
            it is at first; otherwise it is ``"warn"``.

    Returns:
        A context manager that puts the former policy back when its block ends. An exception of a signal
        handler that comes before the block begins leaves the policy as it was set here.

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> with dl.fallback.policy("error"):
        ...     y = dl.ones(2, 3).exp()  # raises where the device has no kernel
    """
    if mode not in get_args(FallbackMode):
        modes = ", ".join(get_args(FallbackMode))
        raise ArgumentError(f"[fallback.policy] the mode must be one of {modes}, got {mode!r}")
    global _mode
    undo = Undo(globals(), "_mode")
    _mode = mode
    return undo


def _current_mode() -> FallbackMode:
    global _mode
    if _mode is None:
        setting = config.fallback_setting()
        with _lock:
            _mode = _mode or setting
            return _mode
    return _mode


def brings(op: str, device: Device, nbytes: int) -> bool:
    """Whether an op may bring data from the CPU to its device.

    It is counted, with its bytes, and logged once for each line of the program that it happens in.

    Raises:
        ConfigError: DL4ALL_MIXED or the file has an unusable value.
    """
    listeners.unplanned()
    if config.mixed_setting() == "error":
        return False
    line = calling_line()
    message = (
        f"[{op}] data that lies on the CPU comes along to {device}{line}; "
        f".to({str(device)!r}) moves it once, DL4ALL_MIXED=error refuses it"
    )
    with _lock:
        is_new = (line, device.name, CAME_ALONG) not in _logged
        _logged.add((line, device.name, CAME_ALONG))
        row = _rows.setdefault(
            (op, device.name, CAME_ALONG, ""), Row(op, device.name, CAME_ALONG, "", message)
        )
        row.calls += 1
        row.bytes_up += nbytes
    if is_new:
        logger.warning("%s", message)
    return True


def is_forbidden() -> bool:
    """Whether the policy forbids the fallback; what only prefers the host uses its kernels then.

    Raises:
        ConfigError: the setting of the policy is unusable.
    """
    listeners.unplanned()  # another policy, other kernels
    return _current_mode() == "error"


def on_host(op: str, device: Device, cause: Cause) -> AbstractContextManager[None]:
    """A block in which the host computes for a device; it counts when it succeeds.

    Raises:
        FallbackError: when the block is entered, if the policy forbids it.
        ConfigError: when the block is entered, if the setting of the policy is unusable.
    """
    return contextlib.nullcontext() if device.is_host else _counted(op, device, cause)


@contextlib.contextmanager
def _counted(op: str, device: Device, cause: Cause) -> Iterator[None]:
    listeners.unplanned()
    mode, (reason, dtype, problem, rest) = _current_mode(), cause
    if mode == "error":
        raise FallbackError(
            f'[{op}] {problem} and may not run on the CPU{rest}; dl.fallback.policy("warn") allows it'
        )
    message = f"[{op}] {problem} and runs on the CPU{rest}"
    if mode == "warn":
        with _lock:
            is_new = (op, device.name, reason) not in _logged
            _logged.add((op, device.name, reason))
        if is_new:
            logger.warning("%s", message)
    down, up, start = traffic.down, traffic.up, time.perf_counter()
    active = recorder.active
    if active is None:
        yield
    else:
        with active.fallback(op, device.name, reason) as event:
            yield
            event.nbytes = traffic.down - down + traffic.up - up
    seconds = time.perf_counter() - start
    with _lock:
        row = _rows.setdefault((op, device.name, reason, dtype), Row(op, device.name, reason, dtype, message))
        row.calls += 1
        row.bytes_down += traffic.down - down
        row.bytes_up += traffic.up - up
        row.seconds += seconds
