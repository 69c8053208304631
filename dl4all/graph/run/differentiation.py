"""Gradients of compiled calls: the backward pass is traced with the call, and becomes a graph of its own.

Where a call returns tensors that require gradients, the gradients of all that it has used are computed once
more while it is traced, for weights that stand for those to come. What the backward part reads of the forward
part is state of the forward graph, and input of the backward graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dl4all.allocator.storage import Storage
from dl4all.autograd.engine import backpropagate
from dl4all.errors import GradientError
from dl4all.graph.host.executable import HostExecutable
from dl4all.graph.ir.graph import Graph, GraphBuffer, Kind, Node, Operand, Value, buffers_of
from dl4all.graph.run.executable import Executable, Numbers
from dl4all.ops.core import tape
from dl4all.ops.core.op import empty
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.memory.copy import fill_with
from dl4all.runtime import fork
from dl4all.scheduler import listeners
from dl4all.scheduler.push_constants import Again
from dl4all.tensor.tensor import Tensor

Make = Callable[[Mapping[int, Storage], Sequence[Any]], Any]
"""Makes a result from the memory of a replay and the tensors of the call."""


def is_differentiable(tensor: Any) -> bool:
    """Whether a tensor has a history that gradients can still flow through."""
    node = None if tensor.grad_meta is None else tensor.grad_meta.node
    return node is not None and not node.freed


@dataclass
class Backward:
    """The backward part of a trace.

    ``roots`` are the positions of the results that gradients come from, ``seeds`` the tensors that stood for
    these, ``wanted`` the tensors that get gradients and ``gradients`` those, None for what is not reached.
    """

    roots: tuple[int, ...]
    seeds: list[Any]
    wanted: list[Any]
    gradients: list[Any]
    first_node: int  # of the trace that belongs to it
    first_source: int


def capture_backward(
    outputs: Sequence[Any],
    wanted: Sequence[Any],
    position: Callable[[], tuple[int, int]],
    first_autograd_node: int = 0,
) -> Backward | None:
    """Compute gradients of those results of a call that have any, while it is captured.

    They are partial derivatives: what a tensor was computed from before the call takes no part.

    Args:
        outputs: the tensors that the call has returned.
        wanted: the tensors that it may have used and that require gradients.
        position: tells how many nodes and sources the trace has so far.
        first_autograd_node: the number of the first node of autograd's graph that the call has made.

    Raises:
        GradientError: the graph was freed in part, or what it needs was changed.
    """
    roots = tuple(i for i, tensor in enumerate(outputs) if is_differentiable(tensor))
    if not roots or not wanted:
        return None
    first_node, first_source = position()
    with listeners.suspended():
        seeds = [_seed_like(outputs[i]) for i in roots]
    gradients = backpropagate(
        [outputs[i] for i in roots],
        seeds,
        retain_graph=True,
        create_graph=False,
        targets=list(wanted),
        first_node=first_autograd_node,
    )
    return Backward(roots, seeds, list(wanted), list(gradients), first_node, first_source)


def _seed_like(tensor: Any) -> Any:
    seed = empty(Tensor, tensor.shape, tensor.dtype, tensor.device)
    fill_with(seed, 1)
    return seed


def split(
    graph: Graph, first_node: int, seeds: Collection[int], gradients: Sequence[Operand]
) -> tuple[Graph, Graph]:
    """The forward and the backward part of a graph.

    Args:
        graph: of both parts, in which the seeds are inputs and the gradients are state.
        first_node: of the backward part.
        seeds: numbers of the seeds' buffers.
        gradients: those that are computed.
    """
    first, second = graph.nodes[:first_node], graph.nodes[first_node:]
    written = {value for node in first for value in node.writes}
    made, used = ({value.buffer for value in written}, {n for node in second for n in buffers_of(node)})
    crossing = {n for n in made & used if graph.buffers[n].kind in ("temporary", "output", "state")}
    last = {value.buffer: value for node in first for value in node.writes}
    outside = ("captured", "input")

    def with_kinds(kinds: Mapping[int, Kind]) -> dict[int, GraphBuffer]:
        return {n: replace(buffer, kind=kinds.get(n, buffer.kind)) for n, buffer in graph.buffers.items()}

    shown = {operand.value for operand in graph.outputs}
    saved = {number for number in crossing if graph.buffers[number].kind == "temporary"}
    results = {operand.value for operand in gradients}
    forward = replace(
        graph,
        buffers=with_kinds(dict.fromkeys(saved, "state")),
        nodes=first,
        inputs=tuple(number for number in graph.inputs if number not in seeds),
        kept=frozenset(
            {value for value in shown if value in written or not value.version}
            | (graph.kept & written)
            | {last[number] for number in crossing}
            | {value for value in last.values() if graph.buffers[value.buffer].kind in outside}
        ),
    )
    inputs = tuple(dict.fromkeys(n for n in (*graph.inputs, *sorted(crossing)) if n in used or n in seeds))
    changed = {value for node in second for value in node.writes}
    kept = results | {v for v in graph.kept & changed if graph.buffers[v.buffer].kind in outside}
    versions = {number: value.version for number, value in last.items()}
    nodes = tuple(_counted_from(node, versions) for node in second)
    backward = replace(
        graph,
        buffers=with_kinds(dict.fromkeys(inputs, "input")),
        nodes=nodes,
        inputs=inputs,
        outputs=tuple(replace(o, value=_value_from(o.value, versions)) for o in gradients),
        kept=frozenset(_value_from(value, versions) for value in kept),
    )
    return forward.with_nodes(first), backward.with_nodes(nodes)


def _value_from(value: Value, versions: Mapping[int, int]) -> Value:
    """A value where what the forward part leaves behind is version 0."""
    return Value(value.buffer, value.version - versions.get(value.buffer, 0))


def _counted_from(node: Node, versions: Mapping[int, int]) -> Node:
    def operand(given: Any) -> Any:
        if not isinstance(given, Operand):
            return given
        return replace(given, value=_value_from(given.value, versions))

    return replace(
        node,
        operands=tuple(map(operand, node.operands)),
        result=operand(node.result),
        reads=tuple(_value_from(value, versions) for value in node.reads),
        writes=tuple(_value_from(value, versions) for value in node.writes),
    )


def seeds_of(graph: Graph, seeds: Mapping[int, int]) -> list[frozenset[int]]:
    """For each gradient of a backward graph, the positions of the seeds that it is computed from.

    Args:
        graph: as :func:`split` gives it.
        seeds: positions by the numbers of their buffers.
    """
    found = {Value(number, 0): frozenset([position]) for number, position in seeds.items()}
    for node in graph.nodes:
        together = frozenset[int]().union(*(found.get(value, frozenset()) for value in node.reads))
        found.update(dict.fromkeys(node.writes, together))
    return [found.get(operand.value, frozenset()) for operand in graph.outputs]


class DifferentiableCall:
    """The backward graph of a compiled function, as a node of autograd's graph.

    Args:
        executable: of the backward graph.
        found: what was traced.
        again: what gives the varying numbers of the whole trace.
        arguments: position of the call's tensors, and behind them of the seeds, by input buffer.
        given: how many tensors the call has.
        makers: make each gradient from new memory and the tensors of the call and the seeds.
        wanted: positions among the call's tensors of those that get gradients; None for others.
        reached_from: for each gradient the positions of the seeds that it is computed from.
    """

    def __init__(
        self,
        executable: Executable | HostExecutable,
        found: Backward,
        again: Sequence[Again],
        arguments: Mapping[int, int],
        given: int,
        makers: Sequence[Make | None],
        wanted: Sequence[int | None],
        reached_from: Sequence[frozenset[int]],
    ) -> None:
        self._lock = fork.rlock()  # the graph has one memory, whichever thread runs it
        self._reached_from = tuple(reached_from)
        self._executable = executable
        self._roots, self._again = found.roots, tuple(enumerate(again))[found.first_source :]
        self._arguments, self._given = dict(arguments), given
        self._makers = tuple(makers)
        self._wanted = tuple(zip(found.wanted, wanted, strict=True))
        self._seeds = [(seed.shape, seed.dtype, seed.device) for seed in found.seeds]

    def record(
        self, outputs: Sequence[Any], tensors: Sequence[Any], made: Mapping[int, Storage], numbers: Numbers
    ) -> None:
        """Give results of a replay their history.

        Args:
            outputs: all results.
            tensors: of the call.
            made: memory of the forward graph's results and state.
            numbers: the varying numbers of the call.
        """
        inputs = [tensor if position is None else tensors[position] for tensor, position in self._wanted]
        memory = {
            number: made[number] if number in made else tensors[self._arguments[number]].storage
            for number in self._executable.graph.inputs
            if number in made or self._arguments[number] < self._given
        }
        watched = [*memory.values(), *self._executable.reads_outside]
        versions = [storage.version for storage in watched]
        arguments = list(tensors)

        def backward(grads: Any, saved: Any, needs: tuple[bool, ...]) -> list[Any]:
            if tape.state.enabled:
                raise GradientError(
                    "[compile] gradients of a compiled function cannot be differentiated again; "
                    "call the function that was compiled itself where you need create_graph=True"
                )
            if [storage.version for storage in watched] != versions:
                raise GradientError(
                    "[compile] a tensor that the gradient of a compiled function needs was since changed in "
                    "place; change a .clone() of it instead, or take the gradient first"
                )
            given = [*arguments, *(self._seed(i, gradient) for i, gradient in enumerate(grads))]
            storages = [
                memory[n] if n in memory else given[self._arguments[n]].storage
                for n in self._executable.graph.inputs
            ]
            with self._lock:
                results = self._executable(
                    storages, lambda: {**numbers, **{source: again() for source, again in self._again}}
                )
            there = frozenset(i for i, gradient in enumerate(grads) if gradient is not None)
            return [
                make(results, given) if make is not None and needed and (seeds & there or not seeds) else None
                for make, needed, seeds in zip(self._makers, needs, self._reached_from, strict=True)
            ]

        tape.add_node("compiled", inputs, [outputs[i] for i in self._roots], backward, single_use=True)

    def _seed(self, position: int, gradient: Any) -> Any:
        """The gradient of a result as the graph takes it: contiguous, zeros where there is none."""
        if gradient is not None:
            whole = gradient.is_contiguous() and not gradient.offset
            return gradient if whole else clone(gradient)
        shape, dtype, device = self._seeds[position]
        seed = empty(Tensor, shape, dtype, device)
        fill_with(seed, 0)
        return seed
