"""Sparse tensors in coordinate format (COO): the elements that are not zero, with their indices.

Products with dense tensors gather rows, scale them and add them up by index, so that they run on every device
and gradients flow to the values and to the dense operand.

Source: https://docs.pytorch.org/docs/stable/sparse.html#sparse-coo-tensors
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dl4all import ops
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.arguments.tensor_like import TensorLike
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import DTypeLike, Scalar, Shape, TensorBase
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.creation import as_tensor, zeros
from dl4all.tensor.tensor import Tensor


class SparseTensor(TensorLike):
    """A tensor of which only some elements are kept, made by :func:`dl4all.sparse_coo_tensor`.

    It takes part in products (``sparse @ dense``, ``dense @ sparse``, ``dl.mm``, ``dl.addmm``), sums,
    arithmetic with numbers and with sparse tensors of the same shape; other ops refuse it.

    Args:
        indices: int64 of shape (sparse_dim, nnz): a column for each element that is kept.
        values: of shape (nnz, ...): the elements, each of which may have dense axes.
        shape: of the whole tensor: the sparse axes, then the dense ones.
        coalesced: whether indices are in row-major order, each once.

    Example:
        >>> import dl4all as dl
        >>> x = dl.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
        >>> isinstance(x, dl.sparse.SparseTensor), x.to_dense().tolist()
        (True, [[0.0, 2.0], [3.0, 0.0]])
    """

    __slots__ = ("_coalesced", "_indices", "_values", "shape")

    is_sparse = True

    def __init__(self, indices: Tensor, values: Tensor, shape: Shape, coalesced: bool = False) -> None:
        self._indices, self._values, self.shape, self._coalesced = indices, values, shape, coalesced

    # Description

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype

    @property
    def device(self) -> Device:
        return self._values.device

    @property
    def requires_grad(self) -> bool:
        return self._values.requires_grad

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient of the values, at the same indices; None before ``backward``."""
        gradient = self._values.grad
        return None if gradient is None else self._with_values(gradient)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    dim = Tensor.dim
    numel = Tensor.numel
    __len__ = Tensor.__len__

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or the size of axis `dim`."""
        return self.shape if dim is None else self.shape[strides.axis("size", dim, len(self.shape))]

    def sparse_dim(self) -> int:
        """The number of axes of the indices."""
        return self._indices.shape[0]

    def dense_dim(self) -> int:
        """The number of axes of each value."""
        return len(self.shape) - self.sparse_dim()

    def is_coalesced(self) -> bool:
        """Whether each index occurs once, in row-major order."""
        return self._coalesced

    def _nnz(self) -> int:
        return self._indices.shape[1]

    def indices(self) -> Tensor:
        """The indices, of shape (sparse_dim, nnz).

        Raises:
            ArgumentError: an index may occur several times.
        """
        return self._checked("indices")._indices

    def values(self) -> Tensor:
        """The elements, of shape (nnz, ...).

        Raises:
            ArgumentError: an index may occur several times.
        """
        return self._checked("values")._values

    def _checked(self, name: str) -> SparseTensor:
        if not self._coalesced:
            raise ArgumentError(f"[{name}] the sparse tensor is not coalesced; call .coalesce() first")
        return self

    def __repr__(self) -> str:
        return (
            f"sparse_coo_tensor(indices={self._indices!r}, values={self._values!r}, "
            f"size={tuple(self.shape)}, nnz={self._nnz()})"
        )

    def __bool__(self) -> bool:
        raise DTypeError("[bool] a sparse tensor is neither true nor false")

    # Other forms of the same tensor

    def _with_values(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._indices, values, self.shape, self._coalesced)

    def flat_indices(self) -> Tensor:
        """The position of each element among all positions of the sparse axes, counted in row-major order."""
        steps = np.cumprod([1, *self.shape[self.sparse_dim() - 1 : 0 : -1]])[::-1].astype(np.int64)
        column = as_tensor(np.ascontiguousarray(steps)[:, None], device=self.device)
        return ops.sum(ops.mul(self._indices, column), 0)

    def coalesce(self) -> SparseTensor:
        """The same tensor with each index once, in row-major order; the values of one index are added up."""
        if self._coalesced:
            return self
        unique, inverse = ops.unique(self.flat_indices(), return_inverse=True)
        sums = zeros((unique.shape[0], *self._values.shape[1:]), dtype=self.dtype, device=self.device)
        values = ops.index_add(sums, 0, inverse, self._values)
        sizes = self.shape[: self.sparse_dim()]
        indices = np.stack(np.unravel_index(unique.numpy(), sizes)) if sizes else np.zeros((0, len(unique)))
        return SparseTensor(as_tensor(indices.astype(np.int64), device=self.device), values, self.shape, True)

    def to_dense(self) -> Tensor:
        """All elements, zeros included."""
        count = math.prod(self.shape[: self.sparse_dim()])
        flat = zeros((count, *self._values.shape[1:]), dtype=self.dtype, device=self.device)
        return ops.reshape(ops.index_add(flat, 0, self.flat_indices(), self._values), self.shape)

    def to_sparse(self) -> SparseTensor:
        return self

    def to(self, *targets: Any, device: DeviceLike | None = None, dtype: DTypeLike = None) -> SparseTensor:
        """On another device, or with values of another dtype; see :meth:`dl4all.Tensor.to`."""
        target, float_dtype = device_and_dtype(targets, device, dtype)
        values = self._values if float_dtype is None else self._values.to(float_dtype)
        if target is None:
            return self._with_values(values)
        return SparseTensor(self._indices.to(target), values.to(target), self.shape, self._coalesced)

    def cpu(self) -> SparseTensor:
        return self.to("cpu")

    def float(self) -> SparseTensor:
        return self.to("float32")

    def double(self) -> SparseTensor:
        return self.to("float64")

    def detach(self) -> SparseTensor:
        return self._with_values(self._values.detach())

    def clone(self) -> SparseTensor:
        return self._with_values(self._values.clone())

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Let ``backward`` keep a gradient of the values."""
        self._values.requires_grad_(requires_grad)
        return self

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """With two sparse axes swapped."""
        first, second = (strides.axis("transpose", d, len(self.shape)) for d in (dim0, dim1))
        if max(first, second) >= self.sparse_dim():
            raise ShapeError(f"[transpose] only the {self.sparse_dim()} sparse axes can be swapped")
        order = list(range(self.sparse_dim()))
        order[first], order[second] = second, first
        sizes = [*(self.shape[k] for k in order), *self.shape[self.sparse_dim() :]]
        kept = self._coalesced and first == second
        return SparseTensor(ops.index_select(self._indices, 0, order), self._values, tuple(sizes), kept)

    def t(self) -> SparseTensor:
        """A matrix transposed."""
        self._matrix("t")
        return self.transpose(0, 1)

    @property
    def T(self) -> SparseTensor:
        return self.t()

    # Arithmetic

    def _matrix(self, name: str) -> tuple[Tensor, Tensor]:
        """Rows and columns of the elements.

        Raises:
            ShapeError: it is no matrix.
        """
        if self.sparse_dim() != 2 or self.dense_dim():
            raise ShapeError(f"[{name}] expected a sparse matrix, got shape {self.shape}")
        return self._indices[0], self._indices[1]

    def matmul(self, other: Any) -> Any:
        """The product with a matrix or a dense vector; dense, but with a sparse matrix."""
        if isinstance(other, SparseTensor):
            dense = self.matmul(other.to_dense())
            return to_sparse(dense)
        rows, columns = self._matrix("matmul")
        if len(other.shape) not in (1, 2) or other.shape[0] != self.shape[1]:
            raise ShapeError(f"[matmul] shapes {self.shape} and {other.shape} do not fit")
        taken = ops.index_select(other, 0, columns)
        scale = self._values if len(other.shape) == 1 else ops.unsqueeze(self._values, 1)
        result = zeros((self.shape[0], *other.shape[1:]), dtype=taken.dtype, device=self.device)
        return ops.index_add(result, 0, rows, ops.mul(taken, scale))

    mm = mv = __matmul__ = matmul

    def __rmatmul__(self, other: Tensor) -> Tensor:
        """A dense matrix or vector times this matrix."""
        if len(other.shape) == 1:
            product: Tensor = self.t().matmul(other)
            return product
        return ops.transpose(self.t().matmul(ops.transpose(other, 0, 1)), 0, 1)

    def add(self, other: Any, *, alpha: Scalar = 1) -> Any:
        """The sum with a sparse tensor (sparse) or a dense one (dense)."""
        if isinstance(other, Tensor):
            return ops.add(self.to_dense(), other, alpha=alpha)
        if not isinstance(other, SparseTensor) or other.shape != self.shape:
            raise ShapeError(f"[add] expected a tensor of shape {self.shape}, got {_described(other)}")
        if other.sparse_dim() != self.sparse_dim():
            raise ShapeError(f"[add] {self.sparse_dim()} and {other.sparse_dim()} sparse axes")
        values = other._values if alpha == 1 else ops.mul(other._values, alpha)
        indices = ops.cat([self._indices, other._indices], 1)
        return SparseTensor(indices, ops.cat([self._values, values]), self.shape)

    __add__ = __radd__ = add

    def sub(self, other: Any) -> Any:
        return self.add(other, alpha=-1)

    __sub__ = sub

    def mul(self, other: Any) -> SparseTensor:
        """The product with a number, or element by element with a tensor of the same shape; sparse."""
        if _is_number(other):
            return self._with_values(ops.mul(self._values, other))
        dense = other.to_dense() if isinstance(other, SparseTensor) else other
        if not isinstance(dense, Tensor) or dense.shape != self.shape:
            raise ShapeError(f"[mul] expected a number or shape {self.shape}, got {_described(other)}")
        own = self.coalesce()
        count = math.prod(self.shape[: self.sparse_dim()])
        flat = ops.reshape(dense, (count, *own._values.shape[1:]))
        return own._with_values(ops.mul(own._values, ops.index_select(flat, 0, own.flat_indices())))

    __mul__ = __rmul__ = mul

    def div(self, other: Scalar | Tensor) -> SparseTensor:
        """The quotient by a number."""
        if not _is_number(other):
            raise ShapeError(f"[div] sparse tensors are divided by numbers, got {_described(other)}")
        return self._with_values(ops.true_divide(self._values, other))

    __truediv__ = div

    def __neg__(self) -> SparseTensor:
        return self._with_values(ops.neg(self._values))

    def sum(self, dim: int | Sequence[int] | None = None) -> Any:
        """The sum of all elements, or along sparse axes; sparse where sparse axes are left, else dense."""
        if dim is None:
            return ops.sum(self._values)
        axes = {strides.axis("sum", d, len(self.shape)) for d in ((dim,) if isinstance(dim, int) else dim)}
        if max(axes) >= self.sparse_dim():
            raise ShapeError(f"[sum] only the {self.sparse_dim()} sparse axes can be added up")
        kept = [k for k in range(self.sparse_dim()) if k not in axes]
        if not kept:
            return ops.sum(self._values, 0)
        sizes = (*(self.shape[k] for k in kept), *self.shape[self.sparse_dim() :])
        return SparseTensor(ops.index_select(self._indices, 0, kept), self._values, sizes).coalesce()

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """The result of an op that has a sparse operand.

        Raises:
            DTypeError: the op takes none.
        """
        rule = RULES.get(op.name)
        if rule is None:
            raise DTypeError(
                f"[{op.name}] takes no sparse tensors; convert it with .to_dense(), or compute with .values()"
            )
        return rule(*operands, **arguments)


def _matmul(input: Any, other: Any) -> Any:
    return input.matmul(other) if isinstance(input, SparseTensor) else other.__rmatmul__(input)


def _add(input: Any, other: Any, alpha: Scalar = 1) -> Any:
    if isinstance(input, SparseTensor):
        return input.add(other, alpha=alpha)
    return ops.add(input, other.to_dense(), alpha=alpha)


def _sub(input: Any, other: Any, alpha: Scalar = 1) -> Any:
    return _add(input, other, -alpha)


def _mul(input: Any, other: Any) -> SparseTensor:
    return input.mul(other) if isinstance(input, SparseTensor) else other.mul(input)


def _div(input: Any, other: Any) -> SparseTensor:
    if not isinstance(input, SparseTensor):
        raise DTypeError("[div] a sparse tensor cannot divide: its zeros would; convert it with .to_dense()")
    return input.div(other)


def _sum(input: SparseTensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
    if keepdim:
        raise ArgumentError(
            "[sum] keepdim is not there for sparse tensors; use dl.unsqueeze on the dense sum"
        )
    return input.sum(dim)


RULES: dict[str, Callable[..., Any]] = {
    "matmul": _matmul, "add": _add, "sub": _sub, "mul": _mul, "true_divide": _div, "sum": _sum,
    "neg": SparseTensor.__neg__,
}  # fmt: skip
"""The ops that take sparse operands, by name."""


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor in coordinate format; gradients flow to `values`.

    Args:
        indices: ints of shape (sparse_dim, nnz): a column for each element. An index may occur several
            times: its values are added up.
        values: of shape (nnz, ...): the elements.
        size: the shape; by default as large as the indices need.
        dtype: of the values; by default their own.
        device: by default that of `values` if they are a tensor.
        requires_grad: whether the result is a leaf that gets gradients.
        check_invariants: accepted; indices are always checked.
        is_coalesced: whether each index occurs once, in row-major order.

    Raises:
        ShapeError: the shapes of indices, values and size do not fit.
        ArgumentError: an index lies outside of `size`.
        DTypeError: the indices are no integers.

    Example:
        >>> import dl4all as dl
        >>> adjacency = dl.sparse_coo_tensor([[0, 1, 1], [1, 0, 2]], [1.0, 2.0, 3.0], (2, 3))
        >>> (adjacency @ dl.tensor([1.0, 10.0, 100.0])).tolist()
        [10.0, 302.0]
    """
    numbers = as_tensor(
        values,
        dtype=dtype,
        device=device or ("auto" if not isinstance(values, TensorBase) else values.device),
    )
    array = indices.numpy() if isinstance(indices, Tensor) else np.asarray(indices)
    if not array.size:
        array = array.astype(np.int64)
    if kind_of(array.dtype) not in "iu":
        raise DTypeError(f"[sparse_coo_tensor] indices must be integers, got {array.dtype}")
    if array.ndim != 2 or not numbers.shape or array.shape[1] != numbers.shape[0]:
        raise ShapeError(
            "[sparse_coo_tensor] expected indices of shape (sparse_dim, nnz) and values of shape (nnz, ...), "
            f"got {array.shape} and {numbers.shape}"
        )
    needed = tuple(int(row.max(initial=-1)) + 1 for row in array)
    shape = (*needed, *numbers.shape[1:]) if size is None else tuple(int(n) for n in size)
    if len(shape) != len(needed) + len(numbers.shape) - 1 or shape[len(needed) :] != numbers.shape[1:]:
        raise ShapeError(
            f"[sparse_coo_tensor] size {shape} does not fit indices of shape {array.shape} and values of "
            f"shape {numbers.shape}"
        )
    if array.min(initial=0) < 0 or any(n > m for n, m in zip(needed, shape, strict=False)):
        raise ArgumentError(f"[sparse_coo_tensor] an index lies outside of size {shape}")
    if requires_grad:
        numbers = numbers.detach().requires_grad_()
    places = as_tensor(np.ascontiguousarray(array, np.int64), device=numbers.device)
    return SparseTensor(places, numbers, shape, bool(is_coalesced))


def to_sparse(input: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The elements of a dense tensor that are not zero; gradients flow to them.

    Args:
        input: at least 1-d.
        sparse_dim: how many of the first axes have indices; by default all.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().values().tolist()
        [2.0, 3.0]
    """
    axes = len(input.shape) if sparse_dim is None else sparse_dim
    if not 1 <= axes <= len(input.shape):
        raise ArgumentError(f"[to_sparse] sparse_dim must be from 1 to {len(input.shape)}, got {sparse_dim}")
    array = input.detach().numpy()
    kept = array != 0 if axes == array.ndim else (array != 0).any(tuple(range(axes, array.ndim)))
    places = np.stack(np.nonzero(kept)).astype(np.int64)
    flat = ops.reshape(input, (math.prod(input.shape[:axes]), *input.shape[axes:]))
    rows = np.ravel_multi_index(tuple(places), input.shape[:axes]).astype(np.int64)
    values = ops.index_select(flat, 0, as_tensor(rows, device=input.device))
    return SparseTensor(as_tensor(places, device=input.device), values, tuple(input.shape), True)


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a tensor without axes."""
    return isinstance(value, NUMBERS) or (isinstance(value, Tensor) and not value.shape)


def _described(other: Any) -> str:
    return f"shape {other.shape}" if hasattr(other, "shape") else type(other).__name__


primitives.to_sparse = to_sparse
