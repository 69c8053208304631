"""Compiled kernels of the host: how ops get them, and how they are launched.

A host kernel is prepared for layouts: :func:`host_kernel` declares a function that is given the shapes,
strides and dtypes of an op's operands and of its result, and the op's arguments, and returns a
:class:`HostLaunch`, or raises :class:`~dl4all.ops.core.kernels.launch.NoKernel` for what it does not compute.
The op's NumPy body computes then, as it does where there is no compiler. A launch holds everything but
addresses and numbers, so that the CPU keeps it as a plan for the next call like it.
"""

from __future__ import annotations

import functools
import importlib
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.errors import TooLargeError
from dl4all.ops.core.arguments.tensor_argument import TensorArgument
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.kernels.launch_plan import PlannedCall, call_of, frozen
from dl4all.ops.core.limits import LARGE_ELEMENTS
from dl4all.ops.core.tensor_base import Shape, Size, TensorBase, contiguous_strides
from dl4all.runtime import fork
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import IrModule
from dl4all.runtime.profiler import recorder
from dl4all.scheduler.device.device import Device

LONG = 200_000
"""Elements, or operations, from which other threads of Python run beside a kernel."""

NO_CODES: Mapping[int, str] = {}


class ArrayLayout:
    """The layout of an operand or a result, as a kernel may depend on it. Strides count elements."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: Shape, dtype: np.dtype[Any], strides: Shape | None = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.strides = contiguous_strides(shape) if strides is None else strides

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} by {list(self.strides)}"

    def numel(self) -> int:
        return math.prod(self.shape)

    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps; strides of axes of size 1 do not matter."""
        expected = contiguous_strides(self.shape)
        return self.strides == expected or all(
            size == 1 or stride == wanted
            for size, stride, wanted in zip(self.shape, self.strides, expected, strict=True)
        )


Prepare = Callable[..., "HostLaunch"]
"""``prepare(out, *operands, **arguments)``: layouts of the result and of tensors among the others.

The addresses of tensors among the arguments come after those of operands.
"""

HOST_KERNELS: dict[str, Prepare] = {}
"""By name of the op, or of the work (:class:`~dl4all.ops.core.kernels.host_work.WorkKernel`)."""


VARYING: dict[str, tuple[str, ...]] = {}
"""By name of the op, the arguments that are numbers of a launch: others in each call."""


FOLLOWED: set[str] = set()
"""Names of ops whose kernels take an elementwise program that follows, as the argument ``following``."""


COPYING: set[str] = set()
"""Names of ops whose operands are copied where they are not contiguous."""


def host_kernel(
    *names: str, varying: tuple[str, ...] = (), copies: bool = False, followed: bool = False
) -> Callable[[Prepare], Prepare]:
    """Declare the function that prepares the host kernels of ops.

    Args:
        names: of the ops.
        varying: arguments that are numbers of the launch, in their order.
        copies: whether operands that are not contiguous are copied where the function refuses them.
        followed: whether the function takes what follows the op, too.
    """

    def declare(prepare: Prepare) -> Prepare:
        for name in names:
            if name in HOST_KERNELS:
                raise ValueError(f"[{name}] has two host kernels: {HOST_KERNELS[name]}, {prepare}")
            HOST_KERNELS[name] = prepare
            VARYING[name] = varying
            if copies:
                COPYING.add(name)
            if followed:
                FOLLOWED.add(name)
        return prepare

    return declare


def recorded(name: str, function: Callable[..., object], device: Device) -> Callable[..., object]:
    """A function that computes on the host, which records itself where a profile is taken."""
    active = recorder.active
    return function if active is None else active.on_host(name, function, device.name)


def kernel_of(name: str) -> Prepare | None:
    """The function that prepares the kernels of this name; None without any, or without a compiler."""
    if not provider.available():
        return None
    _load_kernels()
    return HOST_KERNELS.get(name)


@functools.cache
def _load_kernels() -> None:
    with fork.excluded:
        importlib.import_module("dl4all.host_kernels")


def word(value: int | float) -> int:
    """An integer as a slot holds it: from 2^63 on, the negative one of the same bits."""
    number = int(value)
    return number - 2**64 if number >= 2**63 else number


class HostLaunch:
    """A compiled kernel and all that it is given but addresses and numbers.

    Its slots are the header if there is one, the addresses of the operands that are tensors, in their order,
    that of the result, that of scratch memory if there is any, and the constants. Numbers that may be others
    in each call are constants, too, at the places that the launch names.
    """

    __slots__ = ("_constants", "_function", "_numbers", "_pack", "_tail", "is_long", "scratch")

    def __init__(
        self,
        text: Callable[..., IrModule],
        key: tuple[Any, ...],
        addresses: int,
        constants: Sequence[int | float],
        *,
        scratch: int = 0,
        work: int = LONG,
        numbers: Sequence[int] = (),
        codes: Mapping[int, str] = NO_CODES,
        header: Sequence[int] = (),
    ) -> None:
        """
        Args:
            text: writes the kernel's module, whose exported function has the name of `text`.
            key: what it is called with; kernels of one key are compiled once.
            addresses: how many addresses there are, without the scratch memory's.
            constants: integers, and floats that are given as float64.
            scratch: bytes that the kernel may use while it runs.
            work: about how many elements or operations it takes, to decide whether to let other threads run.
            numbers: places among the constants of numbers that :meth:`run` is given.
            codes: how constants at some places are packed, as ``struct`` names it, other than as float64 or
                int64: ``"i4x"`` refuses integers of more than 32 bits, ``"q"`` those of more than 64.
            header: slots ahead of the addresses, for kernels that take any number of them.
        """
        self.is_long = work >= LONG  # other threads of Python run meanwhile, and one might fork
        self._function = provider.function(text, key, long=self.is_long)
        self.scratch = scratch
        pack = struct.Struct(f"<{len(header) + addresses + bool(scratch)}q").pack
        self._pack = functools.partial(pack, *header) if header else pack
        own = ("d" if isinstance(value, float) else "q" for value in constants)
        packing = struct.Struct("<" + "".join(codes.get(place, code) for place, code in enumerate(own)))
        converters: list[Callable[[Any], Any]] = [
            float if isinstance(value, float) else int if place in codes else word
            for place, value in enumerate(constants)
        ]
        constants = [convert(value) for convert, value in zip(converters, constants, strict=True)]
        self._constants = (packing.pack, constants) if numbers else None
        self._numbers = tuple((place, converters[place]) for place in numbers)
        self._tail = packing.pack(*constants)

    def run(self, addresses: list[int], numbers: Sequence[float] = ()) -> None:
        """Compute.

        Args:
            addresses: of all operands that are tensors and of the result, and of scratch memory.
            numbers: those that may be others in each call.
        """
        self._function(self._packed(addresses, numbers) if numbers else self._pack(*addresses) + self._tail)

    def bound(self, addresses: list[int], numbers: Sequence[float] = ()) -> Callable[[], object]:
        """A function that computes with these addresses and numbers each time that it is called."""
        return functools.partial(self._function, self._packed(addresses, numbers))

    def _packed(self, addresses: list[int], numbers: Sequence[float]) -> bytes:
        """The slots."""
        tail = self._tail
        if numbers and self._constants is not None:
            pack, constants = self._constants
            values = constants.copy()
            for (place, convert), number in zip(self._numbers, numbers, strict=True):
                values[place] = convert(number)
            tail = pack(*values)
        slots: bytes = self._pack(*addresses) + tail
        return slots

    def run_on(
        self,
        device: Device,
        places: Iterable[tuple[Storage, int]],
        numbers: Sequence[float] = (),
        tag: str = "",
    ) -> None:
        """Compute with memory of the CPU.

        Args:
            device: the CPU.
            places: of all operands that are tensors and of the result: storage, and bytes from its start.
            numbers: those that may be others in each call.
            tag: what scratch memory is for.
        """
        addresses = []
        for storage, offset in places:
            if storage.pending is not None:
                storage.settle()
            addresses.append(storage.address + offset)
        counters = device.counters
        counters.host_kernels += 1  # no process is forked meanwhile
        try:
            if self.scratch:
                scratch = device.allocate(self.scratch, tag)
                addresses.append(scratch.address)
            self.run(addresses, numbers)
        finally:
            counters.host_finished += 1


class HostPlan:
    """A launch for calls of an op with operands like those that it was prepared for."""

    __slots__ = ("_launch", "_offsets", "_tag", "dtype", "nbytes", "shape", "strides")

    def __init__(
        self,
        launch: HostLaunch,
        operands: Sequence[Any],
        shape: Shape,
        dtype: np.dtype[Any],
        tag: str,
        offset: int = 0,
    ) -> None:
        """
        Args:
            launch: what computes.
            operands: for which it was prepared.
            shape, dtype: of the result.
            tag: what memory is for.
            offset: elements from the start of the result's memory, if it is there already.
        """
        self._launch = launch
        offsets = [o.offset * o.dtype.itemsize for o in operands if isinstance(o, TensorBase)]
        self._offsets = (*offsets, offset * dtype.itemsize)
        self.shape, self.dtype, self.strides = Size(shape), dtype, contiguous_strides(shape)
        self.nbytes = math.prod(shape) * dtype.itemsize
        self._tag = tag

    def run(self, first: TensorBase, storages: Sequence[Storage], numbers: Sequence[float] = ()) -> Any:
        """The result for operands with these storages, where neither a capture nor a profile follows.

        None, before anything ran, if a number does not fit.
        """
        device = first.device
        out = device.pool.reuse(self.nbytes, self._tag)
        if out is None:
            out = device.allocate(self.nbytes, self._tag)
        if not self.launch(device, storages, out, numbers):
            return None
        return first.result_class(out, self.shape, self.dtype, device, self.strides)

    def launch(
        self, device: Device, storages: Sequence[Storage], out: Storage, numbers: Sequence[float] = ()
    ) -> bool:
        """Compute into memory that is there; False, before anything ran, if a number does not fit."""
        launch = self._launch
        try:
            if launch.is_long or launch.scratch:
                places = zip((*storages, out), self._offsets)  # noqa: B905 - strict takes longer
                launch.run_on(device, places, numbers, self._tag)
                return True
            addresses = []
            for storage, offset in zip((*storages, out), self._offsets):  # noqa: B905
                if storage.pending is not None:
                    storage.settle()
                addresses.append(storage.address + offset)
            counters = device.counters
            counters.host_kernels += 1
            try:
                launch.run(addresses, numbers)
            finally:
                counters.host_finished += 1
        except (struct.error, OverflowError, ValueError):
            return False
        return True


def layout_of(tensor: TensorBase) -> ArrayLayout:
    return ArrayLayout(tensor.shape, tensor.dtype, tensor.strides)


def layout_or_value(value: Any) -> Any:
    """The layout of a tensor; other values as they are."""
    return layout_of(value) if isinstance(value, TensorBase) else value


def contiguous_or_value(value: Any) -> Any:
    """The layout of a tensor's contiguous copy; other values as they are."""
    return ArrayLayout(value.shape, value.dtype) if isinstance(value, TensorBase) else value


def prepare(
    name: str, out: ArrayLayout, operands: Sequence[Any], arguments: dict[str, Any]
) -> HostLaunch | None:
    """The launch of an op's kernel for layouts in the places of tensors; None if it has none."""
    found = kernel_of(name)
    layouts = [one for one in (out, *operands, *arguments.values()) if isinstance(one, ArrayLayout)]
    if found is None or any(0 in layout.shape for layout in layouts):
        return None
    try:
        return found(out, *operands, **arguments)
    except NoKernel:
        return None


def with_tensors(arguments: dict[str, Any], like: TensorBase) -> dict[str, Any]:
    """The arguments with tensors for those that stand for some, unless kernels cannot read them."""
    for value in arguments.values():
        if isinstance(value, TensorArgument):
            break
    else:
        return arguments
    try:
        return {k: v.on(like) if isinstance(v, TensorArgument) else v for k, v in arguments.items()}
    except TooLargeError:
        return arguments


REFUSED: Any = object()
"""In the place of a plan: no kernel takes such operands."""


def computed(call: PlannedCall, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
    """The result of a call of an op on the CPU, by a plan that is made at the first one like it.

    Returns:
        None without a kernel.

    Raises:
        Dl4allError: the operands do not fit the op.
    """
    if kernel_of(op.name) is None:
        return None
    key, storages, given, numbers = call.key, call.storages, arguments, ()
    if op.arguments:
        given, varying = with_tensors(arguments, call.first), VARYING[op.name]
        values = list[Any]()
        for name in op.arguments:
            value = given[name]
            if isinstance(value, TensorBase):
                storages = [*storages, value.storage]
                values += (value.shape, value.strides, value.offset, value.dtype.num)
            elif name not in varying:
                values.append(value)
        numbers = tuple([given[name] for name in varying])
        try:
            key = (*key, *map(frozen, values))
        except TypeError:
            return None
    if call.numbers and any(number is not None for number in call.numbers):
        return None
    plans = call.first.device.plans
    plan = plans.get(key)
    if plan is None:
        op.check_operands(operands)
        shape, dtype = op.infer(*operands, **arguments)
        launch = None
        if math.prod(shape) < LARGE_ELEMENTS:
            launch = op.prepare_on_host(operands, given, shape, dtype)
        tensors = (*operands, *(given[name] for name in op.arguments))
        plan = REFUSED if launch is None else HostPlan(launch, tensors, shape, dtype, op.name)
        plans.keep(key, plan)
    elif given is not arguments:
        op.infer(*operands, **arguments)  # which looks at their elements
    if plan is REFUSED:
        copied = op.contiguous_operands(operands) if op.name in COPYING else operands
        again = None if copied is operands else call_of(op, copied)
        return None if again is None else computed(again, op, copied, arguments)
    return plan.run(call.first, storages, numbers)
