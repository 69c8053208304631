"""What scripts ask ``torch.distributed`` first: groups of processes are not here.

``dl.parallel`` and ``dl.pipeline`` use several devices within one process.
"""

from __future__ import annotations

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """False: use ``dl.parallel(model)`` for several devices.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_available()
        False
    """
    return False


def is_initialized() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_initialized()
        False
    """
    return False
