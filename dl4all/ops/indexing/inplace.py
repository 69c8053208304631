"""Changes in place: ``copy_``, ``fill_``, ``add_`` and their like, and ``tensor[key] = value``.

The elements change where they lie, for every tensor that shares their memory. With gradients on, the tensor
gets a new history whose start is its old one. A leaf that requires gradients has none to go on from, and a
view would leave the tensor it was made of without one: both are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import NUMBERS, Op, primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.indexing import advanced_indexing
from dl4all.ops.indexing.indices import Indices, joint
from dl4all.ops.indexing.rows import put_rows, write_rows
from dl4all.ops.memory.copy import (
    MOVABLE_DTYPES,
    broadcast_view,
    copy_into,
    fill_with,
    fresh_copy,
    overlaps_itself,
    owns_words,
)
from dl4all.ops.memory.views import permute, reshape

T = TypeVar("T", bound=TensorBase)
Back = Callable[[Any], Any]
KINDS = {"b": 0, "u": 1, "i": 1, "f": 2}


def start(name: str, target: TensorBase, *others: Any) -> bool:
    """Whether a change is to be recorded for gradients.

    Raises:
        GradientError: it cannot be.
        ArgumentError: several elements of the target lie in one place.
    """
    for other in others:
        if isinstance(other, TensorBase) and other.levels:
            other.check_changes(name, target)  # type: ignore[attr-defined]
    if overlaps_itself(target):
        raise ArgumentError(
            f"[{name}] elements of an expanded tensor share memory; change a .clone() of it instead"
        )
    if not tape.state.enabled:
        return False
    wanted = tape.wants_gradient(target)
    if wanted and target.record.node is None:
        raise GradientError(
            f"[{name}] a leaf that requires gradients cannot be changed in place; do it within dl.no_grad()"
        )
    recording = wanted or (target.dtype.kind == "f" and any(map(tape.wants_gradient, others)))
    if recording and target.viewed is not None and target.viewed[0]() is not None:
        raise GradientError(
            f"[{name}] a view cannot be changed in place while gradients are recorded: the tensor that it "
            "shows would not know; work out of place, change the whole tensor, or use dl.no_grad()"
        )
    return recording


def finish(target: TensorBase, recording: bool) -> None:
    """Count the change; what has kept the old elements for a gradient will say so."""
    target.storage.version += 1
    if recording:
        target.storage.recorded += 1
        target.viewed = None  # what it was a view of is gone


def _history(target: TensorBase) -> TensorBase:
    """The target as it was, for a node: its record, but none of its memory's later changes."""
    before = tape.alias(target)
    before.record = target.record
    return before


# Whole tensors


@export("Tensor")
def copy_(input: T, src: Any, non_blocking: bool = False) -> T:
    """Write the elements of `src`, broadcast and converted, over those of the tensor; returns it.

    Args:
        input: the tensor that changes.
        src: a tensor on any device, or a number.
        non_blocking: has no effect; commands never block.

    Raises:
        ShapeError: `src` does not broadcast to the tensor's shape.
        GradientError: the tensor cannot be changed in place.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2, 2).copy_(dl.tensor([1, 2])).tolist()
        [[1.0, 2.0], [1.0, 2.0]]
    """
    if not isinstance(src, TensorBase):
        return fill_(input, src)
    _check_broadcast("copy_", src.shape, input.shape)
    recording = start("copy_", input, src)
    copy_into(input, src)
    finish(input, recording)
    if recording:
        shape, dtype, place = src.shape, src.dtype, src.device
        input.record = None
        tape.attach(
            "copy_", [src], [input], lambda grads, saved, needs: [_fitted(grads[0], shape, dtype, place)]
        )
    return input


def _check_broadcast(name: str, shape: Shape, wanted: Shape) -> None:
    try:
        fits = np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"[{name}] shape {shape} does not broadcast to {wanted}")


def _fitted(gradient: Any, shape: Shape, dtype: np.dtype[Any], place: Any) -> Any:
    if gradient.shape != shape:
        gradient = primitives.sum_to(gradient, shape)
    if gradient.dtype != dtype:
        gradient = primitives.cast(gradient, dtype.name)
    return gradient if gradient.device is place else gradient.to(place)


@export("Tensor")
def fill_(input: T, value: Any) -> T:
    """Write one number over all elements; returns the tensor.

    Raises:
        DTypeError: the value is no number.
        GradientError: the tensor cannot be changed in place.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2).fill_(3).tolist()
        [3.0, 3.0]
    """
    if isinstance(value, TensorBase):
        if value.shape:
            raise ShapeError(f"[fill_] expected a number or a tensor of shape (), got {value.shape}")
        return copy_(input, value)
    if not isinstance(value, NUMBERS):
        raise DTypeError(f"[fill_] expected a number, got {type(value).__name__}")
    recording = start("fill_", input)
    fill_with(input, value)
    finish(input, recording)
    if recording:
        input.record = None  # nothing of what it was is left
    return input


@export("Tensor")
def zero_(input: T) -> T:
    """Write zeros over all elements; returns the tensor."""
    return fill_(input, 0)


# Ops


@export()
def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that calls a function of tensors and writes the result over its first operand.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0])
    >>> x.mul_(3).add_(1) is x, x.tolist()
    (True, [4.0, 7.0])
    """

    name = function.__name__

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, Op):
            return _apply(function, self, args, kwargs)
        return _replaced(name, function, self, args, kwargs)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f":func:`{name}`, written over the tensor's own elements; returns the tensor."
    return method


def _apply(op: Op[...], target: TensorBase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TensorBase:
    name = f"{op.name}_"
    operands, arguments = op._bind((target, *args), kwargs)
    others = operands[1:]
    recording = start(name, target, *others)
    first = op._check(operands)
    if first.device is not target.device:
        raise ArgumentError(f"[{name}] operands live on different devices")
    shape, dtype = op.infer(*operands, **arguments)
    _check_result(name, target, shape, dtype)
    # What lies in the memory that changes is read before, and kept for gradients from elsewhere.
    others = [_elsewhere(o, target) if isinstance(o, TensorBase) else o for o in others]
    before: Any = target
    if recording:
        needs = tuple(map(tape.wants_gradient, [target, *others]))
        takes = op._gradient.takes(needs)
        before = _history(target)
        if op.arrays[0] in takes:
            before = fresh_copy(before)
            before.record = target.record
    with tape.gradients(False):
        _compute(op, target, before, others, arguments, dtype)
    finish(target, recording)
    if recording:
        target.record = None
        if dtype.kind == "f":  # no gradient flows through a condition
            op._record([before, *others], arguments, target)
    return target


def _replaced(
    name: str, function: Callable[..., Any], target: TensorBase, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TensorBase:
    """What :func:`_apply` does, for a function that is made of several ops."""
    others = [*args, *kwargs.values()]
    recording = start(f"{name}_", target, *others)
    before = fresh_copy(target) if recording else tape.alias(target)
    before.record = target.record if recording else None
    with tape.gradients(recording):
        result = function(before, *args, **kwargs)
    _check_result(f"{name}_", target, result.shape, result.dtype)
    copy_into(target, result)
    finish(target, recording)
    if recording:
        target.record = result.record
    return target


def _check_result(name: str, target: TensorBase, shape: Shape, dtype: np.dtype[Any]) -> None:
    """
    Raises:
        ShapeError, DTypeError: a result cannot be written over the target.
    """
    if shape != target.shape:
        raise ShapeError(
            f"[{name}] the result of shape {shape} does not fit a tensor of shape {target.shape}"
        )
    if KINDS[dtype.kind] > KINDS[target.dtype.kind]:
        raise DTypeError(f"[{name}] a result of {dtype} does not fit a tensor of {target.dtype}")


def _elsewhere(other: TensorBase, target: TensorBase) -> TensorBase:
    """An operand that does not share the target's memory."""
    made: TensorBase = primitives.clone(other) if other.storage is target.storage else other
    return made


def _compute(
    op: Op[...],
    target: TensorBase,
    before: TensorBase,
    others: list[Any],
    arguments: dict[str, Any],
    dtype: Any,
) -> None:
    direct = (
        op.elementwise
        and not target.levels
        and op.kernel is not None
        and not target.device.is_host
        and dtype == target.dtype
        and dtype.name in op.kernel.dtypes
        and 0 not in target.shape
        and owns_words(target)
        and target.device.binds(*(o.storage for o in (target, *others) if isinstance(o, TensorBase)))
    )
    if direct and op.kernel is not None:  # each invocation reads its own element and writes it
        op.kernel.run(target, target, *others, **arguments)
    else:
        copy_into(
            target,
            op(before, *others, **arguments) if target.levels else op._compute([before, *others], arguments),
        )


# Parts


@export()
def setitem(input: TensorBase, key: Any, value: Any) -> None:
    """Write a number or a tensor, broadcast and converted, over the elements that a key selects.

    Args:
        input: the tensor that changes.
        key: as for reading: ints, slices, None, ``...``, and ints or bools in tensors, arrays or lists.
        value: a number, a tensor, or what :func:`dl4all.tensor` takes.

    Raises:
        ArgumentError: the key does not fit.
        ShapeError: the value does not broadcast to what the key selects.
        GradientError: the tensor cannot be changed in place.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(2, 3)
        >>> x[:, 1] = dl.tensor([5.0, 6.0])
        >>> x[0, [0, 2]] = 1
        >>> x.tolist()
        [[1.0, 5.0, 1.0], [0.0, 6.0, 0.0]]
    """
    if not isinstance(value, (TensorBase, *NUMBERS)):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise DTypeError(f"[setitem] expected numbers, got elements of dtype {array.dtype}")
        value = from_host(type(input).result_class, array.astype(input.dtype), input.device, copy=True)
    recording = start("setitem", input, value)
    if not isinstance(value, TensorBase):
        element = np.asarray(value)
        with np.errstate(all="ignore"):
            value = from_host(type(input).result_class, element.astype(input.dtype), input.device, copy=False)
    basic = advanced_indexing.is_basic(key)
    picks = None if basic else advanced_indexing.parse(key, input.shape)
    before = _history(input)
    if picks is None:
        _write_view(advanced_indexing.region(input, key), value)
    else:
        _write_picks(advanced_indexing.region(input, picks.view), picks, value)
    finish(input, recording)
    if recording:
        shape, dtype, place = value.shape, value.dtype, value.device
        input.record = None
        tape.attach(
            "setitem",
            [before, value],
            [input],
            lambda grads, saved, needs: [
                _without(grads[0], key) if needs[0] else None,
                _fitted(_trimmed(advanced_indexing.getitem(grads[0], key), shape), shape, dtype, place)
                if needs[1]
                else None,
            ],
        )


def _without(gradient: Any, key: Any) -> Any:
    """A gradient with zeros where something else was written."""
    made = fresh_copy(gradient)
    zero = from_host(type(gradient).result_class, np.zeros((), gradient.dtype), gradient.device, copy=False)
    if advanced_indexing.is_basic(key):
        _write_view(advanced_indexing.region(made, key), zero)
    else:
        picks = advanced_indexing.parse(key, made.shape)
        _write_picks(advanced_indexing.region(made, picks.view), picks, zero)
    tape.attach("without", [gradient], [made], lambda grads, saved, needs: [_without(grads[0], key)])
    return made


def _leading(value: Any, ndim: int) -> Shape:
    """The shape of a value without the axes of size 1 that it has too many in front."""
    shape: Shape = value.shape
    while len(shape) > ndim and shape[0] == 1:
        shape = shape[1:]
    return shape


def _trimmed(gradient: Any, shape: Shape) -> Any:
    """A gradient with the axes of size 1 that the value had more of in front."""
    missing = len(shape) - len(gradient.shape)
    return reshape(gradient, (*(1,) * missing, *gradient.shape)) if missing > 0 else gradient


def _write_view(view: TensorBase, value: Any) -> None:
    shape = _leading(value, len(view.shape))
    _check_broadcast("setitem", shape, view.shape)
    copy_into(view, reshape(tape.alias(value), shape))


def _write_picks(view: TensorBase, picks: advanced_indexing.Picks, value: Any) -> None:
    """Rows of the axes that are picked, in front of the others, replaced by those of the value."""
    sizes = [view.shape[axis] for axis in picks.axes]
    flat = joint("index", picks.arrays, sizes)
    rest = [axis for axis in range(len(view.shape)) if axis not in picks.axes]
    first, count = picks.axes[0], len(picks.axes)
    together = picks.axes == tuple(range(first, first + count))
    front = first if together else 0  # how many other axes the result has before those of the indices
    others = tuple(view.shape[axis] for axis in rest)
    selected = (*others[:front], *flat.shape, *others[front:])
    shape = _leading(value, len(selected))
    _check_broadcast("setitem", shape, selected)
    if 0 in selected:
        return
    wide = broadcast_view(reshape(tape.alias(value), shape), selected)
    order = (*range(front, front + flat.ndim), *range(front), *range(front + flat.ndim, len(selected)))
    turned = view.as_strided(
        tuple(view.shape[axis] for axis in (*picks.axes, *rest)),
        tuple(view.strides[axis] for axis in (*picks.axes, *rest)),
        view.offset,
    )
    inner = int(np.prod(others, dtype=np.int64))
    with tape.gradients(False):
        if wide.dtype != view.dtype:
            wide = primitives.cast(wide, view.dtype.name)
        rows = reshape(permute(wide, *order), flat.size, inner)
        if rows.storage is view.storage:
            rows = fresh_copy(rows)
        by_kernel = (
            not (view.levels or rows.levels or view.device.is_host)
            and view.dtype.name in MOVABLE_DTYPES
            and turned.is_contiguous()
            and view.device.binds(rows.storage, turned.storage)
        )
        if by_kernel:
            target = turned.as_strided((int(np.prod(sizes)), inner), (inner, 1), turned.offset)
            write_rows(target, rows, Indices(flat).last())
        else:
            whole = reshape(turned, int(np.prod(sizes)), inner)
            copy_into(turned, reshape(put_rows(whole, rows, Indices(flat)), turned.shape))
