"""Operands of different dtypes: a tensor without axes counts as a number beside one of its kind with axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import TensorBase

KINDS = {"b": 0, "u": 1, "i": 1, "f": 2}
"""The order of the kinds of dtypes."""


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
    highest = max(KINDS[kind_of(tensor.dtype)] for tensor in tensors)
    counting = [tensor for tensor in tensors if KINDS[kind_of(tensor.dtype)] == highest]
    dtypes = {tensor.dtype for tensor in counting if tensor.shape}
    return [tensor for tensor in counting if dtypes and not tensor.shape and tensor.dtype not in dtypes]


def scalars_cast(operands: Sequence[Any]) -> list[Any]:
    """Operands of which those without axes have the dtype of the others, with their history."""
    scalars = {id(tensor) for tensor in scalars_of_another_dtype(operands)}
    with_axes = [operand for operand in operands if isinstance(operand, TensorBase) and operand.shape]
    target = max(with_axes, key=lambda tensor: (KINDS[kind_of(tensor.dtype)], tensor.dtype.itemsize)).dtype
    return [
        primitives.cast(operand, dtype=target.name) if id(operand) in scalars else operand
        for operand in operands
    ]
