"""In-place variants of ops, such as ``add_``, and the rules that every in-place change follows.

The elements change in their memory, for every tensor that shares it. With gradients on, the tensor gets a new
history that starts with its old one, and if it is a view its base does, too; other views of the base must be
taken again. A leaf that requires gradients has no history to continue: a change of it is refused.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.call_forms import INPLACE
from dl4all.ops.core.arguments.mixed_devices import MixedDevices, on_one_device
from dl4all.ops.core.arguments.mixed_dtypes import MixedScalars, scalars_cast
from dl4all.ops.core.dtypes import KIND_RANKS, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import KERNEL_REFUSALS, Op, primitives
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.memory.copy import copy_into, fresh_copy, overlaps_itself, owns_words, unshared
from dl4all.ops.memory.parts import clear_region, put_region, take_region
from dl4all.scheduler import listeners


def begin_change(name: str, target: TensorBase, *others: Any) -> bool:
    """Check that a tensor may be changed in place. Call it before the change, and `finish_change` after it.

    Returns:
        Whether the change must be recorded for gradients.

    Raises:
        GradientError: gradients are on, and the target is a leaf, a view of one, or a view that was made with
            gradients off.
        ArgumentError: elements of the target share memory.
    """
    for other in others:
        if isinstance(other, BatchedTensorBase):
            other.check_target(name, target)
    if overlaps_itself(target):
        raise ArgumentError(
            f"[{name}] elements of an expanded tensor share memory; change a .clone() of it instead"
        )
    if not tape.state.enabled:
        return False
    requires_grad = tape.wants_gradient(target)
    if requires_grad and target.grad_meta.node is None:
        raise GradientError(
            f"[{name}] a leaf that requires gradients cannot be changed in place; do it within dl.no_grad()"
        )
    recording = requires_grad or (kind_of(target.dtype) == "f" and any(map(tape.wants_gradient, others)))
    base = _base_of(target)
    if recording and base is not None:
        _check_base(name, target, base)
    return recording


def _base_of(target: TensorBase) -> TensorBase | None:
    """The tensor that a view shows, if it is still there."""
    return None if target.view_of is None else target.view_of[0]()


def _check_base(name: str, view: TensorBase, base: TensorBase) -> None:
    """Check that the base of a view can get a history in which the view was changed.

    Raises:
        GradientError
    """
    base_requires_grad = tape.wants_gradient(base)
    if base_requires_grad and base.grad_meta.node is None:
        raise GradientError(
            f"[{name}] a view of a leaf that requires gradients cannot be changed in place; do it within "
            "dl.no_grad()"
        )
    if (
        base_requires_grad != tape.wants_gradient(view)
        or base.dtype != view.dtype
        or not base.is_contiguous()
        or isinstance(view, BatchedTensorBase)
    ):
        raise GradientError(
            f"[{name}] a view cannot be changed in place while gradients are recorded: the tensor that it "
            "shows would not know; work out of place, change the whole tensor, or use dl.no_grad()"
        )


def finish_change(target: TensorBase, recording: bool) -> None:
    """Count the change, so that a node that kept the old elements for its gradient refuses to run."""
    target.storage.version += 1
    if recording:
        target.storage.history_version += 1


def finish_history(target: TensorBase) -> None:
    """Let the base of a view share the view's new history; call it after that has been recorded.

    The base gets the old elements outside the view and the view's own, and the view becomes one of the base
    as it is now.
    """
    base = _base_of(target)
    target.view_of = None
    if base is None:
        return
    shape, region = base.shape, (target.shape, target.strides, target.offset - base.offset)
    before, changed = with_history(base), with_history(target)
    base.grad_meta = base.view_of = target.grad_meta = None
    tape.add_node(
        "change_of_view",
        [before, changed],
        [base],
        lambda grads, saved, needs: [
            clear_region(grads[0], region) if needs[0] else None,
            take_region(grads[0], region) if needs[1] else None,
        ],
    )
    tape.add_node("view", [base], [target], lambda grads, saved, needs: [put_region(grads[0], shape, region)])
    target.view_of = weakref.ref(base), target.storage.history_version


def with_history(target: TensorBase) -> TensorBase:
    """The target as it was, as an input for a node: its record, without later changes of its memory."""
    before = tape.alias(target)
    before.grad_meta = target.grad_meta
    return before


@export()
def in_place(function: Callable[..., Array]) -> Callable[..., Array]:
    """The method that calls a function and writes the result into its first operand.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0])
    >>> x.mul_(3).add_(1) is x, x.tolist()
    (True, [4.0, 7.0])
    """

    name = function.__name__.lstrip("_")
    takes_inplace = INPLACE in inspect.signature(function).parameters

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, Op):
            return _apply_op(function, *function.bind((self, *args), kwargs))
        if takes_inplace:
            return function(self, *args, **kwargs, inplace=True)
        return _apply_function(name, function, self, args, kwargs)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f":func:`{name}`, written into the tensor itself; returns the tensor."
    return method


def _apply_op(op: Op[...], operands: list[Any], arguments: dict[str, Any]) -> Any:
    """Write an op's result into its first operand."""
    target, *others = operands
    if op.change_again(operands, arguments):
        finish_change(target, recording=False)
        return target
    name = f"{op.name}_"
    try:
        op.check_operands(operands)
    except MixedDevices:
        moved = on_one_device(op.name, operands, scalars=op.elementwise)
        if moved[0] is not target:  # which stays where it is
            raise
        return _apply_op(op, moved, arguments)
    recording = begin_change(name, target, *others)
    try:
        shape, dtype = op.infer(*operands, **arguments)
    except MixedScalars:
        operands = scalars_cast(operands)
        others = operands[1:]
        shape, dtype = op.infer(*operands, **arguments)
    _check_result(name, target, shape, dtype)
    # Operands in the memory that changes are copied first: the op and its gradient need the old elements.
    others = [unshared(o, target) if isinstance(o, TensorBase) else o for o in others]
    before: Any = target
    if recording:
        needs = tuple(map(tape.wants_gradient, [target, *others]))
        rule = op.in_place_rule(arguments)
        takes = dict(rule.plan(needs).parameters)
        before = with_history(target)
        if op.arrays[0] in takes:
            before = fresh_copy(before)
            before.grad_meta = target.grad_meta
    with tape.gradients(False):
        compute = functools.partial(_compute_into, op, target, before, others, arguments, dtype)
        if listeners.active:
            listeners.op(op, [before, *others], arguments, compute)
        else:
            compute()
    finish_change(target, recording)
    if recording:
        target.grad_meta = None
        if kind_of(dtype) == "f":  # no gradient flows through a condition
            op.add_node([before, *others], arguments, target, rule)
        finish_history(target)
    return target


primitives.in_place, primitives.apply_in_place = in_place, _apply_op


def _apply_function(
    name: str, function: Callable[..., Any], target: TensorBase, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TensorBase:
    """The same as :func:`_apply_op`, for a function that calls several ops."""
    others = [*args, *kwargs.values()]
    recording = begin_change(f"{name}_", target, *others)
    before = fresh_copy(target) if recording else tape.alias(target)
    before.grad_meta = target.grad_meta if recording else None
    with tape.gradients(recording):
        result = function(before, *args, **kwargs)
    _check_result(f"{name}_", target, result.shape, result.dtype)
    copy_into(target, result)
    finish_change(target, recording)
    if recording:
        target.grad_meta = result.grad_meta
        finish_history(target)
    return target


def _check_result(name: str, target: TensorBase, shape: Shape, dtype: np.dtype[Any]) -> None:
    """Check that a result can be written into the target.

    Raises:
        ShapeError, DTypeError
    """
    if shape != target.shape:
        raise ShapeError(
            f"[{name}] the result of shape {shape} does not fit a tensor of shape {target.shape}"
        )
    if KIND_RANKS[dtype] > KIND_RANKS[target.dtype]:
        raise DTypeError(f"[{name}] a result of {dtype} does not fit a tensor of {target.dtype}")


def _compute_into(
    op: Op[...],
    target: TensorBase,
    before: TensorBase,
    others: list[Any],
    arguments: dict[str, Any],
    dtype: Any,
) -> TensorBase:
    """Write the op's result into the target: by the op's kernel where it can, else by way of a copy."""
    direct = (
        op.overwrites
        and not isinstance(target, BatchedTensorBase)
        and op.kernel is not None
        and not target.device.is_host
        and dtype == target.dtype
        and dtype.name in op.kernel.dtypes
        and 0 not in target.shape
        and owns_words(target)
        and target.device.memory.binds(*(o.storage for o in (target, *others) if isinstance(o, TensorBase)))
    )
    if direct and op.kernel is not None:  # each invocation reads its own element and writes it
        try:
            op.kernel.run(target, target, *others, **arguments)
        except KERNEL_REFUSALS:
            pass  # nothing was written; the op computes on the host, and counts that
        else:
            op.keep_change([target, *others], arguments)
            return target
    if target.device.is_host and dtype == target.dtype and not listeners.followed():
        has_memory = not isinstance(target, BatchedTensorBase) and 0 not in target.shape
        if has_memory and op.change_on_host([target, *others], arguments):
            return target
    copy_into(
        target,
        op(before, *others, **arguments)
        if isinstance(target, BatchedTensorBase)
        else op.compute([before, *others], arguments),
    )
    return target
