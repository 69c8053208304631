"""Launch plans of ATen's ops: a call like an earlier one allocates, launches and wraps only.

As :mod:`dl4all.ops.core.kernels.launch_plan`, for whole kernels: functions that call several ops of dl4all
have one plan. What a kernel launches follows from the operands' shapes, strides, offsets and dtypes and from
its other arguments, by their values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from dl4all.allocator.storage import Storage
from dl4all.ops.core.kernels.launch_plan import (
    REFUSED,
    Launches,
    frozen,
    is_followed,
    launches_of,
    logged,
    sharing,
)
from dl4all.pytorch.device.devices import device_at
from dl4all.pytorch.device.storage.memory import memory_of, over, torch_storage
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.listeners.launch_log import LaunchLog

CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)
"""Types of arguments that stay as they are."""

LISTS = (list, tuple)
Kernel = Callable[..., Any]


class Made(NamedTuple):
    """A result in new memory."""

    place: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class KernelPlan(NamedTuple):
    """The launches of a kernel, and its results."""

    launches: Launches
    results: tuple[Made | None, ...]
    single: bool  # one result, not a tuple of them
    operand: int  # the position of the one that is the result, in the place of a new tensor; -1 without one


class _Unplanned(Exception):
    """The arguments are none that plans know of."""


def planned(name: str, kernel: Kernel) -> Kernel:
    """A kernel that makes plans of its calls and follows them.

    Args:
        name: of the overload.
        kernel: returns new tensors, or one of its operands, which it changes; shapes of operands stay.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_followed() or torch.get_default_dtype() is not torch.float32:  # results may be of it
            return kernel(*args, **kwargs)
        key: list[Any] = [name]
        storages: list[Storage] = []
        try:
            index = _describe(args, key, storages)
            if kwargs:
                key += kwargs
                index = max(index, _describe(kwargs.values(), key, storages))
        except (_Unplanned, TypeError):
            return kernel(*args, **kwargs)
        if index < 0:
            return kernel(*args, **kwargs)
        device = device_at(index)
        if not device.plannable:
            return kernel(*args, **kwargs)
        if len(storages) > 1:
            key.append(sharing(storages))
        found = tuple(key)
        plan = device.plans.get(found)
        if plan is None:
            if device.plans.recurs(found):
                return _logged(device, found, storages, functools.partial(kernel, *args, **kwargs), args)
        elif plan is not REFUSED:
            memory = plan.launches.run(device, storages)
            if memory is not None:
                if plan.operand >= 0:
                    return args[plan.operand]
                if plan.single:
                    return _made(memory, index, *plan.results[0])
                return tuple([None if one is None else _made(memory, index, *one) for one in plan.results])
        return kernel(*args, **kwargs)

    return call


def _made(
    memory: list[Any],
    index: int,
    place: int,
    nbytes: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> torch.Tensor:
    return over(torch_storage(memory[place], index, nbytes), index, dtype, shape, strides)


def _describe(values: Iterable[Any], key: list[Any], storages: list[Storage]) -> int:
    """Add to a key what of arguments decides on launches, and their storages.

    Returns:
        The highest index of the devices that they are on; -1 without a tensor on one.

    Raises:
        _Unplanned: an argument cannot be described.
        TypeError: nothing is known of one's type.
    """
    index = -1
    for value in values:
        if isinstance(value, torch.Tensor):
            memory = getattr(value.untyped_storage(), "memory", None)
            if memory is None:
                if value.dim() or value.device.type != "cpu":
                    raise _Unplanned
                key += (value.dtype, frozen(value.item()))
                continue
            own = value.get_device()
            key += (
                value.shape, value.stride(), value.storage_offset(), value.dtype, own, value.is_neg(),
                memory.nbytes,
            )  # fmt: skip
            storages.append(memory)
            if own > index:
                index = own
        elif isinstance(value, CONSTANTS):
            key.append(value)
        elif type(value) in LISTS and any(isinstance(one, torch.Tensor) for one in value):
            key.append(len(value))
            index = max(index, _describe(value, key, storages))
        else:
            key.append(frozen(value))
    return index


def _logged(
    device: Device, key: Any, storages: list[Storage], run: Callable[[], Any], args: tuple[Any, ...]
) -> Any:
    """The result of a kernel, and a plan made of what it launches."""
    result, log = logged(device, run)
    device.plans.keep(key, _plan(log, storages, result, args) or REFUSED)
    return result


def _plan(log: LaunchLog, storages: list[Storage], result: Any, args: tuple[Any, ...]) -> KernelPlan | None:
    """The plan for what was logged; None if launches alone do not repeat it."""
    operand = next((place for place, value in enumerate(args) if value is result), -1)
    if operand >= 0:
        found = launches_of(log, storages, [])
        return None if found is None else KernelPlan(found[0], (), True, operand)
    single = not isinstance(result, tuple)
    returned = (result,) if single else result
    tensors = [one for one in returned if one is not None]
    if not all(isinstance(one, torch.Tensor) and not one.storage_offset() for one in tensors):
        return None
    memories = [memory_of(one.untyped_storage()) for one in tensors]
    if sharing(memories):
        return None
    found = launches_of(log, storages, memories)
    if found is None:
        return None
    places = iter(found[1])
    results = tuple(None if one is None else _made_as(one, next(places)) for one in returned)
    return KernelPlan(found[0], results, single, -1)


def _made_as(result: torch.Tensor, place: int) -> Made:
    nbytes = result.untyped_storage().nbytes()
    return Made(place, nbytes, result.dtype, tuple(result.shape), result.stride())
