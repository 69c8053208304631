"""Copies of a model's structure on other devices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dl4all.multi_device.snapshot import Snapshot
from dl4all.nn.module import Module, Parameter
from dl4all.ops.core import tape
from dl4all.ops.core.op import empty
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)

Convert = Callable[[Module, Module], Module]
"""Called with each module of a model and its copy; returns what takes the copy's place."""

Memory = Callable[[Tensor, Device], Tensor]
"""Called with each tensor of a model and a device; returns one of the same shape and dtype there."""

HOOKS = ("_call_hooks", "_state_hooks")  # of modules; replicas call those that are added later, too


def undefined(source: Tensor, device: Device) -> Tensor:
    """Memory without contents."""
    made: Tensor = empty(Tensor, source.shape, source.dtype, device, "replica")
    return made


def duplicated(source: Tensor, device: Device) -> Tensor:
    """Memory of its own with the present contents."""
    made: Tensor = tensor(source.detach(), device=device)
    return made


def shared(source: Tensor, device: Device) -> Tensor:
    """The same memory if it is the device's, otherwise memory without contents."""
    if source.device is not device:
        return undefined(source, device)
    alias: Any = tape.alias(source)
    made: Tensor = alias
    return made


class Replica:
    """A copy of a model's structure whose parameters and buffers lie on a device.

    What the model shares, the copy shares. On the model's own device the copy's tensors share the model's
    memory. Elsewhere their contents are undefined until somebody copies them.

    Args:
        model: any module; it stays as it is.
        device: where the copy computes.
        convert: may put other modules in place of the copy's.
        memory: what the copy's tensors get. A copy with memory of its own cannot :meth:`follow` the model.
    """

    def __init__(
        self,
        model: Module,
        device: Device,
        convert: Convert = lambda source, made: made,
        memory: Memory = shared,
    ) -> None:
        self.device = device
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}
        """By the identity of the model's tensors: each, and the copy's."""
        self._modules: dict[int, tuple[Module, Module]] = {}
        self._names: dict[int, set[str]] = {}  # of the attributes that the model's modules had
        self._convert, self._memory = convert, memory
        self._model = model
        self.module = self._module_of(model)
        self._seen: Snapshot | None = None

    def follow(self) -> None:
        """Take over what has changed in the model since: memory, attributes, modes, modules.

        What calls have changed of the copy is as in the model again.
        """
        if self._seen is not None and self._seen.holds():
            return
        seen: set[int] = set()
        stack = [self._model]
        while stack:
            source = stack.pop()
            if id(source) in seen:
                continue
            seen.add(id(source))
            made = vars(self._module_of(source))
            for name, value in vars(source).items():
                stack.extend(_modules_in(value))
                if name in HOOKS or not isinstance(value, (dict, set)):
                    made[name] = self._of(value)
            for name in self._names[id(source)] - vars(source).keys():
                made.pop(name, None)
            self._names[id(source)] = set(vars(source))
            self._module_of(source)._on_replica(self.device)
        self._seen = Snapshot([self._model, self.module])

    def _module_of(self, source: Module) -> Module:
        if id(source) in self._modules:
            return self._modules[id(source)][1]
        made = copy.copy(source)
        self._modules[id(source)] = source, made  # for modules that know what they lie in
        for name, value in vars(source).items():
            of_value = self._of(value)
            if of_value is value and isinstance(value, (dict, set, list)) and name not in HOOKS:
                of_value = copy.copy(value)  # what a layer keeps there belongs to its device
            vars(made)[name] = of_value
        made = self._convert(source, made)
        self._modules[id(source)] = source, made
        self._names[id(source)] = set(vars(source))
        made._on_replica(self.device)
        return made

    def _of(self, value: Any) -> Any:
        """A copy of an attribute; whatever holds no module and no tensor is the attribute itself."""
        if isinstance(value, Tensor):
            return self._tensor_of(value)
        if isinstance(value, Module):
            return self._module_of(value)
        if type(value) is dict:
            items = {key: self._of(part) for key, part in value.items()}
            return items if any(items[key] is not value[key] for key in value) else value
        if type(value) in (list, tuple, set):
            parts = [(part, self._of(part)) for part in value]
            return type(value)(made for _, made in parts) if any(a is not b for a, b in parts) else value
        return value

    def _tensor_of(self, source: Tensor) -> Tensor:
        if id(source) in self.pairs:
            made = self.pairs[id(source)][1]
            alike = made.dtype == source.dtype and made.shape == source.shape
            if alike and made.requires_grad == source.requires_grad:
                shares = self._memory is shared and source.device is self.device
                if shares and made.storage is not source.storage:
                    made.storage, made.strides, made.offset = source.storage, source.strides, source.offset
                return made
        memory = self._memory(source, self.device)
        made = Parameter(memory, source.requires_grad) if isinstance(source, Parameter) else memory
        self.pairs[id(source)] = source, made
        return made


def structure_copy(model: M, device: Device, memory: Memory = undefined) -> M:
    """A copy that does not follow its model: whatever is done to one of them, the other stays as it is.

    Args:
        model: any module; what it shares, its copy shares. Its hooks of now are the copy's, too.
        device: where the copy computes.
        memory: :func:`undefined`, where only shapes matter, or :func:`duplicated`.

    >>> import dl4all as dl
    >>> model = dl.nn.Linear(2, 2)
    >>> made = structure_copy(model, dl.device("cpu"), duplicated)
    >>> made.weight is model.weight, made.weight.tolist() == model.weight.tolist()
    (False, True)
    """
    replica = Replica(model, device, memory=memory)
    made: Any = replica.module
    for _, module in replica._modules.values():
        for name in HOOKS:
            vars(module)[name] = dict(vars(module)[name])
    result: M = made
    return result


def _modules_in(value: Any) -> Iterator[Module]:
    if isinstance(value, Module):
        yield value
    elif isinstance(value, (dict, list, tuple, set)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _modules_in(part)
