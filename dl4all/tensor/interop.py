"""Tensors as other libraries and other processes take them: DLPack, pickle, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import DTypeError, GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.copy import fresh_copy
from dl4all.scheduler.current import device

CPU = (1, 0)
"""DLPack's name of the host's memory."""


def dlpack_device(tensor: TensorBase) -> tuple[int, int]:
    """Where :func:`dlpack` puts the elements: DLPack's kind of device and its number."""
    return CPU


def dlpack(tensor: TensorBase, **asked: Any) -> Any:
    """A DLPack capsule on the tensor's own memory, which lies on the CPU.

    Raises:
        BufferError: the tensor lives elsewhere; the protocol wants this error.
        GradientError: the tensor requires gradients, which the other library would not know of.
    """
    if not tensor.device.is_host:
        raise BufferError(f"[dlpack] the tensor is on {tensor.device}; move it with .cpu()")
    if tensor.grad_meta is not None and tensor.grad_meta.requires_grad:
        raise GradientError("[dlpack] the tensor requires gradients; use .detach()")
    return tensor.on_host().__dlpack__(**asked)


def array_of_dlpack(given: Any) -> npt.NDArray[Any]:
    """What has ``__dlpack__`` as an array on the same memory.

    Raises:
        DTypeError: it has none, or lies not on the CPU.
    """
    try:
        array = np.from_dlpack(given)
    except (AttributeError, TypeError, BufferError, RuntimeError, ValueError) as error:
        raise DTypeError(f"[from_dlpack] expected an object with __dlpack__ on the CPU: {error}") from None
    return array


def reduced(tensor: TensorBase) -> tuple[Any, ...]:
    """What pickle stores: the elements, the device's name, and whether gradients are wanted.

    Raises:
        GradientError: the tensor has a history, which cannot be stored.
    """
    _check_leaf("pickle", tensor)
    wanted = tensor.grad_meta is not None and tensor.grad_meta.requires_grad
    array = np.ascontiguousarray(tensor.on_host()).reshape(tensor.shape)
    return rebuilt, (type(tensor), array, str(tensor.device), wanted)


def rebuilt(cls: type[TensorBase], array: npt.NDArray[Any], place: str, requires_grad: bool) -> Any:
    """The tensor that was stored.

    Raises:
        UnknownDeviceError, BackendMissingError: its device is not here.
    """
    made = _made(cls, from_host(cls.result_class, array, device(place), copy=True))
    if requires_grad:
        made.grad_meta = tape.GradMeta()
        made.grad_meta.requires_grad = True
    return made


def deepcopied(tensor: TensorBase, memo: dict[int, Any]) -> Any:
    """A copy with memory of its own, and of its gradient too.

    Raises:
        GradientError: the tensor has a history, which cannot be copied.
    """
    _check_leaf("deepcopy", tensor)
    if id(tensor) not in memo:
        copied = fresh_copy(tape.alias(tensor))
        made = _made(type(tensor), copied)
        memo[id(tensor)] = made
        if tensor.grad_meta is not None:
            made.grad_meta = tape.GradMeta()
            made.grad_meta.requires_grad = tensor.grad_meta.requires_grad
            if tensor.grad_meta.grad is not None:
                made.grad_meta.grad = deepcopied(tensor.grad_meta.grad, memo)
    return memo[id(tensor)]


def _check_leaf(name: str, tensor: TensorBase) -> None:
    if tensor.grad_meta is not None and tensor.grad_meta.node is not None:
        raise GradientError(f"[{name}] an op made this tensor and gradients flow through it; use .detach()")


def _made(cls: type[TensorBase], tensor: TensorBase) -> TensorBase:
    """A tensor as one of its subclasses, whatever that is made with otherwise."""
    made = cls.__new__(cls)
    TensorBase.__init__(made, tensor.storage, tensor.shape, tensor.dtype, tensor.device)
    return made
