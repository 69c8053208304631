"""BLAS-like products: mm, mv, bmm, outer, and their sums addmm, addmv, addr, addbmm, baddbmm."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.errors import ShapeError
from dl4all.ops.core.dtypes import HALVES, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.elementwise.arithmetic import add, mul
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.conversion import cast, in_float32
from dl4all.ops.memory.views import reshape, transpose


def _check_axes(op: str, *operands: tuple[Array, int]) -> None:
    """Check that each operand has the given number of axes.

    Raises:
        ShapeError
    """
    if any(len(operand.shape) != axes for operand, axes in operands):
        expected = " and ".join(str(axes) for _, axes in operands)
        shapes = " and ".join(str(operand.shape) for operand, _ in operands)
        raise ShapeError(
            f"[{op}] expected operands with {expected} axes, got {shapes}; see matmul for others"
        )


@export("dl", "Tensor", out=True, autocast="lower")
def mm(input: Array, mat2: Array) -> Array:
    """Product of two matrices, (M, K) and (K, N).

    Raises:
        ShapeError: an operand is not a matrix, or the inner sizes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.mm(dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
    """
    _check_axes("mm", (input, 2), (mat2, 2))
    return matmul(input, mat2)


@export("dl", "Tensor", out=True, autocast="lower")
def mv(input: Array, vec: Array) -> Array:
    """Product of a matrix (M, K) and a vector (K,).

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.mv(dl.tensor([[1.0, 2.0]]), dl.tensor([3.0, 4.0])).tolist()
        [11.0]
    """
    _check_axes("mv", (input, 2), (vec, 1))
    return matmul(input, vec)


@export("dl", "Tensor", out=True, autocast="lower")
def bmm(input: Array, mat2: Array) -> Array:
    """Products of two batches of matrices, (B, M, K) and (B, K, N).

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.bmm(dl.ones(5, 2, 3), dl.ones(5, 3, 4)).shape
        (5, 2, 4)
    """
    _check_axes("bmm", (input, 3), (mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(f"[bmm] the batches differ in size: {input.shape} and {mat2.shape}")
    return matmul(input, mat2)


@export("dl", "Tensor", aliases=("ger",), out=True)
def outer(input: Array, vec2: Array) -> Array:
    """Outer product: each element of a vector (M,) times each of another (N,), a matrix (M, N).

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.outer(dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
    """
    _check_axes("outer", (input, 1), (vec2, 1))
    return mul(reshape(input, input.shape[0], 1), vec2)


@export("dl", "Tensor", "Tensor_", out=True, autocast="lower")
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """``beta * input + alpha * mat1 @ mat2``, for matrices; `input` broadcasts.

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.addmm(dl.tensor([10.0]), dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0], [4.0]]), beta=2).tolist()
        [[31.0]]
    """
    _check_axes("addmm", (mat1, 2), (mat2, 2))
    return _add_scaled("addmm", matmul, input, mat1, mat2, beta, alpha)


@export("dl", "Tensor", "Tensor_", out=True, autocast="lower")
def baddbmm(input: Array, batch1: Array, batch2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """:func:`addmm` for batches of matrices.

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.baddbmm(dl.tensor([10.0]), dl.ones(3, 1, 2), dl.ones(3, 2, 1)).tolist()
        [[[12.0]], [[12.0]], [[12.0]]]
    """
    return _add_scaled("baddbmm", bmm, input, batch1, batch2, beta, alpha)


@export("dl", "Tensor", "Tensor_", out=True, autocast="lower")
def addmv(input: Array, mat: Array, vec: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """``beta * input + alpha * (mat @ vec)``.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.addmv(dl.tensor([1.0]), dl.tensor([[2.0, 3.0]]), dl.tensor([1.0, 1.0])).tolist()
        [6.0]
    """
    return _add_scaled("addmv", mv, input, mat, vec, beta, alpha)


@export("dl", "Tensor", "Tensor_", out=True, autocast="lower")
def addr(input: Array, vec1: Array, vec2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """``beta * input + alpha * outer(vec1, vec2)``.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.addr(dl.zeros(2, 2), dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
    """
    result = _add_scaled("addr", outer, input, vec1, vec2, beta, alpha)
    dtypes = (input.dtype, vec1.dtype, vec2.dtype)
    return cast(result, "bool") if all(kind_of(dtype) == "b" for dtype in dtypes) else result


@export("dl", "Tensor", "Tensor_", out=True, autocast="lower")
def addbmm(input: Array, batch1: Array, batch2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """``beta * input + alpha * bmm(batch1, batch2).sum(0)``.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.addbmm(dl.zeros(1, 1), dl.ones(2, 1, 3), dl.ones(2, 3, 1)).tolist()
        [[6.0]]
    """
    return _add_scaled("addbmm", _sum_of_products, input, batch1, batch2, beta, alpha)


def _sum_of_products(batch1: Array, batch2: Array) -> Array:
    """The sum of products as one product: of the matrices side by side and those below each other."""
    _check_axes("addbmm", (batch1, 3), (batch2, 3))
    if batch1.shape[::2] != batch2.shape[:2]:
        raise ShapeError(f"[addbmm] the batches do not fit: {batch1.shape} and {batch2.shape}")
    batches, rows, inner = batch1.shape
    first = reshape(transpose(batch1, 0, 1), rows, batches * inner)
    return matmul(first, reshape(batch2, batches * inner, batch2.shape[2]))


def _add_scaled(
    op: str,
    multiply: Callable[[Array, Array], Array],
    input: Array,
    first: Array,
    second: Array,
    beta: float,
    alpha: float,
) -> Array:
    """``beta * input + alpha * multiply(first, second)``.

    Raises:
        ShapeError: the input does not broadcast to the product.
    """
    operands = (input, first, second)
    if alpha != 1 and all(operand.dtype in HALVES for operand in operands):
        # The product may be too large for 16 bits before it is scaled.
        return in_float32(lambda x, y, z: _add_scaled(op, multiply, x, y, z, beta, alpha), *operands)
    product = multiply(first, second)
    if not _broadcasts_to(input.shape, product.shape):
        raise ShapeError(f"[{op}] {input.shape} does not broadcast to the product's {product.shape}")
    if kind_of(product.dtype) != "f" and kind_of(input.dtype) != "f":  # integers are scaled by whole numbers
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = mul(product, alpha)
    if beta == 0:  # then nan in the input does not count
        return product
    return add(input if beta == 1 else mul(input, beta), product)


def _broadcasts_to(shape: Shape, target: Shape) -> bool:
    return len(shape) <= len(target) and all(
        size in (1, other) for size, other in zip(reversed(shape), reversed(target), strict=False)
    )
