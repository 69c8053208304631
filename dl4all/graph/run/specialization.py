"""A specialisation: the graph of a call for one kind of arguments, and what has to hold for its replay."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dl4all.allocator.storage import Storage
from dl4all.errors import OutOfMemoryError
from dl4all.graph.host.executable import HostExecutable
from dl4all.graph.host.work_identity import work_identity
from dl4all.graph.ir.graph import BoundLaunch, Graph, HostCall
from dl4all.graph.op_codes.choice import with_programs
from dl4all.graph.passes import pipeline
from dl4all.graph.run.differentiation import (
    Backward,
    DifferentiableCall,
    Make,
    is_differentiable,
    seeds_of,
    split,
)
from dl4all.graph.run.executable import Executable, Numbers
from dl4all.graph.tracing.gradient_state import GradientState, gradient
from dl4all.graph.tracing.guards import GuardedMemory, Guards, layout_of
from dl4all.graph.tracing.structure import Opaque, rebuilder
from dl4all.graph.tracing.trace import CONDITION, Tracer
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

Optimize = Callable[[Graph, Device], Graph]


class Untraceable(Exception):
    """Why a call cannot be replayed: the end of a sentence on the function."""


@dataclass(frozen=True)
class TraceIdentity:
    """The key of two traces of the same computation on the same memory from outside."""

    graph: Graph
    memory: tuple[Any, ...]
    aliases: Aliases
    layouts: Layouts
    alive: tuple[Storage, ...] = field(compare=False)  # no other memory may get the id of one of these


class Traced:
    """A call that was traced, with what went in and what came out.

    Args:
        tracer: has listened to the call.
        guards: made before the call.
        before: the arguments' tensors as they were before the call.
        result: what the call returned.
        state: of autograd before the call.
        backward: what was traced of its gradients.

    Raises:
        Untraceable
    """

    def __init__(
        self,
        tracer: Tracer,
        guards: Guards,
        before: Sequence[GuardedMemory],
        result: Any,
        state: GradientState,
        backward: Backward | None = None,
    ) -> None:
        outputs: list[Any] = []
        try:
            self.build = rebuilder(result, outputs)
        except Opaque as problem:
            raise Untraceable(str(problem)) from None
        self.tracer, self.guards, self.outputs, self.backward = tracer, guards, outputs, backward
        tensors: list[Any] = [memory.tensor for memory in before]
        self.layouts = _new_layouts(before)
        self.change = guards.changed()  # of what the call depends on, by the call itself
        self.aliases = aliases(tensors, guards.memory)
        gradients = state.new_gradients()
        used = self._used_gradients(state, tensors)
        self.owners = [owner for owner, _ in used]
        arguments, tensors = tensors, [*tensors, *(grad for _, grad in used)]
        self._check(arguments, tensors, gradients)
        stays = [grad for _, grad in gradients if grad is not None]
        seeds: list[Any] = []
        if backward is not None:
            stays += [grad for grad in backward.gradients if grad is not None]
            seeds = backward.seeds
        elif not self.change and self._keeps([*tensors, *outputs, *stays]):
            self.change = "what it keeps of the tensors that it has made"
        given = self.given = [*tensors, *seeds]
        self.graph = tracer.graph(given, outputs, stays)
        # A replay that meets another condition is given up, and must have had no effect by then.
        first = len(tracer.nodes) if backward is None else backward.first_node
        in_backward = any(node.name == CONDITION for node in tracer.nodes[first:])
        if tracer.path and (gradients or tracer.again or in_backward or _writes_outside(self.graph)):
            raise Untraceable(tracer.reads_condition)
        self.inputs = {
            number: next(i for i, tensor in enumerate(given) if tracer.number_of(tensor) == number)
            for number in self.graph.inputs
        }
        self.makers = [self.maker(tensor, given) for tensor in outputs]
        self.gradient_makers = [
            (
                next((i for i, argument in enumerate(arguments) if argument is owner), None),
                owner,
                None if grad is None else self.maker(grad, given),
            )
            for owner, grad in gradients
        ]
        self.identity = _identity(tracer, self.graph, self.aliases, self.layouts)

    def _used_gradients(self, state: GradientState, arguments: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The gradients that tensors had before the call and that it has used, each with its tensor.

        Gradients of arguments are arguments themselves.
        """
        tracer, known = self.tracer, {id(tensor) for tensor in arguments}
        results = {id(tensor.storage) for tensor in self.outputs}
        results.update(id(grad.storage) for _, grad in state.new_gradients() if grad is not None)
        return [
            (owner, grad)
            for owner, grad in state.gradients()
            if id(owner) not in known and (tracer.is_outside(grad) or id(grad.storage) in results)
        ]

    def _check(
        self, arguments: Sequence[Any], tensors: Sequence[Any], gradients: Sequence[tuple[Any, Any]]
    ) -> None:
        tracer, guards = self.tracer, self.guards
        if tracer.refusal or guards.problem:
            raise Untraceable(tracer.refusal or guards.problem)
        if lost := tracer.lost_numbers():
            raise Untraceable(f"takes numbers of {lost[0]} where a replay cannot give new ones")
        known = {id(tensor) for tensor in (*guards.tensors, *tensors)}
        if any(id(leaf) not in known for leaf in tracer.leaves.values()):
            raise Untraceable("computes gradients of a tensor that it makes itself or that cannot be seen")
        if any(tensor.grad_meta is not None and tensor.grad_meta.hooks for tensor in arguments):
            raise Untraceable("takes an argument that has hooks")
        if not share_nothing(tensors[len(arguments) :], arguments, guards.memory):
            raise Untraceable("uses gradients that share memory")
        if any(grad is not None and grad.requires_grad for _, grad in gradients):
            raise Untraceable("leaves gradients that can be differentiated again")
        seeds = [] if self.backward is None else self.backward.seeds
        seen = {id(tensor.storage) for tensor in (*guards.tensors, *tensors, *seeds)}
        device = tracer.device
        seen.update(id(t.storage) for t in device.tables.values() if isinstance(t, TensorBase))
        owns = device.index_errors.owns
        if any(id(storage) not in seen and not owns(storage) for storage in tracer.outside.values()):
            raise Untraceable("uses a tensor that cannot be seen from outside")
        if any(tracer.is_constant(tensor) for tensor in self.outputs):
            raise Untraceable("returns a tensor that was made of Python numbers")
        if self.backward is None and any(map(is_differentiable, self.outputs)):
            raise Untraceable("returns a tensor with gradients for nothing that can be seen from outside")

    def _keeps(self, known: Sequence[Any]) -> bool:
        """Whether tensors that the call has made live on elsewhere."""
        if not self.tracer.left_over(known):
            return False
        gc.collect()
        return bool(self.tracer.left_over(known))

    def maker(self, tensor: Any, given: Sequence[Any]) -> Make:
        """A function that makes a result like this one, from new memory and the tensors of the call."""
        tracer = self.tracer
        shape, dtype, device = tensor.shape, tensor.dtype, tensor.device
        strides, offset = tensor.strides, tensor.offset
        # An argument itself first: others may share its memory, and have another history.
        for position, argument in enumerate(given):
            if tensor is argument:
                return lambda made, new: new[position]
        for position, argument in enumerate(given):
            if tensor.storage is argument.storage:
                return lambda made, new: new[position].strided_view(shape, strides, offset)
        if tracer.is_born(tensor):
            number = tracer.number_of(tensor)
            return lambda made, new: Tensor(made[number], shape, dtype, device, strides, offset)
        return lambda made, new: tensor


Aliases = tuple[int | None, ...]


Layouts = tuple[tuple[int, tuple[Any, ...]], ...]
"""Positions of arguments, and the shape, strides and offset that a call gives them."""


def _new_layouts(before: Sequence[GuardedMemory]) -> Layouts:
    """The arguments that a call has transposed or the like in place.

    Raises:
        Untraceable: one has other memory now, or another answer to whether it requires gradients.
    """
    found = []
    for position, memory in enumerate(before):
        tensor = memory.tensor
        if tensor.storage is not memory.storage or tensor.requires_grad is not memory.flags[0]:
            raise Untraceable("gives an argument other memory, or changes whether it requires gradients")
        if (layout := layout_of(tensor)) != memory.layout:
            found.append((position, layout))
    return tuple(found)


def aliases(tensors: Sequence[Any], memory: Collection[int]) -> Aliases:
    """For each argument the id of its memory if a function sees that from elsewhere, too."""
    return tuple([i if (i := id(tensor.storage)) in memory else None for tensor in tensors])


def share_nothing(gradients: Sequence[Any], arguments: Sequence[Any], memory: Collection[int]) -> bool:
    """Whether each gradient has memory of its own."""
    own = {id(tensor.storage) for tensor in gradients}
    return len(own) == len(gradients) and own.isdisjoint(
        [*memory, *(id(tensor.storage) for tensor in arguments)]
    )


class Specialization:
    """A compiled graph, and when it may be used.

    Args:
        found: what was traced.
        optimize: makes of the traced graph what is run.
    """

    def __init__(self, found: Traced, optimize: Optimize) -> None:
        tracer = found.tracer
        self.guards = found.guards
        self._conditions = tracer.conditions
        self._build, self._inputs = found.build, found.inputs
        self._makers, self._gradients = found.makers, found.gradient_makers
        self._aliases, self._owners, self._layouts = found.aliases, found.owners, found.layouts
        memory = dict(tracer.outside)
        memory.update((number, storage) for number, (storage, _) in tracer.constants.items())
        make_executable = HostExecutable if tracer.device.is_host else Executable
        graph, again = found.graph, list(tracer.again)
        self._differentiable: DifferentiableCall | None = None
        if found.backward is not None:
            traced = found.backward
            seeds = {tracer.number_of(seed): i for i, seed in enumerate(traced.seeds)}
            operands = [None if grad is None else tracer.operand(grad) for grad in traced.gradients]
            graph, second = split(
                graph, traced.first_node, seeds, [operand for operand in operands if operand is not None]
            )
            given = len(found.given) - len(traced.seeds)
            self._differentiable = DifferentiableCall(
                make_executable(optimize(second, tracer.device), tracer.device, memory),
                traced,
                again,
                {number: found.inputs[number] for number in second.inputs if number in found.inputs},
                given,
                [None if g is None else found.maker(g, found.given) for g in traced.gradients],
                [
                    next((i for i, given in enumerate(found.given) if given is tensor), None)
                    for tensor in traced.wanted
                ],
                _reached_from(second, seeds, traced.gradients),
            )
            again = again[: traced.first_source]
        self.graph = optimize(graph, tracer.device)
        self.executable = make_executable(self.graph, tracer.device, memory)
        self._again = tuple(again)

    def holds(self, tensors: Sequence[Any]) -> bool:
        """Whether a replay does what the function would do for these arguments."""
        return (
            self.guards.holds()
            and all(condition() for condition in self._conditions)
            and aliases(tensors, self.guards.memory) == self._aliases
            and (
                not self._owners
                or share_nothing(list(map(gradient, self._owners)), tensors, self.guards.memory)
            )
        )

    def __call__(self, tensors: Sequence[Any]) -> Any:
        used = list(map(gradient, self._owners))
        tensors = [*tensors, *used]
        targets = [
            (owner if position is None else tensors[position], make)
            for position, owner, make in self._gradients
        ]
        for owner, _ in targets:  # what nobody else holds goes back before new memory is taken
            owner.grad = None
        numbers: dict[int, Sequence[int | float]] = {}

        def give_numbers() -> Numbers:
            numbers.update((source, again()) for source, again in enumerate(self._again))
            return numbers

        inputs = [tensors[self._inputs[number]].storage for number in self.graph.inputs]
        try:
            made = self.executable(inputs, give_numbers)
        except OutOfMemoryError:  # nothing has run, and what was to be added to is still there
            for owner, grad in zip(self._owners, used, strict=True):
                owner.grad = grad
            raise
        for owner, make in targets:
            if make is not None:
                owner.grad = make(made, tensors)
        for position, (shape, strides, offset) in self._layouts:
            tensor = tensors[position]
            tensor.shape, tensor.strides, tensor.offset = shape, strides, offset
        outputs = [make(made, tensors) for make in self._makers]
        if self._differentiable is not None:
            self._differentiable.record(outputs, tensors, made, numbers)
        return self._build(outputs)


def _writes_outside(graph: Graph) -> bool:
    """Whether a call changes memory that was there before."""
    written = {value.buffer for node in graph.nodes for value in node.writes}
    return any(graph.buffers[number].kind in ("captured", "input") for number in written)


def optimized(graph: Graph, device: Device) -> Graph:
    """The graph after all passes, or as programs of op codes where those are faster."""
    compiled = pipeline.run(graph)
    return compiled if device.is_host else with_programs(graph, compiled, device.info)


def _reached_from(graph: Graph, seeds: Mapping[int, int], gradients: Sequence[Any]) -> list[frozenset[int]]:
    """For each tensor that may get a gradient, the positions of the seeds that this is computed from."""
    found = iter(seeds_of(graph, seeds))
    return [frozenset() if gradient is None else next(found) for gradient in gradients]


def _identity(tracer: Tracer, graph: Graph, aliased: Aliases, layouts: Layouts) -> TraceIdentity:
    """The parts of a trace that are compared with the one before."""
    nodes = tuple(
        replace(
            node,
            arguments=(),
            operands=tuple(o for o in node.operands if not isinstance(o, float)),
            commands=tuple(map(_without_varying, node.commands)),
        )
        for node in graph.nodes
    )
    used = [(n, buffer.kind) for n, buffer in sorted(graph.buffers.items())]
    alive = tuple(tracer.outside[number] for number, kind in used if kind == "captured")
    memory = tuple(
        id(tracer.outside[number]) if kind == "captured" else tracer.constants[number][1]
        for number, kind in used
        if kind in ("captured", "constant")
    )
    return TraceIdentity(replace(graph, nodes=nodes), memory, aliased, layouts, alive)


def _without_varying(command: Any) -> Any:
    if isinstance(command, HostCall):
        return replace(command, run=work_identity(command.run))
    if not isinstance(command, BoundLaunch) or not command.varying:
        return command
    push = bytearray(command.launch.push)
    for word in command.varying:
        push[word.offset : word.offset + 4] = bytes(4)
    return replace(command, launch=replace(command.launch, push=bytes(push)))
