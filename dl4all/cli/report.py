"""The report of ``dl4all doctor --report``, which people with a card send to those who have none like it."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.calibration import calibrate
from dl4all.cli.checks import Finding
from dl4all.cli.devices import report_of_devices
from dl4all.errors import Dl4allError
from dl4all.nn import functional as F
from dl4all.runtime import registry

RUNS = 7
TOLERANCE = 1e-3
"""The largest difference from the CPU's result, relative to its largest element."""

Work = Callable[[dict[str, dl.Tensor]], dl.Tensor]
SHAPES = {
    "large": (1 << 22,), "a": (512, 512), "b": (512, 512), "rows": (4096, 256), "image": (4, 32, 56, 56),
    "filters": (32, 32, 3, 3), "q": (2, 4, 128, 64), "k": (2, 4, 128, 64), "v": (2, 4, 128, 64),
}  # fmt: skip
BENCHMARKS: dict[str, Work] = {
    "relu of 4M": lambda t: F.relu(t["large"]),
    "sum of 4M": lambda t: t["large"].sum(),
    "sum of rows": lambda t: t["rows"].sum(1),
    "softmax of rows": lambda t: F.softmax(t["rows"], 1),
    "layer norm of rows": lambda t: F.layer_norm(t["rows"], (256,)),
    "transpose": lambda t: t["a"].T.contiguous(),
    "matmul 512": lambda t: t["a"] @ t["b"],
    "conv2d 3x3 of 56x56": lambda t: F.conv2d(t["image"], t["filters"], padding=1),
    "max pool of 56x56": lambda t: F.max_pool2d(t["image"], 2),
    "attention of 128": lambda t: F.scaled_dot_product_attention(t["q"], t["k"], t["v"]),
}
"""Work by name, each on tensors of :data:`SHAPES`."""


def report(findings: list[Finding]) -> dict[str, Any]:
    """The system, devices, checks and measurements, and the benchmarks on each device, as JSON has them."""
    errors: dict[str, str] = {}
    names = [name for info in registry.usable() for name in info.names]
    for name in names:
        try:
            calibrate(name)
        except Dl4allError as error:
            errors[name] = str(error)
    arrays = {
        name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }
    expected = {name: _run(work, "cpu", arrays)[0] for name, work in BENCHMARKS.items()}
    return {
        "dl4all": dl.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "numpy": np.__version__,
        "checks": [finding._asdict() for finding in findings],
        **report_of_devices(registry.auto()),
        "calibration_errors": errors,
        "benchmarks": {name: _benchmarks(name, arrays, expected) for name in names},
    }


def _benchmarks(device: str, arrays: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The milliseconds of each benchmark on a device and the difference of its result, or the error."""
    found: dict[str, Any] = {}
    for name, work in BENCHMARKS.items():
        try:
            result, milliseconds = _run(work, device, arrays)
        except Dl4allError as error:
            found[name] = {"error": str(error)}
            continue
        scale = float(np.abs(expected[name]).max())
        difference = float(np.abs(result - expected[name]).max()) / scale
        found[name] = {
            "ms": round(milliseconds, 4), "difference": difference, "right": difference <= TOLERANCE,
        }  # fmt: skip
    return found


def _run(work: Work, device: str, arrays: dict[str, Any]) -> tuple[Any, float]:
    """The result of some work, and the median of its milliseconds after a first run."""
    tensors = {name: dl.from_numpy(array, device) for name, array in arrays.items()}
    result = work(tensors).numpy()
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work(tensors)
        dl.synchronize(device)
        times.append(time.perf_counter() - begin)
    return result, statistics.median(times) * 1e3
