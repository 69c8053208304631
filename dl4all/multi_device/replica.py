"""Copies of a model's structure on other devices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from dl4all.nn.module import Module, Parameter
from dl4all.ops.core import tape
from dl4all.ops.core.op import empty
from dl4all.scheduler.device import Device
from dl4all.tensor.tensor import Tensor

Convert = Callable[[Module, Module], Module]
"""Called with each module of a model and its copy; returns what takes the copy's place."""

HOOKS = ("_hooks", "_pre_hooks")  # of modules; copies call those that are added later, too


class Replica:
    """A copy of a model's structure whose parameters and buffers lie on a device.

    On the model's own device the copy's tensors share the model's memory. Elsewhere their contents are
    undefined until somebody copies them.

    Args:
        model: any module; it stays as it is.
        device: where the copy computes.
        convert: may put other modules in place of the copy's.
    """

    def __init__(self, model: Module, device: Device, convert: Convert = lambda source, made: made) -> None:
        self.device = device
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}
        """By the identity of the model's tensors: each, and the copy's."""
        self._modules: dict[int, tuple[Module, Module]] = {}
        self._names: dict[int, set[str]] = {}  # of the attributes that the model's modules had
        self._convert = convert
        self._model = model
        self.module = self._module_of(model)

    def follow(self) -> None:
        """Take over what has changed in the model since: memory, attributes, modes, modules."""
        seen: set[int] = set()
        stack = [self._model]
        while stack:
            source = stack.pop()
            if id(source) in seen:
                continue
            seen.add(id(source))
            made = vars(self._module_of(source))
            for name, value in vars(source).items():
                if isinstance(value, Tensor):
                    made[name] = self._tensor_of(value)
                elif isinstance(value, Module):
                    made[name] = self._module_of(value)
                    stack.append(value)
                elif name in HOOKS or not isinstance(value, (dict, set)):
                    made[name] = value
            for name in self._names[id(source)] - vars(source).keys():
                made.pop(name, None)
            self._names[id(source)] = set(vars(source))

    def _module_of(self, source: Module) -> Module:
        if id(source) in self._modules:
            return self._modules[id(source)][1]
        made = copy.copy(source)
        for name, value in vars(source).items():
            if isinstance(value, Tensor):
                vars(made)[name] = self._tensor_of(value)
            elif isinstance(value, Module):
                vars(made)[name] = self._module_of(value)
            elif isinstance(value, (dict, set)) and name not in HOOKS:
                vars(made)[name] = copy.copy(value)  # what a layer keeps there belongs to its device
        made = self._convert(source, made)
        self._modules[id(source)] = source, made
        self._names[id(source)] = set(vars(source))
        return made

    def _tensor_of(self, source: Tensor) -> Tensor:
        if id(source) in self.pairs:
            made = self.pairs[id(source)][1]
            alike = made.dtype == source.dtype and made.shape == source.shape
            if alike and made.requires_grad == source.requires_grad:
                if source.device is self.device and made.storage is not source.storage:
                    made.storage, made.strides, made.offset = source.storage, source.strides, source.offset
                return made
        if source.device is self.device:
            memory: Any = tape.alias(source)
        else:
            memory = empty(Tensor, source.shape, source.dtype, self.device, "replica")
        made = Parameter(memory, source.requires_grad) if isinstance(source, Parameter) else memory
        self.pairs[id(source)] = source, made
        return made
