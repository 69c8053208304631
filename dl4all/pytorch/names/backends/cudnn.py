"""``torch.backends.cudnn``: settings of a library that is not here; they keep what is set, without effect.

dl4all gives the same bits in every run, as ``deterministic = True`` asks for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

__all__ = ["flags", "is_acceptable", "is_available", "version"]

enabled = False
benchmark = False
benchmark_limit = 10
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cudnn.is_available()
        False
    """
    return False


def is_acceptable(tensor: object) -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cudnn.is_acceptable(dl.ones(2))
        False
    """
    return False


def version() -> None:
    """None.

    Example:
        >>> import dl4all as dl
        >>> dl.backends.cudnn.version() is None
        True
    """


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """Settings for a block, which have no effect.

    Example:
        >>> from dl4all.backends import cudnn
        >>> with cudnn.flags(benchmark=True):
        ...     cudnn.benchmark
        True
    """
    given = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
    module = sys.modules[__name__]
    before = [getattr(module, name) for name in names]
    for name, value in zip(names, given, strict=True):
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(module, name, value)
