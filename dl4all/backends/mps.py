"""``torch.backends.mps``: Apple's Metal, which dl4all reaches through Vulkan (MoltenVK) if at all."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False: use ``dl.accelerator.is_available()``."""
    return False


def is_built() -> bool:
    """False."""
    return False
