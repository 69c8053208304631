"""Copies between the host and the devices of a group, with their place in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.runtime.profiler.phase import phase


class Fetch:
    """A tensor on its way to the host. The device goes on with what it is given meanwhile.

    Args:
        tensor: nobody may write it until :meth:`wait` has returned.
        name: the phase that this is a part of.
    """

    def __init__(self, tensor: TensorBase, name: str) -> None:
        self._tensor, self._phase = contiguous(tensor), name
        simulated = tensor.device.simulated
        self._ready = None if simulated is None else simulated.computed_until

    def wait(self) -> npt.NDArray[Any]:
        """The elements; on the CPU the tensor's own memory."""
        tensor, simulated = self._tensor, self._tensor.device.simulated
        with phase(self._phase):
            if simulated is not None:
                simulated.download(tensor.numel() * tensor.dtype.itemsize, self._ready)
            return tensor.on_host()


def write(tensor: TensorBase, array: npt.NDArray[Any]) -> None:
    """Copy an array over a contiguous tensor that has a storage of its own."""
    device = tensor.device
    if device.simulated is not None:
        device.simulated.wait_until(device.simulated.upload(array.nbytes))
        if not device.simulated.computes:
            return
    device.write(tensor.storage, np.ascontiguousarray(array))
