"""Helpers that the steps of LSTM and GRU share."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import reshape

WORKGROUP = 128


def check_gates(name: str, count: int, state: TensorBase, **gates: TensorBase) -> tuple[int, int]:
    """Check a state of shape (N, size) and gates of shape (N, count * size), and return N and size.

    Raises:
        ShapeError, DTypeError
    """
    check_float(name, state, *gates.values())
    if len(state.shape) != 2:
        raise ShapeError(f"[{name}] expected a state of shape (N, size), got {state.shape}")
    rows, size = state.shape
    for operand, tensor in gates.items():
        if tensor.shape != (rows, count * size):
            raise ShapeError(
                f"[{name}] {operand} must have shape ({rows}, {count * size}) for a state of shape "
                f"{state.shape}, got {tensor.shape}"
            )
    return rows, size


def matrix_at(flat: Any, start: int, rows: int, columns: int) -> Any:
    """A view of a matrix in a flat tensor."""
    return reshape(narrow(flat, 0, start, rows * columns), rows, columns)


def split_columns(matrix: Any, count: int) -> list[Any]:
    """Views of `count` equal blocks of columns."""
    size = matrix.shape[1] // count
    return [narrow(matrix, 1, k * size, size) for k in range(count)]


def zeros_if_none(gradient: Any, like: TensorBase, shape: Shape) -> Any:
    """The gradient, or zeros of a shape where none came back."""
    if gradient is not None:
        return gradient
    zeros = new_like(like, shape)
    fill_with(zeros, 0)
    return zeros
