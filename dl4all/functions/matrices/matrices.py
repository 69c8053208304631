"""Matrices from blocks, diagonals and powers, and the trace."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ShapeError
from dl4all.functions.matrices.factorizations import inverse
from dl4all.functions.shape.join import as_matrix
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import PARTS, integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.indexing.concatenation import cat, stack
from dl4all.ops.indexing.padding import pad
from dl4all.ops.indexing.triangular import diag_embed
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.copy import unshared
from dl4all.ops.memory.parts import diagonal
from dl4all.ops.memory.views import expand, flatten
from dl4all.ops.reduce.reduction_kernel import accumulation_dtype
from dl4all.ops.reduce.sums import sum


@export("dl")
def block_diag(*tensors: Array) -> Array:
    """A block diagonal matrix of matrices; vectors become rows.

    Example:
        >>> import dl4all as dl
        >>> dl.block_diag(dl.tensor([[1, 2]]), dl.tensor([[3], [4]])).tolist()
        [[1, 2, 0], [0, 0, 3], [0, 0, 4]]
    """
    blocks = [as_matrix(x) for x in tensors]
    columns = int(np.sum([block.shape[1] for block in blocks]))
    rows, column = [], 0
    for block in blocks:
        rows.append(pad(block, (column, columns - column - block.shape[1])))
        column += block.shape[1]
    return cat(rows, 0)


@export("dl", "Tensor")
def trace(input: Array) -> Array:
    """The sum of the diagonal of a matrix.

    Raises:
        ShapeError: the input is no matrix.

    Example:
        >>> import dl4all as dl
        >>> dl.trace(dl.tensor([[1.0, 2.0], [3.0, 4.0]])).item()
        5.0
    """
    if len(input.shape) != 2:
        raise ShapeError(f"[trace] expected a matrix, got shape {input.shape}")
    return sum(diagonal(input))


@export("dl", "Tensor")
def diagflat(input: Array, offset: int = 0) -> Array:
    """A matrix with the elements on a diagonal, in row-major order.

    Example:
        >>> import dl4all as dl
        >>> dl.diagflat(dl.tensor([1, 2])).tolist()
        [[1, 0], [0, 2]]
    """
    return diag_embed(flatten(input), offset)


@export("dl")
def vander(x: Array, N: int | None = None, increasing: bool = False) -> Array:
    """A Vandermonde matrix: each row has the powers of an element, the highest first.

    Args:
        x: a vector.
        N: the number of powers, from 0 on; by default the number of elements.
        increasing: put the power 0 first.

    Raises:
        ShapeError: `x` is no vector.
        ArgumentError: `N` is negative, or more than 2^24.

    Example:
        >>> import dl4all as dl
        >>> dl.vander(dl.tensor([2, 3]), 3).tolist()
        [[4, 2, 1], [9, 3, 1]]
    """
    if len(x.shape) != 1:
        raise ShapeError(f"[vander] expected a vector, got shape {x.shape}")
    count = x.shape[0] if N is None else integer("vander", "N", N, least=0, most=PARTS)
    base = x if accumulation_dtype(x.dtype) == x.dtype else x.to(accumulation_dtype(x.dtype))
    powers = [base.new_ones(x.shape[0])]
    while len(powers) < count:
        powers.append(mul(powers[-1], base))
    columns = powers[:count] if increasing else powers[:count][::-1]
    return stack(columns, 1) if columns else base.new_empty(x.shape[0], 0)


@export("dl", "Tensor", out=True)
def matrix_power(input: Array, n: int) -> Array:
    """The `n`-th power of a square matrix, or of each matrix of a batch; of its inverse for a negative `n`.

    Raises:
        ShapeError: the matrices are not square.
        ArgumentError: `n` is negative, and a matrix is singular.
        DTypeError: `n` is negative, and the matrices are not of float32 or float64.

    Example:
        >>> import dl4all as dl
        >>> dl.matrix_power(dl.tensor([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
        [[1.0, 5.0], [0.0, 1.0]]
        >>> dl.matrix_power(dl.tensor([[2.0]]), -2).tolist()
        [[0.25]]
    """
    if len(input.shape) < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"[matrix_power] expected square matrices, got shape {input.shape}")
    integer("matrix_power", "n", n)
    power = None
    square = inverse(input) if n < 0 else input
    n = abs(n)
    while n:
        if n % 2:
            power = square if power is None else matmul(power, square)
        n //= 2
        square = matmul(square, square) if n else square
    if power is not None:
        return unshared(power, input)
    size = input.shape[-1]
    identity = input.new_zeros(size, size)
    identity[range(size), range(size)] = 1
    return expand(identity, input.shape).clone()
