"""Products of vectors, matrices and tensors in PyTorch's further ways, and distances between vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import mul, sub
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.linalg.blas import _plus, bmm, mv, outer
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.views import expand, narrow, permute, reshape, unsqueeze
from dl4all.ops.reduce.sums import sum
from dl4all.ops.reduce.variance import norm


@export("dl", "Tensor")
def inner(input: Any, other: Any) -> Any:
    """The sum of products along the last axes of two tensors, for each pair of the other places.

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


@export("dl", "Tensor")
def vdot(input: Any, other: Any) -> Any:
    """The sum of products of two vectors.

    Raises:
        ShapeError: they are no vectors of one size.

    Example:
        >>> import dl4all as dl
        >>> dl.vdot(dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).item()
        11.0
    """
    if len(input.shape) != 1 or input.shape != other.shape:
        raise ShapeError(f"[vdot] expected two vectors of one size, got {input.shape} and {other.shape}")
    return matmul(input, other)


@export("dl")
def tensordot(a: Any, b: Any, dims: int | Sequence[Any] = 2) -> Any:
    """The sum of products along axes of two tensors, for each pair of the other places.

    Args:
        a, b: tensors of floats.
        dims: how many of the last axes of `a` meet as many of the first of `b`; or the axes of `a`, and
            those of `b` that they meet.

    Returns:
        The axes of `a` that are left, then those of `b`.

    Raises:
        ArgumentError: there are no such axes, or not as many.
        ShapeError: axes that meet differ in size.

    Example:
        >>> import dl4all as dl
        >>> dl.tensordot(dl.ones(2, 3, 5), dl.ones(5, 3), dims=([1, 2], [1, 0])).tolist()
        [15.0, 15.0]
    """
    if isinstance(dims, int):
        if not 0 <= dims <= min(len(a.shape), len(b.shape)):
            raise ArgumentError(f"[tensordot] {a.shape} and {b.shape} have no {dims} axes to meet")
        first, second = list(range(len(a.shape) - dims, len(a.shape))), list(range(dims))
    else:
        given = [[d] if isinstance(d, int) else list(d) for d in dims]
        if len(given) != 2 or len(given[0]) != len(given[1]):
            raise ArgumentError(f"[tensordot] expected as many axes of both tensors, got {dims}")
        first, second = (
            [strides.axis("tensordot", d, len(x.shape)) for d in axes]
            for x, axes in zip((a, b), given, strict=True)
        )
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise ShapeError(f"[tensordot] axes {first} of {a.shape} and {second} of {b.shape} differ in size")
    left = [i for i in range(len(a.shape)) if i not in first]
    right = [i for i in range(len(b.shape)) if i not in second]
    met = math.prod(a.shape[i] for i in first)
    rows, columns = [a.shape[i] for i in left], [b.shape[i] for i in right]
    one = reshape(permute(a, *left, *first), math.prod(rows), met)
    other = reshape(permute(b, *second, *right), met, math.prod(columns))
    return reshape(matmul(one, other), (*rows, *columns))


@export("dl", "Tensor")
def kron(input: Any, other: Any) -> Any:
    """Each element times all of another tensor, in its place: the Kronecker product.

    Example:
        >>> import dl4all as dl
        >>> dl.kron(dl.tensor([1, 10]), dl.tensor([1, 2])).tolist()
        [1, 2, 10, 20]
    """
    ndim = max(len(input.shape), len(other.shape))
    a = reshape(input, (*(1,) * (ndim - len(input.shape)), *input.shape))
    b = reshape(other, (*(1,) * (ndim - len(other.shape)), *other.shape))
    apart = reshape(a, tuple(n for size in a.shape for n in (size, 1)))
    within = reshape(b, tuple(n for size in b.shape for n in (1, size)))
    return reshape(mul(apart, within), tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@export("dl", "Tensor")
def cross(input: Any, other: Any, dim: int | None = None) -> Any:
    """The vectors that stand on pairs of vectors in space.

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
    found = [i for i, size in enumerate(shape) if size == 3] if dim is None else []
    axis = found[0] if found else strides.axis("cross", -1 if dim is None else dim, len(shape))
    from_end = axis - len(shape)
    if shape[axis] != 3 or other.shape[from_end] != 3:
        raise ArgumentError(f"[cross] expected an axis of size 3, got shapes {shape} and {other.shape}")
    (a, b, c), (d, e, f) = ([narrow(x, from_end, i, 1) for i in range(3)] for x in (input, other))
    return cat([b * f - c * e, c * d - a * f, a * e - b * d], from_end)


# With a sum


@export("dl", "Tensor", "Tensor_")
def addmv(input: Any, mat: Any, vec: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input + alpha * (mat @ vec)``.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.addmv(dl.tensor([1.0]), dl.tensor([[2.0, 3.0]]), dl.tensor([1.0, 1.0])).tolist()
        [6.0]
    """
    return _plus("addmv", input, mv(mat, vec), beta, alpha)


@export("dl", "Tensor", "Tensor_")
def addr(input: Any, vec1: Any, vec2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input`` and `alpha` times the product of each pair of elements of two vectors.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.addr(dl.zeros(2, 2), dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
    """
    return _plus("addr", input, outer(vec1, vec2), beta, alpha)


@export("dl", "Tensor", "Tensor_")
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input`` and `alpha` times the sum of the products of pairs of matrices.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.addbmm(dl.zeros(1, 1), dl.ones(2, 1, 3), dl.ones(2, 3, 1)).tolist()
        [[6.0]]
    """
    return _plus("addbmm", input, sum(bmm(batch1, batch2), 0), beta, alpha)


ger = outer


@export("dl", "Tensor")
def matrix_power(input: Any, n: int) -> Any:
    """A square matrix, or each of a batch, multiplied by itself so many times.

    Raises:
        ShapeError: the matrices are not square.
        ArgumentError: `n` is negative, for which inverses would be needed.

    Example:
        >>> import dl4all as dl
        >>> dl.matrix_power(dl.tensor([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
        [[1.0, 5.0], [0.0, 1.0]]
    """
    if len(input.shape) < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"[matrix_power] expected square matrices, got shape {input.shape}")
    if n < 0:
        raise ArgumentError(f"[matrix_power] expected n of at least 0, got {n}; there are no inverses")
    found = None
    square = input
    while n:
        if n % 2:
            found = square if found is None else matmul(found, square)
        n //= 2
        square = matmul(square, square) if n else square
    if found is not None:
        return found
    size = input.shape[-1]
    unit = input.new_zeros(size, size)
    unit[range(size), range(size)] = 1
    return expand(unit, input.shape).clone()


@export("dl")
def chain_matmul(*matrices: Any) -> Any:
    """The product of matrices, in the order that takes the least arithmetic.

    Raises:
        ArgumentError: there is none.
        ShapeError: their sizes do not fit.

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

    def product(i: int, j: int) -> Any:
        if i == j:
            return matrices[i]
        k = best[i, j][1]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, len(matrices) - 1)


# Distances


@export("dl", "Tensor")
def dist(input: Any, other: Any, p: float = 2) -> Any:
    """The norm of the difference of two tensors, whose shapes broadcast.

    Example:
        >>> import dl4all as dl
        >>> dl.dist(dl.tensor([1.0, 2.0]), dl.tensor([4.0, 6.0])).item()
        5.0
    """
    return norm(sub(input, other), p)


@export("dl")
def cdist(x1: Any, x2: Any, p: float = 2.0) -> Any:
    """The distance of each vector of one tensor from each of another.

    Args:
        x1: shape (..., P, M).
        x2: shape (..., R, M); the axes in front broadcast.
        p: the order of the norm, from 0 on.

    Returns:
        Shape (..., P, R).

    Raises:
        ShapeError: the vectors differ in size.
        ArgumentError: the order is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.cdist(dl.tensor([[0.0, 0.0]]), dl.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[5.0, 1.0]]
    """
    if len(x1.shape) < 2 or len(x2.shape) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"[cdist] expected (..., P, M) and (..., R, M), got {x1.shape} and {x2.shape}")
    if p < 0:
        raise ArgumentError(f"[cdist] expected an order of at least 0, got {p}")
    return norm(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p, -1)


@export("dl", "F")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """The distance of each pair of vectors along the last axis.

    Args:
        x1, x2: their shapes broadcast.
        p: the order of the norm.
        eps: added to each difference.
        keepdim: whether the last axis stays, with size 1.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([[0.0, 0.0]]), dl.tensor([[3.0, 4.0]])
        >>> dl.nn.functional.pairwise_distance(x, y, eps=0).tolist()
        [5.0]
    """
    return norm(sub(x1, x2) + eps, p, -1, keepdim)


@export("dl", "F")
def pdist(input: Any, p: float = 2.0) -> Any:
    """The distance of each pair of lines of a matrix: of the first from those after it, and so on.

    Raises:
        ShapeError: it is no matrix.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.pdist(dl.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))[:2].tolist()
        [5.0, 1.0]
    """
    if len(input.shape) != 2:
        raise ShapeError(f"[pdist] expected a matrix, got shape {input.shape}")
    first = [i for i in range(input.shape[0]) for _ in range(i + 1, input.shape[0])]
    second = [j for i in range(input.shape[0]) for j in range(i + 1, input.shape[0])]
    return norm(sub(input[first], input[second]), p, -1)
