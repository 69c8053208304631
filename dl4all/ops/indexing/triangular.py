"""Triangular and diagonal matrices: tril, triu, diag and diag_embed."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import run, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.limits import check_shape, integer
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, contiguous_strides
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.memory.copy import MOVED_DTYPES, as_words, word_shaders
from dl4all.ops.memory.parts import diagonal as diagonal_view
from dl4all.ops.memory.parts import put_region
from dl4all.ops.memory.views import contiguous, in_order

T = TypeVar("T", bound=TensorBase)
WORKGROUP = 128
TRIANGLE_PUSH = PushBlock("indexing/triangle.comp", "uint n, x_offset, rows, columns; int diagonal;")
TRIANGLE = {upper: word_shaders("indexing/triangle.comp", UPPER=int(upper)) for upper in (False, True)}


def _infer_triangle(name: str) -> Any:
    def infer(input: TensorBase, diagonal: int) -> Result:
        if len(input.shape) < 2:
            raise ShapeError(f"[{name}] expected matrices, got shape {input.shape}")
        integer(name, "diagonal", diagonal)
        return input.shape, input.dtype

    return infer


def _nearest(diagonal: int, shape: Shape) -> int:
    """A diagonal that gives the same triangle, and is no further from the matrix than need be."""
    rows, columns = shape[-2:]
    return max(min(diagonal, columns), -rows)


def _run_triangle(upper: bool) -> Any:
    def launch(out: TensorBase, input: TensorBase, diagonal: int) -> None:
        if out.dtype.itemsize < 4:
            as_words(launch, out, [input], diagonal)
            return
        x = contiguous(input)
        rows, columns = x.shape[-2:]
        push = TRIANGLE_PUSH.pack(
            n=x.numel(), x_offset=x.offset, rows=rows, columns=columns, diagonal=_nearest(diagonal, x.shape)
        )
        run(TRIANGLE[upper][out.dtype.itemsize], strided_grid(x.numel(), WORKGROUP), push, x, out)

    return launch


EXAMPLES = (
    example((7, 5), diagonal=0), example((2, 3, 11), diagonal=2), example((13, 3), diagonal=-2),
    example((5, 5), diagonal=-9), example((1, 1), diagonal=1), example((0, 3), diagonal=0),
)  # fmt: skip


@export("dl", "Tensor", "Tensor_", out=True)
@op(
    infer=_infer_triangle("tril"),
    kernel=Kernel(_run_triangle(False), (TRIANGLE[False][4],), MOVED_DTYPES, halves="moved"),
    examples=EXAMPLES,
)
def tril(input: Array, diagonal: int = 0) -> Array:
    """Lower triangles of matrices: zeros above a diagonal.

    Args:
        input: shape (..., rows, columns), of any dtype.
        diagonal: 0 is the main one, 1 that above it.

    Returns:
        The input's shape.

    Raises:
        ShapeError: the input has fewer than two axes.

    Example:
        >>> import dl4all as dl
        >>> dl.tril(dl.ones(2, 2)).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return np.tril(input, _nearest(diagonal, input.shape))


tril.defgrad(lambda g, diagonal: tril(g, diagonal))


@export("dl", "Tensor", "Tensor_", out=True)
@op(
    infer=_infer_triangle("triu"),
    kernel=Kernel(_run_triangle(True), (TRIANGLE[True][4],), MOVED_DTYPES, halves="moved"),
    examples=EXAMPLES,
)
def triu(input: Array, diagonal: int = 0) -> Array:
    """Upper triangles of matrices: zeros below a diagonal.

    Args:
        input: shape (..., rows, columns), of any dtype.
        diagonal: 0 is the main one, 1 that above it.

    Returns:
        The input's shape.

    Raises:
        ShapeError: the input has fewer than two axes.

    Example:
        >>> import dl4all as dl
        >>> dl.triu(dl.ones(2, 2), 1).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    return np.triu(input, _nearest(diagonal, input.shape))


triu.defgrad(lambda g, diagonal: triu(g, diagonal))


@export("dl", "Tensor")
def diag_embed(input: T, offset: int = 0, dim1: int = -2, dim2: int = -1) -> T:
    """Matrices with the last axis on a diagonal and zeros elsewhere; `offset` 1 is above the main one.

    Args:
        input: a tensor with at least one axis.
        offset: of the diagonal.
        dim1, dim2: the axes of the result that are the rows and the columns of the matrices.

    Raises:
        ShapeError: there is no axis.
        ArgumentError: `offset` is no int, or too large; `dim1` and `dim2` are the same axis.

    Example:
        >>> import dl4all as dl
        >>> dl.diag_embed(dl.tensor([1.0, 2.0]), offset=1).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    """
    if not input.shape:
        raise ShapeError("[diag_embed] expected at least one axis, got shape ()")
    size = input.shape[-1] + abs(integer("diag_embed", "offset", offset))
    shape = check_shape("diag_embed", (*input.shape[:-1], size, size))
    ndim = len(shape)
    rows, columns = (strides.axis("diag_embed", dim, ndim) for dim in (dim1, dim2))
    if rows == columns:
        raise ArgumentError(f"[diag_embed] dim1 and dim2 are the same axis, {rows}")
    region = strides.diagonal(shape, contiguous_strides(shape), 0, offset, ndim - 2, ndim - 1)
    matrices = put_region(input, shape, region)
    if (rows, columns) == (ndim - 2, ndim - 1):
        return matrices
    others = iter(range(ndim - 2))
    places = {rows: ndim - 2, columns: ndim - 1}
    return in_order(matrices, [places[axis] if axis in places else next(others) for axis in range(ndim)])


@export("dl", "Tensor", out=True)
def diag(input: T, diagonal: int = 0) -> T:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal.

    Raises:
        ShapeError: the tensor has another number of axes.

    Example:
        >>> import dl4all as dl
        >>> dl.diag(dl.tensor([1.0, 2.0])).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    if len(input.shape) not in (1, 2):
        raise ShapeError(f"[diag] expected a vector or a matrix, got shape {input.shape}")
    return diag_embed(input, diagonal) if len(input.shape) == 1 else clone(diagonal_view(input, diagonal))
