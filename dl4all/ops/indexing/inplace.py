"""In-place variants of ops, such as ``add_``, and the rules that every in-place change follows.

The elements change in their memory, for every tensor that shares it. With gradients on, the tensor gets a new
history that starts with its old one. A leaf that requires gradients has no history to continue, and a view
would leave its base without one: both are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Op, primitives
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.memory.copy import copy_into, fresh_copy, overlaps_itself, owns_words

DTYPE_KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2}
"""Kinds of NumPy dtypes: a result may be written to a tensor of the same or a later kind."""


def begin_change(name: str, target: TensorBase, *others: Any) -> bool:
    """Check that a tensor may be changed in place. Call it before the change, and `finish_change` after it.

    Returns:
        Whether the change must be recorded for gradients.

    Raises:
        GradientError: gradients are on, and the target is a leaf or a view.
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
    recording = requires_grad or (target.dtype.kind == "f" and any(map(tape.wants_gradient, others)))
    if recording and target.view_of is not None and target.view_of[0]() is not None:
        raise GradientError(
            f"[{name}] a view cannot be changed in place while gradients are recorded: the tensor that it "
            "shows would not know; work out of place, change the whole tensor, or use dl.no_grad()"
        )
    return recording


def finish_change(target: TensorBase, recording: bool) -> None:
    """Count the change, so that a node that kept the old elements for its gradient refuses to run."""
    target.storage.version += 1
    if recording:
        target.storage.history_version += 1
        target.view_of = None  # its base is gone


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

    name = function.__name__

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, Op):
            return _apply_op(function, self, args, kwargs)
        return _apply_function(name, function, self, args, kwargs)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f":func:`{name}`, written into the tensor itself; returns the tensor."
    return method


def _apply_op(op: Op[...], target: TensorBase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TensorBase:
    name = f"{op.name}_"
    operands, arguments = op.bind((target, *args), kwargs)
    others = operands[1:]
    recording = begin_change(name, target, *others)
    first = op.check_operands(operands)
    if first.device is not target.device:
        raise ArgumentError(f"[{name}] operands live on different devices")
    shape, dtype = op.infer(*operands, **arguments)
    _check_result(name, target, shape, dtype)
    # Operands in the memory that changes are copied first: the op and its gradient need the old elements.
    others = [_unshared(o, target) if isinstance(o, TensorBase) else o for o in others]
    before: Any = target
    if recording:
        needs = tuple(map(tape.wants_gradient, [target, *others]))
        takes = op.gradient_rule.parameters(needs)
        before = with_history(target)
        if op.arrays[0] in takes:
            before = fresh_copy(before)
            before.grad_meta = target.grad_meta
    with tape.gradients(False):
        _compute_into(op, target, before, others, arguments, dtype)
    finish_change(target, recording)
    if recording:
        target.grad_meta = None
        if dtype.kind == "f":  # no gradient flows through a condition
            op.add_node([before, *others], arguments, target)
    return target


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
    if DTYPE_KIND_ORDER[dtype.kind] > DTYPE_KIND_ORDER[target.dtype.kind]:
        raise DTypeError(f"[{name}] a result of {dtype} does not fit a tensor of {target.dtype}")


def _unshared(other: TensorBase, target: TensorBase) -> TensorBase:
    """The operand, copied if it shares the target's memory."""
    operand: TensorBase = primitives.clone(other) if other.storage is target.storage else other
    return operand


def _compute_into(
    op: Op[...],
    target: TensorBase,
    before: TensorBase,
    others: list[Any],
    arguments: dict[str, Any],
    dtype: Any,
) -> None:
    """Write the op's result into the target: by the op's kernel where it can, else by way of a copy."""
    direct = (
        op.elementwise
        and not isinstance(target, BatchedTensorBase)
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
            op(before, *others, **arguments)
            if isinstance(target, BatchedTensorBase)
            else op.compute([before, *others], arguments),
        )
