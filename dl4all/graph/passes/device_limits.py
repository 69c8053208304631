"""Limits of the device of a graph."""

from __future__ import annotations

from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.scheduler.device.current import opened


def max_bindings(device: str) -> int:
    """The number of buffers that a dispatch may bind on an open device of that name."""
    limits = (other.info.limits.storage_buffers for other in opened() if other.name == device)
    return min(MAX_BINDINGS, next(limits, MAX_BINDINGS))
