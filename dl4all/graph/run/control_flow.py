"""Conditions on values, and loops: one node each where a call is compiled.

Elsewhere they are what Python makes of them. In a compiled call their functions are compiled by themselves,
and the host chooses and iterates: it reads a predicate, and replays the graph of a branch or of a loop's
body. So neither another value nor another number of iterations is traced anew.

The functions are PyTorch's higher-order operators of the same names, which follow those of JAX (R. Frostig et
al., "Compiling machine learning programs via high-level tracing", SysML 2018).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.graph.run.control_flow_nodes import (
    FlatFunction,
    Function,
    Tensors,
    control_flow_node,
    flat,
    on_trial,
)
from dl4all.graph.tracing.structure import flatten, rebuilder
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.indexing.repeat_and_flip import flip
from dl4all.ops.memory.views import movedim
from dl4all.scheduler import listeners

MOST_UNROLLED = 64
"""Slices of a scan that become nodes of the graph themselves: for more it takes long to be made."""


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
    with on_trial():
        results = [function(*operands) for function in (true_fn, false_fn)]
    first, second = (_structure("cond", result) for result in results)
    if first != second:
        raise ShapeError(
            "[cond] in a compiled call both functions must return one structure, shapes and dtypes, got "
            f"{first} and {second}"
        )
    tensors = [pred, *flat("cond", list(operands))]
    return _with_tensors(
        results[0], control_flow_node("cond", _choose, (true_fn, false_fn), operands, tensors)
    )


def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The last of ``carried = body_fn(*carried)``, repeated for as long as ``cond_fn(*carried)`` holds.

    Within :func:`dl4all.compile` both functions are compiled, and each call iterates as often as its values
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
        return tuple(_iterations(cond_fn, lambda *carried: _in_tuple(body_fn(*carried)), carried))
    tensors = flat("while_loop", carried)
    results = control_flow_node("while_loop", _iterate, (cond_fn, body_fn), carried, tensors)
    return _with_tensors(carried, results)  # type: ignore[no-any-return]


def scan(combine_fn: Function, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """A function folded over slices of tensors: ``carry, y = combine_fn(carry, x)``, from `init` on.

    Within :func:`dl4all.compile` up to 64 iterations are part of the graph. For more the function is
    compiled once, and what is said of the functions of :func:`cond` holds for it.

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
    slices, carries = _slices(xs, dim, reverse), flat("scan", init)
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
        with on_trial():
            last, y = combine(*operands)
        fold = functools.partial(_fold_slices, len(carries))
        results = control_flow_node("scan", fold, (combine_fn,), operands, [*carries, *slices])
        last, collected = _with_tensors(last, results[: len(carries)]), results[len(carries) :]
    else:
        last, rows = init, list[Tensors]()
        for position in range(slices[0].shape[0]):
            last, y = combine(last, _with_tensors(xs, [tensor[position] for tensor in slices]))
            rows.append(flat("scan", y))
        collected = [stack(list(column)) for column in zip(*rows, strict=True)]
    return last, _with_tensors(y, [_placed(tensor, axis, reverse) for tensor in collected])


# Runs of operators, of functions that return lists of tensors


def _choose(functions: Sequence[FlatFunction], tensors: Tensors) -> Tensors:
    pred, *operands = tensors
    return functions[0 if _truth("cond", pred) else 1](*operands)


def _iterate(functions: Sequence[FlatFunction], tensors: Tensors) -> Tensors:
    return _iterations(lambda *carried: functions[0](*carried)[0], functions[1], tensors)


def _iterations(condition: Function, body: Function, carried: Sequence[Any]) -> Sequence[Any]:
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


# Tensors in structures


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
    tensors = tuple((tensor.shape, tensor.dtype.name) for tensor in flat(name, value))
    return _Structure(flatten(value, [], []), tensors)


def _check_kept(name: str, which: str, before: Any, after: Any) -> None:
    """
    Raises:
        ShapeError: an iteration has changed the structure, a shape or a dtype of what is carried.
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
    tensors, axis = flat("scan", xs), integer("scan", "dim", dim)
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
    """The tensor that was collected along axis 0, in the order and along the axis of the slices.

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
