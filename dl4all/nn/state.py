"""State dicts of modules: what is in them, and loading one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, WeightsError
from dl4all.nn.hooks import Hook, Hooks
from dl4all.nn.parameter import Parameter, is_lazy
from dl4all.ops.core.dtypes import KINDS_OF_NUMBERS, converted, kind_of
from dl4all.ops.memory.transfer import upload
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

Weights = Mapping[str, "Tensor | npt.NDArray[Any]"]

EXTRA = "_extra_state"
"""The key of what a module adds by ``get_extra_state``."""


class Incompatible(NamedTuple):
    """Names that ``load_state_dict(strict=False)`` skipped."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class State(OrderedDict[str, Any]):
    """A state dict; ``_metadata`` holds what hooks note about it, as in PyTorch."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__(items)
        self._metadata: OrderedDict[str, dict[str, Any]] = OrderedDict()


def walk(root: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The modules from a module down with the prefixes of their names, each under all names, parents first.

    No recursion: modules may be nested more deeply than Python's functions.

    Raises:
        ArgumentError: a module is below itself, so that there is no end of names.
    """
    above: dict[int, None] = {}  # the modules on the way down to the present one
    stack: list[tuple[str, Any]] = [(prefix, root)]
    while stack:
        name, module = stack.pop()
        if module is None:  # all below the last one is done
            above.popitem()
            continue
        if id(module) in above:
            path = name.rstrip(".")
            raise ArgumentError(f"[{type(root).__name__}] {path} is a module that it is part of; remove it")
        above[id(module)] = None
        yield name, module
        stack.append(("", None))
        stack += [(f"{name}{child}.", below) for child, below in reversed([*module._children()])]


def collect(root: Any, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """Add the state of a module and of all below it to a dict; returns the dict."""
    state: Any = State() if destination is None else destination
    if isinstance(destination, OrderedDict) and not hasattr(destination, "_metadata"):
        vars(destination)["_metadata"] = OrderedDict()
    metadata = getattr(state, "_metadata", None)
    after: list[tuple[str, Any]] = []
    skipped = ""  # a module with a state_dict of its own has collected all below it
    for name, module in walk(root, prefix):
        if skipped and name.startswith(skipped):
            continue
        skipped = ""
        if module is not root and _is_overridden(module):
            module.state_dict(destination=state, prefix=name, keep_vars=keep_vars)
            skipped = name
            continue
        for hook in _hooks(module, "state_dict_pre"):
            hook.function(module, name, keep_vars)
        if metadata is not None:
            metadata[name[:-1]] = {"version": 1}
        for key, tensor in module._own_state(name, persistent=True):
            state[key] = tensor if keep_vars else tensor.detach()
        if (extra := module.get_extra_state()) is not None:
            state[name + EXTRA] = extra
        if any(hook.kind == "state_dict" for hook in module._state_hooks.values()):
            after.append((name, module))
    for name, module in reversed(after):  # children before parents, as they have to be complete
        for hook in _hooks(module, "state_dict"):
            changed = hook.function(module, state, name, (metadata or {}).get(name[:-1], {}))
            state = state if changed is None else changed
    return state


def _is_overridden(module: Any) -> bool:
    """Whether the module's class has a ``state_dict`` of its own."""
    return getattr(type(module).state_dict, "collects", None) is not True


def _hooks(module: Any, kind: str) -> list[Hook]:
    hooks: Hooks = module._state_hooks
    return [hook for hook in hooks.values() if hook.kind == kind] if hooks else []


def load(root: Any, weights: Weights, strict: bool, assign: bool) -> Incompatible:
    """See :meth:`dl4all.nn.Module.load_state_dict`."""
    name = type(root).__name__
    if not isinstance(weights, Mapping):
        raise WeightsError(
            f"[{name}] expected weights by name, a dict, to load; got {type(weights).__name__}"
        )
    modules = list(walk(root))
    weights, messages = _changed_by_hooks(modules, weights, strict)
    own: dict[str, tuple[Any, str, Tensor]] = {}
    extra: dict[str, Any] = {}
    for prefix, module in modules:
        for key, tensor in module._own_state("", persistent=True):
            own[prefix + key] = module, key, tensor
        if module.get_extra_state() is not None:
            extra[prefix + EXTRA] = module
    incompatible = Incompatible(
        [key for key in (*own, *extra) if key not in weights],
        [key for key in weights if key not in own and key not in extra],
    )
    found: dict[str, Any] = {
        key: weights[key] if assign else _numbers(key, weights[key]) for key in own if key in weights
    }
    misshapen = [
        f"{key}: the network has {own[key][2].shape}, the weights {tuple(value.shape)}"
        for key, value in found.items()
        if tuple(value.shape) != own[key][2].shape and not is_lazy(own[key][2])
    ]
    problems = [f"misshapen keys: {'; '.join(misshapen)}"] if misshapen else []
    if strict and incompatible.missing_keys:
        problems.append(f"missing keys: {', '.join(incompatible.missing_keys)}")
    if strict and incompatible.unexpected_keys:
        problems.append(f"unexpected keys: {', '.join(map(str, incompatible.unexpected_keys))}")
    problems += messages
    inside = [key for key in incompatible.unexpected_keys if _holds(weights[key], own)]
    if problems and inside:
        problems.append(f"{inside[0]!r} holds a state dict of such names: load that entry")
    if problems:
        raise WeightsError(f"[{name}] the weights do not fit: " + "; ".join(problems))
    for key, value in found.items():
        module, attribute, tensor = own[key]
        if assign:
            _assign(module, attribute, tensor, value)
        else:
            _copy(tensor, value)
    for key, module in extra.items():
        if key in weights:
            module.set_extra_state(weights[key])
    for _, module in modules:
        for hook in _hooks(module, "load_state_dict_post"):
            if hook.function(module, incompatible) is not None:
                raise ArgumentError(
                    "[register_load_state_dict_post_hook] a hook changes the lists in place and returns None"
                )
    return incompatible


def _holds(value: Any, own: Mapping[str, Any]) -> bool:
    """Whether a value is a state dict itself, as in a checkpoint of several."""
    return isinstance(value, Mapping) and not own.keys().isdisjoint(value)


def _changed_by_hooks(modules: Any, weights: Weights, strict: bool) -> tuple[Weights, list[str]]:
    """The weights after the hooks that come before loading, and the errors that these have found."""
    if not any(_hooks(module, "load_state_dict_pre") for _, module in modules):
        return weights, []
    changed, messages = State(weights), list[str]()
    for prefix, module in modules:
        for hook in _hooks(module, "load_state_dict_pre"):
            arguments: tuple[Any, ...] = (changed, prefix, {}, strict, list[str](), list[str](), messages)
            hook.function(*((module,) if hook.with_kwargs else ()), *arguments)
    return changed, messages


def _numbers(name: str, value: object) -> npt.NDArray[Any]:
    """A weight as an array.

    Raises:
        WeightsError: it holds no numbers.
    """
    array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if kind_of(array.dtype) not in KINDS_OF_NUMBERS:
        raise WeightsError(f"{name} must be an array of numbers, got {type(value).__name__} of {array.dtype}")
    return array


def _copy(tensor: Any, array: npt.NDArray[Any]) -> None:
    if is_lazy(tensor):
        tensor.materialize(array.shape)
    with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        values = converted(array, tensor.dtype)
    with no_grad():  # the memory stays: state dicts share it, and views
        tensor.copy_(upload(Tensor, values, tensor.device, copy=False))


def _assign(module: Any, attribute: str, tensor: Tensor, value: Any) -> None:
    """Put a tensor in a parameter's or a buffer's place."""
    if not isinstance(value, Tensor):
        value = upload(Tensor, np.asarray(value), tensor.device, copy=True)
    if isinstance(tensor, Parameter) and not isinstance(value, Parameter):
        value = Parameter(value.detach(), tensor.requires_grad)
    setattr(module, attribute, value)


def replace(tensor: Tensor, array: npt.NDArray[Any], device: Device) -> None:
    """Give a tensor object new memory on a device, so that all references to it see the new contents."""
    copy = upload(Tensor, array, device, copy=True)
    tensor.storage, tensor.device, tensor.dtype = copy.storage, device, copy.dtype
    tensor.strides, tensor.offset = copy.strides, 0
