"""Calibration: measures devices, so that ``auto`` can choose the fastest.

One device of one backend takes some 0.7 seconds, and the first compilation of its shaders as much again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import Dl4allError, ForkError, OutOfMemoryError
from dl4all.runtime import registry
from dl4all.runtime.records import measurements
from dl4all.runtime.records.measurements import Measurement
from dl4all.scheduler.device.current import device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

MATMUL_SIZES = (256, 512, 1024, 2048)
"""Rows and columns of the products. The first that takes a tenth of SECONDS_PER_NUMBER counts: a slow
processor stops at the first, and only the last keeps a large GPU busy."""

COPY_BYTES = 16 << 20
SECONDS_PER_NUMBER = 0.06
TOLERANCE = 1e-4  # relative to the largest result; rounding differs by a hundredth of this


def calibrate(name: str) -> Measurement:
    """Measure a device in less than two seconds, and store the result for ``auto``.

    A chain of dependent operations is compared with the CPU first: a device that computes wrongly
    or fails on this driver is not measured, and the problem is stored instead.

    Args:
        name: ``cpu``, ``vulkan:0``, ``kompute:0``, ...

    Raises:
        UnknownDeviceError, BackendMissingError: there is no such device.
        ForkError: see :func:`dl4all.device`.
        OutOfMemoryError: other programs use too much of its memory; this is not stored as a problem.

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
    """The measurement of a device, or its problem."""
    try:
        target = device(name)
        problem = compare_with_cpu(target)
        return Measurement(problem=problem) if problem else _measure(target)
    except (ForkError, OutOfMemoryError):
        raise
    except Dl4allError as error:
        return Measurement(problem=f"failed: {error}")
    except Exception as error:  # noqa: BLE001  # another package's backend may raise anything
        return Measurement(problem=f"failed: {type(error).__name__}: {error}")


def compare_with_cpu(target: Device) -> str:
    """Describe how a device's results differ from the CPU's; empty if they are equal.

    Compares a chain of dependent operations, and sums that are long enough to show drivers which cut
    loops short: llvmpipe of Mesa 22.0 gives garbage from some 4000 terms on.
    """
    rng = np.random.default_rng(0)
    for name, compute, shapes in (
        ("a chain of operations", _chain, ((37, 61), (61, 61))),
        ("a sum of 20000 products", _long_sum, ((9, 20000), (20000, 5))),
    ):
        x, w = (rng.standard_normal(shape, np.float32) for shape in shapes)
        expected, got = (
            compute(from_numpy(x, each), from_numpy(w, each)) for each in (device("cpu"), target)
        )
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        if not error < TOLERANCE:
            return f"{name} differs from the CPU's by {error:.1e} of the largest result"
    return ""


def _chain(x: Tensor, w: Tensor) -> npt.NDArray[np.float32]:
    for _ in range(8):
        x = ops.softmax((x @ w).relu() * 0.25 + x, dim=1) - 0.01
    return x.numpy()


def _long_sum(x: Tensor, w: Tensor) -> npt.NDArray[np.float32]:
    return (x @ w).numpy()


def _measure(target: Device) -> Measurement:
    block = np.random.default_rng(0).standard_normal(4096, np.float32)
    host = np.resize(block, COPY_BYTES // 4)
    large, small = from_numpy(host, target), from_numpy(host[:64], target)
    # On the CPU an upload would keep the array instead of copying it.
    upload = host.copy if target.is_host else lambda: from_numpy(host, target)
    download = host.copy if target.is_host else large.numpy
    return Measurement(
        matmul_gflops=_matmul(target, block) / 1e9,
        copy_gb_per_s=2 * COPY_BYTES / _seconds(target, large.clone) / 1e9,
        upload_gb_per_s=COPY_BYTES / _seconds(target, upload) / 1e9,
        download_gb_per_s=COPY_BYTES / _seconds(target, download) / 1e9,
        launch_us=_seconds(target, small.neg) * 1e6,
    )


def _matmul(target: Device, values: npt.NDArray[np.float32]) -> float:
    """Floating point operations per second of a square matrix product."""
    for size in MATMUL_SIZES:
        a = from_numpy(np.resize(values, (size, size)), target)
        seconds = _seconds(target, lambda a=a: a @ a, within=0.0, least=1)  # type: ignore[misc]
        if seconds > SECONDS_PER_NUMBER / 10 or size == MATMUL_SIZES[-1]:
            break
    return 2 * size**3 / _seconds(target, lambda: a @ a)


def _seconds(
    target: Device, work: Callable[[], object], *, within: float | None = None, least: int = 3
) -> float:
    """The shortest time of some work, of as many runs as fit into `within` seconds, but at least `least`.

    The shortest, because other load on the machine only adds to the time.
    """
    work()  # builds pipelines
    target.synchronize()
    times: list[float] = []
    end = time.perf_counter() + (SECONDS_PER_NUMBER if within is None else within)
    while len(times) < least or (time.perf_counter() < end and len(times) < 1000):
        start = time.perf_counter()
        work()
        target.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


registry.calibrator = calibrate
