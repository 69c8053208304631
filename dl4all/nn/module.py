"""The base class of layers: a tree of named parameters and buffers."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, Dl4allError, DTypeError, WeightsError
from dl4all.nn.summary import Summary, summary
from dl4all.ops.core.tensor_base import DTypeLike, TensorBase
from dl4all.ops.memory.transfer import upload
from dl4all.scheduler.device import Device
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.tensor import Tensor

M = TypeVar("M", bound="Module")
T = TypeVar("T")
Weights = Mapping[str, "Tensor | npt.NDArray[Any]"]


class Parameter(Tensor):
    """A tensor that a module learns: part of its ``state_dict``, and a leaf that gets gradients.

    Args:
        source: the initial values; the memory is shared.
        requires_grad: whether it is learned.

    Example:
        >>> import dl4all as dl
        >>> w = dl.nn.Parameter(dl.zeros(2))
        >>> w.requires_grad
        True
    """

    __slots__ = ()

    def __init__(self, source: Tensor, requires_grad: bool = True) -> None:
        super().__init__(
            source.storage, source.shape, source.dtype, source.device, source.strides, source.offset
        )
        if requires_grad and source.dtype.kind == "f":
            self.requires_grad_()


class Incompatible(NamedTuple):
    """Names that ``load_state_dict(strict=False)`` skipped."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """Base class of all layers and networks.

    A subclass calls ``super().__init__()``, assigns parameters and submodules to attributes,
    registers buffers, and defines ``forward``.

    Example:
        >>> import dl4all as dl
        >>> class Net(dl.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = dl.nn.Linear(3, 2)
        ...     def forward(self, x):
        ...         return self.fc(x).relu()
        >>> sorted(Net().state_dict())
        ['fc.bias', 'fc.weight']
    """

    def __init__(self) -> None:
        self._buffer_names: set[str] = set()
        self._hooks: dict[int, Callable[..., Any]] = {}
        self._pre_hooks: dict[int, Callable[..., Any]] = {}
        self.training = True

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output; every layer defines its own."""
        raise TypeError(f"{type(self).__name__} does not define forward")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if self._pre_hooks:
            for hook in tuple(self._pre_hooks.values()):
                changed = hook(self, inputs)
                if changed is not None:
                    inputs = changed if isinstance(changed, tuple) else (changed,)
        try:
            output = self.forward(*inputs, **options)
        except Dl4allError as error:
            _name_layer(error, self)
            raise
        if self._hooks:
            for hook in tuple(self._hooks.values()):
                changed = hook(self, inputs, output)
                if changed is not None:
                    output = changed
        return output

    def register_forward_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Call ``hook(module, inputs, output)`` after ``forward``; a result other than None is the output.

        Returns:
            A function that removes the hook.
        """
        return _register(self._hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Call ``hook(module, inputs)`` before ``forward``; a result other than None replaces the inputs.

        Returns:
            A function that removes the hook.
        """
        return _register(self._pre_hooks, hook)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._buffer_names.discard(name)  # a later attribute of this name is no buffer

    # The tree of modules: nothing but attributes, in the order of their assignment

    def register_buffer(self, name: str, value: Tensor) -> None:
        """Add a tensor that is part of the state but not learned, such as running statistics."""
        self._buffer_names.add(name)
        setattr(self, name, value)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Set a parameter, as ``setattr`` does.

        Raises:
            ArgumentError: it is something else, or the name cannot be an attribute's.
        """
        self._set(name, parameter, Parameter)

    def add_module(self, name: str, module: Module | None) -> None:
        """Set a module below this one, as ``setattr`` does.

        Raises:
            ArgumentError: it is something else, or the name cannot be an attribute's.
        """
        self._set(name, module, Module)

    register_module = add_module

    def _set(self, name: str, value: object, expected: type) -> None:
        if value is not None and not isinstance(value, expected):
            raise ArgumentError(
                f"[{type(self).__name__}] expected a {expected.__name__} for {name!r}, "
                f"got {type(value).__name__}"
            )
        if not name or "." in name:  # the dot separates the names of modules
            raise ArgumentError(
                f"[{type(self).__name__}] {name!r} is no name of an attribute; leave out the dots"
            )
        setattr(self, name, value)

    def get_submodule(self, name: str) -> Module:
        """The module with a dotted name such as ``layer1.0``; this one for "".

        Raises:
            ArgumentError: there is none.
        """
        return _named(self, name, dict(self.named_modules()), "module")

    def get_parameter(self, name: str) -> Parameter:
        """The parameter with a dotted name such as ``layer1.0.conv1.weight``.

        Raises:
            ArgumentError: there is none.
        """
        parameters = {key: tensor for key, tensor in self._state() if isinstance(tensor, Parameter)}
        return _named(self, name, parameters, "parameter")

    def get_buffer(self, name: str) -> Tensor:
        """The buffer with a dotted name such as ``bn1.running_mean``.

        Raises:
            ArgumentError: there is none.
        """
        return _named(self, name, dict(self.named_buffers()), "buffer")

    def children(self) -> Iterator[Module]:
        """The modules directly below this one."""
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module, under the name "", and all below it, each once."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module
                children = [(f"{name}.{child}" if name else child, m) for child, m in module.named_children()]
                stack += reversed(children)

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Call a function with every module, children before parents; returns the module."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters of this module and all below it, under names such as ``layer1.0.conv1.weight``.

        A parameter with several names appears once, under the first.
        """
        seen: set[int] = set()
        for name, tensor in self._state(prefix):
            if isinstance(tensor, Parameter) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> Iterator[Parameter]:
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self._state(prefix):
            if not isinstance(tensor, Parameter):
                yield name, tensor

    def buffers(self) -> Iterator[Tensor]:
        return (buffer for _, buffer in self.named_buffers())

    def _state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Parameters and buffers of this module and all below it, a module's own first, under all names.

        Raises:
            ArgumentError: a module is below itself, so that there is no end of names.
        """
        # No recursion: modules may be nested more deeply than Python's functions.
        above: dict[int, None] = {}  # the modules on the way down to the present one
        stack: list[tuple[str, Module | None]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if module is None:  # all below the last one is done
                above.popitem()
                continue
            if id(module) in above:
                path = name.rstrip(".")
                raise ArgumentError(
                    f"[{type(self).__name__}] {path} is a module that it is part of; remove it"
                )
            above[id(module)] = None
            yield from module._own_state(name)
            stack.append(("", None))
            stack += [(f"{name}{child}.", m) for child, m in reversed([*module.named_children()])]

    def _own_state(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        for name, value in vars(self).items():
            if isinstance(value, Parameter) or (name in self._buffer_names and isinstance(value, Tensor)):
                yield prefix + name, value

    # State dicts

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters and buffers by dotted name; the tensors share the module's memory."""
        return dict(self._state())

    def load_state_dict(self, weights: Weights, strict: bool = True) -> Incompatible:
        """Copy weights into the module, converted to each parameter's dtype and device.

        Nothing changes unless everything fits.

        Args:
            weights: arrays or tensors by dotted name, as :func:`dl4all.io.load_weights` reads them.
            strict: refuse names that only the module or only the weights have.

        Raises:
            WeightsError: these are no weights by name, names are missing or unexpected, or shapes differ
                (the message lists all), or a value is no array of numbers.
        """
        if not isinstance(weights, Mapping):
            raise WeightsError(
                f"[{type(self).__name__}] expected weights by name, a dict, to load; got "
                f"{type(weights).__name__}"
            )
        own = self.state_dict()
        missing = [name for name in own if name not in weights]
        unexpected = [name for name in weights if name not in own]
        arrays = {name: _numbers(name, weights[name]) for name in own if name in weights}
        misshapen = [
            f"{name}: the network has {own[name].shape}, the weights {array.shape}"
            for name, array in arrays.items()
            if array.shape != own[name].shape
        ]
        problems = [f"misshapen keys: {'; '.join(misshapen)}"] if misshapen else []
        if strict and missing:
            problems.append(f"missing keys: {', '.join(missing)}")
        if strict and unexpected:
            problems.append(f"unexpected keys: {', '.join(map(str, unexpected))}")
        if problems:
            raise WeightsError(f"[{type(self).__name__}] the weights do not fit: " + "; ".join(problems))
        for name, array in arrays.items():
            tensor = own[name]
            with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
                converted = array.astype(tensor.dtype, copy=False)
            _replace(tensor, converted, tensor.device)
        return Incompatible(missing, unexpected)

    def to(
        self: M,
        *targets: DeviceLike | DTypeLike | TensorBase,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> M:
        """Move the module to a device, or convert its floats to a dtype, in place; returns the module.

        Args:
            targets: a device, a dtype, both, or a tensor whose device and dtype are taken.
            device, dtype: the same by name.

        Raises:
            UnknownDeviceError, BackendMissingError, OutOfMemoryError
            DTypeError: the dtype is not a float dtype.

        Example:
            >>> import dl4all as dl
            >>> dl.nn.Linear(3, 2).to("cpu", "float64").weight.dtype
            dtype('float64')
        """
        target, float_dtype = device_and_dtype(targets, device, dtype)
        if float_dtype is not None and float_dtype.kind != "f":
            raise DTypeError(
                f"[to] networks are made of floats, got {float_dtype}; convert its inputs instead"
            )
        changes: dict[int, tuple[Tensor, Device, np.dtype[Any]]] = {}  # a tensor may have several names
        for _, tensor in self._state():
            new_device = target or tensor.device
            is_float = tensor.dtype.kind == "f"
            new_dtype = float_dtype if float_dtype is not None and is_float else tensor.dtype
            if tensor.device is not new_device or tensor.dtype != new_dtype:
                changes[id(tensor)] = tensor, new_device, new_dtype
        if target is not None:
            moving = (change for change in changes.values() if change[0].device is not target)
            target.make_room(tensor.numel() * new_dtype.itemsize for tensor, _, new_dtype in moving)
        for tensor, new_device, new_dtype in changes.values():
            grad = tensor.grad
            with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
                _replace(tensor, tensor.numpy().astype(new_dtype, copy=False), new_device)
            if grad is not None:
                tensor.grad = grad.to(new_device, new_dtype)
        return self

    def cpu(self: M) -> M:
        """Move to the CPU."""
        return self.to("cpu")

    def float(self: M) -> M:
        """Convert to float32."""
        return self.to("float32")

    def half(self: M) -> M:
        """Convert to float16."""
        return self.to("float16")

    def double(self: M) -> M:
        """Convert to float64."""
        return self.to("float64")

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Require gradients of all parameters, or of none; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self) -> None:
        """Delete the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self: M, mode: bool = True) -> M:
        """Switch this module and all below it to training mode, or to inference mode."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Switch to inference mode."""
        return self.train(False)

    def summary(self, *inputs: Any) -> Summary:
        """A table of the layers' shapes, parameters and operations, see :func:`dl4all.nn.summary`."""
        return summary(self, *inputs)

    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}" for name, child in self.named_children()]
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        inner = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {inner}\n)"

    def extra_repr(self) -> str:
        """The text between the parentheses in the ``repr`` of a layer without children."""
        return ""


_keys = itertools.count()


def _named(module: Module, name: str, candidates: Mapping[str, T], what: str) -> T:
    """The candidate of that name; the error suggests similar names.

    Raises:
        ArgumentError: there is none.
    """
    if name not in candidates:
        close = difflib.get_close_matches(name, candidates, 3) or list(candidates)[:3]
        raise ArgumentError(
            f"[{type(module).__name__}] has no {what} {name!r}; it has {', '.join(close) or 'none'}"
        )
    return candidates[name]


def _register(hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> Callable[[], None]:
    key = next(_keys)
    hooks[key] = hook
    return lambda: hooks.pop(key, None) and None


def _name_layer(error: Dl4allError, module: Module) -> None:
    """Add the layer's path to an error: each module that it passes adds the name of its child."""
    if error.deferred:  # of an op that was called before
        return
    attributes = vars(error)
    if "_layer" in attributes:
        text, path, layer, child = attributes["_layer"]
        path = [name for name, module_below in module.named_children() if module_below is child][:1] + path
    else:
        text, path, layer = str(error), [], f"{type(module).__name__}({module.extra_repr()})"
    attributes["_layer"] = (text, path, layer, module)
    error.args = (f"{text} (in layer {'.'.join(path)}: {layer})" if path else f"{text} (in {layer})",)


def _numbers(name: str, value: object) -> npt.NDArray[Any]:
    """A weight as an array.

    Raises:
        WeightsError: it holds no numbers.
    """
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise WeightsError(f"{name} must be an array of numbers, got {type(value).__name__} of {array.dtype}")
    return array


def _replace(tensor: Tensor, array: npt.NDArray[Any], device: Device) -> None:
    """Give a tensor object new memory on a device, so that all references to it see the new contents."""
    copy = upload(Tensor, array, device, copy=True)
    tensor.storage, tensor.device, tensor.dtype = copy.storage, device, copy.dtype
    tensor.strides, tensor.offset = copy.strides, 0
