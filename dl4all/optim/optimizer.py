"""What all optimizers share: groups of parameters, their state, and one step over all of them.

A step is one dispatch for each parameter: its kernel reads the gradient and changes the parameter and all
of its state in place. The parts of a parameter's state lie one after another in one piece of memory, so
that no kernel binds more than three buffers. A dispatch for many parameters at once would have to bind
the memory of all, more buffers than every device has; copying the gradients together first would take
as many dispatches as it saves.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.autograd import enable_grad, no_grad
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.base import TensorBase, from_host
from dl4all.ops.launch import pack, run, shader, spread
from dl4all.ops.movement import copy_into, fill_with
from dl4all.ops.op import SHARED
from dl4all.ops.views import contiguous
from dl4all.runtime.spirv import Shader
from dl4all.tensor.tensor import Tensor

Params = Iterable[Tensor] | Iterable[dict[str, Any]]
NDArray = npt.NDArray[Any]
Constants = tuple[float | int, ...]

WORKGROUP = 128


def kernel(name: str, states: int, **defines: Any) -> Shader:
    """The shader of an optimizer that keeps so many values for each element."""
    code = shader(f"optim/{name}.comp", STATES=states, **defines)
    SHARED.append(code)
    return code


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

    def _kernel(self, group: dict[str, Any]) -> Shader:
        raise NotImplementedError

    def _update(self, group: dict[str, Any], p: NDArray, g: NDArray, parts: list[NDArray], *c: Any) -> None:
        """Change the parameter `p` and the state's parts as the kernel does."""
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
            if p.dtype.kind != "f" or (p.record is not None and p.record.node is not None):
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
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None and p.numel():
                        self._step(p, p.grad, group)
        return loss

    def _step(self, p: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        if g.device is not p.device:
            raise GradientError(
                f"[{self._name}] a parameter lives on {p.device} and its gradient on {g.device}; "
                "move a network before its gradients are computed"
            )
        names = self._parts(group)
        state = self._ready(p, names, self._start(group))
        state["step"] += 1
        constants = self._constants(group, state["step"])
        parts = [state[name] for name in names]
        if not p.device.is_host and p.dtype == np.float32 and p.is_contiguous():
            g = contiguous(g)
            push = pack(p.numel(), p.offset, g.offset, *constants)
            run(self._kernel(group), spread(p.numel(), WORKGROUP), push, g, *parts[:1], p)
        else:
            self._on_host(p, g, parts, group, constants)
        for changed in (p, *parts[:1]):
            changed.storage.version += 1

    def _on_host(
        self, p: Tensor, g: Tensor, parts: list[Tensor], group: dict[str, Any], constants: Constants
    ) -> None:
        arrays = [tensor.on_host() for tensor in (p, *parts)]
        with np.errstate(all="ignore"):
            # With an axis at least: NumPy turns results without one into numbers, which nothing can change.
            first, gradient, *rest = map(np.atleast_1d, (arrays[0], g.on_host(), *arrays[1:]))
            self._update(group, first, gradient, rest, *constants)
        if not p.device.is_host:  # these were copies
            for tensor, array in zip((p, *parts), arrays, strict=True):
                copy_into(tensor, from_host(Tensor, array, p.device, copy=False))

    def _ready(self, p: Tensor, names: Sequence[str], start: float) -> dict[str, Any]:
        """The state of a parameter, with all its parts in place, where and as the parameter is."""
        state = self.state[p]
        state.setdefault("step", 0)
        if self._packed(p, [state.get(name) for name in names]):
            return state
        if not self._counts and not any(name in state for name in names):
            state["step"] = 0  # what counts is when the state began
        packed = Tensor(p.device.allocate(len(names) * p.numel() * p.dtype.itemsize), (len(names), *p.shape),
                        p.dtype, p.device)  # fmt: skip
        fill_with(packed, start)
        for row, name in enumerate(names):
            part = packed[row]
            if name in state:
                copy_into(part, state[name].to(p.device))
            state[name] = part
        return state

    def _packed(self, p: Tensor, parts: list[Tensor | None]) -> bool:
        """Whether the parts lie as the kernels expect them."""
        return all(
            part is not None
            and (part.device, part.dtype) == (p.device, p.dtype)
            and (part.storage, part.offset) == (parts[0].storage, row * p.numel())  # type: ignore[union-attr]
            for row, part in enumerate(parts)
        )

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
