"""Tensors between the host and devices, and from one device to another.

Here, and not in ops, the time passes that the links of simulated devices take.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.ops.core.limits import host_memory
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.runtime import fork
from dl4all.scheduler import listeners
from dl4all.scheduler.device import link
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.download import Download
from dl4all.scheduler.streams.stream import Stream
from dl4all.scheduler.streams.task import Task

_streams: dict[str, Stream] = {}
"""Threads that bring what devices send to other ones, by the name of the device that sends."""
_streams_lock = fork.lock()


def upload(cls: type[TensorBase], array: npt.NDArray[Any], device: Device, *, copy: bool) -> Any:
    """A tensor of class `cls` with the array's elements; with ``copy=False`` the CPU uses its memory.

    Raises:
        OutOfMemoryError
    """
    simulated = device.simulated
    with host_memory("to"):
        result = from_host(cls, array, device, copy=copy or simulated is not None)
    if simulated is not None:
        link.receive(simulated, result.storage)
    return result


def download(tensor: TensorBase) -> npt.NDArray[Any]:
    """The elements as a NumPy array: on the CPU the tensor's own memory, elsewhere a copy."""
    array = tensor.on_host(each=False)
    simulated = tensor.device.simulated
    if simulated is None:
        return array
    link.send(simulated, array.nbytes).synchronize()
    return array.copy()


def move(tensor: TensorBase, device: Device, *, non_blocking: bool = False) -> Any:
    """A copy of a tensor on another device, without a gradient.

    Args:
        tensor: any strides. It may be changed at once.
        device: that of the result.
        non_blocking: do not wait for its device. Whoever uses the result does, and gets the errors.

    Raises:
        OutOfMemoryError
    """
    blocking = not non_blocking or listeners.profiled() or 0 in tensor.shape
    if blocking or isinstance(tensor, BatchedTensorBase):
        return _move_at_once(tensor, device)
    origin = tensor.device
    if origin.is_host:
        storage = _sent_from_host(tensor, device)
    else:
        start, stop = tensor.byte_range()
        coming = origin.copies.download_later(tensor.storage, stop - start, start)
        storage = device.copies.reserve(_nbytes(tensor))
        bring = functools.partial(_bring, coming, tensor.strided(start), device, storage)
        if origin.asynchronous:
            task = _stream_from(origin).submit(bring, name=f"to {device}")
            for one in (origin, device):
                one.copies.note(task)
            storage.pending = functools.partial(_await, task)
        else:
            storage.pending = bring()
        if device.simulated is not None:
            storage.settle()
            link.receive_later(device.simulated, storage)
    return type(tensor).result_class(storage, tensor.shape, tensor.dtype, device)


def _nbytes(tensor: TensorBase) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _move_at_once(tensor: TensorBase, device: Device) -> Any:
    cls, origin = type(tensor).result_class, tensor.device
    if origin.is_host or isinstance(tensor, BatchedTensorBase):
        array = tensor.on_host()
        if origin.simulated is not None:
            link.send(origin.simulated, array.nbytes).synchronize()
        return upload(cls, array, device, copy=True)
    start = tensor.offset * tensor.dtype.itemsize
    whole_words = start % 4 == 0 and tensor.is_contiguous() and 0 not in tensor.shape
    if not whole_words or listeners.profiled() or not (device.is_host or device.asynchronous):
        return upload(cls, tensor.on_host(), device, copy=False)
    storage = device.copies.reserve(_nbytes(tensor))
    memory = device.copies.host_memory(storage)
    if memory is not None:  # no array in between
        origin.download(tensor.storage, memory, start)
    else:
        storage.pending = device.copies.deliver(storage, tensor.on_host())
    if device.simulated is not None:
        link.receive(device.simulated, storage)
    return cls(storage, tensor.shape, tensor.dtype, device)


def _sent_from_host(tensor: TensorBase, device: Device) -> Storage:
    """A copy of a tensor in the host's memory, which a simulated device may own, on its way to a device."""
    array, origin = tensor.on_host(), tensor.device
    sent = link.NOW if origin.simulated is None else link.send(origin.simulated, array.nbytes)
    storage = device.copies.reserve(array.nbytes)
    to_wait_for = device.copies.deliver(storage, array)
    if device.simulated is not None:
        link.receive_later(device.simulated, storage, sent)
    elif origin.simulated is not None:
        storage.pending = functools.partial(_await_both, sent, to_wait_for)
    else:
        storage.pending = to_wait_for
    return storage


def _bring(
    coming: Download, elements: Callable[..., npt.NDArray[Any]], device: Device, storage: Storage
) -> Callable[[], None] | None:
    """Copy what comes from one device to memory of another one; returns what ``copies.deliver`` does."""
    return device.copies.deliver(storage, elements(coming.wait()))


def _await(task: Task) -> None:
    to_wait_for = task.result()
    if to_wait_for is not None:
        to_wait_for()


def _await_both(sent: link.Arrival, to_wait_for: Callable[[], None] | None) -> bool:
    if to_wait_for is not None:
        to_wait_for()
    return sent.await_each_time()


def _stream_from(device: Device) -> Stream:
    """The thread that waits for a device's copies. It is the CPU's, so that it keeps no other device open."""
    with _streams_lock:
        stream = _streams.get(device.name)
        if stream is None or stream.closed:  # as all are when the devices are closed
            stream = _streams[device.name] = Stream("cpu", name=f"copies from {device}")
        return stream
