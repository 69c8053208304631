"""``torch.mps``: devices that are not here; whatever asks first goes on without them."""

from __future__ import annotations

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed"]


def is_available() -> bool:
    """False: use ``dl.accelerator.is_available()``.

    Example:
        >>> import dl4all as dl
        >>> dl.mps.is_available()
        False
    """
    return False


def device_count() -> int:
    """0.

    Example:
        >>> import dl4all as dl
        >>> dl.mps.device_count()
        0
    """
    return 0


def manual_seed(seed: int) -> None:
    """Nothing: ``dl.manual_seed`` is for every device.

    Example:
        >>> import dl4all as dl
        >>> dl.mps.manual_seed(0)  # nothing happens
    """


def empty_cache() -> None:
    """Nothing: ``dl.accelerator.empty_cache`` gives memory back.

    Example:
        >>> import dl4all as dl
        >>> dl.mps.empty_cache()  # nothing happens
    """
