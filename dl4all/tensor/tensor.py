"""The class Tensor: operators and transfers; mixins have the other methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import ArgumentError, GradientError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.checks import broadcasts_to
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.limits import host_memory
from dl4all.ops.core.memory_format import MemoryFormat, check_memory_format
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import DTypeLike, Scalar, Shape, TensorBase, check_repeated
from dl4all.ops.elementwise.comparison import eq, ne
from dl4all.ops.memory import transfer
from dl4all.ops.memory.copy import unshared
from dl4all.ops.memory.views import in_order
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.mixins import interop
from dl4all.tensor.mixins.conversions import Conversions
from dl4all.tensor.mixins.gradients import Gradients
from dl4all.tensor.mixins.inplace import InplaceMethods
from dl4all.tensor.mixins.methods import Methods
from dl4all.tensor.mixins.new_tensors import NewTensors
from dl4all.tensor.mixins.notebook import Notebook
from dl4all.tensor.mixins.properties import Properties
from dl4all.tensor.mixins.random_fills import RandomFills
from dl4all.tensor.mixins.reflected_operators import ReflectedOperators
from dl4all.tensor.print_options import text_of

if TYPE_CHECKING:
    from dl4all.tensor.sparse import SparseTensor  # which has the class below as a base


class Tensor(
    Methods,
    Properties,
    Conversions,
    Gradients,
    InplaceMethods,
    RandomFills,
    NewTensors,
    ReflectedOperators,
    Notebook,
):
    """An n-dimensional array on a device.

    Created by :func:`dl4all.tensor`, :func:`dl4all.zeros`, ... Operators and methods carry PyTorch's names;
    operands of one op must be on one device. Reading elements (``numpy``, ``tolist``, ``item``,
    ``print``) waits for the device.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> (x @ x.T + 1).tolist()
        [[6.0, 12.0], [12.0, 26.0]]
    """

    __slots__ = ()

    def _from_sizes_or_data(self, arguments: tuple[Any, ...]) -> None:
        made = primitives.sizes_or_data(arguments)
        TensorBase.__init__(
            self, made.storage, made.shape, made.dtype, made.device, made.strides, made.offset
        )

    def where(self, condition: Tensor, other: Tensor | Scalar) -> Tensor:
        """The elements where `condition` is true, and the elements of `other` elsewhere.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1, 2]).where(dl.tensor([True, False]), 0).tolist()
            [1, 0]
        """
        return ops.where(condition, self, other)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Views of parts of an axis; see :func:`dl4all.split`, which has another name for `split_size`.

        Args:
            split_size: the size of each part, of which the last may be smaller, or a list of all sizes.
            dim: the axis.

        Example:
            >>> import dl4all as dl
            >>> [part.tolist() for part in dl.arange(5).split(split_size=[2, 3])]
            [[0, 1], [2, 3, 4]]
        """
        return ops.split(self, split_size, dim)

    __add__ = __radd__ = ops.add
    __sub__ = ops.sub
    __mul__ = __rmul__ = ops.mul
    __truediv__ = ops.true_divide
    __neg__ = ops.neg
    __pos__ = ops.positive
    __abs__ = ops.abs
    __pow__ = ops.pow
    __mod__ = ops.remainder
    __floordiv__ = ops.floor_divide
    __lt__ = ops.lt
    __le__ = ops.le
    __gt__ = ops.gt
    __ge__ = ops.ge
    __and__ = __rand__ = ops.bitwise_and
    __or__ = __ror__ = ops.bitwise_or
    __xor__ = __rxor__ = ops.bitwise_xor
    __lshift__, __rshift__ = ops.bitwise_left_shift, ops.bitwise_right_shift
    __invert__ = ops.bitwise_not
    __matmul__ = ops.matmul
    __getitem__ = ops.getitem
    __setitem__ = ops.setitem
    __iadd__ = Methods.add_
    __isub__ = Methods.sub_
    __imul__ = Methods.mul_
    __itruediv__ = InplaceMethods.div_

    def __iter__(self) -> Iterator[Tensor]:
        """Views along the first axis.

        Example:
            >>> import dl4all as dl
            >>> [row.tolist() for row in dl.tensor([[1, 2], [3, 4]])]
            [[1, 2], [3, 4]]
        """
        return (self[i] for i in range(len(self)))

    # Defining __eq__ removes the inherited hash, but sets and dicts hold tensors by identity.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return eq(self, other) if isinstance(other, (TensorBase, *NUMBERS)) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return ne(self, other) if isinstance(other, (TensorBase, *NUMBERS)) else NotImplemented

    def __repr__(self) -> str:
        body = text_of(transfer.download(self), "tensor(")
        extra = f", shape={self.shape}" if 0 in self.shape and self.shape != (0,) else ""
        extra += "" if self.dtype == np.float32 else f", dtype={self.dtype}"
        extra += "" if self.device.is_host else f", device={str(self.device)!r}"
        return f"tensor({body}{extra})"

    # To the host and between devices

    def to_sparse(self, sparse_dim: int | None = None) -> SparseTensor:
        """The elements that are not zero, with their indices: see :func:`dl4all.sparse_coo_tensor`.

        Args:
            sparse_dim: how many of the first axes have indices; by default all.

        Raises:
            ArgumentError: there are not as many axes.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([[0.0, 2.0]]).to_sparse().to_dense().tolist()
            [[0.0, 2.0]]
        """
        made: SparseTensor = primitives.to_sparse(self, sparse_dim)
        return made

    def to_dense(self) -> Tensor:
        """The tensor itself; a sparse tensor's has its zeros, too.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2).to_dense().tolist()
            [1.0, 1.0]
        """
        return self

    def is_nonzero(self) -> bool:
        """Whether the only element is not 0.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([2.0]).is_nonzero()
            True
        """
        return ops.is_nonzero(self)

    def numpy(self, *, force: bool = False) -> npt.NDArray[Any]:
        """The elements as a NumPy array: on the CPU the tensor's own memory, elsewhere a copy.

        Args:
            force: return them for a leaf that requires gradients, too, and in an array that may be changed.

        Returns:
            An array that can only be read where the tensor has a gradient history: no gradient would know
            what NumPy does to the elements. (PyTorch refuses to give that one.)

        Raises:
            GradientError: the tensor is a leaf that requires gradients, such as a parameter.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0, 2.0]).numpy()
            array([1., 2.], dtype=float32)
        """
        if force or not self.requires_grad:
            return transfer.download(self)
        if self.is_leaf:
            raise GradientError("[numpy] the tensor is a leaf that requires gradients; use .detach().numpy()")
        return self._readable()

    def _readable(self) -> npt.NDArray[Any]:
        """The elements in an array that cannot be changed."""
        array = transfer.download(self).view()
        array.flags.writeable = False
        return array

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The elements as a NumPy array, for ``np.asarray``; waits for the device.

        The array can only be read where the tensor requires gradients.

        Example:
            >>> import dl4all as dl
            >>> import numpy as np
            >>> np.asarray(dl.tensor([1.0, 2.0])).tolist()
            [1.0, 2.0]
        """
        array = self._readable() if self.requires_grad else transfer.download(self)
        with host_memory("numpy"):
            return np.array(array, dtype) if copy or not self.device.is_host else np.asarray(array, dtype)

    def __buffer__(self, flags: int) -> memoryview:
        """The memory of :meth:`numpy`, for ``memoryview`` from Python 3.12 on.

        Example:
            >>> import dl4all as dl
            >>> import numpy as np
            >>> np.asarray(dl.tensor([1.0], device="cpu")).tolist()
            [1.0]
        """
        return self.numpy(force=True).data

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers.

        Raises:
            OutOfMemoryError: the tensor is a view that repeats elements too often.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]
        """
        check_repeated("tolist", self)
        return transfer.download(self).tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number.

        Raises:
            ArgumentError: there is not exactly one.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([2.5]).item()
            2.5
        """
        if self.numel() != 1:
            raise ArgumentError(f"[item] expected one element, the shape is {self.shape}")
        value: int | float | bool = transfer.download(self).item()
        return value

    def to(
        self,
        *targets: DeviceLike | DTypeLike | TensorBase | bool,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        non_blocking: bool = False,
        copy: bool = False,
        memory_format: MemoryFormat = None,
    ) -> Tensor:
        """The tensor on another device, with another dtype, or both; the tensor itself if nothing changes.

        Args:
            targets: a device, a dtype, both, or a tensor whose device and dtype are taken; then
                `non_blocking` and `copy`.
            device, dtype: the same by name.
            non_blocking: return before the elements have come to another device. Whatever uses the result
                waits for them, and gets the error if they cannot come. The tensor itself may be changed at
                once. While a profile is active, copies are waited for.
            copy: return a new tensor even if nothing changes.
            memory_format: is taken for PyTorch's sake, see :class:`dl4all.memory_format`.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1, 2]).to("float32").to("cpu").tolist()
            [1.0, 2.0]

        Raises:
            UnknownDeviceError, BackendMissingError, DTypeError
        """
        check_memory_format("to", memory_format)
        flags = [target for target in targets if isinstance(target, bool)]
        if flags:
            targets = targets[: -len(flags)]
            non_blocking, copy = (*flags, copy)[:2]
        named_device, named_dtype = device_and_dtype(targets, device, dtype)
        target, target_dtype = named_device or self.device, named_dtype or self.dtype
        result = self
        if target_dtype != self.dtype:
            result = ops.cast(result, target_dtype.name)
        if target is not self.device:
            source = self.device

            def backward(grads: list[Tensor], saved: object, needs: object) -> list[Tensor]:
                return [grads[0].to(source, non_blocking=non_blocking)]

            moved = transfer.move(result, target, non_blocking=non_blocking)
            tape.add_node("to", [result], [moved], backward)
            result = moved
        named_cpu.note(result, *targets if device is None else (*targets, device))
        return self.clone() if copy and result is self else result

    def cpu(self) -> Tensor:
        """The tensor on the CPU.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0]).cpu().device
            device('cpu')
        """
        return self.to("cpu")

    # Views

    @property
    def mT(self) -> Tensor:
        """A view with the last two axes swapped.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3, 4).mT.shape
            (2, 4, 3)
        """
        return ops.transpose(self, -2, -1)

    @property
    def H(self) -> Tensor:
        """A view of a matrix with its axes swapped, as :attr:`mT`: there are no complex numbers.

        Raises:
            ShapeError: it is no matrix.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([[1, 2], [3, 4]]).H.tolist()
            [[1, 3], [2, 4]]
        """
        if len(self.shape) not in (0, 2):
            raise ShapeError(f"[H] expected a matrix, got shape {self.shape}; use .mT for the last two axes")
        return self.T

    @property
    def mH(self) -> Tensor:
        """A view with the last two axes swapped, as :attr:`mT`: there are no complex numbers.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3, 4).mH.shape
            (2, 4, 3)
        """
        return self.mT

    @property
    def T(self) -> Tensor:
        """A view with all axes in reverse order.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([[1, 2], [3, 4]]).T.tolist()
            [[1, 3], [2, 4]]
        """
        return in_order(self, range(self.ndim - 1, -1, -1))

    @property
    def real(self) -> Tensor:
        """The tensor itself: its elements are real numbers.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.0, 2.0]).real.tolist()
            [1.0, 2.0]
        """
        return self

    def sum_to_size(self, *size: int | Shape) -> Tensor:
        """The sum over the axes along which a tensor of shape `size` would be broadcast to this one's shape.

        Raises:
            ShapeError: `size` does not broadcast to this one's shape.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).sum_to_size(1, 3).tolist()
            [[2.0, 2.0, 2.0]]
        """
        shape = strides.sizes("sum_to_size", size)
        if not broadcasts_to(shape, self.shape):
            raise ShapeError(f"[sum_to_size] shape {shape} does not broadcast to {self.shape}")
        if shape and shape == self.shape:
            return self
        return unshared(ops.sum_to(self.to("int64") if kind_of(self.dtype) == "b" else self, shape), self)

    # Copies and other libraries

    __arrow_array__ = interop.arrow_array
    __deepcopy__ = interop.deepcopy
    __dlpack__ = interop.dlpack
    __dlpack_device__ = interop.dlpack_device
    __reduce__ = interop.reduce


Tensor.result_class = Tensor
