"""``torch.backends.cpu``: what the processor has."""

from __future__ import annotations

from dl4all.runtime import registry

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """The name of the processor.

    Example:
        >>> import dl4all as dl
        >>> type(dl.backends.cpu.get_cpu_capability()).__name__
        'str'
    """
    return registry.describe("cpu").hardware
