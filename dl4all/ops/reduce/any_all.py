"""count_nonzero, any and all."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Dims, TensorBase
from dl4all.ops.elementwise.comparison import eq, gt, ne
from dl4all.ops.memory.conversion import cast
from dl4all.ops.reduce.reduction_kernel import axes_of, reduced_shape
from dl4all.ops.reduce.repetition import fold_linear, once
from dl4all.ops.reduce.sums import COUNT_REDUCTION, named_axes, sum


def _infer_count(input: TensorBase, *, dim: Any) -> Result:
    axes = axes_of("count_nonzero", dim, len(input.shape))
    return reduced_shape(input.shape, axes, False), np.dtype(np.int64)


def _run_count(out: TensorBase, input: TensorBase, *, dim: Any) -> None:
    x = input if input.dtype == np.float32 else ne(input, 0)
    COUNT_REDUCTION(out, x, axes_of("count_nonzero", dim, len(input.shape)))


@export("dl", "Tensor", out=True)
@op(
    infer=_infer_count,
    kernel=Kernel(_run_count, COUNT_REDUCTION.shaders, ("int64",)),
    examples=(
        example((7, 13), dim=None),
        example((5, 3, 7), dim=1),
        example((2, 3, 5, 7), dim=(0, 2)),
        example((5, 12), dim=1),
        example((2, 3, 5, 4), dim=(1, 3)),
        example((70001,)),
        example((2, 3, 2, 2, 2, 2), dim=(0, 1, 3, 5)),
        example((0, 5), dim=0),
    ),
    grad=(None,),
)
def count_nonzero(input: Array, dim: Dims = None) -> Array:
    """The number of elements along axes that are not 0; nan is not 0.

    Args:
        input: any shape and dtype.
        dim: an axis or several; all by default.

    Returns:
        int64, of the input's shape without the axes.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.

    Example:
        >>> import dl4all as dl
        >>> dl.count_nonzero(dl.tensor([[0.0, 2.0], [3.0, 4.0]]), dim=0).tolist()
        [1, 2]
    """
    return np.asarray(np.count_nonzero(input, axis=axes_of("count_nonzero", dim, input.ndim)), np.int64)


count_nonzero.define_fold(fold_linear(count_nonzero, named_axes))


@export("dl", "Tensor", out=True)
def any(input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether any element along axes is not 0: bool, but uint8 for uint8.

    Example:
        >>> import dl4all as dl
        >>> dl.any(dl.tensor([[True, False], [False, False]]), dim=1).tolist()
        [True, False]
    """
    x = once(input, dim)
    return _truth(gt(sum(ne(x, 0), dim, keepdim, dtype="float32"), 0), input)


@export("dl", "Tensor", out=True)
def all(input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Whether all elements along axes are not 0: bool, but uint8 for uint8.

    Example:
        >>> import dl4all as dl
        >>> dl.all(dl.tensor([[True, True], [False, True]]), dim=1).tolist()
        [True, False]
    """
    x = once(input, dim)
    return _truth(eq(sum(eq(x, 0), dim, keepdim, dtype="float32"), 0), input)


def _truth(result: Any, input: Any) -> Any:
    """A bool result in the dtype that PyTorch gives it: uint8 for a uint8 input."""
    return cast(result, "uint8") if input.dtype == np.uint8 else result
