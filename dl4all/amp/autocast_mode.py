"""``autocast``: a block that computes in a shorter dtype, which dl4all does not have yet."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.scheduler.device.current import accelerators
from dl4all.scheduler.device.current import device as open_device

ELSEWHERE = ("cuda", "hpu", "mps", "mtia", "xla", "xpu")
"""Types of PyTorch's devices that are not here: PyTorch warns of them, and computes as without the block."""


class autocast(contextlib.ContextDecorator):
    """A block or a decorator that changes nothing; switched on for a device that is here, it is refused.

    Args:
        device_type: ``"cpu"``, ``"vulkan"``, ...; ``"cuda"`` warns and changes nothing, so that a script
            computes in float32.
        dtype: what would be computed in.
        enabled: whether to compute in another dtype at all.
        cache_enabled: without effect.

    Raises:
        ArgumentError: it is enabled for a device of dl4all, which has no mixed precision yet.

    Example:
        >>> import dl4all as dl
        >>> with dl.autocast("cpu", enabled=False):
        ...     (dl.ones(2) * 2).dtype
        dtype('float32')
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if enabled and (device_type == "cuda" or str(device_type).partition(":")[0] in ELSEWHERE):
            why = f"there are no {device_type} devices"
            if device_type == "cuda" and accelerators():
                why = "the accelerator does not compute in mixed precision yet"
            warnings.warn(f"[autocast] {why}: it is switched off", UserWarning, stacklevel=2)
        elif enabled:
            open_device(device_type)
            raise ArgumentError(
                "[autocast] dl4all does not compute in mixed precision yet; pass enabled=False, or convert "
                "the network and its inputs with .half()"
            )

    def __enter__(self) -> None:
        """Nothing changes."""

    def __exit__(self, *error: object) -> None:
        """Nothing changed."""


def is_autocast_available(device_type: str) -> bool:
    """False: dl4all does not compute in mixed precision yet.

    Example:
        >>> import dl4all as dl
        >>> dl.amp.is_autocast_available("cpu")
        False
    """
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """False: dl4all does not compute in mixed precision yet.

    Example:
        >>> import dl4all as dl
        >>> dl.amp.is_autocast_enabled()
        False

    Example:
        >>> import dl4all as dl
        >>> dl.is_autocast_enabled()
        False
    """
    return False
