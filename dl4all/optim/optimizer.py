"""The base class of optimizers: parameter groups, state, steps, hooks and saving."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy.typing as npt

from dl4all.autograd import enable_grad
from dl4all.autograd.backward_pass import reset_gradients
from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.limits import real
from dl4all.ops.core.removable_handle import RemovableHandle, add_hook
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.optim.state.hooks import EVERY_STEP, KINDS, Hooks, hooked_step
from dl4all.optim.state.hooks import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from dl4all.optim.state.hooks import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook
from dl4all.optim.state.options import check_implementation
from dl4all.optim.state.param_group import ParamGroup
from dl4all.optim.state.saved_state import checked_groups, loaded_value, saved_options
from dl4all.scheduler import listeners
from dl4all.tensor.tensor import Tensor

ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
"""Parameters, groups of them, or pairs of a name and a parameter."""

NDArray = npt.NDArray[Any]
Hook = Callable[..., Any]

SavedValues = list[tuple[Tensor, Mapping[str, Any]]]
"""Parameters of a group, and what a state has of each."""


class Optimizer:
    """Base class of optimizers, with PyTorch's interface.

    A subclass of a user's own overrides :meth:`step` and keeps what it needs in ``self.state[parameter]``.

    Args:
        params: tensors, dicts with tensors under ``"params"`` and options of their own, or pairs of a name
            and a tensor, as ``module.named_parameters()`` gives them.
        defaults: options of groups that do not set them.

    Raises:
        ArgumentError: there are no parameters, one is given twice, or one is not a parameter.

    Example:
        >>> import dl4all as dl
        >>> class SignDescent(dl.optim.Optimizer):
        ...     def __init__(self, params, lr=0.5):
        ...         super().__init__(params, {"lr": lr})
        ...     @dl.no_grad()
        ...     def step(self, closure=None):
        ...         for group in self.param_groups:
        ...             for p in group["params"]:
        ...                 p.sub_(p.grad.sign(), alpha=group["lr"])
        >>> w = dl.tensor([1.0, -3.0]).requires_grad_()
        >>> (w * w).sum().backward()
        >>> SignDescent([w]).step()
        >>> w.tolist()
        [0.5, -2.5]
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = hooked_step(vars(cls)["step"])  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._hooks: dict[str, Hooks] = {kind: {} for kind in KINDS}
        self._steps = False
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

    def _step(self, group: dict[str, Any], number: int) -> None:
        """Update the parameters of one group."""
        raise NotImplementedError(f"[{self._name}] define step()")

    def _plan_key(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """The options of a group that decide on a compiled step; by default all of them."""
        return tuple(repr(option) for name, option in group.items() if name != "params")

    def _hidden_names(self) -> tuple[str, ...]:
        """Names of the state that are not saved."""
        return ()

    def _check_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> None:
        """Raise an ArgumentError unless these can be values of a parameter's state."""

    def _loaded_values(self, p: Tensor, values: Mapping[str, Any], group: dict[str, Any]) -> dict[str, Any]:
        """Copies of saved values of a parameter's state, where it has them."""
        return {name: loaded_value(p, name, value) for name, value in values.items()}

    # Groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own.

        Args:
            param_group: a tensor or several under ``"params"``, or pairs of a name and a tensor, and options.

        Raises:
            ArgumentError: a parameter is given twice or is not a tensor, or an option is missing or invalid.
        """
        if "params" not in param_group:
            raise ArgumentError(f"[{self._name}] a group has its parameters under 'params'")
        group = ParamGroup(self.defaults | param_group)
        params = group["params"]
        params = [params] if isinstance(params, TensorBase) else list(params)
        named = [isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in params]
        if any(named):
            if not all(named):
                raise ArgumentError(f"[{self._name}] give all parameters of a group names, or none")
            group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        if any(("param_names" in other) != ("param_names" in group) for other in self.param_groups):
            raise ArgumentError(f"[{self._name}] give the parameters of all groups names, or of none")
        group["params"] = params
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for p in group["params"]:
            if not isinstance(p, TensorBase):
                raise ArgumentError(f"[{self._name}] expected tensors as parameters, got {type(p).__name__}")
            if id(p) in known:
                raise ArgumentError(f"[{self._name}] a parameter of shape {p.shape} was given twice")
            if kind_of(p.dtype) != "f" or (p.grad_meta is not None and p.grad_meta.node is not None):
                raise ArgumentError(
                    f"[{self._name}] cannot change a tensor of {p.dtype} that "
                    "an op made; pass the tensors of floats that it came from"
                )
            known.add(id(p))
        for name, option in group.items():
            for number in option if isinstance(option, (tuple, list)) else (option,):
                if isinstance(number, int):
                    real(self._name, name, number, finite=True)  # some have more digits than any float
        check_implementation(self._name, group)
        self._check(group)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients.

        Args:
            set_to_none: free their memory; otherwise they are filled with zeros.
        """
        reset_gradients(self._parameters(), set_to_none)

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
        with tape.changed(enabled=False):
            for number, group in enumerate(self.param_groups):
                self._step(group, number)
        return loss

    def _has_step_hooks(self) -> bool:
        return any(kind in EVERY_STEP and hooks for kind, hooks in self._hooks.items()) or any(
            EVERY_STEP.values()
        )

    def _begin_hooked_step(self) -> None:
        listeners.refuse(f"calls hooks of {self._name}'s step")
        self._steps = True

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step.

        Args:
            hook: may return other ``(args, kwargs)`` for the step.

        Returns:
            A handle whose ``remove()`` removes the hook.
        """
        return add_hook(self._hooks["step_pre"], hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step.

        Example:
            >>> import dl4all as dl
            >>> w = dl.tensor([1.0]).requires_grad_()
            >>> optimizer = dl.optim.SGD([w], lr=0.5)
            >>> handle = optimizer.register_step_post_hook(lambda *_: print("stepped"))
            >>> optimizer.step()
            stepped
            >>> handle.remove()
        """
        return add_hook(self._hooks["step_post"], hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before the state is saved; with `prepend` before the other hooks."""
        return add_hook(self._hooks["state_dict_pre"], hook, first=prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` with what is saved; it may return another one."""
        return add_hook(self._hooks["state_dict_post"], hook, first=prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before a state is loaded; it may return another one."""
        return add_hook(self._hooks["load_state_dict_pre"], hook, first=prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after a state was loaded."""
        return add_hook(self._hooks["load_state_dict_post"], hook, first=prepend)

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """The state and the groups, with numbers for the parameters, as PyTorch's optimizers save them.

        The tensors share the optimizer's memory.
        """
        for hook in self._hooks["state_dict_pre"].values():
            hook(self)
        numbers = {p: number for number, p in enumerate(self._parameters())}
        hidden = self._hidden_names()
        state = {}
        for p, values in self.state.items():
            if saved := {name: value for name, value in values.items() if name not in hidden}:
                state[numbers[p]] = saved
        groups = [{**group, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        saved_state = {"state": state, "param_groups": groups}
        for hook in self._hooks["state_dict_post"].values():
            changed = hook(self, saved_state)
            saved_state = saved_state if changed is None else changed
        return saved_state

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
        for hook in self._hooks["load_state_dict_pre"].values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        merged, saved = self._checked(state_dict)
        loaded: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for group, pairs in zip(merged, saved, strict=True):
            for p, values in pairs:
                loaded[p] = self._loaded_values(p, values, group)
        for group, other in zip(self.param_groups, merged, strict=True):
            group.update(other)
        self.state = loaded
        for hook in self._hooks["load_state_dict_post"].values():
            hook(self)

    def _check_state(self, state_dict: Any) -> None:
        """Raise an ArgumentError unless a state can be loaded; hooks that change it are not called."""
        if self._hooks["load_state_dict_pre"]:
            checked_groups(self._name, state_dict)
        else:
            self._checked(state_dict)

    def _checked(self, state_dict: Any) -> tuple[list[dict[str, Any]], list[SavedValues]]:
        """The groups with the options of a saved state, and its values for the parameters of each.

        Raises:
            ArgumentError: it cannot be loaded.
        """
        groups, saved = checked_groups(self._name, state_dict)
        merged = self._merged_groups(groups)
        found = [
            [(p, saved[n]) for n, p in zip(other["params"], group["params"], strict=True) if n in saved]
            for group, other in zip(merged, groups, strict=True)
        ]
        for group, pairs in zip(merged, found, strict=True):
            for p, values in pairs:
                self._check_values(p, values, group)
        return merged, found

    def _merged_groups(self, groups: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The groups with the options of saved ones.

        Raises:
            ArgumentError
        """
        mine = [len(group["params"]) for group in self.param_groups]
        theirs = [len(group["params"]) for group in groups]
        if mine != theirs:
            raise ArgumentError(f"[{self._name}] the groups have {mine} parameters, the state's {theirs}")
        merged_groups = []
        for group, other in zip(self.param_groups, groups, strict=True):
            merged = {**group, **saved_options(other)}
            try:
                check_implementation(self._name, merged)
                self._check(merged)
            except (TypeError, ValueError, KeyError, IndexError) as error:
                if isinstance(error, ArgumentError):
                    raise
                raise ArgumentError(f"[{self._name}] the state's options cannot be used: {error}") from error
            merged_groups.append(merged)
        return merged_groups

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]


Optimizer.step = hooked_step(Optimizer.step)  # type: ignore[method-assign]
