"""PyTorch's rule for the dtypes of tensors without axes.

They count only where no tensor with axes is of as high a kind.

dl4all counts the dtypes of all tensors, and numbers as PyTorch does. What differs is converted here before an
op sees it (https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.conversion import cast
from dl4all.pytorch.device.storage.memory import NUMPY_DTYPES, NotNative, tensor

NUMBERS = (torch.bool, torch.int64, torch.float32)
"""The dtypes that Python numbers stand for."""


def kind(dtype: torch.dtype) -> int:
    """The rank of a dtype's kind: bool, integers, floats."""
    return 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def promoted_operands(values: Sequence[Any]) -> list[Any]:
    """The operands of an elementwise op, as dl4all takes them.

    Args:
        values: PyTorch tensors, of which some may have no axes, and numbers and other arguments.

    Returns:
        dl4all tensors in the places of those on the device, numbers in the places of those on the CPU.

    Raises:
        NotNative: a tensor on the CPU has axes, or a dtype that no number has.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    with_axes = [value.dtype for value in tensors if value.dim()]
    counting = with_axes or [value.dtype for value in tensors if value.device.type != "cpu"]
    highest = max(map(kind, counting), default=-1)
    of_highest = [dtype for dtype in counting if kind(dtype) == highest]
    common = functools.reduce(torch.promote_types, of_highest) if of_highest else None
    operands: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and not value.dim():
            value = _number(value, highest, None if with_axes else common)
        elif isinstance(value, torch.Tensor):
            operand = tensor(value)
            casts = with_axes and not value.dim() and kind(value.dtype) == highest and value.dtype != common
            value = cast(operand, NUMPY_DTYPES[common].name) if casts else operand  # type: ignore[index]
        operands.append(value)
    return operands


def check_default(operands: Sequence[Any], result: Any) -> None:
    """Refuse results whose dtype is the default one, where a program has chosen another than dl4all's.

    Args:
        operands: dl4all tensors among other arguments.
        result: of an op, one tensor or several.

    Raises:
        NotNative: the result is of float32 and no operand has floating elements.
    """
    if torch.get_default_dtype() is torch.float32 or any(_is_floating(one) for one in operands):
        return
    if any(_is_floating(one) for one in (result if isinstance(result, tuple) else (result,))):
        raise NotNative(f"a result of the default dtype {torch.get_default_dtype()}")


def _is_floating(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_floating, value))
    return isinstance(value, TensorBase) and kind_of(value.dtype) == "f"


def _number(value: torch.Tensor, highest: int, common: torch.dtype | None) -> Any:
    """The number that a tensor without axes on the CPU is, where it promotes as a number does.

    Args:
        value: without axes.
        highest: the highest kind of dtype among the tensors that count.
        common: the dtype of those, where they have no axes either.

    Raises:
        NotNative: it promotes otherwise.
    """
    own = kind(value.dtype)
    as_number = value.dtype in NUMBERS if own > highest else value.dtype in NUMPY_DTYPES
    if own == highest and common is not None:
        as_number = as_number and torch.promote_types(value.dtype, common) == common
    if not as_number:
        raise NotNative(f"a number of {value.dtype} on the CPU beside tensors on the device")
    return value.item()
