"""The structure of a model on another device: the same modules, and tensors without values."""

from __future__ import annotations

import copy
from typing import Any

from dl4all.nn.module import Module, Parameter
from dl4all.scheduler.device import Device
from dl4all.tensor.creation import empty
from dl4all.tensor.tensor import Tensor


def structure_copy(model: Module, device: Device) -> Module:
    """A copy of a model whose parameters and buffers lie on a device, with undefined values.

    What the model shares, its copy shares. Hooks are taken over; the model itself is not changed.
    """
    return _Copies(device).of_module(model)


class _Copies:
    """What was copied so far, by identity."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._made: dict[int, Any] = {}

    def of_module(self, module: Module) -> Module:
        if id(module) not in self._made:
            copied: Module = copy.copy(module)
            self._made[id(module)] = copied
            attributes = vars(copied)
            for name, value in attributes.items():
                attributes[name] = self._of(value)
        made: Module = self._made[id(module)]
        return made

    def _of(self, value: Any) -> Any:
        """A copy of an attribute; whatever holds no module and no tensor stays as it is."""
        if isinstance(value, Module):
            return self.of_module(value)
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if type(value) is dict:
            return {key: self._of(item) for key, item in value.items()}
        if type(value) in (list, tuple, set):
            return type(value)(map(self._of, value))
        return value

    def _of_tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._made:
            made = empty(*tensor.shape, dtype=tensor.dtype, device=self._device)
            if isinstance(tensor, Parameter):
                made = Parameter(made, requires_grad=tensor.requires_grad)
            self._made[id(tensor)] = made
        found: Tensor = self._made[id(tensor)]
        return found
