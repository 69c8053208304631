"""Softmax functions that convert their operand first, with PyTorch's argument `dtype`."""

from __future__ import annotations

import warnings

import numpy as np

from dl4all.ops.core.dtypes import FLOATING
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Dims, DTypeLike, TensorBase
from dl4all.ops.elementwise.arithmetic import neg
from dl4all.ops.memory.conversion import cast
from dl4all.ops.reduce import softmax_function


@export("dl", "Tensor", "F", out=True, autocast="float32")
def softmax(input: Array, dim: int | None = None, dtype: DTypeLike = None, *, _stacklevel: int = 3) -> Array:
    """Exponentials of the elements divided by their sum along an axis.

    Args:
        input: floats of any shape; of other dtypes with `dtype`.
        dim: the axis along which the result sums to 1. Without it, as in PyTorch, there is a warning, and it
            is axis 0 of 0, 1 and 3 axes, and axis 1 of others.
        dtype: what the input is converted to first, for example float32 for sums of float16.
        _stacklevel: has no effect; PyTorch's warnings have it.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softmax(dl.tensor([0.0, 0.0]), dim=0).tolist()
        [0.5, 0.5]
    """
    if dtype is None and dim is not None:  # the quick way, for most calls
        return softmax_function.softmax(input, dim)
    return softmax_function.softmax(_converted(input, dtype), _axis("softmax", input, dim))


@export("dl", "Tensor", "F", out=True, autocast="float32")
def log_softmax(
    input: Array, dim: int | None = None, dtype: DTypeLike = None, *, _stacklevel: int = 3
) -> Array:
    """The logarithm of :func:`softmax`, accurate where softmax is too small for a float.

    Args:
        input, dim, dtype: as for :func:`softmax`; the exponentials of the result sum to 1.
        _stacklevel: has no effect; PyTorch's warnings have it.

    Returns:
        The input's shape.

    Raises:
        ArgumentError, DTypeError: as for :func:`softmax`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.log_softmax(dl.tensor([1000.0, 0.0]), dim=0).tolist()
        [0.0, -1000.0]
    """
    if dtype is None and dim is not None:
        return softmax_function.log_softmax(input, dim)
    return softmax_function.log_softmax(_converted(input, dtype), _axis("log_softmax", input, dim))


@export("F", autocast="float32")
def softmin(input: Array, dim: int | None = None, dtype: DTypeLike = None, *, _stacklevel: int = 3) -> Array:
    """:func:`softmax` of the negated elements; arguments as for it.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softmin(dl.tensor([0.0, 0.0]), dim=0).tolist()
        [0.5, 0.5]
    """
    return softmax_function.softmax(neg(_converted(input, dtype)), _axis("softmin", input, dim))


@export("dl", "Tensor", out=True, autocast="float32")
def logsumexp(input: Array, dim: Dims, keepdim: bool = False) -> Array:
    """The logarithm of the sum of the exponentials along axes, without intermediate overflow.

    Args:
        input: any shape; integers and bools become float32.
        dim: an axis or several, None for all.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes; -inf where there is nothing to add.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.

    Example:
        >>> import dl4all as dl
        >>> dl.logsumexp(dl.tensor([1000.0, -1000.0]), dim=0).item()
        1000.0
    """
    numbers = _converted(input, None if _is_float(input) else "float32")
    return softmax_function.logsumexp(numbers, dim, keepdim)


def _is_float(input: Array) -> bool:
    """Whether an operand is a tensor of floats, or none that could be converted."""
    return not isinstance(input, TensorBase) or input.dtype in FLOATING


def _converted(input: Array, dtype: DTypeLike) -> Array:
    return input if dtype is None else cast(input, np.dtype(dtype).name)


def _axis(name: str, input: Array, dim: int | None) -> int:
    """The axis; without `dim` the one that PyTorch takes, with its warning."""
    if dim is not None:
        return dim
    implicit = 0 if len(input.shape) in (0, 1, 3) else 1
    warnings.warn(
        f"[{name}] without dim it is axis {implicit} of shape {input.shape}, as in PyTorch; give dim",
        UserWarning,
        stacklevel=3,
    )
    return implicit
