"""Training steps that are interrupted, and what must be true of the device afterwards."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.errors import DeviceError
from dl4all.ops.core import tape
from dl4all.runtime.profiler import recorder

ADDITIONS = 70
"""In place, one after the other, more than a batch holds: they show what ran twice or was lost."""
TOLERANCE = 1e-4
SLACK = 4
"""Times as much memory, batches or launches as before may be kept for later."""

Values = list[npt.NDArray[Any]]


@dataclasses.dataclass
class Workload:
    """A network on a device or on a group of devices, and what its step gives."""

    devices: list[dl.Device]
    net: Any
    inputs: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    expected: Values = dataclasses.field(default_factory=list)
    kept: list[Any] = dataclasses.field(default_factory=list)
    """Tensors of statements that ended before an interrupted one, with what they must hold."""
    allocated: int = 0
    size: int = 0
    threads: int = 0


def make(names: str) -> Workload:
    """A convolutional network on a device, or on several (``"vulkan:0+cpu"``) that share each batch."""
    dl.manual_seed(0)
    devices = [dl.device(name) for name in names.split("+")]
    net: Any = dl.nn.Sequential(
        dl.nn.Conv2d(3, 8, 3, padding=1), dl.nn.BatchNorm2d(8), dl.nn.ReLU(), dl.nn.Conv2d(8, 8, 3),
        dl.nn.ReLU(), dl.nn.Flatten(), dl.nn.Linear(8 * 4 * 4, 10),
    ).to(devices[0]).eval()  # fmt: skip
    if len(devices) > 1:
        net = dl.parallel(net, dl.DeviceGroup(devices))
    inputs = np.random.default_rng(0).standard_normal((4, 3, 6, 6)).astype(np.float32)
    made = Workload(devices, net, inputs, np.arange(4))
    for _ in range(3):  # kernels are built and chosen, pools are filled
        made.expected = step(made)
    settle(made)
    made.allocated, made.size, made.threads = allocated(made), size(made), threading.active_count()
    return made


def step(work: Workload) -> Values:
    """Forward and backward; returns a sum made in place, the loss and all gradients."""
    device = work.devices[0]
    x, y = dl.tensor(work.inputs, device=device), dl.tensor(work.labels, device=device)
    total = dl.zeros(7, device=device)
    for parameter in work.net.parameters():
        parameter.grad = None
    for _ in range(ADDITIONS):
        total.add_(1.0)
    loss = dl.nn.functional.cross_entropy(work.net(x), y)
    loss.backward()
    large = dl.ones(300, 300, device=device)
    del large
    with dl.no_grad():
        total.add_(loss * 0.0)
    return [v.numpy().copy() for v in (total, loss.detach(), *(p.grad for p in work.net.parameters()))]


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
    return total


def differences(work: Workload) -> list[str]:
    """What is wrong after an interrupted step: contents made before it, the next step, or settings."""
    found = []
    if work.kept:
        first, second = (tensor.tolist() for tensor in work.kept)
        if (first, second) != ([5.0] * 3, [10.0] * 3):
            found.append(f"what was computed before is lost: {first} and {second}, not 5 and 10")
    found += [
        f"value {i} of the next step is wrong by {np.abs(got - wanted).max()}"
        for i, (got, wanted) in enumerate(zip(step(work), work.expected, strict=True))
        if not np.allclose(got, wanted, rtol=0, atol=TOLERANCE) or (i == 0 and (got != ADDITIONS).any())
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
    }
    return [name for name, wrong in settings.items() if wrong]


def leftovers(work: Workload) -> list[str]:
    """What should have gone by now: memory, objects and threads."""
    settle(work)
    found = []
    if (more := allocated(work) - work.allocated) > 0:
        found.append(f"{more} bytes stay allocated")
    if size(work) > SLACK * work.size:
        found.append(f"memory and batches grew from {work.size} to {size(work)}")
    if (threads := threading.active_count()) > work.threads:
        found.append(f"{threads - work.threads} threads are left")
    return found


def verdict(work: Workload, check: Callable[[Workload], list[str]] = differences) -> tuple[str, list[str]]:
    """``right``, ``wrong``, ``lost`` (a typed error says that the device is gone) or ``broken``, and why."""
    try:
        found = check(work)
    except DeviceError as error:
        return "lost", [f"{type(error).__name__}: {error}"]
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        return "broken", [f"{type(error).__name__}: {error}"]
    return ("wrong" if found else "right"), found
