"""The tensor class: ops as methods and operators, views, and the way to NumPy and back."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all import autograd, ops
from dl4all.errors import ArgumentError, DTypeError, GradientError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.tensor_base import DTYPES, Shape, TensorBase, from_host
from dl4all.ops.elementwise.comparison import eq, ne
from dl4all.scheduler.current import device as open_device
from dl4all.scheduler.device import Device
from dl4all.tensor import beside, filling, interop, turning
from dl4all.tensor.methods import Methods

_hook_keys = itertools.count()


class Tensor(Methods):
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

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """The elements where `condition` is true, those of `other` elsewhere."""
        return ops.where(condition, self, other)

    __add__ = __radd__ = ops.add
    __sub__ = ops.sub
    __mul__ = __rmul__ = ops.mul
    __truediv__ = ops.true_divide
    __neg__ = ops.neg
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
    __invert__ = ops.bitwise_not
    __matmul__ = ops.matmul
    __getitem__ = ops.getitem
    __setitem__ = ops.setitem
    __iadd__ = Methods.add_
    __isub__ = Methods.sub_
    __imul__ = Methods.mul_
    __itruediv__ = Methods.div_

    def __rsub__(self, other: Any) -> Tensor:
        return ops.sub(other, self)

    def __rtruediv__(self, other: Any) -> Tensor:
        return ops.true_divide(other, self)

    def __rpow__(self, other: Any) -> Tensor:
        return ops.pow(other, self)

    def __rmod__(self, other: Any) -> Tensor:
        return ops.remainder(other, self)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return ops.floor_divide(other, self)

    def __rmatmul__(self, other: Any) -> Tensor:
        return ops.matmul(other, self)

    # Facts

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Shape | int:
        """The shape, or its entry for axis `dim`."""
        return self.shape if dim is None else self.shape[strides.axis("size", dim, self.ndim)]

    def element_size(self) -> int:
        """How many bytes an element takes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype.kind == "f"

    def dim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def nelement(self) -> int:
        """How many elements there are."""
        return self.numel()

    def ndimension(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes."""
        return self.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """How many elements on the next place of each axis lies in memory, or that of axis `dim`."""
        return self.strides if dim is None else self.strides[strides.axis("stride", dim, len(self.shape))]

    def storage_offset(self) -> int:
        """How many elements before the first one lie in the memory that it is part of."""
        return self.offset

    def is_complex(self) -> bool:
        """False: there are no complex numbers."""
        return False

    def is_signed(self) -> bool:
        """Whether the element type has numbers below 0."""
        return self.dtype.kind in "fi"

    def is_same_size(self, other: Any) -> bool:
        """Whether another tensor has the same shape."""
        return bool(self.shape == other.shape)

    def is_nonzero(self) -> bool:
        """Whether the only element is not 0."""
        return ops.is_nonzero(self)

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("[len] a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Views along the first axis."""
        return (self[i] for i in range(len(self)))

    # Python's default is gone with __eq__, and tensors are kept in sets and dicts by what they are.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return eq(self, other) if isinstance(other, (TensorBase, *NUMBERS)) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return ne(self, other) if isinstance(other, (TensorBase, *NUMBERS)) else NotImplemented

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

    def __buffer__(self, flags: int) -> memoryview:
        """What ``memoryview`` shows of it from Python 3.12 on: the memory of :meth:`numpy`."""
        return self.numpy().data

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

    def to(
        self,
        *targets: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Tensor:
        """The tensor on another device, or with another dtype, or both; itself if nothing changes.

        Args:
            targets: a device, a dtype, both, or a tensor whose device and dtype are taken.
            device, dtype: the same by name.
            non_blocking: has no effect; the copy is complete when the call returns.
            copy: return another tensor even if nothing changes.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1, 2]).to("float32").to("cpu").tolist()
            [1.0, 2.0]

        Raises:
            UnknownDeviceError, BackendMissingError, DTypeError
        """
        there, kind = wanted(targets, device, dtype)
        place, kind = there or self.device, kind or self.dtype
        made = self
        if kind != self.dtype:
            made = ops.cast(made, kind.name)
        if place is not self.device:
            moved = self._from_host(made.on_host(), place, copy=True)
            here = self.device
            tape.add_node("to", [made], [moved], lambda grads, saved, needs: [grads[0].to(here)])
            made = moved
        return self.clone() if copy and made is self else made

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

    @property
    def mT(self) -> Tensor:
        """A view with the last two axes swapped."""
        view: Tensor = ops.transpose(self, -2, -1)
        return view

    @property
    def T(self) -> Tensor:
        """A view with all axes in reverse order."""
        view: Tensor = ops.permute(self, *reversed(range(self.ndim)))
        return view

    # Gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor or through it."""
        return self.grad_meta is not None and self.grad_meta.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients with respect to this tensor, or stop asking; returns it.

        Raises:
            GradientError: it is not a tensor of floats, or an op made it.
        """
        if requires_grad and self.dtype.kind != "f":
            raise GradientError(f"[requires_grad] only floats have gradients, not {self.dtype}")
        if not self.is_leaf and not requires_grad:
            raise GradientError(
                "[requires_grad] an op made this tensor; use .detach() for one without gradients"
            )
        if self.grad_meta is None:
            self.grad_meta = tape.GradMeta()
        self.grad_meta.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this tensor."""
        return self.grad_meta is None or self.grad_meta.node is None

    @property
    def grad_fn(self) -> tape.Node | None:
        """The recorded op that made this tensor."""
        return None if self.grad_meta is None else self.grad_meta.node

    @property
    def grad(self) -> Any:
        """The gradient that ``backward`` has gathered here, a tensor; None before."""
        return None if self.grad_meta is None else self.grad_meta.grad

    @grad.setter
    def grad(self, gradient: Any) -> None:
        if gradient is not None and (gradient.shape, gradient.dtype) != (self.shape, self.dtype):
            raise GradientError(
                f"[grad] expected shape {self.shape} and {self.dtype}, "
                f"got {gradient.shape} and {gradient.dtype}"
            )
        if self.grad_meta is None:
            self.grad_meta = tape.GradMeta()
        self.grad_meta.grad = gradient

    def backward(
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Add this tensor's gradients with respect to the leaves it came from to their ``grad``.

        Args:
            gradient: the weight of each element, of this tensor's shape; 1 for a single element.
            retain_graph: keep what gradients need, to come back a second time.
            create_graph: let the gradients be differentiated too.

        Raises:
            GradientError: there is no graph, it was freed, or what it needs was changed in place.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1.0, 2.0], device="cpu").requires_grad_()
            >>> (x * x).backward(dl.tensor([1.0, 1.0], device="cpu"))
            >>> x.grad.tolist()
            [2.0, 4.0]
        """
        autograd.backward([self], None if gradient is None else [gradient], retain_graph, create_graph)

    def detach(self) -> Tensor:
        """The same elements in the same memory, without a history."""
        without: Tensor = tape.alias(self)  # type: ignore[assignment]
        return without

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that an op made."""
        if self.grad_meta is None or not self.grad_meta.requires_grad:
            raise GradientError("[retain_grad] this tensor does not require gradients")
        if self.grad_meta.node is not None:
            self.grad_meta.node.retained[self.grad_meta.output] = weakref.ref(self)

    def register_hook(self, hook: tape.Hook) -> Callable[[], None]:
        """Have `hook` called with the gradient when it is complete; what it returns replaces it.

        Returns:
            A function that takes the hook away again.

        Raises:
            GradientError: the tensor does not require gradients.
        """
        meta = self.grad_meta
        if meta is None or not meta.requires_grad:
            raise GradientError("[register_hook] this tensor does not require gradients")
        hooks = meta.hooks if meta.node is None else meta.node.hooks.setdefault(meta.output, {})
        key = next(_hook_keys)
        hooks[key] = hook
        return lambda: hooks.pop(key, None) and None

    # Tensors made after this one, and of its elements

    new_empty = beside.new_empty
    new_full = beside.new_full
    new_ones = beside.new_ones
    new_tensor = turning.new_tensor
    new_zeros = beside.new_zeros
    bool = beside.converter("bool")
    byte = beside.converter("uint8")
    char = beside.converter("int8")
    half = beside.converter("float16")
    int = beside.converter("int32")
    long = beside.converter("int64")
    short = beside.converter("int16")
    type = beside.as_type
    type_as = turning.type_as
    sum_to_size = turning.sum_to_size
    bernoulli = filling.bernoulli
    multinomial = filling.multinomial

    # Changes in place

    squeeze_ = turning.changed(ops.squeeze)
    swapaxes_ = swapdims_ = transpose_ = turning.changed(ops.transpose)
    t_ = turning.changed(ops.t)
    unsqueeze_ = turning.changed(ops.unsqueeze)
    cauchy_ = filling.cauchy_
    exponential_ = filling.exponential_
    fill_diagonal_ = filling.fill_diagonal_
    geometric_ = filling.geometric_
    log_normal_ = filling.log_normal_
    random_ = filling.random_

    # Copies and other libraries

    __deepcopy__ = interop.deepcopied
    __dlpack__ = interop.dlpack
    __dlpack_device__ = interop.dlpack_device
    __reduce__ = interop.reduced


Tensor.result_class = Tensor


def wanted(targets: tuple[Any, ...], place: Any, dtype: Any) -> tuple[Device | None, np.dtype[Any] | None]:
    """The device and the dtype that arguments of ``to`` name, None for what they do not.

    Raises:
        UnknownDeviceError, BackendMissingError, DTypeError
    """
    there: Device | None = None
    kind: np.dtype[Any] | None = None
    for target in (*targets, *(given for given in (place, dtype) if given is not None)):
        if isinstance(target, TensorBase):
            there, kind = target.device, target.dtype
        elif (named := _dtype_or_none(target)) is not None:
            kind = named
        else:
            there = open_device(target)
    return there, kind


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
