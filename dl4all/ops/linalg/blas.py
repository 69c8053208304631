"""Products by PyTorch's other names, which say how many axes the operands have."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import broadcasts_to
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import add, mul
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.views import reshape


def _check_axes(op: str, *operands: tuple[Any, int]) -> None:
    """Raise unless the operands have so many axes.

    Raises:
        ShapeError
    """
    if any(len(operand.shape) != axes for operand, axes in operands):
        wanted = " and ".join(str(axes) for _, axes in operands)
        shapes = " and ".join(str(operand.shape) for operand, _ in operands)
        raise ShapeError(f"[{op}] expected operands with {wanted} axes, got {shapes}; see matmul for others")


@export("dl", "Tensor")
def mm(input: Any, mat2: Any) -> Any:
    """Product of two matrices, (M, K) and (K, N).

    Raises:
        ShapeError: they are no matrices, or their inner sizes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.mm(dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
    """
    _check_axes("mm", (input, 2), (mat2, 2))
    return matmul(input, mat2)


@export("dl", "Tensor")
def mv(input: Any, vec: Any) -> Any:
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


@export("dl", "Tensor")
def bmm(input: Any, mat2: Any) -> Any:
    """Products of the matrices of two batches of one size, (B, M, K) and (B, K, N).

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


@export("dl", "Tensor", aliases=("ger",))
def outer(input: Any, vec2: Any) -> Any:
    """Each element of a vector (M,) with each of another (N,): a matrix (M, N).

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.outer(dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
    """
    _check_axes("outer", (input, 1), (vec2, 1))
    return mul(reshape(input, input.shape[0], 1), vec2)


@export("dl", "Tensor", "Tensor_")
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input + alpha * mat1 @ mat2``, for matrices; `input` broadcasts.

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.addmm(dl.tensor([10.0]), dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0], [4.0]]), beta=2).tolist()
        [[31.0]]
    """
    _check_axes("addmm", (mat1, 2), (mat2, 2))
    return _plus("addmm", input, matmul(mat1, mat2), beta, alpha)


@export("dl", "Tensor", "Tensor_")
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """:func:`addmm` for batches of matrices.

    Raises:
        ShapeError

    Example:
        >>> import dl4all as dl
        >>> dl.baddbmm(dl.tensor([10.0]), dl.ones(3, 1, 2), dl.ones(3, 2, 1)).tolist()
        [[[12.0]], [[12.0]], [[12.0]]]
    """
    return _plus("baddbmm", input, bmm(batch1, batch2), beta, alpha)


def _plus(op: str, input: Any, product: Any, beta: float, alpha: float) -> Any:
    if not broadcasts_to(input.shape, product.shape):
        raise ShapeError(f"[{op}] {input.shape} does not broadcast to the product's {product.shape}")
    if alpha != 1:
        product = mul(product, alpha)
    if beta == 0:  # not even nan counts
        return product
    return add(input if beta == 1 else mul(input, beta), product)
