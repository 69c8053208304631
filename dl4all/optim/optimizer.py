"""What all optimizers share: groups of parameters, their state, and one step over all of them.

A kernel reads the gradient and changes the parameter and all of its state in place. The parts of a
parameter's state lie one after another in one piece of memory, so that no kernel binds more than three
buffers and a table.

A dispatch goes through all parameters of a group whose memory lies in the same few buffers and that have come
equally far (:mod:`dl4all.ops.core.multi_tensor`): asking for one for each would take longer than most of
them run. A parameter that is alone there has its own. Both ways compute the same, bit by bit.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.autograd import enable_grad, no_grad
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.core.launch import pack, run, shader, strided_grid
from dl4all.ops.core.multi_tensor import Job, MultiTensor, Role, side_by_side
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.copy import copy_into, fill_with
from dl4all.ops.memory.views import contiguous
from dl4all.scheduler.device import Device
from dl4all.scheduler.programs import Launch
from dl4all.tensor.tensor import Tensor

Params = Iterable[Tensor] | Iterable[dict[str, Any]]
NDArray = npt.NDArray[Any]
Constants = tuple[float | int, ...]

WORKGROUP = 128
PIECE = 1 << 17  # elements that the host takes at once: what it computes of them stays in a cache


class Kernels:
    """The shaders of an optimizer that keeps so many values for each element: for one parameter, and many."""

    def __init__(self, name: str, states: int, **defines: Any) -> None:
        self._alone, self._together = (
            shader(f"optim/{name}.comp", STATES=states, TOGETHER=together, **defines) for together in (0, 1)
        )
        SHARED.extend((self._alone, self._together))
        state = [Role(written=True, width=states)] if states else []
        self._roles = (Role(written=False), *state, Role(written=True))

    def launch(
        self, device: Device, jobs: Sequence[Job], constants: Constants, plans: MultiTensor, slot: Hashable
    ) -> None:
        """Change the last tensor of each job by the others: the gradient and, if there is one, the state."""
        plan = plans.plan(jobs, self._roles, slot)
        for batch in plan.batches:
            push = pack(*batch.rows, *constants)
            device.launch(Launch(self._together, (batch.groups, 1, 1), push), batch.table, *batch.spans)
        for number in plan.alone:
            job = jobs[number]
            push = pack(job[-1].numel(), job[-1].offset, job[0].offset, *constants)
            run(self._alone, strided_grid(job[-1].numel(), WORKGROUP), push, *job)
        for job in jobs:
            for changed in job[1:]:
                changed.storage.version += 1


class Optimizer:
    """Base class of optimizers; PyTorch's interface.

    A subclass says which parts its state has, with which constants a step computes, and how: by a
    kernel, and in NumPy.

    Args:
        params: tensors, or dicts with some under ``"params"`` and options of their own.
        defaults: options of the groups that do not name them.

    Raises:
        ArgumentError: there are no parameters, one comes twice, or it is none.
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._plans = MultiTensor()
        if isinstance(params, (TensorBase, Mapping)):
            raise ArgumentError(f"[{self._name}] expected a list of parameters, got {type(params).__name__}")
        given: list[Any] = list(params)
        if not given:
            raise ArgumentError(f"[{self._name}] got no parameters; pass module.parameters()")
        for group in given if isinstance(given[0], Mapping) else [{"params": given}]:
            self.add_param_group(dict(group))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        lines = [f"{self._name} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # What a subclass says

    def _check(self, group: dict[str, Any]) -> None:
        """Raise an ArgumentError for options that make no sense."""

    def _parts(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the state's parts."""
        raise NotImplementedError

    def _start(self, group: dict[str, Any]) -> float:
        """What the state's elements are at first."""
        return 0.0

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        """The numbers of a step, in the order of the push constants."""
        raise NotImplementedError

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        raise NotImplementedError

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        """Change the parameter `p` and the state's parts as the kernels do, each element by itself."""
        raise NotImplementedError

    # Groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own.

        Args:
            param_group: a tensor or several under ``"params"``, and options.

        Raises:
            ArgumentError: a parameter comes twice, is no tensor, or an option is missing or wrong.
        """
        if "params" not in param_group:
            raise ArgumentError(f"[{self._name}] a group has its parameters under 'params'")
        group = {**self.defaults, **param_group}
        found = group["params"]
        group["params"] = [found] if isinstance(found, TensorBase) else list(found)
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for p in group["params"]:
            if not isinstance(p, TensorBase):
                raise ArgumentError(f"[{self._name}] expected tensors as parameters, got {type(p).__name__}")
            if id(p) in known:
                raise ArgumentError(f"[{self._name}] a parameter of shape {p.shape} was given twice")
            if p.dtype.kind != "f" or (p.grad_meta is not None and p.grad_meta.node is not None):
                raise ArgumentError(
                    f"[{self._name}] cannot change a tensor of {p.dtype} that "
                    "an op made; pass the tensors of floats that it came from"
                )
            known.add(id(p))
        self._check(group)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients.

        Args:
            set_to_none: give their memory back; otherwise they become zeros.
        """
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                    continue
                p.grad = p.grad.detach()
                fill_with(p.grad, 0)
                p.grad.storage.version += 1

    # Steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient.

        Args:
            closure: is called first; it computes the gradients and returns the loss.

        Returns:
            What the closure returned.

        Raises:
            GradientError: a gradient lives on another device than its parameter.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for number, group in enumerate(self.param_groups):
                self._step(group, number)
        return loss

    def _step(self, group: dict[str, Any], number: int) -> None:
        names, start = self._parts(group), self._start(group)
        with_gradients = [(p, p.grad) for p in group["params"] if p.grad is not None and 0 not in p.shape]
        for p, g in with_gradients:
            if g.device is not p.device:
                raise GradientError(
                    f"[{self._name}] a parameter lives on {p.device} and its gradient on {g.device}; "
                    "move a network before its gradients are computed"
                )
        states = self._ready([p for p, _ in with_gradients], names, start)
        known: dict[int, Constants] = {}  # by the step that they are for
        waiting: dict[tuple[Device, Constants], list[Job]] = {}
        for (p, g), state in zip(with_gradients, states, strict=True):
            step = state["step"] = state["step"] + 1
            constants = known.get(step)
            if constants is None:
                constants = known[step] = self._constants(group, step)
            packed = [state[name] for name in names[:1]]
            by_kernel = (
                not p.device.is_host
                and p.dtype == np.float32
                and p.is_contiguous()
                and p.device.binds(*(tensor.storage for tensor in (p, g, *packed)))
            )
            if by_kernel:
                g = g if g.strides == p.strides else contiguous(g)
                job = (g, *packed, p)
                waiting.setdefault((p.device, constants), []).append(job)
            else:
                self._on_host(p, g, [state[name] for name in names], group, constants)
        for slot, ((device, constants), jobs) in enumerate(waiting.items()):
            self._kernels(group).launch(device, jobs, constants, self._plans, (number, slot))

    def _on_host(
        self, p: Tensor, g: Tensor, parts: list[Tensor], group: dict[str, Any], constants: Constants
    ) -> None:
        changed = (p, *parts)
        arrays = [tensor.on_host() for tensor in changed]
        with np.errstate(all="ignore"):
            for first, gradient, *rest in _pieces(arrays[0], g.on_host(), *arrays[1:]):
                self._update(group, first, gradient, rest, *constants)
        if not p.device.is_host:  # these were copies
            for tensor, array in zip(changed, arrays, strict=True):
                copy_into(tensor, from_host(Tensor, array, p.device, copy=False))
        for tensor in changed[:2]:
            tensor.storage.version += 1

    def _ready(self, params: Sequence[Tensor], names: Sequence[str], start: float) -> list[dict[str, Any]]:
        """The states of parameters, with all their parts in place, where and as the parameters are."""
        states = [self.state[p] for p in params]
        missing: dict[Device, list[Tensor]] = {}
        for p, state in zip(params, states, strict=True):
            state.setdefault("step", 0)
            if not _packed(p, [state.get(name) for name in names]):
                missing.setdefault(p.device, []).append(p)
        for device, without in missing.items():
            sizes = [len(names) * p.numel() * p.dtype.itemsize for p in without]
            for p, storage in zip(without, side_by_side(device, sizes), strict=True):
                self._pack(p, storage, names, start)
        return states

    def _pack(self, p: Tensor, storage: Storage, names: Sequence[str], start: float) -> None:
        state = self.state[p]
        if not self._counts and not any(name in state for name in names):
            state["step"] = 0  # what counts is when the state began
        packed = Tensor(storage, (len(names), *p.shape), p.dtype, p.device)
        fill_with(packed, start)
        for row, name in enumerate(names):
            part = packed[row]
            if name in state:
                copy_into(part, state[name].to(p.device))
            state[name] = part

    # Saving

    _counts = True  # whether the number of steps is a part of the state that is saved

    def state_dict(self) -> dict[str, Any]:
        """The state and the groups, with numbers for the parameters: what PyTorch's optimizers save.

        The tensors share the optimizer's memory.
        """
        numbers = {p: number for number, p in enumerate(self._parameters())}
        hidden = () if self._counts else ("step",)
        state = {}
        for p, values in self.state.items():
            if kept := {name: value for name, value in values.items() if name not in hidden}:
                state[numbers[p]] = kept
        groups = [{**group, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state that was saved, by this class or by PyTorch's of the same name.

        Args:
            state_dict: is copied. The parameters are those of this optimizer, in the same order.

        Raises:
            ArgumentError: the groups have other numbers of parameters, or a part another shape.
        """
        groups, saved = state_dict["param_groups"], state_dict["state"]
        mine = [len(group["params"]) for group in self.param_groups]
        theirs = [len(group["params"]) for group in groups]
        if mine != theirs:
            raise ArgumentError(f"[{self._name}] the groups have {mine} parameters, the state's {theirs}")
        order = [number for group in groups for number in group["params"]]
        loaded: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, p in zip(order, self._parameters(), strict=True):
            if number in saved:
                loaded[p] = {name: self._loaded(p, name, value) for name, value in saved[number].items()
                             if value is not None}  # fmt: skip
                loaded[p].setdefault("step", len(loaded[p]))  # 0 where there is nothing to go on from
        for group, other in zip(self.param_groups, groups, strict=True):
            options = copy.deepcopy({key: value for key, value in other.items() if key != "params"})
            group.update({key: tuple(v) if isinstance(v, list) else v for key, v in options.items()})
        self.state = loaded

    def _loaded(self, p: Tensor, name: str, value: Any) -> Any:
        if name == "step":
            return int(float(value))
        array = np.array(value.on_host() if isinstance(value, TensorBase) else value, p.dtype)
        if array.shape != p.shape:
            raise ArgumentError(
                f"[{self._name}] the saved {name} has shape {array.shape}, its parameter {p.shape}"
            )
        return from_host(Tensor, array, p.device, copy=False)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


def _packed(p: Tensor, parts: Sequence[Tensor | None]) -> bool:
    """Whether the parts of a parameter's state lie as the kernels expect them."""
    place = 0
    for part in parts:
        if part is None or part.device is not p.device or part.dtype != p.dtype:
            return False
        if part.offset != place or part.storage is not parts[0].storage:  # type: ignore[union-attr]
            return False
        place += p.numel()
    return True


def _pieces(*arrays: NDArray) -> Iterator[list[NDArray]]:
    """Views of the same elements of arrays, a few at a time where they lie in the same order."""
    if not all(array.flags.c_contiguous for array in arrays):
        yield list(arrays)
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PIECE):
        yield [array[start : start + PIECE] for array in flat]


def at_least_0(optimizer: str, group: Mapping[str, Any], *names: str) -> None:
    """
    Raises:
        ArgumentError: one of these options is negative or nan.
    """
    for name in names:
        if not group[name] >= 0:
            raise ArgumentError(f"[{optimizer}] {name} must be at least 0, got {group[name]}")


def below_1(optimizer: str, name: str, *values: float) -> None:
    """
    Raises:
        ArgumentError: a rate of decay is not in [0, 1).
    """
    if not all(0 <= value < 1 for value in values):
        raise ArgumentError(f"[{optimizer}] {name} must be from 0 to below 1, got {values}")
