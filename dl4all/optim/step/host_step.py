"""Steps of optimizers on the CPU: one call of compiled code for all parameters of a group.

Without a compiler, and for tensors that it does not take, NumPy updates one parameter after another.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.ops.core.dtypes import HALVES
from dl4all.ops.core.kernels.host_kernel import HostLaunch
from dl4all.ops.core.kernels.host_work import host_work, launch_of
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.untracked import Untracked
from dl4all.ops.memory.views import contiguous
from dl4all.optim.step.kernels import UpdateRule
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler import listeners

NDArray = npt.NDArray[Any]
Job = tuple[Any, ...]
"""A gradient, its parameter, and the tensors of the state."""

# Elements that NumPy updates at once, so that intermediate results stay in a cache.
BLOCK_ELEMENTS = 1 << 17


def update_jobs(name: str, rule: UpdateRule, jobs: Sequence[Job], constants: Sequence[Any]) -> None:
    """Update parameters of the CPU and their states in place.

    Args:
        name: the optimizer's.
        rule: what changes.
        jobs: of one device.
        constants: of the step.
    """
    for group in [jobs] if _are_alike(jobs) else [[job] for job in jobs]:
        gradients = [g if g.strides == p.strides else contiguous(g) for g, p, *_ in group]
        work = functools.partial(update_arrays, rule, len(group))
        host_work(name, work, gradients, _by_role(group), constants, rule.host_kernel)
    for _, *changed in jobs:
        for tensor in changed:
            tensor.storage.version += 1


def _by_role(jobs: Sequence[Job]) -> list[TensorBase]:
    """The tensors that the jobs change: all parameters, followed by the first values of all states, ..."""
    return [tensor for role in list(zip(*jobs, strict=True))[1:] for tensor in role]


def _are_alike(jobs: Sequence[Job]) -> bool:
    """Whether one call may update them: of one dtype, and each with memory of its own."""
    parameters = [job[1] for job in jobs]
    dtype = parameters[0].dtype
    return all(p.dtype == dtype and p.is_contiguous() for p in parameters) and not _overlap(parameters)


def _overlap(tensors: Sequence[TensorBase]) -> bool:
    """Whether two tensors may have elements in common."""
    if len({id(tensor.storage) for tensor in tensors}) == len(tensors):
        return False
    ranges = sorted((id(tensor.storage), *tensor.byte_range()) for tensor in tensors)
    pairs = itertools.pairwise(ranges)
    return any(one[0] == other[0] and other[1] < one[2] for one, other in pairs)


def update_arrays(rule: UpdateRule, jobs: int, *given: Any) -> None:
    """Update arrays as kernels get them: those of all gradients, of all parameters, of the states."""
    arrays = [value for value in given if isinstance(value, np.ndarray)]
    constants = given[len(arrays) :]
    for number in range(jobs):
        for g, p, *states in _blocks(*arrays[number::jobs]):
            if p.dtype not in HALVES:
                rule.update(p, g, states, *constants)
                continue
            changed = [array.astype(np.float32) for array in (p, *states)]
            rule.update(changed[0], g.astype(np.float32), changed[1:], *constants)
            for array, value in zip((p, *states), changed, strict=True):
                array[...] = value


def _blocks(*arrays: NDArray) -> Iterator[list[NDArray]]:
    """Views of corresponding blocks of the arrays; the whole arrays if one is not contiguous."""
    if not all(array.flags.c_contiguous for array in arrays):
        yield list(arrays)
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, BLOCK_ELEMENTS):
        yield [array[start : start + BLOCK_ELEMENTS] for array in flat]


Kind = tuple[int, UpdateRule, tuple[str, ...]]
"""A group's number, its rule, and the names of the tensors of its state."""


class Entry(NamedTuple):
    """A parameter of a kept step, as it was when the step was kept."""

    parameter: TensorBase
    storage: Storage | None  # None for a parameter without a gradient
    offset: int
    strides: Shape
    state: dict[str, Any]
    values: tuple[tuple[str, TensorBase], ...]  # of the state
    changed: tuple[Storage, ...]


class KeptStep:
    """The call for a group whose parameters have all made as many steps, ready for other gradients."""

    __slots__ = ("_device", "_entries", "_launch", "_states", "_written")

    def __init__(
        self,
        launch: HostLaunch,
        params: Sequence[Any],
        names: Sequence[str],
        states: dict[Any, dict[str, Any]],
        written: Sequence[TensorBase],
    ) -> None:
        """
        Args:
            launch: of the group's kernel.
            params: all parameters of the group.
            names: of the tensors of the state.
            states: the optimizer's.
            written: the tensors that the kernel writes, in its order.
        """
        self._launch, self._states, self._device = launch, states, written[0].device
        self._written = list(map(_address, written))
        updated = set(map(id, written))
        self._entries = [_entry(p, names, states[p] if id(p) in updated else {}, updated) for p in params]

    def run(self, params: Sequence[Any], states: Any, constants: Callable[[int], Sequence[Any]]) -> bool:
        """Make a step; False, before anything changed, where parameters, states or gradients do not fit.

        Args:
            params: the group's parameters.
            states: the optimizer's.
            constants: gives those of a step.
        """
        entries, device, step = self._entries, self._device, None
        if states is not self._states or len(params) != len(entries):
            return False
        addresses, copies = list[int](), list[Any]()
        for p, (parameter, storage, offset, strides, state, values, _) in zip(params, entries):  # noqa: B905
            meta = p.grad_meta
            g = None if meta is None else meta.grad
            if p is not parameter or (g is None) != (storage is None):
                return False
            if g is None:
                continue
            if (
                p.storage is not storage
                or p.strides is not strides
                or p.offset != offset
                or states.get(p) is not state
                or g.device is not device
            ):
                return False
            for name, value in values:
                if state.get(name) is not value:
                    return False
            if step is None:
                step = state["step"]
            elif state["step"] != step:
                return False
            if g.strides != strides:
                g = contiguous(g)
                copies.append(g)
            source = g.storage
            if source.pending is not None or storage.pending is not None:
                source.settle()
                storage.settle()
            span = source.span
            addresses.append(span.buffer.address + span.offset + g.offset * g.dtype.itemsize)
        assert step is not None
        step += 1
        addresses += self._written
        counters = device.counters
        counters.host_kernels += 1  # no process is forked meanwhile
        try:
            self._launch.run(addresses, constants(step))
        finally:
            counters.host_finished += 1
        for entry in entries:
            if entry[1] is not None:
                entry[4]["step"] = step
                for changed in entry[6]:
                    changed.version += 1
        return True


def _entry(p: Any, names: Sequence[str], state: dict[str, Any], updated: set[int]) -> Entry:
    """The entry of a parameter."""
    values = tuple((name, state[name]) for name in names) if state else ()
    changed = {id(tensor.storage): tensor.storage for tensor in (p, *(value for _, value in values))}
    storage = p.storage if id(p) in updated else None
    return Entry(p, storage, p.offset, p.strides, state, values, tuple(changed.values()))


def _address(tensor: TensorBase) -> int:
    """The address of the first element of a tensor of the CPU."""
    tensor.storage.settle()
    span = tensor.storage.span
    address: int = span.buffer.address + span.offset + tensor.offset * tensor.dtype.itemsize
    return address


class KeptSteps(Untracked):
    """The kept steps of an optimizer's groups. Copies and pickles start empty."""

    def __init__(self) -> None:
        self._steps: dict[int, tuple[Kind, KeptStep]] = {}

    def __reduce__(self) -> tuple[type[KeptSteps], tuple[()]]:
        return KeptSteps, ()

    def run(
        self, kind: Kind, params: Sequence[Any], states: Any, constants: Callable[[int], Sequence[Any]]
    ) -> bool:
        """Make a kept step; False if there is none that fits. For the arguments see :class:`KeptStep`."""
        of, kept = self._steps.get(kind[0], (None, None))
        if kept is None or of != kind or listeners.captured() or not provider.enabled:
            return False
        return kept.run(params, states, constants)

    def keep(
        self, kind: Kind, params: Sequence[Any], states: dict[Any, dict[str, Any]], jobs: Sequence[Job]
    ) -> None:
        """Keep the step that was just made, if it can be made again by one call."""
        number, rule, names = kind
        self._steps.pop(number, None)
        device = jobs[0][1].device
        if listeners.captured() or not device.keeps_plans or not _are_alike(jobs):
            return
        written = _by_role(jobs)
        like_gradients = [job[1] for job in jobs]
        launch = launch_of(rule.host_kernel, like_gradients, written)
        if launch is not None:
            self._steps[number] = kind, KeptStep(launch, params, names, states, written)
