"""Tensor contractions, Kronecker and cross products, powers and chains of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import permute, reshape
from dl4all.ops.reduce.sums import sum


@export("dl", "Tensor", out=True)
def inner(input: Array, other: Array) -> Array:
    """The inner product: the sum of products along the last axes, for all pairs of other indices.

    Raises:
        ShapeError: the last sizes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.inner(dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).item()
        11.0
    """
    if not input.shape or not other.shape:
        return mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise ShapeError(f"[inner] the last sizes of {input.shape} and {other.shape} differ")
    return tensordot(input, other, ([-1], [-1]))


@export("dl", "Tensor", out=True, autocast="widest")
def vdot(input: Array, other: Array) -> Array:
    """The dot product of two vectors.

    Raises:
        ShapeError: the operands are not vectors of one size.

    Example:
        >>> import dl4all as dl
        >>> dl.vdot(dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).item()
        11.0
    """
    if len(input.shape) != 1 or input.shape != other.shape:
        raise ShapeError(f"[vdot] expected two vectors of one size, got {input.shape} and {other.shape}")
    return matmul(input, other)


@export("dl", out=True, autocast="widest")
def tensordot(a: Array, b: Array, dims: int | Sequence[int | Sequence[int]] = 2) -> Array:
    """The sum of products along axes of two tensors, for all pairs of other indices.

    Args:
        a, b: tensors of floats.
        dims: the number of axes to contract, the last ones of `a` with the first ones of `b`; or the axes of
            `a`, and those of `b` to contract them with.

    Returns:
        The remaining axes of `a`, then those of `b`.

    Raises:
        ArgumentError: there are no such axes, or not as many in both tensors.
        ShapeError: contracted axes differ in size.

    Example:
        >>> import dl4all as dl
        >>> dl.tensordot(dl.ones(2, 3, 5), dl.ones(5, 3), dims=([1, 2], [1, 0])).tolist()
        [15.0, 15.0]
    """
    if not isinstance(dims, (tuple, list)):
        count = integer("tensordot", "dims", dims)
        if not 0 <= count <= min(len(a.shape), len(b.shape)):
            raise ArgumentError(f"[tensordot] {a.shape} and {b.shape} have no {count} axes to meet")
        first, second = list(range(len(a.shape) - count, len(a.shape))), list(range(count))
    else:
        pairs = [[d] if isinstance(d, int) else list(d) for d in dims]
        if len(pairs) != 2 or len(pairs[0]) != len(pairs[1]):
            raise ArgumentError(f"[tensordot] expected as many axes of both tensors, got {dims}")
        first, second = (
            [strides.axis("tensordot", d, len(x.shape)) for d in axes]
            for x, axes in zip((a, b), pairs, strict=True)
        )
    for x_axis, y_axis in zip(first, second, strict=True):  # an axis of size 1 meets any other
        if a.shape[x_axis] == 1 != b.shape[y_axis]:
            b = sum(b, y_axis, keepdim=True)
        elif b.shape[y_axis] == 1 != a.shape[x_axis]:
            a = sum(a, x_axis, keepdim=True)
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise ShapeError(f"[tensordot] axes {first} of {a.shape} and {second} of {b.shape} differ in size")
    left = [i for i in range(len(a.shape)) if i not in first]
    right = [i for i in range(len(b.shape)) if i not in second]
    inner_size = math.prod(a.shape[i] for i in first)
    rows, columns = [a.shape[i] for i in left], [b.shape[i] for i in right]
    matrix_a = reshape(permute(a, *left, *first), math.prod(rows), inner_size)
    matrix_b = reshape(permute(b, *second, *right), inner_size, math.prod(columns))
    return reshape(matmul(matrix_a, matrix_b), (*rows, *columns))


@export("dl", "Tensor", out=True)
def kron(input: Array, other: Array) -> Array:
    """The Kronecker product: each element of a tensor times all of another, as blocks.

    Example:
        >>> import dl4all as dl
        >>> dl.kron(dl.tensor([1, 10]), dl.tensor([1, 2])).tolist()
        [1, 2, 10, 20]
    """
    ndim = max(len(input.shape), len(other.shape))
    a = reshape(input, (*(1,) * (ndim - len(input.shape)), *input.shape))
    b = reshape(other, (*(1,) * (ndim - len(other.shape)), *other.shape))
    blocks = reshape(a, tuple(n for size in a.shape for n in (size, 1)))
    within = reshape(b, tuple(n for size in b.shape for n in (1, size)))
    return reshape(mul(blocks, within), tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@export("dl", "Tensor", out=True, autocast="widest")
def cross(input: Array, other: Array, dim: int | None = None) -> Array:
    """The cross product of pairs of vectors in three dimensions.

    Args:
        input, other: their shapes broadcast.
        dim: the axis of size 3; by default the first of that size.

    Raises:
        ArgumentError: there is no axis of size 3.

    Example:
        >>> import dl4all as dl
        >>> dl.cross(dl.tensor([1.0, 0.0, 0.0]), dl.tensor([0.0, 1.0, 0.0])).tolist()
        [0.0, 0.0, 1.0]
    """
    shape = input.shape
    candidates = [i for i, size in enumerate(shape) if size == 3] if dim is None else []
    axis = candidates[0] if candidates else strides.axis("cross", -1 if dim is None else dim, len(shape))
    from_end = axis - len(shape)
    if shape[axis] != 3 or other.shape[from_end] != 3:
        raise ArgumentError(f"[cross] expected an axis of size 3, got shapes {shape} and {other.shape}")
    (a, b, c), (d, e, f) = ([narrow(x, from_end, i, 1) for i in range(3)] for x in (input, other))
    return cat([b * f - c * e, c * d - a * f, a * e - b * d], from_end)


@export("dl", out=True, autocast="lower")
def chain_matmul(*matrices: Array) -> Array:
    """The product of several matrices, in the order that needs the fewest multiplications.

    Raises:
        ArgumentError: there is no matrix.
        ShapeError: the sizes of neighbours do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.chain_matmul(dl.ones(2, 3), dl.ones(3, 5), dl.ones(5, 1)).tolist()
        [[15.0], [15.0]]
    """
    if not matrices:
        raise ArgumentError("[chain_matmul] expected at least one matrix, got none")
    if any(len(m.shape) != 2 for m in matrices):
        raise ShapeError("[chain_matmul] expected matrices, with two axes each")
    sizes = [matrices[0].shape[0], *(m.shape[1] for m in matrices)]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(matrices))}
    for length in range(2, len(matrices) + 1):
        for i in range(len(matrices) - length + 1):
            j = i + length - 1
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Array:
        if i == j:
            return matrices[i]
        k = best[i, j][1]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, len(matrices) - 1)
