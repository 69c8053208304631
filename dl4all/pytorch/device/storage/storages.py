"""Methods of PyTorch's storages that change bytes in place, for storages on ``dlall``.

PyTorch's extension asks its C++ allocator for memory, which a backend in Python cannot have, and reads and
writes bytes at the storage's address, where no memory is. Without the functions below each of these ends the
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dl4all.errors import ArgumentError, DeviceError
from dl4all.pytorch.device.devices import NAME, index_of
from dl4all.pytorch.device.storage import memory

_Base: Any = torch._C.StorageBase
_own_new = _Base.__new__
_own_get = torch.UntypedStorage.__getitem__

ON_CPU_ONLY = {
    "_byteswap": "call storage.cpu()",
    "_resize_with_addr_": "make another one",
    "_share_fd_cpu_": "send the tensor's .cpu() to another process",
    "_share_filename_cpu_": "send the tensor's .cpu() to another process",
    "_swap_data_ptr_": "use the other storage",
}
"""Methods that would touch the bytes, and what to do instead. Some releases of PyTorch lack some of them."""


def on_device(storage: Any) -> bool:
    """Whether a storage is on ``dlall``."""
    return bool(storage.device.type == NAME)


def new_storage(cls: type, *args: Any, **options: Any) -> Any:
    """``UntypedStorage(nbytes, device=...)``: for ``dlall`` with memory of dl4all.

    Raises:
        ArgumentError: a storage on ``dlall`` is made from something else than a size.
    """
    device = options.get("device")
    if device is None or torch.device(device).type != NAME:
        return _own_new(cls, *args, **options)
    nbytes = args[0] if args else options.get("size", 0)
    if not isinstance(nbytes, int) or len(args) > 1:
        raise ArgumentError(f"[UntypedStorage] expected a number of bytes on {device}, got {args}")
    return memory.new_storage(nbytes, index_of(device))


def get(storage: Any, where: Any) -> Any:
    """``storage[i]``: a byte, or a slice of them on the CPU."""
    return storage.cpu()[where] if on_device(storage) else _own_get(storage, where)


def put(storage: Any, where: Any, value: Any) -> None:
    """``storage[i] = byte``."""
    if not on_device(storage):
        _Base.__setitem__(storage, where, value)
        return
    host = storage.cpu()
    host[where] = value
    storage.copy_(host)


def fill(storage: Any, value: int) -> Any:
    """Set all bytes."""
    if not on_device(storage):
        return _Base.fill_(storage, value)
    memory.over(storage, storage.device.index, torch.uint8, (storage.nbytes(),), (1,)).fill_(value)
    return storage


def resize(storage: Any, nbytes: int) -> Any:
    """``storage.resize_``.

    Raises:
        DeviceError: it is on ``dlall``, and its size would change, which PyTorch allows its extension only.
    """
    if not on_device(storage):
        return _Base.resize_(storage, nbytes)
    if nbytes != storage.nbytes():
        raise DeviceError(
            f"[resize_] a storage on {storage.device} of {storage.nbytes()} bytes cannot become one of "
            f"{nbytes}; resize the tensor (tensor.resize_), or make another one"
        )
    return storage


def share(storage: Any, *args: Any, **options: Any) -> Any:
    """``storage.share_memory_``.

    Raises:
        DeviceError: it is on ``dlall``: processes do not share a driver's memory.
    """
    if on_device(storage):
        raise DeviceError(
            f"[share_memory_] processes cannot share memory on {storage.device}; share the tensor's .cpu(), "
            "or move the model to the device in each process"
        )
    return _own_share(storage, *args, **options)


def write_file(storage: Any, *args: Any) -> None:
    """Write the bytes to a file, as the older format of ``torch.save`` does."""
    _own_write(storage.cpu() if on_device(storage) else storage, *args)


def read_file(storage: Any, *args: Any) -> Any:
    """Read the bytes from a file, as ``torch.load`` does from the older format."""
    if not on_device(storage):
        return _own_read(storage, *args)
    host = storage.cpu()
    _own_read(host, *args)
    return storage.copy_(host)


_own_read = torch.UntypedStorage._set_from_file
_own_write = torch.UntypedStorage._write_file
_own_share = torch.UntypedStorage.share_memory_


def _refusing(name: str, instead: str) -> Callable[..., Any]:
    own = getattr(torch.UntypedStorage, name)

    def method(storage: Any, *args: Any, **options: Any) -> Any:
        if on_device(storage):
            raise DeviceError(f"[UntypedStorage.{name}] the bytes are on {storage.device}; {instead}")
        return own(storage, *args, **options)

    return method


def patch() -> None:
    """Put them in place. All of them do on other devices what they did before."""
    storage: Any = torch.UntypedStorage
    storage.__new__ = staticmethod(new_storage)
    storage.__getitem__ = get
    storage.__setitem__ = put
    storage.fill_ = fill
    storage.resize_ = resize
    storage.share_memory_ = share
    storage._set_from_file = read_file
    storage._write_file = write_file
    for name, instead in ON_CPU_ONLY.items():
        if hasattr(storage, name):
            setattr(storage, name, _refusing(name, instead))
