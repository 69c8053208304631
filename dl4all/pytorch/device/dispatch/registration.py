"""Kernels of ATen's ops: PyTorch functions, or functions of dl4all tensors.

:func:`declare` makes every form of an op from one function of dl4all tensors: the functional overload, the
one that works in place, and those that write into tensors of the caller. What the function refuses, by an
error about its operands, runs on the CPU, whose kernel then computes or says in PyTorch's words what is
wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dl4all.errors import ArgumentError, DTypeError, FallbackError, ShapeError
from dl4all.ops.core.op import Op, primitives
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import fresh_copy, overwrite
from dl4all.pytorch.device.dispatch import fallback
from dl4all.pytorch.device.dispatch.launch_plans import planned
from dl4all.pytorch.device.dispatch.promotion import check_default, promoted_operands
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.layout import computed_layout
from dl4all.pytorch.device.storage.memory import NotNative, deliver, tensor, wrap

REFUSALS = (NotNative, ArgumentError, DTypeError, ShapeError, NotImplementedError)
"""Errors of dl4all about operands: the CPU computes, or raises PyTorch's own error."""

LIBRARY = torch.library.Library("aten", "IMPL")
KERNELS: dict[str, Callable[..., Any]] = {}
"""Every ATen overload that has a kernel for ``dlall``, by name, such as ``add.Tensor``."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions of dl4all tensors that were declared, by the name of the functional overload."""


def overload(name: str) -> Any:
    """The ATen overload of a name such as ``add.Tensor`` or ``relu``."""
    base, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), kind or "default")


def has_overload(name: str) -> bool:
    """Whether this version of PyTorch has such an overload."""
    base, _, kind = name.partition(".")
    return hasattr(torch.ops.aten, base) and (kind or "default") in getattr(torch.ops.aten, base).overloads()


def register(name: str, kernel: Callable[..., Any]) -> None:
    """Give an overload its kernel.

    Raises:
        ValueError: it has one.
    """
    if name in KERNELS:
        raise ValueError(f"[{name}] is registered twice")
    KERNELS[name] = kernel
    LIBRARY.impl(name, hidden_from_dynamo(kernel), "PrivateUse1")


def hidden_from_dynamo(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Keep ``torch.compile`` from tracing into a kernel, and what it calls, between two of its graphs."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(kernel.__code__, frames._FrameExecStrategy(skip, skip))
    return kernel


def native(*names: str, plans: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function of PyTorch tensors as the kernel of these overloads.

    It raises :class:`NotNative`, before it changes anything, for what the CPU is to compute.

    Args:
        names: of the overloads.
        plans: whether its launches are kept for calls like earlier ones, see
            :func:`dl4all.pytorch.device.dispatch.launch_plans.planned`.
    """

    def declare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            kernel = _with_fallback(name, function)
            register(name, planned(name, kernel) if plans else kernel)
        return function

    return declare_kernel


def _with_fallback(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    op = overload(name)

    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            return refuse(op, args, kwargs, error)

    return kernel


def refuse(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
    """Compute on the CPU what dl4all refused.

    Raises:
        ArgumentError: a kernel found an index out of range, in this call or an earlier one.
    """
    if isinstance(error, ArgumentError) and error.deferred:
        raise error
    try:
        return fallback.because(str(error), op, args, kwargs)
    except FallbackError as forbidden:
        raise forbidden from error


def declare(
    name: str, function: Callable[..., Any], *, pointwise: bool = False, format_of: int | None = None
) -> None:
    """Give all forms of an ATen op their kernels; forms that have one already keep it.

    Args:
        name: the functional overload, such as ``add.Tensor``.
        function: takes the overload's arguments, with dl4all tensors in the places of PyTorch's, and returns
            one or several new dl4all tensors.
        pointwise: whether each element of the result follows from the operands' elements at the same
            position; results are then laid out in memory as their operands are.
        format_of: which operand the functional overload's results have the memory format of, channels last
            or contiguous; contiguous by default.
    """
    FUNCTIONS[name] = function
    op = overload(name)
    functional = _pointwise(op, function) if pointwise else _functional(op, function, format_of)
    convert = promoted_operands if pointwise else _convert
    register(name, planned(name, functional))
    for other in _siblings(op):
        overloaded = f"{other._opname}" + (
            "" if other._overloadname == "default" else f".{other._overloadname}"
        )
        if overloaded in KERNELS:
            continue
        written = [a for a in other._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if written[0].kwarg_only:
            register(overloaded, _out_form(other, function, tuple(a.name for a in written), convert))
        else:
            register(overloaded, planned(overloaded, _in_place_form(other, function, convert)))


def _siblings(op: Any) -> Iterator[Any]:
    """The overloads that compute the same in place, or into tensors of the caller."""
    schema = op._schema
    base = schema.name.removeprefix("aten::")
    own = [(a.name, str(a.type)) for a in schema.arguments]
    for packet_name in (base, f"{base}_"):
        packet = getattr(torch.ops.aten, packet_name, None)
        for kind in packet.overloads() if packet is not None else ():
            other = getattr(packet, kind)
            arguments = other._schema.arguments
            written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
            if packet_name == base:
                plain = [(a.name, str(a.type)) for a in arguments if a not in written]
                fits = len(written) == len(schema.returns) and all(a.kwarg_only for a in written)
            else:
                plain = [(a.name, str(a.type)) for a in arguments]
                fits = len(written) == 1 and arguments[0].name == written[0].name
            if written and fits and plain == own:
                yield other


def _convert(values: Any) -> list[Any]:
    """dl4all's tensors in the places of PyTorch's."""
    converted = []
    for value in values:
        if isinstance(value, torch.Tensor):
            value = operand(value)
        elif isinstance(value, (list, tuple)) and value and any(isinstance(v, torch.Tensor) for v in value):
            value = _convert(value)
        converted.append(value)
    return converted


def operand(value: torch.Tensor) -> Any:
    """dl4all's tensor, or the number that a tensor without axes on the CPU stands for.

    Raises:
        NotNative
    """
    if value.dim() or value.device.type != "cpu":
        return tensor(value)
    if value.dtype not in memory.NUMPY_DTYPES or value.dtype == torch.float64:
        raise NotNative(f"a number of {value.dtype} on the CPU beside tensors on the device")
    return value.item()


def _functional(op: Any, function: Callable[..., Any], format_of: int | None) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            operands = _convert(args)
            keywords = dict(zip(kwargs, _convert(kwargs.values()), strict=True)) if kwargs else kwargs
            result = function(*operands, **keywords)
            check_default(operands, result)
        except REFUSALS as error:
            return refuse(op, args, kwargs, error)
        if format_of is not None and memory.is_channels_last(args[format_of]):
            if isinstance(result, tuple):
                return tuple(map(memory.wrap_channels_last, result))
            return memory.wrap_channels_last(result)
        if isinstance(result, tuple):
            return tuple(None if one is None else wrap(_own(one, operands)) for one in result)
        return wrap(_own(result, operands))

    return kernel


def _own(result: TensorBase, operands: list[Any]) -> TensorBase:
    """The result, copied if it is a view of an operand."""
    for one in operands:
        if isinstance(one, TensorBase):
            if one.storage is result.storage:
                return fresh_copy(result)
        elif isinstance(one, list):
            result = _own(result, one)
    return result


def _pointwise(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    whole = isinstance(function, Op)  # its results are always new

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            operands = []
            plain = with_axes = True
            for value in args:
                if isinstance(value, torch.Tensor):
                    plain = plain and value.is_contiguous()
                    with_axes = with_axes and value.dim() > 0
                    value = tensor(value) if value.dim() else value
                operands.append(value)
            if not with_axes:
                operands = promoted_operands(args)
            if plain:
                result = function(*operands, **kwargs)
                check_default(operands, result)
                return wrap(result if whole else _own(result, operands))
            permuted, restore = computed_layout(operands)
            result = function(*permuted, **kwargs)
            check_default(operands, result)
        except REFUSALS as error:
            return refuse(op, args, kwargs, error)
        result = result if whole else _own(result, operands)
        return wrap(result, *restore(result.shape))

    return kernel


def _in_place_form(
    op: Any, function: Callable[..., Any], convert: Callable[..., list[Any]]
) -> Callable[..., Any]:
    method = (
        primitives.in_place(function) if isinstance(function, Op) else functools.partial(_rewrite, function)
    )

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            method(*convert(args), **kwargs)
        except REFUSALS as error:
            return refuse(op, args, kwargs, error)
        return args[0]

    return kernel


def _rewrite(function: Callable[..., Any], target: TensorBase, *args: Any, **kwargs: Any) -> None:
    result = function(target, *args, **kwargs)
    if result.shape != target.shape:
        raise ShapeError(f"[in place] a result of shape {result.shape} does not fit {target.shape}")
    if not torch.can_cast(memory.TORCH_DTYPES[result.dtype], memory.TORCH_DTYPES[target.dtype]):
        raise DTypeError(f"[in place] a result of {result.dtype} does not fit a tensor of {target.dtype}")
    overwrite(target, result)


def _out_form(
    op: Any, function: Callable[..., Any], names: tuple[str, ...], convert: Callable[..., list[Any]]
) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs[name] for name in names]
        try:
            for out in outs:
                tensor(out)
            rest = {name: value for name, value in kwargs.items() if name not in names}
            operands = convert(args)
            result = function(*operands, **dict(zip(rest, _convert(rest.values()), strict=True)))
            results = result if isinstance(result, tuple) else (result,)
            for one, out in zip(results, outs, strict=True):
                if memory.TORCH_DTYPES[one.dtype] != out.dtype:  # some ops compute in it, some refuse
                    raise NotNative(f"out= of {out.dtype} for a result of {one.dtype}")
        except REFUSALS as error:
            return refuse(op, args, kwargs, error)
        for one, out in zip(results, outs, strict=True):
            deliver(_own(one, operands), out)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return kernel
