"""Tensors between PyTorch, dl4all and other libraries: without a copy where they are on the same device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from dl4all.errors import DTypeError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.pytorch.device.devices import index_of_device, is_here
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.templates import EXTENSION_DEVICE
from dl4all.tensor.tensor import Tensor

DLPACK_CPU = (1, 0)
"""``kDLCPU`` and the device number."""


def to_dl4all(tensor: torch.Tensor) -> Tensor:
    """dl4all's tensor over the memory of a PyTorch tensor on ``dlall``. Neither knows the other's gradients.

    Raises:
        DTypeError: the tensor is elsewhere, or of a dtype that dl4all has not.

    >>> import torch, dl4all.torch
    >>> x = torch.ones(3, device="dlall")
    >>> own = dl4all.torch.to_dl4all(x)
    >>> x.mul_(2).tolist(), own.tolist()
    ([2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    """
    if not is_here(tensor) or tensor.dtype not in memory.NUMPY_DTYPES:
        raise DTypeError(
            f"[to_dl4all] expected a tensor on dlall of one of {', '.join(map(str, memory.NUMPY_DTYPES))}, "
            f"got {tensor.dtype} on {tensor.device}; use .to(...) first"
        )
    return memory.tensor(tensor.detach())


def from_dl4all(tensor: TensorBase) -> torch.Tensor:
    """PyTorch's tensor on ``dlall`` over the memory of a dl4all tensor. Neither knows the other's gradients.

    Raises:
        UnknownDeviceError: the tensor is on a device that has no index.

    >>> import dl4all as dl, dl4all.torch
    >>> dl4all.torch.from_dl4all(dl.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """
    index = index_of_device(tensor.device)
    dtype = memory.TORCH_DTYPES[tensor.dtype]
    if any(stride < 0 for stride in tensor.strides):
        return memory.wrap(tensor)  # PyTorch knows no negative strides
    storage = memory.torch_storage(tensor.storage, index, tensor.storage.nbytes)
    return memory.over(storage, index, dtype, tensor.shape, tensor.strides, tensor.offset)


def patch() -> None:
    """Teach PyTorch's functions for DLPack about ``dlall``."""
    tensor: Any = torch.Tensor
    tensor.__dlpack__ = _exporting(torch.Tensor.__dlpack__)
    tensor.__dlpack_device__ = _telling(torch.Tensor.__dlpack_device__)
    from_dlpack: Any = _importing(torch.utils.dlpack.from_dlpack)
    for module in (torch, torch.utils.dlpack):
        module.from_dlpack = from_dlpack  # type: ignore[attr-defined]
    module = torch.utils.dlpack
    setattr(module, "to_dlpack", _refusing(getattr(module, "to_dlpack")))  # noqa: B009, B010 - untyped there


def _exporting(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def dlpack(tensor: torch.Tensor, **options: Any) -> Any:
        if not is_here(tensor):
            return own(tensor, **options)
        if options.get("dl_device") != DLPACK_CPU or options.get("copy") is False:
            raise BufferError(
                f"[dlpack] no other library can use memory of {tensor.device}; export the tensor's .cpu(), "
                "or ask for a copy on the CPU: from_dlpack(x, device='cpu')"
            )
        options = {"max_version": options.get("max_version"), "stream": None}
        if tensor.requires_grad:
            raise BufferError("[dlpack] the tensor requires gradients; use .detach()")
        return own(tensor.cpu(), **options)

    return dlpack


def _refusing(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def to_dlpack(tensor: torch.Tensor) -> Any:
        return tensor.__dlpack__() if is_here(tensor) else own(tensor)

    return to_dlpack


def _telling(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def dlpack_device(tensor: torch.Tensor) -> Any:
        return (EXTENSION_DEVICE, tensor.get_device()) if is_here(tensor) else own(tensor)

    return dlpack_device


def _importing(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def from_dlpack(source: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        if isinstance(source, TensorBase) and not source.device.is_host:
            source = from_dl4all(source)
        if not is_here(source):
            result: torch.Tensor = own(source, device=device, copy=copy)
            return result
        if source.requires_grad:
            raise BufferError("[from_dlpack] the tensor requires gradients; use .detach()")
        target = source.device if device is None else torch.device(device)
        if copy is False and target.type != source.device.type:
            raise ValueError(
                f"[from_dlpack] {source.device} to {target} takes a copy, and copy=False forbids it"
            )
        moved: torch.Tensor = source.to(target, copy=bool(copy)).detach()
        return moved

    return from_dlpack
