"""Optimizers that update each element by itself: the base class of those with kernels.

A kernel reads the gradient and changes the parameter and its state in place. The tensors of a parameter's
state lie one after another in one allocation, so that no kernel binds more than three buffers and a table.

One dispatch covers all parameters of a group whose memory lies in the same few buffers and that have made the
same number of steps (:mod:`dl4all.ops.core.kernels.multi_tensor`): a dispatch for each would take longer to
submit than most of them run. A parameter without company has its own dispatch. Both ways give the same
result, bit by bit. On the CPU one call updates a group (:mod:`dl4all.optim.step.host_step`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.core.kernels.multi_tensor import MultiTensor, side_by_side
from dl4all.ops.core.tensor_base import from_host
from dl4all.ops.memory.copy import copy_into, fill_with, overwrite
from dl4all.ops.memory.views import contiguous
from dl4all.optim.optimizer import Optimizer, ParamsT
from dl4all.optim.state.saved_state import check_arrays, check_counts, loaded_tensor
from dl4all.optim.step.host_step import KeptSteps, update_arrays, update_jobs
from dl4all.optim.step.kernels import Constants, UpdateRule, no_kernel_of
from dl4all.scheduler import fallback, listeners
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor


class ElementwiseOptimizer(Optimizer):
    """Base class of optimizers with a rule: a subclass names the tensors and the numbers of its state.

    It also gives the constants of a step.
    """

    _saves_step = True  # whether the saved state includes the number of steps

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._plans = MultiTensor()
        self._kept_steps = KeptSteps()
        super().__init__(params, defaults)

    # Defined by subclasses

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the tensors of the state."""
        raise NotImplementedError

    def _initial_state(self, group: dict[str, Any], name: str) -> float:
        """The initial value of the elements of a tensor of the state."""
        return 0.0

    def _state_numbers(self, group: dict[str, Any]) -> dict[str, float]:
        """The numbers of the state beside the count of steps, by name, as they are initially."""
        return {}

    def _next_numbers(self, group: dict[str, Any], state: Mapping[str, Any]) -> dict[str, float]:
        """These numbers after a step; ``state["step"]`` counts it."""
        return {}

    def _constants(self, group: dict[str, Any], step: int, *numbers: float) -> Constants:
        """The constants of a step, in the order of the push constants; `numbers` are as before the step."""
        raise NotImplementedError

    def _rule(self, group: dict[str, Any]) -> UpdateRule:
        """The rule for the options of a group."""
        raise NotImplementedError

    # Steps

    def _plan_key(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return self._state_names(group), id(self._rule(group))

    def _step(self, group: dict[str, Any], number: int) -> None:
        """Update the parameters of one group."""
        names, numbers, rule = self._state_names(group), self._state_numbers(group), self._rule(group)
        constants_of = functools.partial(self._constants, group)
        if self._kept_steps.run((number, rule, names), group["params"], self.state, constants_of):
            return
        with_gradients = [(p, p.grad) for p in group["params"] if p.grad is not None and 0 not in p.shape]
        for p, g in with_gradients:
            if g.device is not p.device:
                raise GradientError(
                    f"[{self._name}] a parameter lives on {p.device} and its gradient on {g.device}; "
                    "move a network before its gradients are computed"
                )
        states = self._prepared_states([p for p, _ in with_gradients], names, group)
        captured = listeners.captured()
        constants_by_count: dict[tuple[float, ...], Constants] = {}
        states_by_count: dict[tuple[float, ...], list[dict[str, Any]]] = {}
        # While a step is captured, equal constants of unlike counts are two jobs: later they may differ.
        jobs_by_constants: dict[tuple[Device, Constants, Any], list[tuple[Tensor, ...]]] = {}
        for (p, g), state in zip(with_gradients, states, strict=True):
            count = (state["step"], *(state[name] for name in numbers))
            same = states_by_count.setdefault(count, [])
            constants = constants_by_count.get(count)
            if constants is None:
                constants = self._count_step(group, [state])
                if captured:
                    again = functools.partial(self._count_step, group, same)
                    constants = tuple(listeners.vary(self._name, constants, again))
                constants_by_count[count] = constants
            else:
                self._count_step(group, [state])
            same.append(state)
            kind = p.device, constants, count if captured else None
            tensors = [state[name] for name in names]
            packed = tensors[:1]  # the first tensor leads to all of the state
            if p.device.is_host:
                jobs_by_constants.setdefault(kind, []).append((g, p, *tensors))
                continue
            cause = no_kernel_of(p, g, *packed)
            if cause is not None:
                with fallback.on_host(self._name, p.device, cause):
                    self._on_host(p, g, tensors, rule, constants)
            else:
                g = g if g.strides == p.strides else contiguous(g)
                jobs_by_constants.setdefault(kind, []).append((g, *packed, p))
        if captured:
            listeners.depends(functools.partial(_agree, list(states_by_count.values()), ("step", *numbers)))
        for slot, ((device, constants, _), jobs) in enumerate(jobs_by_constants.items()):
            if device.is_host:
                self._update_on_host(device, jobs, rule, constants)
                if len(jobs_by_constants) == 1 and not numbers:
                    self._kept_steps.keep((number, rule, names), group["params"], self.state, jobs)
                continue
            refused = rule.launch(device, jobs, constants, self._plans, (number, slot))
            for i, error in refused.items():
                g, p = jobs[i][0], jobs[i][-1]
                with fallback.on_host(self._name, device, fallback.refused(device, error, "float32")):
                    self._on_host(p, g, [self.state[p][name] for name in names], rule, constants)

    def _count_step(self, group: dict[str, Any], states: Sequence[dict[str, Any]]) -> Constants:
        """Count a step in states that are alike; returns its constants."""
        before = [states[0][name] for name in self._state_numbers(group)]
        for state in states:
            state["step"] += 1
            state.update(self._next_numbers(group, state))
        return self._constants(group, states[0]["step"], *before)

    def _update_on_host(
        self,
        device: Device,
        jobs: Sequence[tuple[Tensor, ...]],
        rule: UpdateRule,
        constants: Constants,
    ) -> None:
        """Update parameters of the CPU; a job is a gradient, its parameter, and the state's tensors."""
        if device.simulated is not None:
            for _, p, *states in jobs:
                nbytes = (2 + 2 * len(states) + 1) * p.numel() * p.dtype.itemsize
                device.simulated.launch("optim", nbytes, 0)
                p.storage.version += not device.simulated.computes
            if not device.simulated.computes:
                return
        update_jobs(self._name, rule, jobs, constants)

    @staticmethod
    def _on_host(p: Tensor, g: Tensor, states: list[Tensor], rule: UpdateRule, constants: Constants) -> None:
        """Update one parameter of another device in NumPy."""
        tensors = (p, *states)
        arrays = [tensor.on_host() for tensor in tensors]
        with np.errstate(all="ignore"):
            update_arrays(rule, 1, g.on_host(), *arrays, *constants)
        for tensor, array in zip(tensors, arrays, strict=True):
            overwrite(tensor, from_host(Tensor, array, p.device, copy=False))

    def _prepared_states(
        self, params: Sequence[Tensor], names: Sequence[str], group: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The states of the parameters, allocated and packed on their devices."""
        states = [self.state[p] for p in params]
        numbers = self._state_numbers(group)
        unpacked: dict[Device, list[Tensor]] = {}
        for p, state in zip(params, states, strict=True):
            state.setdefault("step", 0)
            for name, value in numbers.items():
                state.setdefault(name, value)
            if not _is_packed(p, [state.get(name) for name in names]):
                unpacked.setdefault(p.device, []).append(p)
        for device, on_device in unpacked.items():
            sizes = [len(names) * p.numel() * p.dtype.itemsize for p in on_device]
            for p, storage in zip(on_device, side_by_side(device, sizes), strict=True):
                self._pack_state(p, storage, names, group)
        return states

    def _pack_state(self, p: Tensor, storage: Storage, names: Sequence[str], group: dict[str, Any]) -> None:
        """Move the state of a parameter to `storage`, or start it there."""
        state = self.state[p]
        if not self._saves_step and not any(name in state for name in names):
            state["step"] = 0  # steps count from the start of the state
        packed = Tensor(storage, (len(names), *p.shape), p.dtype, p.device)
        initial = [self._initial_state(group, name) for name in names]
        if len(set(initial)) == 1:
            fill_with(packed, initial[0])
        for row, name in enumerate(names):
            tensor = packed[row]
            if name in state:
                copy_into(tensor, state[name].to(p.device))
            elif len(set(initial)) > 1:
                fill_with(tensor, initial[row])
            state[name] = tensor

    # Saving

    def _hidden_names(self) -> tuple[str, ...]:
        return () if self._saves_step else ("step",)

    def _check_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> None:
        names, numbers = self._state_names(group), self._state_numbers(group)
        counts = ("step", *numbers)
        tensors = {name: v for name, v in values.items() if name not in counts and v is not None}
        if names and tensors and not set(names) & set(tensors):
            raise ArgumentError(
                f"[{self._name}] the state is of another optimizer: it has {', '.join(map(str, tensors))}, "
                f"not {', '.join(names)}"
            )
        check_arrays(self._name, p, tensors)
        check_counts(self._name, {name: values[name] for name in counts if name in values})

    def _loaded_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> dict[str, Any]:
        numbers = self._state_numbers(group)
        loaded: dict[str, Any] = {}
        for name, value in values.items():
            if name == "step":
                loaded[name] = int(float(value))
            elif name in numbers:
                loaded[name] = float(value)
            elif value is not None:
                loaded[name] = loaded_tensor(p, value)
        loaded.setdefault("step", len(loaded))  # 0 for an empty state
        return loaded


def _agree(groups: Sequence[Sequence[Mapping[str, Any]]], names: Sequence[str]) -> bool:
    """Whether the states within each group still have the same numbers, which one update takes for all."""
    return all(
        all(state[name] == states[0][name] for name in names) for states in groups for state in states[1:]
    )


def _is_packed(p: Tensor, states: Sequence[Tensor | None]) -> bool:
    """Whether the tensors of a parameter's state lie one after another in one storage, as kernels need it."""
    offset = 0
    for state in states:
        if state is None or state.device is not p.device or state.dtype != p.dtype:
            return False
        if p.device.is_host:
            continue
        if state.offset != offset or state.storage is not states[0].storage:  # type: ignore[union-attr]
            return False
        offset += p.numel()
    return True
