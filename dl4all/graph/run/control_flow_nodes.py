"""Nodes of graphs for conditions and loops: functions that are compiled by themselves, with their gradients.

The host runs such a node between two parts of its graph, see :mod:`dl4all.graph.run.control_flow`. Where it
gets gradients it runs with a history, which is kept until those come; where another call came between, it
runs again.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dl4all.autograd.backward_pass import grad
from dl4all.errors import ArgumentError
from dl4all.graph.ir.graph import Binding, Command, HostCall
from dl4all.graph.run.compiled import compile
from dl4all.graph.tracing.guards import Guards
from dl4all.graph.tracing.structure import Build, rebuilder
from dl4all.ops.core import autocast, tape
from dl4all.ops.core.dtypes import FLOATING
from dl4all.ops.core.kernels.host_work import ArrayView, HostWork, TensorWork, note_tensor_work
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import copy_into, new_like
from dl4all.ops.memory.views import contiguous
from dl4all.ops.random.generator import Generator, State, drawing_from, noting
from dl4all.scheduler import listeners

Tensors = Sequence[Any]
Function = Callable[..., Any]
FlatFunction = Callable[..., Tensors]
"""Takes tensors, and returns a list of them."""

Run = Callable[[Sequence[FlatFunction], Tensors], Tensors]
"""Calls functions as an operator does, beginning with these tensors, and returns its results."""


@dataclass(frozen=True)
class _TensorFunction:
    """A function of operands as one of their tensors, and of the tensors of its closure behind them."""

    name: str
    function: Function  # takes a list of the tensors of its closure, and operands
    build: Build  # of the operands
    count: int  # of their tensors

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *tensors: Any) -> list[Any]:
        operands = self.build(tensors[: self.count])
        return flat(self.name, self.function(tensors[self.count :], *operands))


class _Recent(NamedTuple):
    """The last run of an operator, with its history."""

    place: Any  # of the inputs
    leaves: list[Any]
    results: list[Any]  # that are floats


@dataclass(frozen=True)
class _Operator:
    """A condition or loop over functions.

    Its last inputs are the tensors of the functions' closures, `closures` for each.
    """

    name: str
    run: Run
    functions: tuple[_TensorFunction, ...]
    closures: tuple[int, ...]
    seen: tuple[Any, ...]  # tensors that the functions see from elsewhere, such as parameters
    compiled: list[FlatFunction] = field(default_factory=list, compare=False)
    autocast: Any = field(default_factory=lambda: tape.state.autocast, compare=False)  # as in the trace
    # Which inputs get gradients, where any do, and the last run of which none were taken: at most one each.
    wanted: list[tuple[bool, ...]] = field(default_factory=list, compare=False)
    recent: list[_Recent] = field(default_factory=list, compare=False)

    def results(self, tensors: Tensors, *, compiled: bool) -> Tensors:
        """The results, by functions that are compiled or run as they are."""
        if compiled and not self.compiled:
            self.compiled.extend(map(compile, self.functions))
        first = len(tensors) - sum(self.closures)
        functions: Sequence[FlatFunction] = self.compiled if compiled else self.functions
        bound, place = list[FlatFunction](), first
        for function, count in zip(functions, self.closures, strict=True):
            bound.append(_behind(function, tensors[place : place + count]))
            place += count
        with autocast.within(self.autocast):
            return self.run(bound, tensors[:first])

    def with_history(
        self, tensors: Tensors, wanted: Sequence[bool], *, compiled: bool
    ) -> tuple[_Recent, Tensors]:
        """A run whose history begins with the inputs, and all of its results."""
        leaves = [tensor.detach() for tensor in tensors]
        for leaf, is_wanted in zip(leaves, wanted, strict=False):
            leaf.requires_grad_(is_wanted)
        with tape.changed(enabled=True, observer=None):
            results = self.results(leaves, compiled=compiled)
        return _Recent(_place(tensors), leaves, _floats(results)), results


@dataclass(frozen=True)
class _OperatorGradient:
    """The gradients of an operator, from its inputs and the gradients of those results that are floats."""

    operator: _Operator
    wanted: tuple[bool, ...]  # inputs, and then what the functions see and requires gradients
    count: int  # of inputs

    @property
    def name(self) -> str:
        return f"{self.operator.name} backward"

    @property
    def seen(self) -> tuple[Any, ...]:
        return self.operator.seen

    def results(self, tensors: Tensors, *, compiled: bool) -> Tensors:
        """The gradients that are wanted; zeros where nothing flows."""
        inputs, recent = tensors[: self.count], self.operator.recent
        found = recent.pop() if compiled and recent else None
        if found is None or found.place != _place(inputs):
            found, _ = self.operator.with_history(inputs, self.wanted, compiled=compiled)
        targets = _chosen([*found.leaves, *_requiring(self.seen)], self.wanted)
        return _gradients(found.results, targets, tensors[self.count :])


@dataclass(frozen=True)
class _Replay:
    """The work of a node in a replay, on its inputs and results."""

    work: _Operator | _OperatorGradient
    count: int  # of inputs

    def __call__(self, *tensors: Any) -> None:
        inputs = tensors[: self.count]
        with listeners.suspended(), tape.gradients(False):
            if isinstance(self.work, _Operator) and self.work.wanted:
                taken, results = self.work.with_history(inputs, self.work.wanted[0], compiled=True)
                self.work.recent[:] = [taken]
            else:
                results = self.work.results(inputs, compiled=True)
            for target, result in zip(tensors[len(tensors) - len(results) :], results, strict=True):
                copy_into(target, result)


class ControlFlow(NamedTuple):
    """A condition or loop in a graph: its functions as those of tensors, and what it reads and writes.

    ``shift`` is 1 where the first input is the predicate, which no function takes.
    """

    name: str
    functions: tuple[FlatFunction, ...]
    closures: tuple[int, ...]  # tensors of each function's closure: the last inputs
    shift: int
    inputs: tuple[Binding, ...]
    input_views: tuple[ArrayView, ...]
    outputs: tuple[Binding, ...]
    output_views: tuple[ArrayView, ...]
    cls: Any  # of the tensors

    def operands_of(self, number: int) -> list[int]:
        """The positions of the inputs that a function takes: operands, and what is in its closure."""
        first = len(self.inputs) - sum(self.closures)
        start = first + sum(self.closures[:number])
        return [*range(self.shift, first), *range(start, start + self.closures[number])]


def control_flow_of(command: Command) -> ControlFlow | None:
    """The condition or loop that a command of a graph of the CPU is, without gradients; None for others."""
    work = command.run if isinstance(command, HostCall) else None
    task = work.function if isinstance(work, HostWork) else None
    replay = task.function if isinstance(task, TensorWork) else None
    if not isinstance(command, HostCall) or not isinstance(replay, _Replay):
        return None
    assert isinstance(task, TensorWork)
    operator = replay.work
    if not isinstance(operator, _Operator):
        return None
    first, last = task.seen, task.seen + replay.count
    views = work.views  # type: ignore[union-attr]
    return ControlFlow(
        operator.name, operator.functions, operator.closures, int(operator.name == "cond"),
        command.bindings[first:last], views[first:last], command.bindings[last:], views[last:], task.cls,
    )  # fmt: skip


def control_flow_node(
    name: str,
    run: Run,
    functions: Sequence[Function],
    operands: Sequence[Any],
    tensors: Tensors,
) -> Tensors:
    """The results of an operator, of which a graph gets a node.

    Args:
        name: of the operator.
        run: takes the operator.
        functions: take the operands.
        operands: have the structure of what the functions are called with.
        tensors: what `run` begins with.
    """
    build, count = rebuilder(tuple(operands), []), len(flat(name, list(operands)))
    closed, closures = zip(*map(_without_tensors, functions), strict=True)
    made = tuple(_TensorFunction(name, function, build, count) for function in closed)
    seen = Guards({"a function": list(closed)}).tensors
    operator = _Operator(name, run, made, tuple(map(len, closures)), tuple(seen))
    inputs = [*tensors, *(tensor for closure in closures for tensor in closure)]
    with tape.gradients(False):
        results = _noted(operator, inputs)
    parameters = _requiring(seen)

    def backward(grads: Sequence[Any], saved: list[Any], needs: tuple[bool, ...]) -> list[Any]:
        given = [
            saved[0].new_zeros(shape, dtype=dtype) if gradient is None else gradient
            for gradient, (shape, dtype) in zip(grads, kinds, strict=True)
        ]
        wanted = tuple(needs)
        if tape.state.enabled:
            listeners.refuse(f"takes gradients of the gradients of a {name}")
            targets = _chosen([*saved, *parameters], wanted)
            found = _gradients(_floats(operator.results(saved, compiled=False)), targets, given, again=True)
        else:
            work, operands = _OperatorGradient(operator, wanted, len(saved)), [*saved, *given]
            captured = listeners.captured()
            operator.wanted[:] = [wanted]
            found = _noted(work, operands) if captured else work.results(operands, compiled=False)
        rest = iter(found)
        return [next(rest) if need else None for need in wanted]

    floats = _floats(results)
    kinds = [(result.shape, result.dtype) for result in floats]
    tape.add_node(name, [*inputs, *parameters], floats, backward, inputs)
    return results


def _noted(work: _Operator | _OperatorGradient, tensors: Tensors) -> list[Any]:
    """The results of work, which is noted for a graph."""
    seen, draws = work.seen, list[State]()
    versions = [tensor.storage.version for tensor in seen]
    with set_aside(), noting(draws):
        results = work.results(tensors, compiled=False)
    if draws:
        listeners.refuse(f"draws random numbers in a {work.name}")
    if versions != [tensor.storage.version for tensor in seen]:
        listeners.refuse(f"changes a tensor in a {work.name}")
    for tensor in seen:
        if not listeners.stays(tensor.storage):
            listeners.refuse(
                f"has a function of a {work.name} that sees a tensor of shape {tensor.shape} within another "
                "object (pass it among the operands)"
            )
    inputs = [contiguous(tensor) for tensor in tensors]
    made = [new_like(tensors[0], result.shape, result.dtype) for result in results]
    with set_aside():
        for target, result in zip(made, results, strict=True):
            copy_into(target, result)
    note_tensor_work(work.name, _Replay(work, len(tensors)), seen, inputs, made)
    return made


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """A block of which neither a capture nor autograd takes note."""
    with listeners.suspended(), tape.changed(enabled=False, observer=None):
        yield


@contextlib.contextmanager
def on_trial() -> Iterator[None]:
    """A block that is set aside and leaves the default generator as it is, for a look at results."""
    with set_aside(), drawing_from(Generator()):
        yield


def _without_tensors(function: Function) -> tuple[Function, list[Any]]:
    """The function with the tensors among its closure's variables as a first argument, and these tensors.

    They may have been made in the call, which a replay does not make again.
    """
    if not isinstance(function, types.FunctionType):
        return functools.partial(_called, function), []
    cells = function.__closure__ or ()
    places = tuple(i for i, cell in enumerate(cells) if isinstance(_contents(cell), TensorBase))
    if not places:
        return functools.partial(_called, function), []
    others = [types.CellType(None) if i in places else cell for i, cell in enumerate(cells)]
    template = _with_closure(function, others)
    return functools.partial(_called_with, template, places), [cells[place].cell_contents for place in places]


def _called(function: Function, tensors: Tensors, *operands: Any) -> Any:
    return function(*operands)


def _called_with(
    template: types.FunctionType, places: Sequence[int], tensors: Tensors, *operands: Any
) -> Any:
    cells = list(template.__closure__ or ())
    for place, tensor in zip(places, tensors, strict=True):
        cells[place] = types.CellType(tensor)
    return _with_closure(template, cells)(*operands)


def _with_closure(function: types.FunctionType, cells: Sequence[types.CellType]) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = function.__module__
    return made


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _place(tensors: Tensors) -> Any:
    """The memory of tensors, which tells the inputs of one call from those of another that is alive."""
    return tuple(
        tensor.storage.address if tensor.device.is_host else tensor.storage.span for tensor in tensors
    )


def flat(name: str, value: Any) -> list[Any]:
    """The tensors of a structure that holds nothing else.

    Raises:
        ArgumentError: it does.
    """
    if isinstance(value, TensorBase):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in flat(name, item)]
    if type(value) is dict:
        return [tensor for item in value.values() for tensor in flat(name, item)]
    raise ArgumentError(
        f"[{name}] expected tensors, or tuples, lists and dicts of them, got {type(value).__name__}; make a "
        "tensor of it"
    )


def _behind(function: FlatFunction, tensors: Tensors) -> FlatFunction:
    return lambda *first: function(*first, *tensors)


# Gradients


def _floats(tensors: Tensors) -> list[Any]:
    return [tensor for tensor in tensors if tensor.dtype in FLOATING]


def _requiring(tensors: Tensors) -> list[Any]:
    return [tensor for tensor in tensors if tensor.requires_grad]


def _chosen(tensors: Tensors, wanted: Sequence[bool]) -> list[Any]:
    return [tensor for tensor, is_wanted in zip(tensors, wanted, strict=True) if is_wanted]


def _gradients(results: Tensors, targets: Tensors, grads: Tensors, *, again: bool = False) -> Sequence[Any]:
    """The gradients of targets from those of results; zeros where nothing flows."""
    pairs = [(one, gradient) for one, gradient in zip(results, grads, strict=True) if one.requires_grad]
    if not pairs:
        return [target.new_zeros(target.shape) for target in targets]
    outputs, weights = zip(*pairs, strict=True)
    return grad(outputs, targets, weights, create_graph=again, materialize_grads=True)
