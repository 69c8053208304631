"""Importing `kp` and opening a device without its side effects."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
from collections.abc import Iterator
from typing import Any

from dl4all.errors import BackendMissingError, DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime.vulkan.instance import VALIDATION_LAYER, validation_wanted


def installed() -> bool:
    """Whether `kp` could be imported; finding out does not import it."""
    return importlib.util.find_spec("kp") is not None


@functools.cache
def kp() -> Any:
    """The `kp` module.

    Importing it calls ``logging.basicConfig()``, which would send every library's log messages of
    the user's program to stderr; that is undone here.

    Raises:
        BackendMissingError: it is not installed, or not built for this interpreter.
    """
    root = logging.getLogger()
    handlers = root.handlers[:]
    try:
        import kp
    except ImportError as error:
        raise BackendMissingError(
            f"[kompute] cannot import kp ({error}); pip install kp==0.9.0 builds it "
            "on Python 3.10 to 3.12, and docs/install.md lists what the build needs"
        ) from None
    finally:
        root.handlers[:] = handlers
    return kp


@contextlib.contextmanager
def _layers() -> Iterator[None]:
    """Keep Kompute from turning the validation layer on whenever that is installed.

    It makes every call two to seven times slower. The loader (1.3.234 and later) reads the
    variable when an instance is created, so it is set for that moment only.
    """
    name = "VK_LOADER_LAYERS_DISABLE"
    before = os.environ.get(name)
    if not validation_wanted():
        os.environ[name] = ",".join(filter(None, [before, VALIDATION_LAYER]))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def manager(index: int) -> Any:
    """A ``kp.Manager`` (one VkInstance and VkDevice) for physical device `index`."""
    try:
        with _layers():
            return kp().Manager(index)
    except RuntimeError as error:
        raise typed(error, f"opening device {index}") from None


def evaluate(sequence: Any, what: str) -> None:
    """Submit what a sequence holds and wait until it has run.

    Raises:
        DeviceError: `what` did not work.
    """
    try:
        sequence.eval()
    except RuntimeError as error:
        raise typed(error, what) from None


def typed(error: RuntimeError, what: str, other: type[DeviceError] = DeviceError) -> DeviceError:
    """Kompute's RuntimeError as one of ours, which stay as they are; `other` where nothing more is known."""
    if isinstance(error, DeviceError):
        return error
    text = str(error)
    if "OutOfDeviceMemory" in text or "OutOfHostMemory" in text:
        return OutOfMemoryError(f"[kompute] {what}: {text}; free tensors or use a smaller batch")
    if "DeviceLost" in text:
        return DeviceLostError(f"[kompute] {what}: the driver gave the device up; data on the host is intact")
    return other(f"[kompute] {what}: {text}")
