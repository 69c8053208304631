"""Launch plans: what a call of an op came to on a device, kept for the next call like it.

Which kernel an op launches, over how many workgroups and with which push constants, follows from the
operands' shapes, strides, dtypes and the sizes of their storages, and from the op's arguments. A plan holds
that, so that such a call needs to allocate and to launch only. A device keeps its plans with the programs
that they hold (:meth:`dl4all.scheduler.device.Device.plan`), and is told to forget them when something else
changes that kernels are chosen by.

Where somebody follows each step (a capture, a profile, ``vmap``), no plan is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import active_levels
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Dispatch, Grid
from dl4all.scheduler import capture
from dl4all.scheduler.device import Device


class Call(NamedTuple):
    """A call of an op for which there may be a plan."""

    key: tuple[Any, ...]
    first: TensorBase
    storages: list[Storage]  # of the operands that are tensors
    numbers: list[Any]  # the operands that are none


def call_of(op: Any, operands: Sequence[Any]) -> Call | None:
    """What a plan is looked up by; None for calls that no plan serves."""
    if capture.active is not None or recorder.active is not None or active_levels:
        return None
    key: list[Any] = [op]
    storages: list[Storage] = []
    numbers: list[Any] = []
    first: TensorBase | None = None
    for operand in operands:
        if isinstance(operand, TensorBase):
            if first is None:
                first = operand
                if not operand.device.plannable:
                    return None
            elif operand.device is not first.device:
                return None
            storage = operand.storage
            storages.append(storage)
            key += (operand.shape, operand.strides, operand.offset, operand.dtype.num, storage.nbytes)
        else:
            numbers.append(operand)
            key.append(type(operand))
    return None if first is None else Call(tuple(key), first, storages, numbers)


class ElementwisePlan:
    """The one launch of an elementwise call; numbers among its operands and arguments may be others."""

    __slots__ = (
        "_binds", "_constants", "_groups", "_pack", "_places", "_program", "_push", "_seconds", "dtype",
        "nbytes", "shape", "strides",
    )  # fmt: skip

    def __init__(
        self,
        out: TensorBase,
        command: Dispatch,
        binds: tuple[int, ...],
        packing: struct.Struct,
        constants: Sequence[Any],
        places: Sequence[int],
    ) -> None:
        """
        Args:
            out: the result, contiguous.
            command: what was launched.
            binds: which tensor among the operands each binding is, the result's left out.
            packing: of the push constants.
            constants: the values that were packed.
            places: of the numbers among them: operands, then arguments.
        """
        self.shape: Shape = out.shape
        self.strides: Shape = out.strides
        self.dtype: np.dtype[Any] = out.dtype
        self.nbytes = out.numel() * out.dtype.itemsize
        self._program = command.program
        self._groups: Grid = command.groups
        self._push = command.push
        self._seconds = command.seconds
        self._binds = binds
        self._pack = packing.pack
        self._constants = list(constants)
        self._places = tuple(places)

    def launch(self, device: Device, storages: list[Storage], out: Storage, numbers: Sequence[Any]) -> bool:
        """Launch with other storages and numbers; False, before anything ran, if a number does not fit."""
        if numbers:
            values = self._constants.copy()
            for place, number in zip(self._places, numbers, strict=True):
                values[place] = number
            try:
                push = self._pack(*values)
            except (struct.error, OverflowError):
                return False
        else:
            push = self._push
        bound = [storages[i] for i in self._binds]
        bound.append(out)
        device.launch_again(self._program, self._groups, push, self._seconds, bound)
        return True
