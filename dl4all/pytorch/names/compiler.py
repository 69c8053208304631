"""Names of ``torch.compiler`` that code asks; ``dl.compile`` compiles."""

from __future__ import annotations

__all__ = ["is_compiling", "is_dynamo_compiling", "is_exporting"]


def is_compiling() -> bool:
    """False: ``dl.compile`` records calls of functions that run as they are.

    Example:
        >>> import dl4all as dl
        >>> dl.compiler.is_compiling()
        False
    """
    return False


is_dynamo_compiling = is_exporting = is_compiling
