"""The digits that the operands of float32 matrix products keep inside the product."""

from __future__ import annotations

from typing import Literal, get_args

from dl4all.errors import ArgumentError
from dl4all.scheduler.monitor.counters import forget_plans

Precision = Literal["highest", "high", "medium"]

_current: Precision = "highest"


def set_float32_matmul_precision(precision: Precision) -> None:
    """Allow float32 matrix products, of all threads, to round their operands where that is faster.

    Sums are in float32 all the same. With ``"medium"`` operands may be rounded to float16, 11 bits in the
    place of 24, on devices that multiply such matrices in one instruction, and where tuning has found that to
    be faster; what is above 65504 is infinite then, and what is below 6e-8 is 0. ``"high"`` is as
    ``"highest"``: Vulkan has no type between.

    Args:
        precision: ``"highest"``, the default, ``"high"`` or ``"medium"``.

    Raises:
        ArgumentError: it is none of them.

    Example:
        >>> import dl4all as dl
        >>> dl.set_float32_matmul_precision("medium")
        >>> dl.get_float32_matmul_precision()
        'medium'
        >>> dl.set_float32_matmul_precision("highest")
    """
    global _current
    for known in get_args(Precision):
        if precision == known:
            _current = known
            forget_plans()
            return
    raise ArgumentError(
        f"[set_float32_matmul_precision] expected 'highest', 'high' or 'medium', got {precision!r}"
    )


def get_float32_matmul_precision() -> Precision:
    """The precision that :func:`set_float32_matmul_precision` has set.

    Example:
        >>> import dl4all as dl
        >>> dl.get_float32_matmul_precision()
        'highest'
    """
    return _current


def allows_float16() -> bool:
    """Whether operands of a product may be rounded to float16."""
    return _current == "medium"
