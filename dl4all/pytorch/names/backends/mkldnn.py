"""``torch.backends.mkldnn``: oneDNN, which dl4all does not use."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.mkldnn.is_available()
        False
    """
    return False
