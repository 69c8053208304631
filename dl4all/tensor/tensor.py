"""The tensor class: ops as methods and operators, views, and the way to NumPy and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.base import DTYPES, Shape, TensorBase, contiguous_strides, from_host
from dl4all.scheduler.device import Device, device
from dl4all.tensor import indexing


class Tensor(TensorBase):
    """An n-dimensional array on a device.

    Made by :func:`dl4all.tensor` and its relatives. Operators and methods carry PyTorch's names;
    operands of one op must live on one device. Reading elements (``numpy``, ``tolist``, ``item``,
    ``print``) waits for the device.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> (x @ x.T + 1).tolist()
        [[6.0, 12.0], [12.0, 26.0]]
    """

    __slots__ = ()
    __array_ufunc__ = None  # so that numpy_array + tensor is refused instead of running element by element

    # Ops

    add = ops.add
    sub = ops.sub
    mul = ops.mul
    div = ops.div
    neg = ops.neg
    clone = ops.clone
    relu = ops.relu
    softmax = ops.softmax
    matmul = ops.matmul

    __add__ = __radd__ = ops.add
    __sub__ = ops.sub
    __mul__ = __rmul__ = ops.mul
    __truediv__ = ops.div
    __neg__ = ops.neg
    __matmul__ = ops.matmul

    def __rsub__(self, other: Any) -> Tensor:
        return ops.sub(other, self)  # type: ignore[no-any-return]

    def __rtruediv__(self, other: Any) -> Tensor:
        return ops.div(other, self)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any) -> Tensor:
        return ops.matmul(other, self)  # type: ignore[no-any-return]

    # Facts

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or its entry for axis `dim`."""
        return self.shape if dim is None else self.shape[indexing.axis("size", dim, self.ndim)]

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("[len] a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Views along the first axis."""
        return (self[i] for i in range(len(self)))

    # Python's default would compare identities and say False without a word.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> NoReturn:
        raise DTypeError("[eq] tensors cannot be compared yet; compare their .numpy()")

    def __ne__(self, other: object) -> NoReturn:
        raise DTypeError("[ne] tensors cannot be compared yet; compare their .numpy()")

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        body = np.array2string(self.numpy(), separator=", ", prefix="tensor(", threshold=200, precision=4)
        extra = f", shape={self.shape}" if 0 in self.shape and self.shape != (0,) else ""
        extra += "" if self.dtype == np.float32 else f", dtype={self.dtype}"
        extra += "" if self.device.is_host else f", device={str(self.device)!r}"
        return f"tensor({body}{extra})"

    # To the host and between devices

    def numpy(self) -> npt.NDArray[Any]:
        """The elements as a NumPy array: on the CPU the tensor's own memory, elsewhere a copy."""
        return self.on_host()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        array = self.on_host()
        return np.array(array, dtype) if copy or not self.device.is_host else np.asarray(array, dtype)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.on_host().tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number.

        Raises:
            ArgumentError: there is not exactly one.
        """
        if self.numel() != 1:
            raise ArgumentError(f"[item] expected one element, the shape is {self.shape}")
        value: int | float | bool = self.on_host().item()
        return value

    def to(self, target: str | Device | npt.DTypeLike) -> Tensor:
        """The tensor on another device, or with another dtype; itself if nothing changes.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1, 2]).to("float32").to("cpu").tolist()
            [1.0, 2.0]

        Raises:
            UnknownDeviceError, BackendMissingError, DTypeError
        """
        dtype = _dtype_or_none(target)
        if dtype is not None:
            if dtype == self.dtype:
                return self
            with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
                return self._from_host(self.on_host().astype(dtype), self.device)
        place = device(target)  # type: ignore[arg-type]
        if place is self.device:
            return self
        return self._from_host(self.on_host(), place, copy=True)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def float(self) -> Tensor:
        return self.to("float32")

    def double(self) -> Tensor:
        return self.to("float64")

    def _from_host(self, array: npt.NDArray[Any], place: Device, *, copy: bool = False) -> Tensor:
        made: Tensor = from_host(type(self).result_class, array, place, copy=copy)
        return made

    # Views

    def contiguous(self) -> Tensor:
        """Itself if the elements lie in row-major order, else a copy in which they do."""
        found: Tensor = ops.contiguous(self)  # type: ignore[assignment]
        return found

    def reshape(self, *shape: int | Shape) -> Tensor:
        """The same elements in another shape; one size may be -1. A view of a contiguous tensor.

        Raises:
            ShapeError: the numbers of elements differ.
        """
        wanted = indexing.complete_shape(indexing.sizes("reshape", shape), self.shape)
        source = self.contiguous()
        view: Tensor = source.as_strided(wanted, contiguous_strides(wanted), source.offset)
        return view

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The axes from `start_dim` to `end_dim` as one."""
        if not self.shape:
            return self.reshape(1)
        start, end = (
            indexing.axis("flatten", start_dim, self.ndim),
            indexing.axis("flatten", end_dim, self.ndim),
        )
        if start > end:
            raise ArgumentError(f"[flatten] start_dim {start_dim} comes after end_dim {end_dim}")
        merged = math.prod(self.shape[start : end + 1])
        return self.reshape(*self.shape[:start], merged, *self.shape[end + 1 :])

    def permute(self, *dims: int | Shape) -> Tensor:
        """A view with the axes in another order.

        Raises:
            ArgumentError: `dims` does not name every axis once.
        """
        wanted = indexing.sizes("permute", dims)
        order = tuple(indexing.axis("permute", dim, self.ndim) for dim in wanted)
        if sorted(order) != list(range(self.ndim)):
            raise ArgumentError(f"[permute] {wanted} does not name each axis of {self.shape} once")
        view: Tensor = self.as_strided(
            tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order), self.offset
        )
        return view

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """A view with two axes swapped."""
        first, second = (indexing.axis("transpose", d, self.ndim) for d in (dim0, dim1))
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return self.permute(*order)

    @property
    def T(self) -> Tensor:
        """A view with all axes in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    def expand(self, *shape: int | Shape) -> Tensor:
        """A view in which axes of size 1 are repeated without copying; -1 keeps a size.

        Raises:
            ShapeError: an axis that is not of size 1 would change.
        """
        wanted, strides = indexing.expanded(indexing.sizes("expand", shape), self.shape, self.strides)
        view: Tensor = self.as_strided(wanted, strides, self.offset)
        return view

    def __getitem__(self, key: Any) -> Tensor:
        """A view of a part: ints, slices with positive steps, ``None`` and ``...``."""
        view: Tensor = self.as_strided(*indexing.basic(key, self.shape, self.strides, self.offset))
        return view


Tensor.result_class = Tensor


def _dtype_or_none(target: Any) -> np.dtype[Any] | None:
    """The dtype that `target` names, None if it names something else.

    Raises:
        DTypeError: it is a dtype, but not one that tensors can have.
    """
    if isinstance(target, Device):
        return None
    if target is None:  # to NumPy it means float64
        raise DTypeError("[to] expected a device or a dtype, got None")
    try:
        dtype = np.dtype(target)
    except TypeError:
        return None
    if dtype not in DTYPES:
        raise DTypeError(f"[to] dtype {dtype} is not supported; use one of {', '.join(map(str, DTYPES))}")
    return dtype
