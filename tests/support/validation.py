"""Vulkan's validation layers as a test: every call is checked, and one message fails the run.

``DL4ALL_VALIDATION=1`` has the Khronos validation layer check every Vulkan call, synchronization included.
"""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dl4all.errors import DeviceError
from dl4all.runtime import registry
from dl4all.runtime.vulkan.instance import VALIDATION_LAYER, layers, validation_wanted


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
