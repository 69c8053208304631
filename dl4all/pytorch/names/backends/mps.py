"""``torch.backends.mps``: Apple's Metal, which dl4all reaches through Vulkan (MoltenVK) if at all."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False: use ``dl.accelerator.is_available()``.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.mps.is_available()
        False
    """
    return False


def is_built() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.mps.is_built()
        False
    """
    return False
