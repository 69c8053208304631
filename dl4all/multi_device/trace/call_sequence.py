"""A run of a network as a sequence of calls, with the tensors that go between them or the work of each.

A call is that of a module without modules below it. What a module does between the calls of those below it,
such as the sum of a residual block, is a call of its own, so that the sequence covers the run without gaps.
Two runs of one network with inputs of the same shapes have the same sequence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dl4all.multi_device.structure import tensors_of
from dl4all.nn.module import Module
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.work import WorkCounts
from dl4all.scheduler.device.device import Device


@dataclass
class ModuleCall:
    """A call and what it does."""

    path: str
    module: Module | None  # None between the calls of modules
    within: tuple[int, ...]  # the calls of modules that it is part of, by number, the outermost first
    child: str = ""  # the path of the module directly below the network that it is part of
    forward: WorkCounts = field(default_factory=WorkCounts)
    backward: WorkCounts = field(default_factory=WorkCounts)
    saved: int = 0  # bytes that stay for the backward pass
    output: int = 0  # bytes of a module's results
    keeps_output: bool = True  # whether these stay, too; taken for granted where they are not known
    peak: int = 0  # the most bytes that are in memory meanwhile, beside the network and its inputs
    backward_peak: int = 0


class CallSequence:
    """The calls of a run, in order. What observes more of them overrides :meth:`moved_on`."""

    def __init__(self, network: Module) -> None:
        self.calls: list[ModuleCall] = []
        self._paths = {module: path for path, module in network.named_modules()}
        self._leaves = {module for module in self._paths if not any(True for _ in module.children())}
        self._open: list[tuple[Module, int]] = []  # with the number of the call
        self._count = 0  # of calls of modules

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the network's calls, and observe the nodes that they leave, in the ``with`` block."""
        removals = [module.register_forward_pre_hook(self._begin) for module in self._paths]
        removals += [module.register_forward_hook(self._end) for module in self._paths]
        try:
            with tape.changed(observer=self):
                yield
        finally:
            for remove in removals:
                remove()

    def move_on(self, path: str, module: Module | None) -> None:
        """Begin another call."""
        child = self._paths[self._open[1][0]] if len(self._open) > 1 else ""
        self.calls.append(ModuleCall(path, module, tuple(number for _, number in self._open), child))
        self.moved_on()

    def moved_on(self) -> None:
        """Another call has begun."""

    def keeps(self, tensors: Iterable[TensorBase]) -> bool:
        """Whether tensors stay in memory when the call that made them ends."""
        return True

    def _begin(self, module: Module, inputs: Any) -> None:
        if self.follows:
            self._open.append((module, self._count))
            self._count += 1
            self.move_on(self._paths[module], module if module in self._leaves else None)

    def _end(self, module: Module, inputs: Any, output: Any) -> None:
        if self.follows:
            if module in self._leaves:
                self.calls[-1].output = sum(map(nbytes_of, tensors_of(output)))
                self.calls[-1].keeps_output = self.keeps(tensors_of(output))
            self._open.pop()
            self.move_on(self._paths[self._open[-1][0]] if self._open else "", None)

    follows = True
    """Whether calls of modules count: not those that a backward pass repeats."""

    def made(self, node: tape.GradientNode, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        """An op has run and left a node."""

    def entered(self, node: tape.GradientNode) -> None:
        """The backward pass has come to a node."""


class DataFlow(CallSequence):
    """The tensors that go from call to call: storages, which views share, as far as nodes tell of them."""

    def __init__(self, network: Module, inputs: Iterable[TensorBase]) -> None:
        super().__init__(network)
        self._state = {id(tensor.storage): tensor for tensor in network.state_dict(keep_vars=True).values()}
        self._spans: dict[int, list[int]] = {}  # of storages: the first and the last call that knows of it
        self._nbytes: dict[int, int] = {}  # of the largest tensor on it that a call has used
        self._alive: list[Any] = []  # a storage that were gone could have its identity taken by another one
        self._added: dict[
            int, list[TensorBase]
        ] = {}  # parameters and buffers by the first call that uses them
        for tensor in inputs:
            self._touch(tensor, -1)

    def moved_on(self) -> None:
        module = self.calls[-1].module
        if module is not None:
            for tensor in module.state_dict().values():
                self._touch(tensor, len(self.calls) - 1)

    def made(self, node: tape.GradientNode, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        for tensor in (*inputs, *outputs):
            if isinstance(tensor, TensorBase):
                self._touch(tensor, len(self.calls) - 1)

    def end(self, outputs: Iterable[TensorBase]) -> None:
        """The outputs are used by the network's caller; what no call has used belongs to the first."""
        for tensor in outputs:
            self._touch(tensor, len(self.calls))
        for key, tensor in self._state.items():
            if key not in self._spans:
                self._touch(tensor, 0)

    def _touch(self, tensor: TensorBase, call: int) -> None:
        key = id(tensor.storage)
        if key not in self._spans:
            self._spans[key] = [call, call]
            self._alive.append(tensor.storage)
            if key in self._state:
                self._added.setdefault(call, []).append(self._state[key])
        self._spans[key][1] = call
        self._nbytes[key] = max(self._nbytes.get(key, 0), nbytes_of(tensor))

    def added(self) -> list[list[TensorBase]]:
        """The parameters and buffers that each call is the first to use; at the end, what follows it."""
        return [self._added.get(call, []) for call in range(len(self.calls) + 1)]

    def cuts(self) -> list[int | None]:
        """Bytes that go on behind each call if the network is cut there; None where it cannot be cut.

        One tensor goes on behind a cut, and no parameter or buffer is used on both sides. The inside of a
        module is cut only if it is a chain, which can be cut everywhere between the modules directly below
        it: residual blocks stay whole.
        """
        plain = [self._crossing(call) for call in range(len(self.calls))]
        whole: set[int] = set()  # calls of modules that are no chains
        around = [self._around(call) for call in range(len(self.calls))]
        for nbytes, open_calls in zip(plain, around, strict=True):
            if nbytes is None and len(open_calls) > 1:  # the network itself need not be a chain
                whole.add(open_calls[-1])
        return [
            None if whole.intersection(open_calls) else nbytes
            for nbytes, open_calls in zip(plain, around, strict=True)
        ]

    def _around(self, call: int) -> tuple[int, ...]:
        """The calls of modules that go on behind a call."""
        following = self.calls[call + 1].within if call + 1 < len(self.calls) else ()
        return tuple(number for number in self.calls[call].within if number in following)

    def _crossing(self, call: int) -> int | None:
        crossing = [key for key, (first, last) in self._spans.items() if first <= call < last]
        if len(crossing) != 1 or crossing[0] in self._state:
            return None
        return self._nbytes[crossing[0]]


class Ledger(CallSequence):
    """The work of each call, forward and backward, on a simulated device, and the memory that it takes."""

    def __init__(self, network: Module, device: Device, inputs: Iterable[TensorBase]) -> None:
        super().__init__(network)
        self._device = device
        # What is in memory anyway.
        self._known = {id(tensor.storage) for tensor in (*network.state_dict().values(), *inputs)}
        self._calls_of_nodes: dict[int, int] = {}  # by number
        self._now: tuple[ModuleCall, bool] | None = None  # the call, and whether it is its backward pass
        self._there = device.pool.stats.allocated

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        with tape.changed(recompute_hook=self._saves), super().attached():
            yield
            self._settle()

    def moved_on(self) -> None:
        self._work_for(self.calls[-1], backward=False)

    def made(self, node: tape.GradientNode, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        self._calls_of_nodes[node.number] = len(self.calls) - 1

    def begin_backward(self) -> None:
        """Attribute further work to the forward calls whose backward runs."""
        self.follows = False
        self._work_for(self.calls[-1], backward=True)

    def entered(self, node: tape.GradientNode) -> None:
        self._work_for(self.calls[self._calls_of_nodes.get(node.number, -1)], backward=True)

    def _work_for(self, call: ModuleCall, *, backward: bool) -> None:
        """Let launches count for a call."""
        self._settle()
        assert self._device.simulated is not None
        self._device.simulated.work = call.backward if backward else call.forward
        self._now = call, backward
        self._device.pool.reset_peak()

    def _settle(self) -> None:
        """Note the memory that the present call has taken."""
        if self._now is not None:
            call, backward = self._now
            peak = self._device.pool.stats.peak - self._there
            if backward:
                call.backward_peak = max(call.backward_peak, peak)
            else:
                call.peak = max(call.peak, peak)

    def keeps(self, tensors: Iterable[TensorBase]) -> bool:
        return any(id(tensor.storage) in self._known for tensor in tensors)

    def _saves(self, tensor: TensorBase) -> None:
        if id(tensor.storage) not in self._known:
            self._known.add(id(tensor.storage))
            self.calls[-1].saved += tensor.storage.nbytes


def nbytes_of(tensor: TensorBase) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.dtype.itemsize
