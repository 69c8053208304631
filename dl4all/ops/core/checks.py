"""Checks of operands that several families of ops share."""

from __future__ import annotations

from dl4all.errors import DTypeError, ShapeError
from dl4all.ops.core.dtypes import kind_of, widened
from dl4all.ops.core.tensor_base import Shape, TensorBase

AXES = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}
SAMPLE_AXES = {1: "(C, L)", 2: "(C, H, W)", 3: "(C, D, H, W)"}


def check_images(op: str, x: TensorBase, axes: int = 2, *, integers: bool = False) -> None:
    """Raise unless `x` is a batch of float images, or also integer ones, with this number of spatial axes.

    Raises:
        ShapeError, DTypeError
    """
    if len(x.shape) != axes + 2:
        raise ShapeError(
            f"[{op}] expected an input of shape {AXES[axes]} or {SAMPLE_AXES[axes]}, got {x.shape}"
        )
    (check_numbers if integers else check_float)(op, x)


def check_float(op: str, *tensors: TensorBase | None) -> None:
    """Raise unless the tensors are floats of one dtype.

    Raises:
        DTypeError
    """
    dtypes = {t.dtype for t in tensors if t is not None}
    if len(dtypes) != 1 or kind_of(next(iter(dtypes))) != "f":
        names = ", ".join(sorted(map(str, dtypes)))
        raise DTypeError(f"[{op}] expected floats of one dtype, got {names}; convert with .to(dtype)")


def check_parameters(op: str, x: TensorBase, *of_channels: TensorBase | None) -> None:
    """Raise unless the tensors are floats of one dtype, or those beside one of 16 bits are of float32.

    Parameters and statistics of a normalisation are so in mixed precision.

    Raises:
        DTypeError
    """
    others = [tensor for tensor in of_channels if tensor is not None and tensor.dtype != widened(x.dtype)]
    check_float(op, x, *others)


def check_numbers(op: str, *tensors: TensorBase | None) -> None:
    """Raise unless the tensors are floats, or integers, of one dtype.

    Raises:
        DTypeError
    """
    dtypes = {t.dtype for t in tensors if t is not None}
    if len(dtypes) != 1 or kind_of(next(iter(dtypes))) == "b":
        names = ", ".join(sorted(map(str, dtypes)))
        raise DTypeError(f"[{op}] expected numbers of one dtype, got {names}; convert with .to(dtype)")


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether a tensor of `shape` can be broadcast to `target`.

    >>> broadcasts_to((3, 1), (2, 3, 5)), broadcasts_to((2, 3), (3,))
    (True, False)
    """
    return len(shape) <= len(target) and all(
        size in (1, other) for size, other in zip(reversed(shape), reversed(target), strict=False)
    )
