"""Launch plans: what a call of an op came to on a device, kept for the next call like it.

Which kernel an op launches, over how many workgroups and with which push constants, follows from the
operands' shapes, strides, dtypes and the sizes of their storages, and from the op's arguments. A plan holds
that, so that such a call needs to allocate and to launch only. A device keeps its plans with the programs
that they hold (:attr:`dl4all.scheduler.device.device.Device.plans`), and is told to forget them when
something else changes that kernels are chosen by.

Where somebody listens to the thread, and within ``vmap``, no plan is used.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.ops.core.tensor_base import Shape, Size, TensorBase
from dl4all.ops.core.vmap_hook import batching, is_batching
from dl4all.runtime.protocols import Dispatch, Grid
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.listeners.launch_log import Allocated, LaunchLog


class KeyArgument:
    """An argument of an op that plans are kept by: immutable, with a hash of all that it holds."""

    __slots__ = ()


class PlannedCall(NamedTuple):
    """A call of an op for which there may be a plan."""

    key: tuple[Any, ...]
    first: TensorBase
    storages: list[Storage]  # of the operands that are tensors
    numbers: list[Any]  # the operands that are none


def is_followed() -> bool:
    """Whether calls of this thread are followed step by step: by a listener, or sample by sample."""
    return bool(listeners.active or batching) and (listeners.followed() or is_batching())


def call_of(op: Any, operands: Sequence[Any]) -> PlannedCall | None:
    """The key of a plan; None for calls that no plan serves."""
    if (listeners.active or batching) and is_followed():
        return None
    key: list[Any] = [op]
    storages: list[Storage] = []
    numbers: list[Any] = []
    first: TensorBase | None = None
    for operand in operands:
        if isinstance(operand, TensorBase):
            if first is None:
                first = operand
                if not operand.device.keeps_plans:
                    return None
            elif operand.device is not first.device:
                return None
            storage = operand.storage
            storages.append(storage)
            key += (operand.shape, operand.strides, operand.offset, operand.dtype.num, storage.nbytes)
        else:
            numbers.append(operand)
            key.append(type(operand))
    return None if first is None else PlannedCall(tuple(key), first, storages, numbers)


class ElementwisePlan:
    """The one launch of an elementwise call; numbers among its operands and arguments may be others."""

    __slots__ = (
        "_binds", "_constants", "_groups", "_pack", "_places", "_program", "_push", "_seconds", "_tag",
        "dtype", "nbytes", "shape", "strides",
    )  # fmt: skip

    def __init__(
        self,
        out: TensorBase,
        command: Dispatch,
        binds: tuple[int, ...],
        packing: struct.Struct,
        constants: Sequence[Any],
        places: Sequence[int],
    ) -> None:
        """
        Args:
            out: the result, contiguous.
            command: what was launched.
            binds: which tensor among the operands each binding is, the result's left out.
            packing: of the push constants.
            constants: the values that were packed.
            places: of the numbers among them: operands, then arguments.
        """
        self.shape: Shape = out.shape
        self.strides: Shape = out.strides
        self.dtype: np.dtype[Any] = out.dtype
        self.nbytes = out.numel() * out.dtype.itemsize
        allocation = out.storage.allocation
        self._tag = "" if allocation is None else allocation.tag
        self._program = command.program
        self._groups: Grid = command.groups
        self._push = command.push
        self._seconds = command.seconds
        self._binds = binds
        self._pack = packing.pack
        self._constants = list(constants)
        self._places = tuple(places)

    def run(self, first: TensorBase, storages: list[Storage], numbers: Sequence[Any]) -> Any:
        """The result for other storages; None, before anything ran, if a number does not fit."""
        device = first.device
        out = device.allocate(self.nbytes, self._tag)
        if not self.launch(device, storages, out, numbers):
            return None
        return first.result_class(out, self.shape, self.dtype, device, self.strides)

    def launch(self, device: Device, storages: list[Storage], out: Storage, numbers: Sequence[Any]) -> bool:
        """Launch with other storages and numbers; False, before anything ran, if a number does not fit."""
        if numbers:
            values = self._constants.copy()
            for place, number in zip(self._places, numbers, strict=True):
                values[place] = number
            try:
                push = self._pack(*values)
            except (struct.error, OverflowError):
                return False
        else:
            push = self._push
        bound = [storages[i] for i in self._binds]
        bound.append(out)
        device.launch_again(self._program, self._groups, push, self._seconds, bound)
        return True


class PlanStep(NamedTuple):
    """One launch of a plan. Storages are named by their places: the operands' come first."""

    allocations: tuple[tuple[int, int, str], ...]  # before it: place, bytes and tag
    command: Dispatch
    binds: tuple[int, ...]
    last_used: tuple[int, ...]  # memory that no later launch uses


class Launches:
    """Launches that are run again, with memory of their own and for the storages of other operands."""

    __slots__ = ("_blank", "_guards", "_single", "_steps", "_written")

    def __init__(
        self,
        steps: Sequence[PlanStep],
        guards: Sequence[tuple[int, Callable[[Storage], bool]]],
        written: Sequence[int],
    ) -> None:
        """
        Args:
            steps: what is launched.
            guards: places of operands, and what must hold for their storages.
            written: places of the operands that are changed.
        """
        self._blank: list[Any] = [None] * sum(len(step.allocations) for step in steps)
        # Tuples of what each launch needs, as they are gone through in each call.
        self._steps = tuple((s.allocations, *s.command, s.binds, s.last_used) for s in steps)
        self._guards = tuple(guards)
        self._written = tuple(written)
        # Most ops launch once, into one new storage.
        is_single = len(steps) == 1 and len(steps[0].allocations) == 1 and not guards and not written
        self._single = self._steps[0] if is_single else None

    def run(self, device: Device, storages: Sequence[Storage]) -> list[Any] | None:
        """All storages, by their places; None, before anything ran, where the launches do not hold."""
        if self._single is not None:
            ((_, nbytes, tag),), program, _, groups, push, seconds, binds, _ = self._single
            memory: list[Any] = [*storages, device.allocate(nbytes, tag)]
            device.launch_again(program, groups, push, seconds, [memory[place] for place in binds])
            return memory
        for place, holds in self._guards:
            if not holds(storages[place]):
                return None
        allocate, launch = device.allocate, device.launch_again
        memory = [*storages, *self._blank]
        for allocations, program, _, groups, push, seconds, binds, last_used in self._steps:
            for place, nbytes, tag in allocations:
                memory[place] = allocate(nbytes, tag)
            launch(program, groups, push, seconds, [memory[place] for place in binds])
            for place in last_used:
                memory[place] = None
        for place in self._written:
            memory[place].version += 1
        return memory


def launches_of(
    log: LaunchLog, storages: Sequence[Storage], results: Sequence[Storage]
) -> tuple[Launches, list[int]] | None:
    """The logged launches, and the places of the results; None if launches alone do not repeat the call.

    Args:
        log: of a call.
        storages: of its operands.
        results: storages that it made.
    """
    if not log.is_complete:
        return None
    count = len(storages)
    places = {id(storage): place for place, storage in reversed(list(enumerate(storages)))}
    numbers = itertools.count(count)
    waiting: list[tuple[int, int, str]] = []
    steps: list[PlanStep] = []
    written: dict[int, None] = {}
    for event in log.events:
        if isinstance(event, Allocated):
            place = places[id(event.storage)] = next(numbers)
            waiting.append((place, event.storage.nbytes, event.tag))
            continue
        if not all(id(storage) in places for storage in event.storages):
            return None  # memory that somebody keeps
        binds = tuple(places[id(storage)] for storage in event.storages)
        steps.append(PlanStep(tuple(waiting), event.command._replace(spans=()), binds, ()))
        waiting = []
        writes = event.command.program.writes
        written.update((p, None) for p, writing in zip(binds, writes, strict=True) if writing and p < count)
    made = [places.get(id(storage), -1) for storage in results]
    guards = [(places.get(id(guard.storage), count), guard.holds) for guard in log.guards]
    if not steps or any(p < count for p in made) or any(p >= count for p, _ in guards):
        return None
    steps[-1] = steps[-1]._replace(allocations=(*steps[-1].allocations, *waiting))  # of no elements
    used = {*made, *range(count)}
    for number, step in reversed(list(enumerate(steps))):
        steps[number] = step._replace(last_used=tuple({*step.binds} - used))
        used.update(step.binds)
    return Launches(steps, guards, tuple(written)), made


class LaunchPlan:
    """All launches of a call with these arguments."""

    __slots__ = ("_dtype", "_launches", "_offset", "_place", "_shape", "_strides")

    def __init__(self, launches: Launches, result: TensorBase, place: int) -> None:
        self._launches = launches
        self._place = place  # of the result's storage
        self._shape, self._strides, self._offset = result.shape, result.strides, result.offset
        self._dtype = result.dtype

    def run(self, call: PlannedCall) -> Any:
        """The result for other operands like those of the plan; None, before anything ran, if it is void."""
        first = call.first
        memory = self._launches.run(first.device, call.storages)
        if memory is None:
            return None
        return first.result_class(
            memory[self._place], self._shape, self._dtype, first.device, self._strides, self._offset
        )


REFUSED = object()
"""In the place of a plan: calls like it cannot have one."""


def compute(
    call: PlannedCall, names: Iterable[str], arguments: dict[str, Any], run: Callable[[], Any]
) -> Any:
    """The result of a call: by its plan, or by `run`, of which a plan is made at the second such call."""
    key = full_key(call, [arguments[name] for name in names])
    device = call.first.device
    plan = None if key is None else device.plans.get(key)
    if isinstance(plan, LaunchPlan):
        result = plan.run(call)
        if result is not None:
            return result
    elif plan is None and key is not None and device.plans.recurs(key):
        return _logged(call, key, run)
    return run()


def full_key(call: PlannedCall, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The key with the values of all arguments, and which operands share memory; None without a plan."""
    if call.numbers and any(number is not None for number in call.numbers):
        return None
    try:
        key = (*call.key, *map(frozen, values))
    except TypeError:
        return None
    shared = sharing(call.storages)
    return (*key, *shared) if shared else key


def sharing(storages: Sequence[Storage]) -> tuple[int, ...]:
    """For each storage the place of the first one that is the same; () if all differ."""
    count = len(storages)
    if count < 2 or (storages[0] is not storages[1] if count == 2 else len(set(map(id, storages))) == count):
        return ()
    return tuple(next(place for place, other in enumerate(storages) if other is one) for one in storages)


def frozen(value: Any) -> Any:
    """An argument as a part of a key: what is equal, but of another type or sign, is told apart.

    Raises:
        TypeError: it may change, or nothing is known of it.
    """
    kind = type(value)
    if value is None or kind is str or value is Ellipsis:
        return value
    if kind is int or kind is bool:
        return kind, value
    if kind is float:
        return kind, value, math.copysign(1.0, value)
    if kind is tuple or kind is list or kind is Size:
        return (list if kind is list else tuple, *map(frozen, value))
    if kind is slice:
        return slice, frozen(value.start), frozen(value.stop), frozen(value.step)
    if isinstance(value, KeyArgument):
        return value
    raise TypeError(kind)


def logged(device: Device, run: Callable[[], Any]) -> tuple[Any, LaunchLog]:
    """The result of `run`, and what it had a device do."""
    log = LaunchLog(device)
    with listeners.listening(log):
        return run(), log


def _logged(call: PlannedCall, key: Any, run: Callable[[], Any]) -> Any:
    """The result of `run`, and a plan made of what it launches."""
    device = call.first.device
    result, log = logged(device, run)
    found = launches_of(log, call.storages, [result.storage])
    device.plans.keep(key, REFUSED if found is None else LaunchPlan(found[0], result, found[1][0]))
    return result
