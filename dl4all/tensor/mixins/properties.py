"""Shape, strides, dtype and size in memory of a tensor, under PyTorch's names."""

from __future__ import annotations

from typing import overload

from dl4all.errors import DTypeError
from dl4all.ops.core import strides
from dl4all.ops.core.dtypes import FLOATING, kind_of
from dl4all.ops.core.tensor_base import Shape, Size, TensorBase


class Properties(TensorBase):
    """Methods that read a tensor's description and leave its elements alone."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """The number of axes.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).ndim
            2
        """
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).dim()
            2
        """
        return len(self.shape)

    def ndimension(self) -> int:
        """The number of axes.

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
    def size(self, dim: None = None) -> Size: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the size of axis `dim`.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).size(), dl.ones(2, 3).size(1)
            ((2, 3), 3)

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
            >>> dl.ones(2, 3).stride()
            (3, 1)

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).stride(), dl.ones(2, 3).stride(0)
            ((3, 1), 3)
        """
        return self.strides if dim is None else self.strides[strides.axis("stride", dim, len(self.shape))]

    def storage_offset(self) -> int:
        """The number of elements of the storage before the first one of the tensor.

        Example:
            >>> import dl4all as dl
            >>> dl.arange(4)[2:].storage_offset()
            2
        """
        return self.offset

    def nelement(self) -> int:
        """The number of elements.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).nelement()
            6
        """
        return self.numel()

    def element_size(self) -> int:
        """The bytes of an element.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).element_size()
            4
        """
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """The bytes of an element.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).itemsize
            4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of the elements.

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
        return self.dtype in FLOATING

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
        return kind_of(self.dtype) in "fis"

    def is_same_size(self, other: TensorBase) -> bool:
        """Whether another tensor has the same shape.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).is_same_size(dl.ones(3, 2))
            False
        """
        return bool(self.shape == other.shape)

    @property
    def is_cpu(self) -> bool:
        """Whether the elements lie in the host's memory and NumPy computes with them.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, device="cpu").is_cpu
            True
        """
        return self.device.is_host

    @property
    def is_vulkan(self) -> bool:
        """Whether the tensor is on a device of the Vulkan backend.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, device="cpu").is_vulkan
            False
        """
        return self.device.type == "vulkan"

    @property
    def is_cuda(self) -> bool:
        """Whether scripts that ask for CUDA may be told that the tensor is there: :mod:`dl4all.cuda`.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, device="cpu").is_cuda
            False
        """
        return bool(self.device.type == "cuda")

    is_meta = is_mps = is_mkldnn = is_mtia = is_xla = is_xpu = property(
        lambda self: False,
        doc="False: dl4all has no such device.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.ones(2).is_meta\n    False",
    )
    is_sparse = is_sparse_csr = is_quantized = is_nested = property(
        lambda self: False,
        doc="False: there are no tensors of this kind.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.ones(2).is_sparse\n    False",
    )

    def get_device(self) -> int:
        """The number of the tensor's device among those of its type; -1 for the CPU.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, device="cpu").get_device()
            -1
        """
        return -1 if self.device.is_host else self.device.index or 0

    def is_conj(self) -> bool:
        """False: there are no complex numbers.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).is_conj()
            False
        """
        return False

    def is_neg(self) -> bool:
        """False: no tensor stands for its negative.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).is_neg()
            False
        """
        return False

    def is_inference(self) -> bool:
        """False: a tensor made within ``inference_mode`` is like any other.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).is_inference()
            False
        """
        return False

    def is_pinned(self, device: object = None) -> bool:
        """False: :func:`dl4all.pin` gives pinned arrays, tensors lie where their device has them.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).is_pinned()
            False
        """
        return False
