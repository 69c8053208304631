"""Conditions on values, and loops: one node each where a call is compiled.

Elsewhere they are what Python makes of them. In a compiled call their functions are compiled by themselves,
and the host takes the turns: it reads a predicate, and replays the graph of a branch or of a loop's body. So
neither another value nor another number of turns is traced anew. Turns that get gradients run with a history,
which is kept until those come; where it is another call's by then, they run once more.

The functions are PyTorch's higher-order operators of the same names, which follow those of JAX (R. Frostig et
al., "Compiling machine learning programs via high-level tracing", SysML 2018).
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dl4all.autograd.backward_pass import grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.graph.run.compiled import compile
from dl4all.graph.tracing.guards import Guards
from dl4all.graph.tracing.structure import Build, flatten, rebuilder
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import FLOATING
from dl4all.ops.core.kernels.host_work import note_tensor_work
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.indexing.repeat_and_flip import flip
from dl4all.ops.memory.copy import copy_into, fill_with, new_like
from dl4all.ops.memory.views import contiguous, movedim
from dl4all.ops.random.generator import State, noting
from dl4all.scheduler import listeners

MOST_UNROLLED = 64
"""Slices of a scan that become nodes of the graph themselves: for more it takes long to be made."""

Tensors = Sequence[Any]
Function = Callable[..., Any]
FlatFunction = Callable[..., Tensors]
"""Takes tensors, and returns a list of them."""


def cond(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any] = ()) -> Any:
    """One of two functions of tensors, by a value: ``true_fn(*operands) if pred else false_fn(*operands)``.

    Within :func:`dl4all.compile` both are compiled, and the value decides in each call. There they have no
    effect but their results, which have one structure, shapes and dtypes, and draw no random numbers.

    Args:
        pred: a bool, or a tensor with one element.
        true_fn, false_fn: return a tensor, or tuples, lists and dicts of tensors. They may use parameters and
            other tensors that they see.
        operands: tensors, or tuples, lists and dicts of them.

    Returns:
        The result of the function that was called.

    Raises:
        ArgumentError: `pred` has several elements, or a result is no tensor in a compiled call.
        ShapeError: the results differ in a compiled call.

    Example:
        >>> import dl4all as dl
        >>> def f(x):
        ...     return dl.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        >>> f(dl.tensor([1.0, 2.0])).tolist(), dl.compile(f)(dl.tensor([-1.0, 0.0])).tolist()
        ([2.0, 4.0], [-2.0, -1.0])
    """
    if not isinstance(pred, TensorBase) or not listeners.captured():
        return (true_fn if _truth("cond", pred) else false_fn)(*operands)
    _truth_shape("cond", pred)
    with _set_aside():
        results = [function(*operands) for function in (true_fn, false_fn)]
    first, second = (_structure("cond", result) for result in results)
    if first != second:
        raise ShapeError(
            "[cond] in a compiled call both functions must return one structure, shapes and dtypes, got "
            f"{first} and {second}"
        )
    tensors = [pred, *_flat("cond", list(operands))]
    return _with_tensors(results[0], _node("cond", _take_branch, (true_fn, false_fn), operands, tensors))


def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What is left when ``carried = body_fn(*carried)`` has run for as long as ``cond_fn(*carried)`` holds.

    Within :func:`dl4all.compile` both functions are compiled, and each call takes as many turns as its values
    ask for. What is said of the functions of :func:`cond` holds for these.

    Args:
        cond_fn: returns a bool, or a tensor with one element.
        body_fn: returns what it takes, of the same structure, shapes and dtypes.
        carried_inputs: tensors, or tuples, lists and dicts of them.

    Returns:
        A tuple, of the structure of `carried_inputs`.

    Raises:
        ShapeError: `body_fn` returns another structure, shape or dtype.
        ArgumentError: the condition has several elements.

    Example:
        >>> import dl4all as dl
        >>> def root(a):  # by Newton's iteration
        ...     step = lambda x, a: ((x + a / x) / 2, a)
        ...     return dl.while_loop(lambda x, a: (x * x - a).abs() > 1e-4, step, (a, a))[0]
        >>> round(root(dl.tensor(2.0)).item(), 4)
        1.4142
    """
    carried = tuple(carried_inputs)
    if not listeners.captured():
        return tuple(_turns(cond_fn, lambda *carried: _in_tuple(body_fn(*carried)), carried))
    tensors = _flat("while_loop", carried)
    results = _node("while_loop", _take_turns, (cond_fn, body_fn), carried, tensors)
    return _with_tensors(carried, results)  # type: ignore[no-any-return]


def scan(combine_fn: Function, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """A function folded over slices of tensors: ``carry, y = combine_fn(carry, x)``, from `init` on.

    Within :func:`dl4all.compile` up to 64 turns are part of the graph. For more the function is compiled
    once, and what is said of the functions of :func:`cond` holds for it.

    Args:
        combine_fn: takes a carry and a slice, returns a carry of the same structure, shapes and dtypes, and
            what is collected.
        init: the first carry: a tensor, or tuples, lists and dicts of them.
        xs: tensors of one size along `dim`, at least 1, in such a structure.
        dim: the axis along which `xs` are cut, and what is collected is stacked.
        reverse: go from the last slice to the first; what is collected lies in the order of the slices.

    Returns:
        The last carry, and what was collected.

    Raises:
        ArgumentError: `xs` has no tensors, or `combine_fn` returns no pair.
        ShapeError: there are no slices, sizes along `dim` differ, or the carry changes its structure, shape
            or dtype.

    Example:
        >>> import dl4all as dl
        >>> total, sums = dl.scan(lambda c, x: (c + x, c + x), dl.tensor(0.0), dl.tensor([1.0, 2.0, 3.0]))
        >>> total.item(), sums.tolist()
        (6.0, [1.0, 3.0, 6.0])
    """
    slices, carries = _slices(xs, dim, reverse), _flat("scan", init)
    axis = dim % len(slices[0].shape)

    def combine(carry: Any, x: Any) -> tuple[Any, Any]:
        pair = combine_fn(carry, x)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(
                f"[scan] combine_fn must return a carry and a result, got {type(pair).__name__}"
            )
        _check_kept("scan", "combine_fn", carry, pair[0])
        return pair

    if listeners.captured() and slices[0].shape[0] > MOST_UNROLLED:
        operands = init, _with_tensors(xs, [tensor[0] for tensor in slices])
        with _set_aside():
            last, y = combine(*operands)
        fold = functools.partial(_fold_slices, len(carries))
        results = _node("scan", fold, (combine_fn,), operands, [*carries, *slices])
        last, collected = _with_tensors(last, results[: len(carries)]), results[len(carries) :]
    else:
        last, rows = init, list[Tensors]()
        for position in range(slices[0].shape[0]):
            last, y = combine(last, _with_tensors(xs, [tensor[position] for tensor in slices]))
            rows.append(_flat("scan", y))
        collected = [stack(list(column)) for column in zip(*rows, strict=True)]
    return last, _with_tensors(y, [_placed(tensor, axis, reverse) for tensor in collected])


# The turns that the host takes: of functions that return lists of tensors


def _take_branch(functions: Sequence[FlatFunction], tensors: Tensors) -> Tensors:
    pred, *operands = tensors
    return functions[0 if _truth("cond", pred) else 1](*operands)


def _take_turns(functions: Sequence[FlatFunction], tensors: Tensors) -> Tensors:
    return _turns(lambda *carried: functions[0](*carried)[0], functions[1], tensors)


def _turns(condition: Function, body: Function, carried: Sequence[Any]) -> Sequence[Any]:
    while _truth("while_loop", condition(*carried)):
        before, carried = carried, body(*carried)
        _check_kept("while_loop", "body_fn", tuple(before), tuple(carried))
    return carried


def _fold_slices(carries: int, functions: Sequence[FlatFunction], tensors: Tensors) -> Tensors:
    carry, xs, rows = tensors[:carries], tensors[carries:], list[Tensors]()
    for position in range(xs[0].shape[0]):
        # Slices in memory of their own: a compiled function is for one place in a tensor's memory.
        results = functions[0](*carry, *(clone(tensor[position]) for tensor in xs))
        carry = results[:carries]
        rows.append(results[carries:])
    return [*carry, *(stack(list(column)) for column in zip(*rows, strict=True))]


# Nodes of graphs


@dataclass(frozen=True)
class _OfTensors:
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
        return _flat(self.name, self.function(tensors[self.count :], *operands))


class _Recent(NamedTuple):
    """The turns that were taken last, with their history."""

    place: Any  # of the inputs
    leaves: list[Any]
    results: list[Any]  # that are floats


@dataclass(frozen=True)
class _Turns:
    """Turns of functions: ``run(functions, tensors)`` returns the results.

    The last tensors are those of the functions' closures, `closures` for each.
    """

    name: str
    run: Callable[[Sequence[FlatFunction], Tensors], Tensors]
    functions: tuple[_OfTensors, ...]
    closures: tuple[int, ...]
    seen: tuple[Any, ...]  # tensors that the functions see from elsewhere, such as parameters
    compiled: list[FlatFunction] = field(default_factory=list, compare=False)
    wanted: list[tuple[bool, ...]] = field(
        default_factory=list, compare=False
    )  # inputs, where gradients are taken
    recent: list[_Recent] = field(default_factory=list, compare=False)  # at most one

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
        return self.run(bound, tensors[:first])

    def with_history(
        self, tensors: Tensors, wanted: Sequence[bool], *, compiled: bool
    ) -> tuple[_Recent, Tensors]:
        """The turns as a history begins with their inputs, and all results."""
        leaves = [tensor.detach() for tensor in tensors]
        for leaf, is_wanted in zip(leaves, wanted, strict=False):
            leaf.requires_grad_(is_wanted)
        with tape.changed(enabled=True, observer=None):
            results = self.results(leaves, compiled=compiled)
        return _Recent(_place(tensors), leaves, _floats(results)), results


@dataclass(frozen=True)
class _Gradient:
    """The gradients of turns, from their inputs and the gradients of the results that are floats."""

    turns: _Turns
    wanted: tuple[bool, ...]  # inputs, and then what the functions see and requires gradients
    count: int  # of inputs

    @property
    def name(self) -> str:
        return f"{self.turns.name} backward"

    @property
    def seen(self) -> tuple[Any, ...]:
        return self.turns.seen

    def results(self, tensors: Tensors, *, compiled: bool) -> Tensors:
        """The gradients that are wanted; zeros where nothing flows."""
        inputs, recent = tensors[: self.count], self.turns.recent
        if compiled and recent and recent[0].place == _place(inputs):
            taken = recent.pop()
        else:
            taken, _ = self.turns.with_history(inputs, self.wanted, compiled=compiled)
        targets = _chosen([*taken.leaves, *_requiring(self.seen)], self.wanted)
        return _gradients(taken.results, targets, tensors[self.count :])


@dataclass(frozen=True)
class _Again:
    """The work of a node in a replay, on its inputs and results."""

    work: _Turns | _Gradient
    count: int  # of inputs

    def __call__(self, *tensors: Any) -> None:
        inputs = tensors[: self.count]
        with listeners.suspended(), tape.gradients(False):
            if isinstance(self.work, _Turns) and self.work.wanted:
                taken, results = self.work.with_history(inputs, self.work.wanted[0], compiled=True)
                self.work.recent[:] = [taken]
            else:
                results = self.work.results(inputs, compiled=True)
            for target, result in zip(tensors[len(tensors) - len(results) :], results, strict=True):
                copy_into(target, result)


def _node(
    name: str,
    run: Callable[[Sequence[FlatFunction], Tensors], Tensors],
    functions: Sequence[Function],
    operands: Sequence[Any],
    tensors: Tensors,
) -> Tensors:
    """The results of turns, which a graph takes again.

    Args:
        name: of the operator.
        run: takes the turns.
        functions: take the operands.
        operands: have the structure of what the functions are called with.
        tensors: that the turns are taken with.
    """
    build, count = rebuilder(tuple(operands), []), len(_flat(name, list(operands)))
    closed, closures = zip(*map(_without_tensors, functions), strict=True)
    made = tuple(_OfTensors(name, function, build, count) for function in closed)
    seen = Guards({"a function": list(closed)}).tensors
    turns = _Turns(name, run, made, tuple(map(len, closures)), tuple(seen))
    inputs = [*tensors, *(tensor for closure in closures for tensor in closure)]
    with tape.gradients(False):
        results = _noted(turns, inputs)
    parameters = _requiring(seen)

    def backward(grads: Sequence[Any], saved: list[Any], needs: tuple[bool, ...]) -> list[Any]:
        given = [
            _zeros(saved[0], *kind) if gradient is None else gradient
            for gradient, kind in zip(grads, kinds, strict=True)
        ]
        wanted = tuple(needs)
        if tape.state.enabled:
            listeners.refuse(f"takes gradients of the gradients of a {name}")
            targets = _chosen([*saved, *parameters], wanted)
            found = _gradients(_floats(turns.results(saved, compiled=False)), targets, given, again=True)
        else:
            work, operands = _Gradient(turns, wanted, len(saved)), [*saved, *given]
            captured = listeners.captured()
            turns.wanted[:] = [wanted]
            found = _noted(work, operands) if captured else work.results(operands, compiled=False)
        rest = iter(found)
        return [next(rest) if need else None for need in wanted]

    floats = _floats(results)
    kinds = [(result.shape, result.dtype) for result in floats]
    tape.add_node(name, [*inputs, *parameters], floats, backward, inputs)
    return results


def _noted(work: _Turns | _Gradient, tensors: Tensors) -> list[Any]:
    """The results of work, which is noted for a graph."""
    seen, draws = work.seen, list[State]()
    versions = [tensor.storage.version for tensor in seen]
    with _set_aside(), noting(draws):
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
    with _set_aside():
        for target, result in zip(made, results, strict=True):
            copy_into(target, result)
    note_tensor_work(work.name, _Again(work, len(tensors)), seen, inputs, made)
    return made


@contextlib.contextmanager
def _set_aside() -> Iterator[None]:
    """A block of which neither a capture nor autograd takes note."""
    with listeners.suspended(), tape.changed(enabled=False, observer=None):
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
    """Where tensors lie, which tells the inputs of one call from those of another that is alive."""
    return tuple(
        tensor.storage.address if tensor.device.is_host else tensor.storage.span for tensor in tensors
    )


# Tensors in structures


def _flat(name: str, value: Any) -> list[Any]:
    """The tensors of a structure that holds nothing else.

    Raises:
        ArgumentError: it does.
    """
    if isinstance(value, TensorBase):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _flat(name, item)]
    if type(value) is dict:
        return [tensor for item in value.values() for tensor in _flat(name, item)]
    raise ArgumentError(
        f"[{name}] expected tensors, or tuples, lists and dicts of them, got {type(value).__name__}; make a "
        "tensor of it"
    )


def _with_tensors(value: Any, tensors: Tensors) -> Any:
    """A structure with other tensors."""
    return rebuilder(value, [])(tensors)


@dataclass(frozen=True)
class _Structure:
    """The structure of a result, and the shapes and dtypes of its tensors."""

    key: Any
    tensors: tuple[tuple[Any, str], ...]

    def __str__(self) -> str:
        return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in self.tensors) or "no tensors"


def _structure(name: str, value: Any) -> _Structure:
    tensors = tuple((tensor.shape, tensor.dtype.name) for tensor in _flat(name, value))
    return _Structure(flatten(value, [], []), tensors)


def _check_kept(name: str, which: str, before: Any, after: Any) -> None:
    """
    Raises:
        ShapeError: a turn has changed the structure, a shape or a dtype of what is carried.
    """
    first, second = _structure(name, before), _structure(name, after)
    if first != second:
        same = " in another structure" if first.tensors == second.tensors else ""
        raise ShapeError(f"[{name}] {which} must return what it takes, {first}, got {second}{same}")


def _in_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _slices(xs: Any, dim: int, reverse: bool) -> list[Any]:
    """The tensors of `xs` with the axis that is cut in front, in the order in which they are gone through.

    Raises:
        ArgumentError, ShapeError: see :func:`scan`.
    """
    tensors, axis = _flat("scan", xs), integer("scan", "dim", dim)
    if not tensors:
        raise ArgumentError("[scan] expected tensors to cut in xs, got none")
    for tensor in tensors:
        if not -len(tensor.shape) <= axis < len(tensor.shape):
            raise ShapeError(f"[scan] dim {axis} is no axis of a tensor of shape {tensor.shape} in xs")
    sizes = sorted({tensor.shape[axis] for tensor in tensors})
    if len(sizes) > 1 or 0 in sizes:
        raise ShapeError(f"[scan] expected one size of at least 1 along dim {axis} of all xs, got {sizes}")
    moved = [movedim(tensor, axis, 0) for tensor in tensors]
    return [flip(tensor, 0) for tensor in moved] if reverse else moved


def _placed(collected: Any, axis: int, reverse: bool) -> Any:
    """What was collected along axis 0, in the order and along the axis of the slices.

    Raises:
        ShapeError: it has too few axes.
    """
    if axis >= len(collected.shape):
        raise ShapeError(
            f"[scan] results of shape {collected.shape[1:]} cannot be stacked along dim {axis}; use dim=0, "
            "or give them more axes"
        )
    return movedim(flip(collected, 0) if reverse else collected, 0, axis)


def _truth_shape(name: str, value: Any) -> None:
    if value.numel() != 1:
        raise ArgumentError(
            f"[{name}] expected a condition of one element, got shape {value.shape}; use .any() or .all()"
        )


def _truth(name: str, value: Any) -> bool:
    """A condition's value, read on the host.

    Raises:
        ArgumentError: it has not one element.
    """
    if not isinstance(value, TensorBase):
        return bool(value)
    _truth_shape(name, value)
    scalar: Any = value
    return bool(scalar.item())


def _behind(function: FlatFunction, tensors: Tensors) -> FlatFunction:
    return lambda *first: function(*first, *tensors)


# Gradients


def _floats(tensors: Tensors) -> list[Any]:
    return [tensor for tensor in tensors if tensor.dtype in FLOATING]


def _requiring(tensors: Tensors) -> list[Any]:
    return [tensor for tensor in tensors if tensor.requires_grad]


def _chosen(tensors: Tensors, wanted: Sequence[bool]) -> list[Any]:
    return [tensor for tensor, is_wanted in zip(tensors, wanted, strict=True) if is_wanted]


def _zeros(like: Any, shape: Any, dtype: Any) -> Any:
    made = new_like(like, shape, dtype)
    fill_with(made, 0)
    return made


def _gradients(results: Tensors, targets: Tensors, grads: Tensors, *, again: bool = False) -> Sequence[Any]:
    """The gradients of targets from those of results; zeros where nothing flows."""
    pairs = [(one, gradient) for one, gradient in zip(results, grads, strict=True) if one.requires_grad]
    if not pairs:
        return [_zeros(target, target.shape, target.dtype) for target in targets]
    outputs, weights = zip(*pairs, strict=True)
    return grad(outputs, targets, weights, create_graph=again, materialize_grads=True)
