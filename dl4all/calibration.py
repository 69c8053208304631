"""Measuring devices, so that ``auto`` can tell which one is fast.

A device through one backend takes some 0.7 seconds, and the first compilation of its shaders as much again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import Dl4allError, OutOfMemoryError
from dl4all.runtime import measurements, registry
from dl4all.runtime.measurements import Measurement
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

# Rows and columns of the products: the first that takes a good part of SECONDS counts. A slow processor
# ends at the first, a large GPU needs the last to be busy at all.
MATMUL = (256, 512, 1024, 2048)
COPY_BYTES = 16 << 20
SECONDS = 0.06  # for each number
TOLERANCE = 1e-4  # of the largest result; rounding differs by a hundredth of this


def calibrate(name: str) -> Measurement:
    """Measure a device in less than two seconds, and keep the result for ``auto``.

    A chain of dependent operations is compared with the CPU first: a device that computes wrongly
    or fails on this driver is not measured, and what it did is kept as the evidence.

    Args:
        name: ``cpu``, ``vulkan:0``, ``kompute:0``, ...

    Raises:
        UnknownDeviceError, BackendMissingError: there is no such device.
        OutOfMemoryError: others use too much of its memory; that is no evidence against it.

    Example:
        >>> import dl4all as dl
        >>> dl.calibrate("cpu").matmul_gflops > 0
        True
    """
    name = registry.resolve(name)
    info = registry.describe(name)
    with measurements.attempt(name, info):
        measurement = _examine(name)
    measurements.store(name, info, measurement)
    return measurement


def _examine(name: str) -> Measurement:
    try:
        place = device(name)
        problem = compare_with_cpu(place)
        return Measurement(problem=problem) if problem else _measure(place)
    except OutOfMemoryError:
        raise
    except Dl4allError as error:
        return Measurement(problem=f"failed: {error}")
    except Exception as error:  # noqa: BLE001  # another package's backend may raise anything
        return Measurement(problem=f"failed: {type(error).__name__}: {error}")


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
    block = np.random.default_rng(0).standard_normal(4096, np.float32)
    host = np.resize(block, COPY_BYTES // 4)
    large, small = from_numpy(host, place), from_numpy(host[:64], place)
    # On the CPU an upload would keep the array instead of copying it.
    upload = host.copy if place.is_host else lambda: from_numpy(host, place)
    download = host.copy if place.is_host else large.numpy
    return Measurement(
        matmul_gflops=_matmul(place, block) / 1e9,
        copy_gb_per_s=2 * COPY_BYTES / _seconds(place, large.clone) / 1e9,
        upload_gb_per_s=COPY_BYTES / _seconds(place, upload) / 1e9,
        download_gb_per_s=COPY_BYTES / _seconds(place, download) / 1e9,
        launch_us=_seconds(place, small.neg) * 1e6,
    )


def _matmul(place: Device, values: npt.NDArray[np.float32]) -> float:
    """Operations per second of a square product."""
    for size in MATMUL:
        a = from_numpy(np.resize(values, (size, size)), place)
        taken = _seconds(place, lambda a=a: a @ a, within=0.0, least=1)  # type: ignore[misc]
        if taken > SECONDS / 10 or size == MATMUL[-1]:
            break
    return 2 * size**3 / _seconds(place, lambda: a @ a)


def _seconds(
    place: Device, work: Callable[[], object], *, within: float | None = None, least: int = 3
) -> float:
    """Time until the result is there: the shortest of as many runs as fit into `within`, or of `least`.

    The shortest, because whatever else the machine does only adds to it.
    """
    work()  # builds pipelines
    place.synchronize()
    taken: list[float] = []
    until = time.perf_counter() + (SECONDS if within is None else within)
    while len(taken) < least or (time.perf_counter() < until and len(taken) < 1000):
        start = time.perf_counter()
        work()
        place.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken)


registry.calibrator = calibrate
