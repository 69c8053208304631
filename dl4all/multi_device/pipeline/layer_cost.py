"""The cost of each layer of a chain: its work, its memory, and its result's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dl4all.errors import ArgumentError, TraceError
from dl4all.multi_device.pipeline.chain import ChainLayer
from dl4all.multi_device.replica import structure_copy
from dl4all.multi_device.trace.call_sequence import nbytes_of
from dl4all.multi_device.trace.work_trace import ENDLESS, ModuleWork, trace_work
from dl4all.nn.module import Module
from dl4all.runtime.work import WorkCounts
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.tensor.tensor import Tensor


@dataclass(frozen=True)
class LayerCost:
    """Of one layer, for one micro-batch. Sizes are in bytes."""

    name: str
    forward: WorkCounts
    backward: WorkCounts
    learned: int  # parameters with gradients
    constant: int  # other parameters, and buffers
    kept: int  # for the way back, without what layers before keep anyway
    temporary: int  # beside that, at most
    output: int  # the result
    keeps_output: bool  # whether the result is among what is kept


def layer_costs(chain: Sequence[ChainLayer], micro_batch: Tensor) -> list[LayerCost]:
    """The costs of the layers for a micro-batch like this one.

    Raises:
        ArgumentError: a layer does not run where nothing is computed, or returns no tensor.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.multi_device.pipeline.chain import chain_of
        >>> network = dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.ReLU())
        >>> for cost in layer_costs(chain_of(network), dl.ones(2, 4)):
        ...     print(cost.name, cost.learned, cost.kept, cost.output)
        0 160 0 64
        1 0 64 64
    """
    sizes: list[int] = []

    def note(result: Any) -> None:
        if not isinstance(result, Tensor):
            raise ArgumentError(f"it returns {type(result).__name__}, not a tensor")
        sizes.append(nbytes_of(result))

    network = structure_copy(_Network(chain, note), simulated_device(computes=False, memory=ENDLESS))
    for module in network.modules():
        vars(module).update(_call_hooks={})  # for runs that compute
    try:
        trace = trace_work(network, micro_batch)
    except Exception as error:
        cause = error.__cause__ if isinstance(error, TraceError) else error
        name = chain[len(sizes) % len(chain)].name
        raise ArgumentError(
            f"[pipeline] {name!r} cannot be measured where nothing is computed ({cause}); "
            "say by split= which layers the stages begin with"
        ) from error
    works: list[list[ModuleWork]] = [[] for _ in chain]
    for work in trace.modules:
        if work.child:
            works[int(work.child)].append(work)
    return [_cost(*each) for each in zip(chain, works, sizes[-len(chain) :], strict=True)]


class _Network(Module):
    """The layers one after the other, each within a module of its own, whatever they share."""

    def __init__(self, chain: Sequence[ChainLayer], note: Callable[[Any], None]) -> None:
        super().__init__()
        self._note, self._count = note, len(chain)
        for number, layer in enumerate(chain):
            setattr(self, str(number), _Link(layer))

    def forward(self, x: Any) -> Any:
        for number in range(self._count):
            x = getattr(self, str(number))(x)
            self._note(x)
        return x


class _Link(Module):
    def __init__(self, layer: ChainLayer) -> None:
        super().__init__()
        self.call = layer.call

    def forward(self, x: Any) -> Any:
        return self.call(x)


def _cost(layer: ChainLayer, works: Sequence[ModuleWork], output: int) -> LayerCost:
    module = layer.call if isinstance(layer.call, Module) else Module()
    learned = sum(nbytes_of(p) for p in module.parameters() if p.requires_grad)
    state = {id(tensor): tensor for tensor in module.state_dict(keep_vars=True).values()}
    kept = most = 0
    for work in works:
        kept += work.saved
        most = max(most, kept + work.workspace)
    return LayerCost(
        layer.name,
        sum((work.forward for work in works), WorkCounts()),
        sum((work.backward for work in works), WorkCounts()),
        learned,
        sum(map(nbytes_of, state.values())) - learned,
        kept,
        max(0, most - kept),
        output,
        bool(works) and works[-1].keeps_output,
    )
