"""What every test may use: the devices of this machine, and poisoned memory.

``DL4ALL_TEST_DEVICES=cpu,vulkan:0`` makes a missing device a failure instead of a skip, and adds
devices to the usual three. ``DL4ALL_TEST_FULL=1`` runs what the usual run leaves out: tests marked ``full``,
most of what goes through Kompute, and products of cases (``tests/support/selection.py``, ``subcases.py``).
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dl4all import Dl4allError, manual_seed
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.guard import set_guard
from dl4all.allocator.storage import Storage
from dl4all.runtime.simulated import clock
from dl4all.scheduler.device.copies import DeviceCopies
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.counters import forget_plans
from tests.support.buffer_indices import compared
from tests.support.deadline import deadline as deadline
from tests.support.forked_process import LIBRARY, run_forked
from tests.support.parallel_training import split_by_speed as split_by_speed
from tests.support.validation import write_layer_settings as write_layer_settings

os.environ.setdefault("DL4ALL_CALIBRATE", "0")  # tests choose their devices; some switch it on again
os.environ.setdefault("DL4ALL_DEVICE", "cpu")  # nor must it matter how fast this machine was measured to be
os.environ.setdefault("DL4ALL_TOP", "0")  # nobody watches tests, and few want one more thread
os.environ.setdefault("DL4ALL_VERIFY_GRAPHS", "1")  # after each pass
os.environ.setdefault("DL4ALL_TUNE", "0")  # and their kernels: what was tuned here must not matter
# With it each argument of print() is written by itself, and lines of processes that share a pipe get mixed.
os.environ.pop("PYTHONUNBUFFERED", None)
INDICES = os.environ.get("DL4ALL_TEST_INDICES", "0") == "1"
REPOSITORY = Path(__file__).parents[1]
REQUIRED = tuple(filter(None, map(str.strip, os.environ.get("DL4ALL_TEST_DEVICES", "").split(","))))
DEVICES = tuple(dict.fromkeys(("cpu", "vulkan:0", "kompute:0", *REQUIRED)))


def need(name: str) -> None:
    """Skip the test where device `name` is missing; fail it where DL4ALL_TEST_DEVICES names it."""
    if problem := _problem(name):
        if name in REQUIRED:
            pytest.fail(f"DL4ALL_TEST_DEVICES names {name}: {problem}", pytrace=False)
        pytest.skip(problem)


@functools.cache
def _problem(name: str) -> str:
    try:
        open_device(name)
    except Dl4allError as error:
        return f"{name}: {error}"
    return ""


def run_python(
    code: str, preload: tuple[str, ...] = LIBRARY, /, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, without this one's settings for dl4all.

    With nothing preloaded, it imports everything itself.
    """
    inherited = {k: v for k, v in os.environ.items() if k not in ("DL4ALL_DEVICE", "DL4ALL_VALIDATION")}
    paths = {"PYTHONPATH": str(REPOSITORY)}
    return run_forked([sys.executable, "-c", code], preload=preload, env={**inherited, **paths, **env})


def parameter(name: str) -> object:
    """A device as a test takes it: those that need Vulkan are marked."""
    return pytest.param(name, marks=[] if name == "cpu" else pytest.mark.vulkan)


@pytest.fixture(params=map(parameter, DEVICES))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device, each in turn."""
    name = str(request.param)
    need(name)
    return name


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """The same random numbers for a test whichever ran before it, in this process or in another one."""
    manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def planless() -> None:
    """No launch plans of other tests: kernels are chosen anew, by what a test may have put in their place."""
    forget_plans()


@pytest.fixture(autouse=True)
def midnight() -> None:
    """The virtual clock of the tests' thread begins anew: late times have fewer digits for what passes."""
    clock.set_to(0.0)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what a device allocates with 0xFF (NaN in every float type): nothing may rely on zeros.

    A test that must see memory as the allocator gives it overrides this fixture.
    """
    allocate, reserve = Device.allocate, DeviceCopies.reserve

    def poison(self: Device, storage: Storage) -> Storage:
        if self.simulated is not None and not self.simulated.computes:
            return storage  # nobody looks at what is there, and its pages are never touched
        if storage.buffer is None:
            return storage  # a stand-in, for a graph
        with self._lock:
            self._stream.upload(storage.span, np.full(storage.span.nbytes, 0xFF, np.uint8))
            if self._debug:
                set_guard(self._stream, storage)
        return storage

    def poisoning(self: Device, nbytes: int, tag: str = "") -> Storage:
        return poison(self, allocate(self, nbytes, tag))

    def reserving(self: DeviceCopies, nbytes: int, tag: str = "upload") -> Storage:
        storage = poison(self._device, reserve(self, nbytes, tag))
        with self._lock:
            self._stream.synchronize()  # no command may use the storage
        return storage

    monkeypatch.setattr(Allocator, "reuse", lambda self, nbytes, tag: None)  # new memory each time
    monkeypatch.setattr(Device, "allocate", poisoning)
    monkeypatch.setattr(DeviceCopies, "reserve", reserving)


@pytest.fixture(autouse=True)
def within_buffers(request: pytest.FixtureRequest, poisoned: None) -> Iterator[None]:
    """With DL4ALL_TEST_INDICES=1, compare the indices that kernels use with what is bound."""
    if INDICES and request.node.get_closest_marker("vulkan"):
        with compared(open_device("vulkan:0")):
            yield
    else:
        yield
