"""The base class of optimizers: parameter groups, state, steps and saving.

A kernel reads the gradient and changes the parameter and its state in place. The tensors of a parameter's
state lie one after another in one allocation, so that no kernel binds more than three buffers and a table.

One dispatch covers all parameters of a group whose memory lies in the same few buffers and that have made
the same number of steps (:mod:`dl4all.ops.core.multi_tensor`): a dispatch for each would take longer to
submit than most of them run. A parameter without company has its own dispatch. Both ways give the same
result, bit by bit. On the CPU one call updates a group (:mod:`dl4all.optim.host_step`).
"""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.autograd import enable_grad, no_grad
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.core.limits import real
from dl4all.ops.core.multi_tensor import MultiTensor, side_by_side
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.copy import copy_into, fill_with
from dl4all.ops.memory.views import contiguous
from dl4all.optim.host_step import KeptSteps, update_arrays, update_jobs
from dl4all.optim.kernels import Constants, Kernels, no_kernel_of
from dl4all.scheduler import capture, fallback
from dl4all.scheduler.device import Device
from dl4all.tensor.arguments import checked_state
from dl4all.tensor.tensor import Tensor

Params = Iterable[Tensor] | Iterable[dict[str, Any]]
NDArray = npt.NDArray[Any]


class Optimizer:
    """Base class of optimizers, with PyTorch's interface.

    A subclass names the tensors of its state and gives the constants of a step, the kernel that computes it,
    and the same in NumPy.

    Args:
        params: tensors, or dicts with tensors under ``"params"`` and options of their own.
        defaults: options of groups that do not set them.

    Raises:
        ArgumentError: there are no parameters, one is given twice, or one is not a parameter.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.tensor([1.0]))
        >>> optimizer = dl.optim.SGD([{"params": [w], "lr": 0.5}], lr=0.1)
        >>> isinstance(optimizer, dl.optim.Optimizer), optimizer.param_groups[0]["lr"]
        (True, 0.5)
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._plans = MultiTensor()
        self._kept_steps = KeptSteps()
        if isinstance(params, (TensorBase, Mapping)):
            raise ArgumentError(f"[{self._name}] expected a list of parameters, got {type(params).__name__}")
        groups: list[Any] = list(params)
        if not groups:
            raise ArgumentError(f"[{self._name}] got no parameters; pass module.parameters()")
        for group in groups if isinstance(groups[0], Mapping) else [{"params": groups}]:
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

    # Defined by subclasses

    def _check(self, group: dict[str, Any]) -> None:
        """Raise an ArgumentError for invalid options."""

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the tensors of the state."""
        raise NotImplementedError

    def _initial_state(self, group: dict[str, Any]) -> float:
        """The initial value of the state's elements."""
        return 0.0

    def _constants(self, group: dict[str, Any], step: int) -> Constants:
        """The constants of a step, in the order of the push constants."""
        raise NotImplementedError

    def _kernels(self, group: dict[str, Any]) -> Kernels:
        """The kernels for the options of a group."""
        raise NotImplementedError

    def _rule(self, group: dict[str, Any]) -> str | None:
        """The name of the CPU's compiled update, if there is one that does what :meth:`_update` does."""
        return None

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, states: list[NDArray], *c: Any) -> None:
        """Update the parameter `p` and its state as the kernels do, element by element, in place."""
        raise NotImplementedError

    # Groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own.

        Args:
            param_group: a tensor or several under ``"params"``, and options.

        Raises:
            ArgumentError: a parameter is given twice or is not a tensor, or an option is missing or invalid.
        """
        if "params" not in param_group:
            raise ArgumentError(f"[{self._name}] a group has its parameters under 'params'")
        group = {**self.defaults, **param_group}
        params = group["params"]
        group["params"] = [params] if isinstance(params, TensorBase) else list(params)
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
        for name, option in group.items():
            for number in option if isinstance(option, tuple) else (option,):
                if isinstance(number, int):
                    real(self._name, name, number, finite=True)  # some have more digits than any float
        self._check(group)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients.

        Args:
            set_to_none: free their memory; otherwise they are filled with zeros.
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
        """Update every parameter that has a gradient.

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
        """Update the parameters of one group."""
        names, rule = self._state_names(group), self._rule(group)
        constants_of = functools.partial(self._constants, group)
        if self._kept_steps.run((number, rule, names), group["params"], self.state, constants_of):
            return
        initial = self._initial_state(group)
        with_gradients = [(p, p.grad) for p in group["params"] if p.grad is not None and 0 not in p.shape]
        for p, g in with_gradients:
            if g.device is not p.device:
                raise GradientError(
                    f"[{self._name}] a parameter lives on {p.device} and its gradient on {g.device}; "
                    "move a network before its gradients are computed"
                )
        states = self._prepared_states([p for p, _ in with_gradients], names, initial)
        constants_by_step: dict[int, Constants] = {}
        states_by_step: dict[int, list[dict[str, Any]]] = {}
        jobs_by_constants: dict[tuple[Device, Constants], list[tuple[Tensor, ...]]] = {}
        for (p, g), state in zip(with_gradients, states, strict=True):
            step = state["step"] = state["step"] + 1
            states_by_step.setdefault(step, []).append(state)
            constants = constants_by_step.get(step)
            if constants is None:
                constants = constants_of(step)
                if capture.active is not None:
                    again = functools.partial(self._count_step, group, states_by_step[step])
                    constants = tuple(capture.active.vary(self._name, constants, again))
                constants_by_step[step] = constants
            tensors = [state[name] for name in names]
            packed = tensors[:1]  # the first tensor leads to all of the state
            if p.device.is_host:
                jobs_by_constants.setdefault((p.device, constants), []).append((g, p, *tensors))
                continue
            cause = no_kernel_of(p, g, *packed)
            if cause is not None:
                with fallback.on_host(self._name, p.device, cause):
                    self._on_host(p, g, tensors, group, constants)
            else:
                g = g if g.strides == p.strides else contiguous(g)
                jobs_by_constants.setdefault((p.device, constants), []).append((g, *packed, p))
        for slot, ((device, constants), jobs) in enumerate(jobs_by_constants.items()):
            if device.is_host:
                self._update_on_host(device, jobs, group, constants)
                if len(jobs_by_constants) == 1 and rule is not None:
                    self._kept_steps.keep((number, rule, names), group["params"], self.state, jobs)
                continue
            refused = self._kernels(group).launch(device, jobs, constants, self._plans, (number, slot))
            for i, error in refused.items():
                g, p = jobs[i][0], jobs[i][-1]
                with fallback.on_host(self._name, device, fallback.refused(device, error, "float32")):
                    self._on_host(p, g, [self.state[p][name] for name in names], group, constants)

    def _count_step(self, group: dict[str, Any], states: Sequence[dict[str, Any]]) -> Constants:
        """Count a step that a compiled graph takes; returns its constants."""
        for state in states:
            state["step"] += 1
        return self._constants(group, states[0]["step"])

    def _update_on_host(
        self,
        device: Device,
        jobs: Sequence[tuple[Tensor, ...]],
        group: dict[str, Any],
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
        update = functools.partial(self._update, group)
        update_jobs(self._name, self._rule(group), update, jobs, constants)

    def _on_host(
        self, p: Tensor, g: Tensor, states: list[Tensor], group: dict[str, Any], constants: Constants
    ) -> None:
        """Update one parameter of another device in NumPy."""
        tensors = (p, *states)
        arrays = [tensor.on_host() for tensor in tensors]
        with np.errstate(all="ignore"):
            update_arrays(functools.partial(self._update, group), 1, g.on_host(), *arrays, *constants)
        for tensor, array in zip(tensors, arrays, strict=True):
            copy_into(tensor, from_host(Tensor, array, p.device, copy=False))
        for tensor in tensors[:2]:
            tensor.storage.version += 1

    def _prepared_states(
        self, params: Sequence[Tensor], names: Sequence[str], initial: float
    ) -> list[dict[str, Any]]:
        """The states of the parameters, allocated and packed on their devices."""
        states = [self.state[p] for p in params]
        unpacked: dict[Device, list[Tensor]] = {}
        for p, state in zip(params, states, strict=True):
            state.setdefault("step", 0)
            if not _is_packed(p, [state.get(name) for name in names]):
                unpacked.setdefault(p.device, []).append(p)
        for device, on_device in unpacked.items():
            sizes = [len(names) * p.numel() * p.dtype.itemsize for p in on_device]
            for p, storage in zip(on_device, side_by_side(device, sizes), strict=True):
                self._pack_state(p, storage, names, initial)
        return states

    def _pack_state(self, p: Tensor, storage: Storage, names: Sequence[str], initial: float) -> None:
        """Move the state of a parameter to `storage`, or start it there."""
        state = self.state[p]
        if not self._saves_step and not any(name in state for name in names):
            state["step"] = 0  # steps count from the start of the state
        packed = Tensor(storage, (len(names), *p.shape), p.dtype, p.device)
        fill_with(packed, initial)
        for row, name in enumerate(names):
            tensor = packed[row]
            if name in state:
                copy_into(tensor, state[name].to(p.device))
            state[name] = tensor

    # Saving

    _saves_step = True  # whether the saved state includes the number of steps

    def state_dict(self) -> dict[str, Any]:
        """The state and the groups, with numbers for the parameters, as PyTorch's optimizers save them.

        The tensors share the optimizer's memory.
        """
        numbers = {p: number for number, p in enumerate(self._parameters())}
        hidden = () if self._saves_step else ("step",)
        state = {}
        for p, values in self.state.items():
            if saved := {name: value for name, value in values.items() if name not in hidden}:
                state[numbers[p]] = saved
        groups = [{**group, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state that was saved by this class, or by PyTorch's class of the same name.

        Nothing changes unless everything fits.

        Args:
            state_dict: is copied. Its parameters are those of this optimizer, in the same order. Its options
                (``lr``, ``weight_decay``, ...) take the place of this optimizer's, as in PyTorch.

        Raises:
            ArgumentError: it is no state of an optimizer, or one of another class; the groups have other
                numbers of parameters, an option is out of its range, or a tensor has another shape.
        """
        self._check_state(state_dict)
        groups, saved = state_dict["param_groups"], state_dict["state"]
        order = [number for group in groups for number in group["params"]]
        loaded: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, p in zip(order, self._parameters(), strict=True):
            if number in saved:
                loaded[p] = {name: _loaded(p, name, value) for name, value in saved[number].items()
                             if value is not None}  # fmt: skip
                loaded[p].setdefault("step", len(loaded[p]))  # 0 for an empty state
        options = [copy.deepcopy(_options(group)) for group in groups]
        for group, other in zip(self.param_groups, options, strict=True):
            group.update(other)
        self.state = loaded

    def _check_state(self, state_dict: Any) -> None:
        """Raise unless a state can be loaded.

        Raises:
            ArgumentError
        """
        found = checked_state(self._name, state_dict, ("param_groups", "state"))
        groups, saved = found["param_groups"], found["state"]
        if not _is_list(groups) or not all(
            isinstance(group, Mapping) and _is_list(group.get("params")) for group in groups
        ):
            raise ArgumentError(f"[{self._name}] the state's param_groups must be dicts with 'params'")
        if not isinstance(saved, Mapping) or not all(isinstance(v, Mapping) for v in saved.values()):
            raise ArgumentError(f"[{self._name}] the state's 'state' must have a dict for each parameter")
        mine = [len(group["params"]) for group in self.param_groups]
        theirs = [len(group["params"]) for group in groups]
        if mine != theirs:
            raise ArgumentError(f"[{self._name}] the groups have {mine} parameters, the state's {theirs}")
        for group, other in zip(self.param_groups, groups, strict=True):
            merged = {**group, **_options(other)}
            try:
                self._check(merged)
                names = self._state_names(merged)
            except (TypeError, ValueError, KeyError, IndexError) as error:
                if isinstance(error, ArgumentError):
                    raise
                raise ArgumentError(f"[{self._name}] the state's options cannot be used: {error}") from error
            for number, p in zip(other["params"], group["params"], strict=True):
                self._check_values(p, saved.get(number, {}), names)

    def _check_values(self, p: Tensor, values: Mapping[str, Any], names: Sequence[str]) -> None:
        """Raise unless these are values of a parameter's state, some of them under these names.

        Raises:
            ArgumentError
        """
        tensors = {name: v for name, v in values.items() if name != "step" and v is not None}
        if names and tensors and not set(names) & set(tensors):
            raise ArgumentError(
                f"[{self._name}] the state is of another optimizer: it has {', '.join(map(str, tensors))}, "
                f"not {', '.join(names)}"
            )
        for name, value in tensors.items():
            array = _on_host(value)
            if array.shape != p.shape:
                raise ArgumentError(
                    f"[{self._name}] the saved {name} has shape {array.shape}, its parameter {p.shape}"
                )
            if array.dtype.kind not in "biuf":
                raise ArgumentError(f"[{self._name}] the saved {name} is {array.dtype}, not numbers")
        try:
            valid = int(float(values.get("step", 0))) >= 0
        except (TypeError, ValueError, OverflowError):
            valid = False
        if not valid:
            raise ArgumentError(f"[{self._name}] the saved step is {values['step']!r:.100}, not a count")

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a saved group; JSON makes lists of tuples."""
    options = {key: value for key, value in group.items() if key != "params"}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _on_host(value: Any) -> NDArray:
    """A saved tensor, of this library or of PyTorch, as an array."""
    # asarray, as NumPy 2 warns where PyTorch's tensors are asked for a copy
    return np.asarray(value.on_host() if isinstance(value, TensorBase) else value)


def _loaded(p: Tensor, name: str, value: Any) -> Any:
    """A saved value of the state, with the dtype and on the device of its parameter."""
    if name == "step":
        return int(float(value))
    return from_host(Tensor, _on_host(value).astype(p.dtype), p.device, copy=False)


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


def check_not_negative(optimizer: str, group: Mapping[str, Any], *names: str) -> None:
    """Raise unless these options are 0 or more.

    Raises:
        ArgumentError
    """
    for name in names:
        if not group[name] >= 0:
            raise ArgumentError(f"[{optimizer}] {name} must be at least 0, got {group[name]}")


def check_decay_rates(optimizer: str, name: str, *values: float) -> None:
    """Raise unless the decay rates lie in [0, 1).

    Raises:
        ArgumentError
    """
    if not all(0 <= value < 1 for value in values):
        raise ArgumentError(f"[{optimizer}] {name} must be from 0 to below 1, got {values}")


def step_constants(group: Mapping[str, Any], *values: str | float) -> Constants:
    """The constants of a step: the gradient's sign, then numbers, and options as floats by their names."""
    sign = -1.0 if group["maximize"] else 1.0
    return (sign, *(float(group[value]) if isinstance(value, str) else value for value in values))


def descent_gradient(g: NDArray, p: NDArray, sign: float, weight_decay: float) -> NDArray:
    """A new array of the gradient to descend along: ``sign * g + weight_decay * p``."""
    descent: NDArray = sign * g
    if weight_decay:
        descent += weight_decay * p
    return descent
