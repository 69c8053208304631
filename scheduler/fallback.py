"""Warnings of the CPU fallback: an op runs on the host because its device has no kernel for it."""

from __future__ import annotations

import logging

from dl4all.scheduler.device import Device

logger = logging.getLogger("dl4all")

warned: set[tuple[str, str, str]] = set()
"""Op, device and reason of every warning so far."""


def warn_missing_kernel(op: str, device: Device, dtype: str) -> None:
    """Warn that a device has no kernel of this dtype for an op."""
    message = f"has no {dtype} kernel for {device} and runs on the CPU; convert with .float() to stay there"
    _warn_once(op, device, dtype, message)


def warn_refused_kernel(op: str, device: Device, error: Exception) -> None:
    """Warn that an op's kernel cannot run with its operands on a device."""
    _warn_once(op, device, type(error).__name__, f"runs on the CPU: {error}")


def _warn_once(op: str, device: Device, reason: str, message: str) -> None:
    if (op, device.name, reason) not in warned:
        warned.add((op, device.name, reason))
        logger.warning("[%s] %s", op, message)
