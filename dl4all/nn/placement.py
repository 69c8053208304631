"""Methods of modules that move them to devices and convert them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import DTypeError, ModuleError
from dl4all.nn import init, state
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.dtypes import FLOATING, converted
from dl4all.ops.core.tensor_base import DTypeLike, TensorBase
from dl4all.scheduler.device.current import cuda_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.creation import empty
from dl4all.tensor.sparse import SparseTensor
from dl4all.tensor.tensor import Tensor

M = TypeVar("M", bound="PlacementMethods")


class PlacementMethods:
    """Methods that move and convert a module; a part of :class:`dl4all.nn.Module`."""

    def _state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        raise NotImplementedError

    def _own_state(self, prefix: str, persistent: bool = False) -> Iterator[tuple[str, Tensor]]:
        raise NotImplementedError

    keeps_dtype: bool = False
    """Whether the module's own tensors keep their dtypes when the floats of a network are converted."""

    def to(
        self: M,
        *targets: DeviceLike | DTypeLike | TensorBase | bool,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> M:
        """Move the module to a device, or convert its floats to a dtype, in place; returns the module.

        Args:
            targets: a device, a dtype, both, or a tensor whose device and dtype are taken; a third argument
                is `non_blocking`.
            device, dtype: the same by name.
            non_blocking, memory_format: are taken for PyTorch's sake and change nothing.

        Raises:
            UnknownDeviceError, BackendMissingError, OutOfMemoryError
            DTypeError: the dtype is not a float dtype.

        Example:
            >>> import dl4all as dl
            >>> dl.nn.Linear(3, 2).to("cpu", "float64").weight.dtype
            dtype('float64')
        """
        named = tuple(part for part in targets if part is not None and not isinstance(part, bool))
        target, float_dtype = device_and_dtype(named, device, dtype)
        if float_dtype is not None and float_dtype not in FLOATING:
            raise DTypeError(
                f"[to] networks are made of floats, got {float_dtype}; convert its inputs instead"
            )
        changes: dict[int, tuple[Tensor, Device, np.dtype[Any]]] = {}  # a tensor may have several names
        kept = {id(t) for _, m in state.walk(self) if m.keeps_dtype for t in _dense(m._own_state(""))}
        for tensor in _dense(self._state()):
            new_device = target or tensor.device
            is_float = tensor.dtype in FLOATING and id(tensor) not in kept
            new_dtype = float_dtype if float_dtype is not None and is_float else tensor.dtype
            if tensor.device is not new_device or tensor.dtype != new_dtype:
                changes[id(tensor)] = tensor, new_device, new_dtype
        if target is not None:
            moving = (change for change in changes.values() if change[0].device is not target)
            target.memory.make_room(tensor.numel() * new_dtype.itemsize for tensor, _, new_dtype in moving)
        for tensor, new_device, new_dtype in changes.values():
            grad = tensor.grad
            with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
                state.replace(tensor, converted(tensor.detach().numpy(), new_dtype), new_device)
            if grad is not None:
                tensor.grad = grad.to(new_device, new_dtype)
        for tensor in _dense(self._state()):
            named_cpu.note(tensor, *named if device is None else (*named, device))
        return self

    def to_empty(self: M, *, device: DeviceLike | None, recurse: bool = True) -> M:
        """Move the module to a device without its values, which are undefined afterwards.

        Args:
            device: where to; None for where each tensor is.
            recurse: whether modules below this one move, too.
        """
        for tensor in _dense(self._state() if recurse else self._own_state("")):
            made = empty(tensor.shape, dtype=tensor.dtype, device=device or tensor.device)
            tensor.storage, tensor.device = made.storage, made.device
            tensor.strides, tensor.offset = made.strides, 0
        return self

    def type(self: M, dst_type: DTypeLike) -> M:
        """Convert the floats to a dtype, as :meth:`to` does."""
        return self.to(dtype=dst_type)

    def cuda(self: M, device: int | str | None = None) -> M:
        """Move to the accelerator, which ``"cuda"`` names, or to the accelerator of a number.

        Raises:
            BackendMissingError: there is no accelerator (:mod:`dl4all.cuda`).
            UnknownDeviceError: there is none of that number.
        """
        return self.to(cuda_device("Module.cuda", device))

    def share_memory(self: M) -> M:
        """Ask for memory that processes share, which there is not.

        Raises:
            ModuleError: always; it says what to use.
        """
        raise ModuleError(
            f"[{type(self).__name__}] tensors cannot be shared by processes; train on several devices with "
            "dl.multi_device, in one process"
        )

    def _place(self, device: DeviceLike | None, dtype: DTypeLike) -> None:
        """Move a layer that has been made on the CPU to where its arguments say, or to the default device."""
        if not init.skips():
            self.to(device="auto" if device is None else device, dtype=dtype)

    def cpu(self: M) -> M:
        """Move to the CPU."""
        return self.to("cpu")

    def float(self: M) -> M:
        """Convert to float32."""
        return self.to("float32")

    def half(self: M) -> M:
        """Convert to float16."""
        return self.to("float16")

    def bfloat16(self: M) -> M:
        """Convert to bfloat16."""
        return self.to("bfloat16")

    def double(self: M) -> M:
        """Convert to float64."""
        return self.to("float64")


def _dense(named: Iterator[tuple[str, Tensor]]) -> Iterator[Tensor]:
    """Tensors that hold elements: for a sparse one its indices and its values."""
    for _, tensor in named:
        if isinstance(tensor, SparseTensor):
            yield from (tensor._indices, tensor._values)
        else:
            yield tensor
