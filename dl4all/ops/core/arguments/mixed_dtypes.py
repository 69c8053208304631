"""Operands of different dtypes: a tensor without axes counts as a number beside one of its kind with axes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import KIND_RANKS, promoted
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import TensorBase


class MixedScalars(DTypeError):
    """Among the operands of an op are tensors without axes that take the dtype of the others."""


def scalars_of_another_dtype(operands: Sequence[Any]) -> list[TensorBase]:
    """The tensors without axes that do not decide the dtype of the result, as others of their kind have axes.

    >>> import dl4all as dl
    >>> operands = [dl.ones(2), dl.tensor(3.0, dtype="float64"), dl.tensor(4)]
    >>> [scalar.tolist() for scalar in scalars_of_another_dtype(operands)]
    [3.0]
    """
    tensors = [operand for operand in operands if isinstance(operand, TensorBase)]
    highest = max(KIND_RANKS[tensor.dtype] for tensor in tensors)
    counting = [tensor for tensor in tensors if KIND_RANKS[tensor.dtype] == highest]
    dtypes = {tensor.dtype for tensor in counting if tensor.shape}
    return [tensor for tensor in counting if dtypes and not tensor.shape and tensor.dtype not in dtypes]


def scalars_cast(operands: Sequence[Any]) -> list[Any]:
    """Operands of which those without axes have the dtype of the others, with their history."""
    scalars = {id(tensor) for tensor in scalars_of_another_dtype(operands)}
    with_axes = [operand for operand in operands if isinstance(operand, TensorBase) and operand.shape]
    highest = max(KIND_RANKS[operand.dtype] for operand in with_axes)
    dtypes = (operand.dtype for operand in with_axes if KIND_RANKS[operand.dtype] == highest)
    target = functools.reduce(promoted, dtypes)
    return [
        primitives.cast(operand, dtype=target.name) if id(operand) in scalars else operand
        for operand in operands
    ]
