"""What every test may use: the devices of this machine, poisoned memory, and checked Vulkan calls.

``DL4ALL_TEST_DEVICES=cpu,vulkan:0`` makes a missing device a failure instead of a skip, and adds
devices to the usual three. ``DL4ALL_VALIDATION=1`` has the Khronos validation layer check every
Vulkan call, synchronization included; a single message fails the run.
"""

from __future__ import annotations

import functools
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dl4all import Dl4allError
from dl4all.allocator.storage import Storage
from dl4all.errors import DeviceError
from dl4all.runtime import registry
from dl4all.runtime.vulkan.instance import VALIDATION_LAYER, layers, validation_wanted
from dl4all.scheduler.device import Device
from dl4all.scheduler.device import device as open_device

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


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, without this one's settings for dl4all."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("DL4ALL_DEVICE", "DL4ALL_VALIDATION")}
    paths = {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **paths, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _param(name: str) -> object:
    return pytest.param(name, marks=[] if name == "cpu" else pytest.mark.vulkan)


@pytest.fixture(params=map(_param, DEVICES))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device, each in turn."""
    name = str(request.param)
    need(name)
    return name


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what a device allocates with 0xFF (NaN in every float type): nothing may rely on zeros.

    A test that must see memory as the allocator gives it overrides this fixture.
    """
    allocate = Device.allocate

    def poisoning(self: Device, nbytes: int) -> Storage:
        storage = allocate(self, nbytes)
        with self._lock:
            self._stream.upload(storage.buffer, np.full(storage.buffer.nbytes, 0xFF, np.uint8))
        return storage

    monkeypatch.setattr(Device, "allocate", poisoning)


# Validation


class Validation:
    """Collects what the validation layer says in this process and in those it starts.

    Every VkInstance (each ``kp.Manager`` has one) opens the layer's log file anew and truncates it,
    so the file is a named pipe, which keeps what all of them write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipe = folder / "messages"
        os.mkfifo(pipe)
        self._end = os.open(pipe, os.O_RDWR)
        self._parts: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        write_layer_settings(folder, pipe)

    def _read(self) -> None:
        """Empty the pipe all the time: a full one would stop whoever writes."""
        while True:
            self._parts.put(os.read(self._end, 1 << 16))

    def messages(self) -> str:
        """What was said since the last call."""
        os.write(self._end, b"\0")  # everything before this is older
        text = b""
        while b"\0" not in text:
            text += self._parts.get()
        return text.replace(b"\0", b"").decode(errors="replace")


def write_layer_settings(folder: Path, log: Path) -> None:
    """Make `folder` one that VK_LAYER_SETTINGS_PATH can name, to have every message in `log`."""
    (folder / "vk_layer_settings.txt").write_text(
        "khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n"
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        "khronos_validation.report_flags = error,warn,perf\n"
        f"khronos_validation.log_filename = {log}\n"
    )


VALIDATION = pytest.StashKey[Validation]()


def pytest_configure(config: pytest.Config) -> None:
    """Point the layer at this run's settings, before any Vulkan instance is made."""
    if validation_wanted():
        try:
            missing = VALIDATION_LAYER not in layers()
        except DeviceError as error:
            raise pytest.UsageError(f"DL4ALL_VALIDATION: {error}") from None
        if missing:
            raise pytest.UsageError("DL4ALL_VALIDATION: apt install vulkan-validationlayers")
        validation = Validation(Path(tempfile.mkdtemp(prefix="dl4all-validation-")))
        config.stash[VALIDATION] = validation
        os.environ["VK_LAYER_SETTINGS_PATH"] = str(validation.folder)


@pytest.fixture(autouse=True)
def validated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which the validation layer said something."""
    yield
    validation = request.config.stash.get(VALIDATION, None)
    if validation is not None and (messages := validation.messages()):
        pytest.fail(f"the Vulkan validation layer says:\n{messages}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close every device, which is when the layer reports what leaked, and fail the run if it does."""
    validation = session.config.stash.get(VALIDATION, None)
    if validation is None:
        return
    registry.close_all()
    if messages := validation.messages():
        print(f"\nWhen the devices were closed, the Vulkan validation layer said:\n{messages}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    shutil.rmtree(validation.folder)
