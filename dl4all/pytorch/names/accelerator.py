"""The GPU of this process under the names of ``torch.accelerator``.

The accelerator is the device that new tensors go to, unless that is the CPU: ``dl.set_default_device``, a
``with`` block and DL4ALL_DEVICE decide over it, too.
"""

from __future__ import annotations

from typing import Any

from dl4all import memory
from dl4all.errors import UnknownDeviceError
from dl4all.scheduler.device import current
from dl4all.scheduler.device.device import Device

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """Whether new tensors go to another device than the CPU.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.accelerator.is_available()
        False
    """
    return bool(current.accelerators())


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device that new tensors go to; None where that is the CPU.

    Args:
        check_available: changes nothing: a device that is not available is none.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     print(dl.accelerator.current_accelerator())
        None
    """
    found = current.accelerator()
    return None if found is None else current.device(found)


def device_count() -> int:
    """The number of accelerators: the device that ``auto`` means and every other GPU; 0 if that is the CPU.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.device_count() >= 0
        True
    """
    return len(current.accelerators())


def current_device_index() -> int:
    """The number of the accelerator that new tensors go to.

    Raises:
        UnknownDeviceError: there is none.

    Example:
        >>> import dl4all as dl
        >>> if dl.accelerator.is_available():
        ...     index = dl.accelerator.current_device_index()
    """
    return current.accelerators().index(_accelerator("current_device_index").name)


current_device_idx = current_device_index


def set_device_index(device: Device | str | int) -> None:
    """Have new tensors go to another accelerator: :func:`dl4all.set_default_device` by a number.

    Raises:
        UnknownDeviceError: there is none, or none of that number.

    Example:
        >>> import dl4all as dl
        >>> if dl.accelerator.is_available():
        ...     dl.accelerator.set_device_index(0)
    """
    current.set_default_device(numbered(device))


set_device_idx = set_device_index


def synchronize(device: Device | str | int | None = None) -> None:
    """Wait until everything that was asked of the accelerator, or of a device, is done.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.synchronize()
    """
    current.synchronize(_named(device))


def empty_cache() -> None:
    """Give memory that no tensor uses back to the accelerator's driver: :func:`dl4all.memory.trim`.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.empty_cache()
    """
    memory.trim(_named(None))


def memory_allocated(device_index: Device | str | int | None = None) -> int:
    """The bytes of a device's memory that tensors take.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.memory_allocated() >= 0
        True
    """
    return memory.stats(_named(device_index)).allocated


def max_memory_allocated(device_index: Device | str | int | None = None) -> int:
    """The most bytes that tensors took since :func:`reset_peak_memory_stats`.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.max_memory_allocated() >= 0
        True
    """
    return memory.stats(_named(device_index)).peak


def memory_reserved(device_index: Device | str | int | None = None) -> int:
    """The bytes that are taken from a device's driver, in use or not.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.memory_reserved() >= 0
        True
    """
    return memory.stats(_named(device_index)).reserved


def max_memory_reserved(device_index: Device | str | int | None = None) -> int:
    """The most bytes that were taken from the driver since :func:`reset_peak_memory_stats`.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.max_memory_reserved() >= 0
        True
    """
    return memory.stats(_named(device_index)).peak_reserved


def reset_peak_memory_stats(device_index: Device | str | int | None = None) -> None:
    """Let the maxima begin at the present values.

    Example:
        >>> import dl4all as dl
        >>> dl.accelerator.reset_peak_memory_stats()
    """
    memory.reset_peak(_named(device_index))


def _named(device: Device | str | int | None) -> Any:
    return current.device() if device is None else numbered(device)


def numbered(device: Device | str | int) -> Any:
    """A device, or the name of the accelerator of that number.

    Raises:
        UnknownDeviceError: there is none of that number.
    """
    if not isinstance(device, int):
        return device
    names = current.accelerators()
    if not names:
        _accelerator("accelerator")
    if not 0 <= device < len(names):
        raise UnknownDeviceError(
            f"[accelerator] no accelerator {device} here; there are {len(names)}: {', '.join(names)}"
        )
    return names[device]


def _accelerator(name: str) -> Device:
    found = current_accelerator()
    if found is None:
        raise UnknownDeviceError(
            f"[{name}] new tensors go to the CPU, there is no accelerator; `dl4all doctor` tells why"
        )
    return found
