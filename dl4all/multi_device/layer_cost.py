"""What each layer of a chain costs: its work, its memory, and its result's size.

The layers run on a simulated device that computes nothing, with parameters of the same shapes: the model
itself stays where and as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dl4all.autograd import backward, enable_grad
from dl4all.errors import ArgumentError
from dl4all.multi_device.chain import Layer
from dl4all.multi_device.stage import entrance_of
from dl4all.nn.module import Module, Parameter
from dl4all.ops.core.op import empty
from dl4all.ops.random.generator import default_generator, replayed
from dl4all.runtime.work import Work
from dl4all.scheduler.device import Device
from dl4all.scheduler.simulation import simulated_device
from dl4all.tensor.tensor import Tensor

UNLIMITED = 1 << 60  # bytes


@dataclass(frozen=True)
class LayerCost:
    """Of one layer, for one micro-batch. Sizes are in bytes."""

    name: str
    forward: Work
    backward: Work
    learned: int  # parameters with gradients
    constant: int  # other parameters, and buffers
    kept: int  # for the way back, with the result, and without the input if only the result is needed
    temporary: int  # beside that, at most
    output: int  # the result


def layer_costs(chain: Sequence[Layer], micro_batch: Tensor) -> list[LayerCost]:
    """The costs of the layers for a micro-batch like this one.

    Raises:
        ArgumentError: a layer does not run where nothing is computed, or returns no tensor.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.multi_device.chain import chain_of
        >>> network = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.ReLU())
        >>> for cost in layer_costs(chain_of(network), dl.ones(2, 4)):
        ...     print(cost.name, cost.learned, cost.kept, cost.output)
        0 160 64 64
        1 0 0 64
    """
    device = simulated_device(computes=False, memory=UNLIMITED)
    copies: dict[int, Any] = {}
    hollow = [_hollow(layer.call, device, copies) for layer in chain]
    x: Any = micro_batch.detach().to(device)
    costs: list[LayerCost] = []
    with enable_grad(), replayed(default_generator().get_state()):
        for layer, call in zip(chain, hollow, strict=True):
            try:
                cost = _measure(layer.name, call, x.detach(), device, first=not costs)
                before = device.pool.stats.allocated
                x = call(x)
                cost = replace(cost, kept=device.pool.stats.allocated - before)
            except Exception as error:
                raise ArgumentError(
                    f"[pipeline] {layer.name!r} cannot be measured where nothing is computed ({error}); "
                    "say by split= which layers the stages begin with"
                ) from error
            costs.append(cost)
    return costs


def _measure(name: str, call: Any, x: Tensor, device: Device, *, first: bool) -> LayerCost:
    """The cost of a layer by itself, which keeps all of its result."""
    assert device.simulated is not None
    parameters = [p for p in call.parameters() if p.requires_grad] if isinstance(call, Module) else []
    learned = sum(map(_size, parameters))
    state = call.state_dict().values() if isinstance(call, Module) else ()
    constant = sum(map(_size, {id(tensor): tensor for tensor in state}.values())) - learned
    if x.dtype.kind == "f" and not first:
        _, x = entrance_of(x)
    pool = device.pool
    before, begun = pool.stats.allocated, device.simulated.work * 1.0
    pool.reset_peak()
    y = call(x)
    if not isinstance(y, Tensor):
        raise ArgumentError(f"it returns {type(y).__name__}, not a tensor")
    kept, turned = pool.stats.allocated - before, device.simulated.work * 1.0
    if y.requires_grad:
        gradient: Tensor = empty(Tensor, y.shape, y.dtype, device)
        backward(y, gradient)
    temporary = max(0, pool.stats.peak - before - kept - learned)
    for p in parameters:
        p.grad = None
    forward, back = turned - begun, device.simulated.work - turned
    return LayerCost(name, forward, back, learned, constant, kept, temporary, _size(y))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _hollow(thing: Any, device: Device, copies: dict[int, Any]) -> Any:
    """A copy of a module's structure on a device, with undefined contents; what is shared stays shared."""
    if not isinstance(thing, (Module, Tensor)):
        return thing
    if id(thing) in copies:
        return copies[id(thing)]
    if isinstance(thing, Tensor):
        made: Tensor = empty(Tensor, thing.shape, thing.dtype, device)
        copies[id(thing)] = Parameter(made, thing.requires_grad) if isinstance(thing, Parameter) else made
        return copies[id(thing)]
    module = copies[id(thing)] = copy.copy(thing)
    for name, value in vars(thing).items():
        vars(module)[name] = _hollow(value, device, copies)
    vars(module).update(_hooks={}, _pre_hooks={})
    return module
