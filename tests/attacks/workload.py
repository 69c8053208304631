"""A program on a device or several, and what must be true after it was interrupted."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.errors import DeviceLostError
from dl4all.ops.core import tape
from dl4all.runtime.profiler import phase, recorder
from dl4all.scheduler import fallback
from tests.attacks.programs import PROGRAMS, Program, Values, open_device

TOLERANCE = 1e-4
SLACK = 4
"""Times as much memory, batches or launches as before may be kept for later."""
END_SECONDS = 2.0  # that threads nobody needs any more have to end


@dataclasses.dataclass
class Workload:
    """A program, and what it gives when nothing disturbs it."""

    devices: list[dl.Device]
    run: Program
    expected: Values = dataclasses.field(default_factory=list)
    kept: list[Any] = dataclasses.field(default_factory=list)
    """Tensors of statements that ended before an interrupted one, with what they must hold."""
    allocated: int = 0
    size: int = 0
    threads: int = 0


def make(names: str, program: str) -> Workload:
    """A program on a device, or on several that share its work (``"vulkan:0+cpu"``)."""
    devices = [open_device(name) for name in names.split("+")]
    made = Workload(devices, PROGRAMS[program](devices))
    for _ in range(3):  # kernels are built and chosen, pools are filled
        keep(made)
        made.expected = made.run()
    rest(made)
    return made


def rest(work: Workload) -> None:
    """Take what there is now for what may be there later."""
    settle(work)
    work.allocated, work.size, work.threads = allocated(work), size(work), threading.active_count()


def keep(work: Workload) -> None:
    """Statements that end, and whose commands may not have run yet."""
    made = dl.full((3,), 5.0, device=work.devices[0])
    work.kept = [made, made * 2]


def settle(work: Workload) -> None:
    """Let go of everything that nobody holds."""
    work.kept = []
    gc.collect()
    for device in work.devices:
        device.synchronize()


def allocated(work: Workload) -> int:
    """Bytes that tensors take on all devices."""
    return sum(dl.memory.stats(device).allocated for device in work.devices)


def size(work: Workload) -> int:
    """What may not grow without end: bytes from the driver, and objects of the backends."""
    total = 0
    for device in work.devices:
        total += dl.memory.stats(device).reserved
        total += (1 << 16) * len(getattr(device._stream, "_batches", ()))
        for name in ("buffers", "programs", "recordings", "streams"):
            total += (1 << 12) * len(getattr(device._backend, name, ()))
    return total


def differences(work: Workload) -> list[str]:
    """What is wrong after an interrupted run: contents made before it, the next run, or settings."""
    found = wrong_settings()
    if work.kept:
        first, second = (tensor.tolist() for tensor in work.kept)
        if (first, second) != ([5.0] * 3, [10.0] * 3):
            found.append(f"what was computed before is lost: {first} and {second}, not 5 and 10")
    found += [
        f"value {i} of the next run is wrong by {np.abs(got - wanted).max()}"
        for i, (got, wanted) in enumerate(zip(work.run(), work.expected, strict=True))
        if not np.allclose(got, wanted, rtol=0, atol=TOLERANCE)
    ]
    return found + wrong_settings()


def wrong_settings() -> list[str]:
    """Settings of this thread that an interrupted block did not put back."""
    state = tape.state
    settings = {
        "gradients are off": not state.enabled,
        "a recorder is active": recorder.active is not None,
        "a vmap is active": state.in_vmap,
        "an observer is active": state.observer is not None,
        "a checkpoint is active": state.recompute_hook is not None,
        "anomalies are looked for": state.detect_anomaly,
        "a fallback is silent": fallback._current_mode() != "warn",
        f"the phase is {phase.current()}": bool(phase.current()),
    }
    return [name for name, wrong in settings.items() if wrong]


def leftovers(work: Workload) -> list[str]:
    """What should have gone by now: memory, objects and threads."""
    until = time.monotonic() + END_SECONDS
    while True:
        settle(work)
        more, threads = allocated(work) - work.allocated, threading.active_count() - work.threads
        if (more <= 0 and threads <= 0) or time.monotonic() > until:
            break
        time.sleep(0.001)  # a thread may be about to let go of something
    found = []
    if more > 0:
        found.append(f"{more} bytes stay allocated")
    if threads > 0:
        found.append(f"{threads} threads are left")
    if size(work) > SLACK * work.size:
        found.append(f"memory and objects grew from {work.size} to {size(work)}")
    return found


def verdict(work: Workload, check: Callable[[Workload], list[str]] = differences) -> tuple[str, list[str]]:
    """``right``, ``wrong``, ``lost`` (a typed error says that the device is gone) or ``broken``, and why."""
    try:
        found = check(work)
    except DeviceLostError as error:
        return "lost", [f"{type(error).__name__}: {error}"]
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        return "broken", [f"{type(error).__name__}: {error}"]
    return ("wrong" if found else "right"), found
