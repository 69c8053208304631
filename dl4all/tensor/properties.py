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
        """How many axes there are.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).ndim
            2
        """
        return len(self.shape)

    def dim(self) -> int:
        """How many axes there are.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).dim()
            2
        """
        return len(self.shape)

    def ndimension(self) -> int:
        """How many axes there are.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).ndimension()
            2
        """
        return len(self.shape)

    def __len__(self) -> int:
        """The size of the first axis.

        Example:
            >>> import dl4all as dl
            >>> len(dl.ones(3, 2))
            3
        """
        if not self.shape:
            raise DTypeError("[len] a 0-d tensor has no length")
        return self.shape[0]

    @overload
    def size(self, dim: None = None) -> Shape: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or the size of axis `dim`.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).size(), dl.ones(2, 3).size(1)
            ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[strides.axis("size", dim, len(self.shape))]

    @overload
    def stride(self, dim: None = None) -> Shape: ...

    @overload
    def stride(self, dim: int) -> int: ...

    def stride(self, dim: int | None = None) -> Shape | int:
        """The distance in memory between neighbours along each axis, or along axis `dim`, in elements.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).stride(), dl.ones(2, 3).stride(0)
            ((3, 1), 3)
        """
        return self.strides if dim is None else self.strides[strides.axis("stride", dim, len(self.shape))]

    def storage_offset(self) -> int:
        """How many elements of the storage lie before the first one of the tensor.

        Example:
            >>> import dl4all as dl
            >>> dl.arange(4)[2:].storage_offset()
            2
        """
        return self.offset

    def nelement(self) -> int:
        """How many elements there are.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).nelement()
            6
        """
        return self.numel()

    def element_size(self) -> int:
        """How many bytes an element takes.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).element_size()
            4
        """
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).itemsize
            4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).nbytes
            24
        """
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).is_floating_point(), dl.tensor([1]).is_floating_point()
            (True, False)
        """
        return self.dtype.kind == "f"

    def is_complex(self) -> bool:
        """False: there are no complex numbers.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).is_complex()
            False
        """
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1]).is_signed()
            True
        """
        return self.dtype.kind in "fi"

    def is_same_size(self, other: TensorBase) -> bool:
        """Whether another tensor has the same shape.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).is_same_size(dl.ones(3, 2))
            False
        """
        return bool(self.shape == other.shape)
