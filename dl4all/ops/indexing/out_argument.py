"""PyTorch's argument `out`: tensors that a function writes its results into."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dl4all.errors import ArgumentError, DTypeError, GradientError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.arguments import call_forms
from dl4all.ops.core.arguments.numpy_names import names_for, renamed
from dl4all.ops.core.dtypes import KIND_RANKS
from dl4all.ops.core.op import Op, primitives
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.indexing.inplace import begin_change, finish_change
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.copy import copy_into, fresh_copy

F = TypeVar("F", bound=Callable[..., Any])


def with_out(function: F) -> F:
    """The function, which takes `out` too: a tensor for its result, or a tuple of tensors for several.

    They get the results' elements, converted to their dtype, and are what the function returns. One without
    elements gets the result's shape first.
    """
    if isinstance(function, Op):
        function.forms += (call_forms.out,) * (call_forms.out not in function.forms)
        return function

    signature = inspect.signature(function)
    numpy_names = names_for(signature.parameters)

    @functools.wraps(function)
    def wrapper(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if kwargs and numpy_names:
            kwargs = renamed(function.__name__, kwargs, numpy_names)
        if out is None:
            return function(*args, **kwargs)
        return write_results(function.__name__, function, args, kwargs, out)

    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    named = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    parameter = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
    wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, parameter, *named]
    )
    return wrapper  # type: ignore[return-value]


def write_results(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """Call a function, and write its results into tensors.

    Returns:
        `out`; of a named tuple one of the same kind.

    Raises:
        GradientError: gradients are on, and an operand or a target requires them.
        ArgumentError: there are more or fewer targets than results, or they are on another device.
        DTypeError: a target is no tensor, or cannot hold the dtype of its result.
        ShapeError: a target has elements, and another shape than its result.
    """
    targets = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for target in targets:
        if not isinstance(target, TensorBase):
            raise DTypeError(f"[{name}] expected a tensor for 'out', got {type(target).__name__}")
    operands = list(_tensors([*args, *kwargs.values()]))
    if tape.state.enabled and any(map(tape.wants_gradient, (*operands, *targets))):
        raise GradientError(
            f"[{name}] no gradient flows into 'out', and an operand or 'out' requires one; leave out= away, "
            "or call it within dl.no_grad()"
        )
    results = function(*args, **kwargs)
    several = isinstance(results, (tuple, list))
    each = tuple(results) if several else (results,)
    if len(each) != len(targets):
        raise ArgumentError(f"[{name}] expected {len(each)} tensors for 'out', got {len(targets)}")
    for target, result in zip(targets, each, strict=True):
        _check_target(name, target, result)
    for target, result in zip(targets, each, strict=True):
        _write(name, target, result, operands)
    return type(results)(*targets) if several and hasattr(results, "_fields") else out


def _tensors(values: Any) -> Iterator[TensorBase]:
    """The tensors among arguments, and in lists of them."""
    for value in values:
        if isinstance(value, TensorBase):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _check_target(name: str, target: TensorBase, result: TensorBase) -> None:
    if target.device is not result.device:
        raise ArgumentError(
            f"[{name}] 'out' is on {target.device}, the result on {result.device}; make it with "
            f"device={str(result.device)!r}"
        )
    if KIND_RANKS[result.dtype] > KIND_RANKS[target.dtype]:
        raise DTypeError(f"[{name}] a result of {result.dtype} does not fit 'out', which is {target.dtype}")
    if target.shape != result.shape and target.numel():
        raise ShapeError(
            f"[{name}] 'out' has shape {target.shape}, the result {result.shape}; give a tensor of that "
            "shape, or one without elements such as dl.empty(0)"
        )


def _write(name: str, target: TensorBase, result: TensorBase, operands: list[TensorBase]) -> None:
    if target.shape == result.shape:
        begin_change(name, target)
        copy_into(target, result)
        finish_change(target, recording=False)
        return
    if result.dtype != target.dtype:
        result = cast(result, target.dtype.name)
    if any(operand.storage is result.storage for operand in operands):  # a view
        result = fresh_copy(result)
    target.storage, target.shape = result.storage, result.shape
    target.strides, target.offset = result.strides, result.offset


primitives.write_results = write_results
