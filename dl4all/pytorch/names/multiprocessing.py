"""Processes, as ``torch.multiprocessing`` has them: those of Python, and ``spawn``.

Tensors are sent by their elements: no two processes share the memory of one.
"""

from __future__ import annotations

import multiprocessing as _processes
from collections.abc import Callable
from multiprocessing import (
    Barrier,
    Event,
    Lock,
    Manager,
    Pipe,
    Pool,
    Process,
    Queue,
    Semaphore,
    SimpleQueue,
    cpu_count,
    current_process,
    freeze_support,
    get_context,
    get_start_method,
    set_start_method,
)
from typing import Any

from dl4all.errors import DataError

__all__ = [
    "Barrier",
    "Event",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "Queue",
    "Semaphore",
    "SimpleQueue",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_context",
    "get_start_method",
    "set_start_method",
    "spawn",
]


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> list[Any] | None:
    """Call ``fn(i, *args)`` in new processes, for each number `i` below `nprocs`.

    Args:
        fn: a function of a module: the new processes import it.
        args: what all get.
        nprocs: how many.
        join: wait for them.
        daemon: whether they end with this process.
        start_method: ``"spawn"``, ``"fork"`` or ``"forkserver"``; a device cannot be used after a fork.

    Returns:
        The processes; None if they were waited for.

    Raises:
        DataError: one of them failed; the message has its exit code.

    Example:
        >>> import dl4all as dl
        >>> dl.multiprocessing.get_context("spawn").get_start_method()
        'spawn'
    """
    context: Any = _processes.get_context(start_method)
    started = [context.Process(target=fn, args=(i, *args), daemon=daemon) for i in range(nprocs)]
    for process in started:
        process.start()
    if not join:
        return started
    for process in started:
        process.join()
    failed = {i: process.exitcode for i, process in enumerate(started) if process.exitcode}
    if failed:
        listed = ", ".join(f"process {i}: exit code {code}" for i, code in failed.items())
        raise DataError(f"[spawn] {listed}; what they wrote to stderr says why")
    return None
