"""Devices that exist only on a virtual clock, for trying what several unlike devices do together."""

from __future__ import annotations

import itertools
from typing import Any

from dl4all.runtime.simulated.backend import SimulatedBackend
from dl4all.runtime.simulated.description import Description
from dl4all.scheduler.device.device import Device

_numbers = itertools.count()


def simulated_device(**facts: Any) -> Device:
    """A device of declared speeds, link, memory and failures.

    Ops compute their NumPy references, and the device takes the time that its facts say, on a virtual clock
    that runs no real time: what it does is the same on every machine.

    Args:
        facts: see :class:`dl4all.runtime.simulated.description.Description`.

    Example:
        >>> import dl4all as dl
        >>> device = simulated_device(gflops=1.0, gb_per_s=1e9, launch_us=0.0)
        >>> x = dl.ones(100, 100).to(device)
        >>> y = x @ x
        >>> round(device.simulated.busy, 9)  # seconds, of two million operations
        0.002
    """
    number = next(_numbers)
    return Device.of_backend(f"simulated:{number}", SimulatedBackend(Description(**facts), number))
