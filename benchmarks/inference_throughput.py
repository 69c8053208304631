"""Requests a second: one by one, and through an inference queue with batches of several sizes.

    python benchmarks/inference_throughput.py [--requests 2000] [--threads 4] [--group cpu,vulkan:0 ...]

The model is LeNet on images of 28 x 28. "one by one" calls the model on a batch of one image for each
request, on the first device of a group. Through the queue, threads submit all that there is, and wait then.
The runs go round the groups and sizes; the most of all repeats counts. Shares and latencies are those of the
largest batches.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.multi_device.serving.inference_stats import InferenceStats

SIZES = (1, 8, 32)
GROUPS = ("cpu", "vulkan:0", "cpu,vulkan:0")


def one_by_one(device: str, images: list[npt.NDArray[np.float32]]) -> float:
    """Requests a second without a queue."""
    model = dl.models.LeNet().eval().to(device)
    begun = time.perf_counter()
    with dl.no_grad():
        for image in images:
            model(dl.from_numpy(image[None], device)).numpy()
    return len(images) / (time.perf_counter() - begun)


def through_queue(
    devices: list[str], images: list[npt.NDArray[np.float32]], threads: int, size: int
) -> tuple[float, InferenceStats]:
    """Requests a second, and what the queue says."""
    with dl.InferenceQueue(dl.models.LeNet(), dl.DeviceGroup(devices), max_batch=size) as queue:
        for request in [queue.submit(images[0]) for _ in range(2 * size * len(devices))]:
            request.result()  # compiles kernels

        def call(thread: int) -> None:
            for request in [queue.submit(image) for image in images[thread::threads]]:
                request.result()

        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(call, range(threads)))
        return len(images) / (time.perf_counter() - begun), queue.stats()


@click.command()
@click.option("--requests", default=2000, show_default=True)
@click.option("--threads", default=4, show_default=True)
@click.option("--group", "groups", multiple=True, default=GROUPS, show_default=True)
@click.option("--repeat", default=3, show_default=True)
def main(requests: int, threads: int, groups: tuple[str, ...], repeat: int) -> None:
    """Compare an inference queue with calling the model for each request."""
    images = list(np.random.default_rng(0).random((requests, 1, 28, 28), np.float32))
    table = Table("group", "one by one", *(f"batches of {size}" for size in SIZES), "shares", "p50, p99 ms")
    rows: dict[str, list[float]] = {group: [0.0] * (1 + len(SIZES)) for group in groups}
    last = {}
    for _ in range(repeat):
        for group, best in rows.items():
            devices = group.split(",")
            best[0] = max(best[0], one_by_one(devices[0], images))
            for column, size in enumerate(SIZES, 1):
                rate, stats = through_queue(devices, images, threads, size)
                if rate > best[column]:
                    best[column], last[group, size] = rate, stats
    for group, best in rows.items():
        stats = last[group, SIZES[-1]]
        shares = ", ".join(f"{name} {share:.2f}" for name, share in stats.shares.items())
        latencies = f"{stats.latency[50] * 1e3:.1f}, {stats.latency[99] * 1e3:.1f}"
        table.add_row(group, *(f"{rate:.0f}" for rate in best), shares, latencies)
    Console().print(table)


if __name__ == "__main__":
    main()
