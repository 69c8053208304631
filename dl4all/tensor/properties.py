"""Shape, strides, dtype and size in memory of a tensor, under PyTorch's names."""

from __future__ import annotations

from typing import overload

from dl4all.errors import DTypeError
from dl4all.ops.core import strides
from dl4all.ops.core.tensor_base import Shape, TensorBase


class Properties(TensorBase):
    """Methods that read a tensor's description and leave its elements alone."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def dim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def ndimension(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("[len] a 0-d tensor has no length")
        return self.shape[0]

    @overload
    def size(self, dim: None = None) -> Shape: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or the size of axis `dim`."""
        return self.shape if dim is None else self.shape[strides.axis("size", dim, len(self.shape))]

    @overload
    def stride(self, dim: None = None) -> Shape: ...

    @overload
    def stride(self, dim: int) -> int: ...

    def stride(self, dim: int | None = None) -> Shape | int:
        """The distance in memory between neighbours along each axis, or along axis `dim`, in elements."""
        return self.strides if dim is None else self.strides[strides.axis("stride", dim, len(self.shape))]

    def storage_offset(self) -> int:
        """How many elements of the storage lie before the first one of the tensor."""
        return self.offset

    def nelement(self) -> int:
        """How many elements there are."""
        return self.numel()

    def element_size(self) -> int:
        """How many bytes an element takes."""
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype.kind == "f"

    def is_complex(self) -> bool:
        """False: there are no complex numbers."""
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.dtype.kind in "fi"

    def is_same_size(self, other: TensorBase) -> bool:
        """Whether another tensor has the same shape."""
        return bool(self.shape == other.shape)
