"""The end of devices: errors that nobody was told, and the locks under which other threads work."""

from __future__ import annotations

import logging
import threading

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.protocols import Backend
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.counters import devices

logger = logging.getLogger("dl4all")


def locks_of(backend: Backend) -> list[threading.RLock]:
    """The locks under which threads use a backend that is to be closed, in the order of their requests.

    Indices out of range that its kernels found, and nobody waited for, are logged.
    """
    locks = list[threading.RLock]()
    for device in tuple(devices):
        own = device.locks_on(backend)
        if own and device.index_errors.has_unseen():
            _tell(device)
        locks += own
    return locks


def _tell(device: Device) -> None:
    try:
        device.synchronize()
    except ArgumentError as error:
        logger.error("%s: %s", device.name, error)
    except DeviceError:  # lost: nothing is known of its kernels
        return
