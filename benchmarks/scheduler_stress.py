"""Many small ops from many threads to several devices: what comes back, in which order, and what it costs.

    python benchmarks/scheduler_stress.py [--tasks 100000] [--threads 8] [--device cpu --device vulkan:0 ...]

Each thread deals its tasks out to the devices' streams in turn and reads the results in order. A task fills a
tensor of two elements and sums it up. What must hold is checked: every result comes, and is right; each
thread's tasks run in its order on every stream; no queue is longer than its limit; memory stays flat after
the first tenth. "empty" are tasks that do nothing, given to one stream and then waited for; "in turn" waits
for each before it gives the next.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial

import click
import psutil

import dl4all as dl
from dl4all.scheduler.streams.task import Task

DEVICES = ("cpu", "cpu#1", "vulkan:0")
WINDOW = 256  # tasks that a thread gives before it reads the first result


@dataclass
class Report:
    """What was found."""

    tasks: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    right: int = 0  # results
    reordered: int = 0  # tasks that ran before an earlier one of their thread
    longest: int = 0  # queue
    limit: int = 0
    early_bytes: int = 0  # of the process, after the first tenth
    late_bytes: int = 0  # at the end
    by_device: dict[str, float] = field(default_factory=dict)  # microseconds of a task

    @property
    def microseconds(self) -> float:
        """Of a task, by the clock."""
        return self.seconds / self.tasks * 1e6


def small_op(last: dict[int, int], report: Report, thread: int, index: int) -> float:
    """The work of a task, which also looks at the order of its stream."""
    report.reordered += last.get(thread, -1) >= index
    last[thread] = index
    return float(dl.full((2,), float(index)).sum().item())


def stress(
    devices: Sequence[str | dl.Device], threads: int, tasks: int, limit: int = 1024, window: int = WINDOW
) -> Report:
    """Give tasks from several threads to a stream of each device."""
    report = Report(tasks // threads * threads, limit=limit)
    streams = [dl.Stream(device, limit=limit) for device in devices]
    works = [partial(small_op, {}, report) for _ in streams]
    for stream in streams:
        stream.submit(lambda: dl.full((2,), 1.0).sum().item()).result()  # compiles kernels
    process, lock = psutil.Process(), threading.Lock()
    tenth = report.tasks // 10

    def read(pending: deque[tuple[int, Task]]) -> None:
        index, task = pending.popleft()
        right = task.result() == 2.0 * index
        with lock:
            report.right += right
            if report.right == tenth:
                report.early_bytes = process.memory_info().rss

    def call(thread: int) -> None:
        pending: deque[tuple[int, Task]] = deque()
        longest = 0
        for index in range(tasks // threads):
            which = (index + thread) % len(streams)
            pending.append((index, streams[which].submit(works[which], thread, index)))
            longest = max(longest, len(streams[which]))
            if len(pending) > window:
                read(pending)
        while pending:
            read(pending)
        with lock:
            report.longest = max(report.longest, longest)

    begun, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(call, range(threads)))
    report.seconds, report.cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    report.late_bytes = process.memory_info().rss
    for stream in streams:
        finished = max(1, stream.finished)
        report.by_device[str(stream.device)] = stream.busy / finished * 1e6
        stream.close()
        stream.join()
    return report


def overhead(count: int) -> tuple[float, float]:
    """Microseconds of an empty task: of many at once, and in turn."""
    stream = dl.Stream("cpu")
    begun = time.perf_counter()
    for task in [stream.submit(int) for _ in range(count)]:
        task.result()
    middle = time.perf_counter()
    for _ in range(count):
        stream.submit(int).result()
    return (middle - begun) / count * 1e6, (time.perf_counter() - middle) / count * 1e6


@click.command()
@click.option("--tasks", default=100_000, show_default=True)
@click.option("--threads", default=8, show_default=True)
@click.option("--device", "devices", multiple=True, default=DEVICES, show_default=True)
@click.option("--limit", default=1024, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(tasks: int, threads: int, devices: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Give small ops from many threads to several devices."""
    empty, in_turn = overhead(5000)
    report = stress(devices, threads, tasks, limit)
    if as_json:
        print(json.dumps({**asdict(report), "empty": empty, "in_turn": in_turn}))
        return
    print(f"{report.tasks} tasks, {threads} threads, {', '.join(devices)}")
    print(f"  {report.right} right, {report.reordered} reordered, longest queue {report.longest} of {limit}")
    print(f"  {report.seconds:.2f} s, CPU {report.cpu_seconds:.2f} s, {report.microseconds:.1f} us a task")
    print("  in a task: " + ", ".join(f"{name} {us:.0f} us" for name, us in report.by_device.items()))
    print(f"  memory {report.early_bytes >> 20} MiB after a tenth, {report.late_bytes >> 20} MiB at the end")
    print(f"  an empty task: {empty:.1f} us of many at once, {in_turn:.1f} us in turn")
    if report.right != report.tasks or report.reordered or report.longest > limit + 1:
        raise SystemExit("something was lost or reordered, or a queue was too long")


if __name__ == "__main__":
    main()
