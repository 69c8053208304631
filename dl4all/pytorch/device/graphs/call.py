"""Graphs of ``torch.compile`` as compiled calls of dl4all.

AOTAutograd hands over a graph of ATen ops. Its first calls run it op by op through the kernels of ``dlall``,
while :func:`dl4all.compile` listens; from then on calls replay what was traced, with no work of PyTorch but
to make tensors over the results. Views are metadata and leave no trace.

Results are new memory in each call, so that nothing is written over that a caller still holds. A result that
is a view of an argument, or the argument itself, shows the memory of this call's argument.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dl4all.graph.run.compiled import Compiled, CompileWarning, Mode
from dl4all.graph.tracing.trace import Tracer
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.untracked import Untracked
from dl4all.ops.memory.copy import fresh_copy
from dl4all.pytorch.device.devices import device_at, is_here
from dl4all.pytorch.device.dispatch.host_operands import HostOperands
from dl4all.pytorch.device.graphs import parts as graph_parts
from dl4all.pytorch.device.graphs.parts import GraphPart
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.memory import NotNative, carrier
from dl4all.scheduler import listeners

MOST_SIZES = 4096
"""Sizes that a graph remembers to have been called with."""

MOST_PARTS = 32
"""A graph of more parts runs op by op: they would cost more than recording them saves."""


class _Runner(Untracked):
    """Runs a graph op by op, on PyTorch's tensors of the call in progress in this thread."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = module
        self.dtypes: list[torch.dtype | None] = []  # of the results
        self._calls = threading.local()

    def begin(self, given: list[Any]) -> None:
        """Take the arguments of a call."""
        self._calls.given, self._calls.results = given, None

    def end(self) -> list[Any] | None:
        """PyTorch's results of the call; None if it was replayed."""
        results: list[Any] | None = self._calls.results
        del self._calls.given, self._calls.results
        return results

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """The results as dl4all's tensors, given those over the arguments."""
        given = self._calls.given
        results = self._calls.results = list(self.module(*given))
        self.dtypes = [one.dtype if isinstance(one, torch.Tensor) else None for one in results]
        if listeners.captured() and any(
            isinstance(tensor, TensorBase) and memory.memory_of(one.untyped_storage()) is not tensor.storage
            for one, tensor in zip(given, tensors, strict=True)
        ):
            listeners.refuse("gives an argument other memory")
        known = {id(one): tensor for one, tensor in zip(given, tensors, strict=True)}
        own: list[Any] = []
        for one in results:
            if isinstance(one, torch.Tensor) and id(one) not in known:
                try:
                    own.append(_shown(carrier(one)))
                except NotNative as problem:
                    own.append(None)
                    listeners.refuse(f"returns a tensor that is not the device's: {problem}")
            else:
                own.append(known.get(id(one), one))
        return own


def _shown(result: TensorBase) -> TensorBase:
    """A result as a replay gives it: of elements that came from the host it makes a copy for each caller."""
    constant = any(isinstance(one, Tracer) and one.is_constant(result) for one in listeners.here())
    return fresh_copy(result) if constant else result


class _Function:
    """The compiled function: the runner with the tensors that it sees besides the arguments of a call."""

    def __init__(self, name: str, runner: _Runner, constants: Sequence[TensorBase]) -> None:
        self.__name__ = name
        self.runner = runner
        self.constants = list(constants)
        self.fixed: list[TensorBase] = []

    def __call__(self, fixed: Sequence[int], arguments: Sequence[Any]) -> list[Any]:
        """Run it with fixed arguments, at these positions, and others, with None in their places."""
        tensors = list(arguments)
        for position, tensor in zip(fixed, self.fixed, strict=True):
            tensors[position] = tensor
        return self.runner.run(tensors)


class GraphCall:
    """A graph of ATen ops, called with the tensors and integers of its placeholders.

    Args:
        module: the graph; its output is a tuple or list.
        name: what warnings call it.
        mode: of :func:`dl4all.compile`.
        host: how arguments and results of the CPU get onto the device and back.
        fixed: positions of arguments that are the same tensors in each call, such as parameters in inference:
            what follows from them alone is computed once.
        observed: whether it is known that all of the graph runs on the device.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        name: str,
        mode: Mode,
        host: HostOperands,
        fixed: Sequence[int] = (),
        observed: bool = False,
    ) -> None:
        self.module, self.name, self._host, self._observed = module, name, host, observed
        self._runner = _Runner(module)
        own = [carrier(one) for one in constants(module).values() if is_here(one)]
        self._function = _Function(name, self._runner, own)
        self._fixed = tuple(fixed)
        self._arguments = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        self._fixed_names = {self._arguments[position] for position in fixed}
        self._parts: list[tuple[GraphPart, Callable[[list[Any]], Any]]] = []
        self._sizes: set[tuple[Any, ...]] = set()
        self.compiled = Compiled(self._function, mode)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run the graph.

        Args:
            arguments: tensors and integers, in the order of the placeholders; the list is emptied.

        Returns:
            The results in their order.
        """
        original = list(arguments)
        arguments.clear()
        given = self._host.arrive(original)
        if self._is_new_size(given):
            results = list(self.module(*given))
        elif self._parts:
            results = self._run_parts(given)
        elif self._observed:
            results = self._run(given)
        else:
            results = self._observe(given)
        return self._host.leave(results, given, original)

    def _observe(self, given: list[Any]) -> list[Any]:
        """Run the first call, and cut the graph into parts if some of its nodes run on the CPU."""
        observed = graph_parts.observe(self.module, given, device_at(self._host.index))
        if observed is None:
            return list(self.module(*given))
        self._observed = True
        reasons = observed.reasons
        if reasons:
            parts = graph_parts.cut(self.module, reasons)
            if len(parts) <= MOST_PARTS:
                self._parts = [(part, self._part_call(part)) for part in parts]
                recorded = sum(not part.on_host for part in parts)
                what = f"is recorded in {recorded} parts, as it {next(iter(reasons.values()))}"
                warnings.warn(f"[torch.compile] the {self.name} {what}", CompileWarning, stacklevel=2)
        return observed.results

    def _part_call(self, part: GraphPart) -> Callable[[list[Any]], Any]:
        if part.on_host:
            return lambda arguments: part.module(*arguments)
        positions = [at for at, name in enumerate(part.inputs) if name in self._fixed_names]
        host = HostOperands(self._host.index)
        return GraphCall(part.module, self.name, self.compiled.mode, host, positions, observed=True)

    def _run_parts(self, given: list[Any]) -> list[Any]:
        values = dict(zip(self._arguments, given, strict=True))
        for part, call in self._parts:
            values.update(zip(part.outputs, call([values[name] for name in part.inputs]), strict=True))
            for name in part.last_uses:
                del values[name]
        return list(graph_parts.returned_by(self.module, values))

    def _is_new_size(self, given: list[Any]) -> bool:
        """Whether a graph of varying sizes is called with these for the first time.

        Such calls are not traced, as sizes that grow with each call, as those of generated text, never
        come again.
        """
        sizes = tuple(one for one in given if not isinstance(one, torch.Tensor))
        if not sizes or sizes in self._sizes:
            return False
        if len(self._sizes) < MOST_SIZES:
            self._sizes.add(sizes)
        return True

    def recordings(self) -> int:
        """The number of recordings of all its parts and kinds of arguments."""
        parts = [call for _, call in self._parts if isinstance(call, GraphCall)]
        own = sum(map(len, self.compiled.specializations.values()))
        return own + sum(part.recordings() for part in parts)

    def reset(self) -> None:
        """Forget what was traced, and free its memory."""
        self.compiled.reset()
        for _, call in self._parts:
            if isinstance(call, GraphCall):
                call.reset()

    def _run(self, given: list[Any]) -> list[Any]:
        tensors = _carriers(given)
        if tensors is None:
            return list(self.module(*given))
        varying = self._without_fixed(tensors)
        self._runner.begin(given)
        try:
            made = self.compiled(self._fixed, varying)
        finally:
            results = self._runner.end()
        return self._over(made, given, tensors) if results is None else results

    def _without_fixed(self, tensors: list[Any]) -> list[Any]:
        """The arguments with None in the places of the fixed ones.

        Where these are others than before, modules share the graph, as layers do that are compiled one by
        one: then none is fixed any more.
        """
        known = self._function.fixed
        if not known:
            known += [tensors[position] for position in self._fixed]
        elif not all(_same(one, tensors[at]) for one, at in zip(known, self._fixed, strict=True)):
            self._fixed, self._function.fixed = (), []
            self.compiled.reset()
        varying = list(tensors)
        for one, position in zip(self._function.fixed, self._fixed, strict=True):
            tensors[position], varying[position] = one, None
        return varying

    def _over(self, made: list[Any], given: list[Any], tensors: list[Any]) -> list[Any]:
        """PyTorch's tensors over the results of a replay."""
        same, storages = {}, {}
        for one, tensor in zip(given, tensors, strict=True):
            if isinstance(tensor, TensorBase):
                same[id(tensor)] = one
                storages[id(tensor.storage)] = one.untyped_storage()
        index = self._host.index
        results = []
        for result, dtype in zip(made, self._runner.dtypes, strict=True):
            if isinstance(result, TensorBase):
                if id(result) in same:
                    result = same[id(result)]
                else:
                    own = result.storage
                    storage = storages.get(id(own))
                    if storage is None:
                        storage = storages[id(own)] = memory.torch_storage(own, index, own.nbytes)
                    assert dtype is not None
                    result = memory.over(storage, index, dtype, result.shape, result.strides, result.offset)
            results.append(result)
        return results


def _carriers(given: list[Any]) -> list[Any] | None:
    """dl4all's tensors over PyTorch's; None if it can show one of them in no way."""
    try:
        return [carrier(one) if isinstance(one, torch.Tensor) else one for one in given]
    except NotNative:
        return None


def constants(module: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors that a graph has by itself, by their names."""
    names = sorted({str(node.target) for node in module.graph.nodes if node.op == "get_attr"})
    values = {name: getattr(module, name, None) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _same(one: TensorBase, other: Any) -> bool:
    """Whether two tensors show the same memory in the same way."""
    return one.storage is other.storage and (one.shape, one.strides, one.offset) == (
        other.shape,
        other.strides,
        other.offset,
    )
