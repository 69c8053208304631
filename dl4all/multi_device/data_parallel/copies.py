"""Copies between the host and the devices of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.transfer import upload
from dl4all.ops.memory.views import contiguous
from dl4all.runtime.profiler.phase import phase
from dl4all.runtime.simulated import clock
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor


class Fetch:
    """A tensor on its way to the host, beside what its device goes on to compute.

    Args:
        tensor: nobody may write it until :meth:`wait` has returned.
        name: the phase that this is a part of.
        timeout: seconds after which the device is given up.
    """

    def __init__(self, tensor: TensorBase, name: str, timeout: float | None = None) -> None:
        tensor = contiguous(tensor)
        self._shape, self._dtype, self._timeout, self._phase = tensor.shape, tensor.dtype, timeout, name
        device = tensor.device
        self._array: npt.NDArray[Any] | None = None
        if device.is_cpu:
            self._array = tensor.on_host()
            return
        itemsize = tensor.dtype.itemsize
        with phase(name):
            self._download = device.copies.download_later(
                tensor.storage, tensor.numel() * itemsize, tensor.offset * itemsize, beside=True
            )

    def wait(self) -> npt.NDArray[Any]:
        """The elements; on the CPU the tensor's own memory."""
        if self._array is None:
            with phase(self._phase):
                self._array = self._download.wait(self._timeout).view(self._dtype).reshape(self._shape)
        return self._array


def write(tensor: TensorBase, array: npt.NDArray[Any]) -> None:
    """Copy an array over a contiguous tensor that has a storage of its own."""
    device = tensor.device
    if device.simulated is not None:
        device.simulated.wait_until(device.simulated.upload(array.nbytes))
        if not device.simulated.computes:
            return
    device.write(tensor.storage, np.ascontiguousarray(array))


def wait_for_commands(device: Device) -> None:
    """Wait for what a device computes, but not for copies beside that."""
    event = device.record_event()
    if device.simulated is not None:
        device.simulated.check()
        clock.advance_to(device.simulated.computed_until)
    event.synchronize()


def give_memory(tensor: Tensor, array: npt.NDArray[Any], device: Device) -> None:
    """Give a tensor object memory with the array's elements on a device, without a look at what it had."""
    made = upload(Tensor, array, device, copy=True)
    tensor.storage, tensor.device, tensor.dtype = made.storage, device, made.dtype
    tensor.strides, tensor.offset = made.strides, 0
    tensor.grad = None
