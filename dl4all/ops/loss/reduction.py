"""The reductions of losses, and checks that losses share."""

from __future__ import annotations

import warnings
from typing import Any

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.reduce.sums import mean, sum

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(name: str, reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise unless the reduction is one of those allowed.

    Raises:
        ArgumentError
    """
    if reduction not in allowed:
        raise ArgumentError(f"[{name}] reduction must be one of {', '.join(allowed)}, got {reduction!r}")


def legacy_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction, if need be by the two arguments that PyTorch had before it, with its warning."""
    if size_average is None and reduce is None:
        return reduction
    found = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce are PyTorch's older arguments; use reduction={found!r}",
        UserWarning,
        stacklevel=3,
    )
    return found


def reduced(losses: Any, reduction: str) -> Any:
    """The mean or sum of the losses, or the losses themselves."""
    return losses if reduction == "none" else mean(losses) if reduction == "mean" else sum(losses)


def check_tensors(name: str, *operands: Any) -> None:
    """Raise unless each operand is a tensor or None.

    Raises:
        DTypeError
    """
    for operand in operands:
        if operand is not None and not isinstance(operand, TensorBase):
            raise DTypeError(
                f"[{name}] expected a tensor, got {type(operand).__name__}; make one with dl.tensor(...)"
            )
