"""Measuring devices, so that ``auto`` can tell which one is fast."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import Dl4allError
from dl4all.runtime import registry
from dl4all.runtime.measurements import Measurement, store
from dl4all.scheduler.device import Device, device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

MATMUL = 768  # rows and columns: enough work to fill a large GPU, a tenth of a second for a slow processor
COPY_BYTES = 16 << 20
SECONDS = 0.25  # for each number
TOLERANCE = 1e-4  # of the largest result; rounding differs by a hundredth of this


def calibrate(name: str) -> Measurement:
    """Measure a device in less than two seconds, and keep the result for ``auto``.

    A chain of dependent operations is compared with the CPU first: a device that computes wrongly
    or fails on this driver is not measured, and what it did is kept as the evidence.

    Args:
        name: ``cpu``, ``vulkan:0``, ``kompute:0``, ...

    Raises:
        UnknownDeviceError, BackendMissingError: there is no such device.

    Example:
        >>> import dl4all as dl
        >>> dl.calibrate("cpu").matmul_gflops > 0
        True
    """
    place = device(name)
    try:
        problem = compare_with_cpu(place)
        measurement = Measurement(problem=problem) if problem else _measure(place)
    except Dl4allError as error:
        measurement = Measurement(problem=f"failed: {error}")
    store(place.name, place.info, measurement)
    return measurement


def calibrate_all() -> dict[str, Measurement]:
    """Measure every device through every backend."""
    return {name: calibrate(name) for info in registry.devices() for name in info.names}


def compare_with_cpu(place: Device) -> str:
    """What is wrong with a device's results; empty if nothing is.

    Looked at are a chain of dependent operations, and sums long enough for drivers that cut loops
    short: llvmpipe of Mesa 22.0 gives garbage from some 4000 terms on.
    """
    rng = np.random.default_rng(0)
    for what, compute, shapes in (
        ("a chain of operations", _chain, ((37, 61), (61, 61))),
        ("a sum of 20000 products", _long_sum, ((9, 20000), (20000, 5))),
    ):
        x, w = (rng.standard_normal(shape, np.float32) for shape in shapes)
        expected, got = (
            compute(from_numpy(x, where), from_numpy(w, where)) for where in (device("cpu"), place)
        )
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        if not error < TOLERANCE:
            return f"{what} differs from the CPU's by {error:.1e} of the largest result"
    return ""


def _chain(x: Tensor, w: Tensor) -> npt.NDArray[np.float32]:
    for _ in range(8):
        x = ops.softmax((x @ w).relu() * 0.25 + x, dim=1) - 0.01
    return x.numpy()


def _long_sum(x: Tensor, w: Tensor) -> npt.NDArray[np.float32]:
    product: Tensor = x @ w
    return product.numpy()


def _measure(place: Device) -> Measurement:
    rng = np.random.default_rng(0)
    a, b = (from_numpy(rng.standard_normal((MATMUL, MATMUL), np.float32), place) for _ in range(2))
    host = rng.standard_normal(COPY_BYTES // 4, np.float32)
    large, small = from_numpy(host, place), from_numpy(host[:64], place)
    # On the CPU an upload would keep the array instead of copying it.
    upload = host.copy if place.is_host else lambda: from_numpy(host, place)
    download = host.copy if place.is_host else large.numpy
    return Measurement(
        matmul_gflops=2 * MATMUL**3 / _seconds(place, lambda: a @ b) / 1e9,
        copy_gb_per_s=2 * COPY_BYTES / _seconds(place, large.clone) / 1e9,
        upload_gb_per_s=COPY_BYTES / _seconds(place, upload) / 1e9,
        download_gb_per_s=COPY_BYTES / _seconds(place, download) / 1e9,
        launch_us=_seconds(place, small.neg) * 1e6,
    )


def _seconds(place: Device, work: Callable[[], object]) -> float:
    """Median time until the result is there, over as many runs as fit into SECONDS (at least three)."""
    work()  # builds pipelines
    place.synchronize()
    taken: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(taken) < 3 or (time.perf_counter() < until and len(taken) < 1000):
        start = time.perf_counter()
        work()
        place.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
