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
from dl4all.ops.core.tensor_base import from_host
from dl4all.scheduler.device import Device
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.tensor import Tensor

M = TypeVar("M", bound="Module")
T = TypeVar("T")
Weights = Mapping[str, "Tensor | npt.NDArray[Any]"]


class Parameter(Tensor):
    """A tensor that a module learns: listed in its ``state_dict``, and gradients gather in it.

    Args:
        source: its first values; the memory is shared.
        requires_grad: whether it is learned.
    """

    __slots__ = ()

    def __init__(self, source: Tensor, requires_grad: bool = True) -> None:
        super().__init__(
            source.storage, source.shape, source.dtype, source.device, source.strides, source.offset
        )
        if requires_grad and source.dtype.kind == "f":
            self.requires_grad_()


class Incompatible(NamedTuple):
    """Names that ``load_state_dict(strict=False)`` passed over."""

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
        for hook in tuple(self._pre_hooks.values()):
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        try:
            output = self.forward(*inputs, **options)
        except Dl4allError as error:
            _name_layer(error, self)
            raise
        for hook in tuple(self._hooks.values()):
            changed = hook(self, inputs, output)
            if changed is not None:
                output = changed
        return output

    def register_forward_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Have ``hook(module, inputs, output)`` called after ``forward``; what it returns is the new output.

        Returns:
            A function that takes the hook away again.
        """
        return _register(self._hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Have ``hook(module, inputs)`` called before ``forward``; what it returns replaces the inputs.

        Returns:
            A function that takes the hook away again.
        """
        return _register(self._pre_hooks, hook)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._buffer_names.discard(name)  # what takes the name next is not a buffer

    # The tree. Attributes in the order of their assignment are its one source.

    def register_buffer(self, name: str, value: Tensor) -> None:
        """Keep a tensor that is part of the state but not learned, such as running statistics."""
        self._buffer_names.add(name)
        setattr(self, name, value)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Set a parameter, as ``setattr`` does.

        Raises:
            ArgumentError: it is none, or the name is none of an attribute.
        """
        self._set(name, parameter, Parameter)

    def add_module(self, name: str, module: Module | None) -> None:
        """Set a module below this one, as ``setattr`` does.

        Raises:
            ArgumentError: it is none, or the name is none of an attribute.
        """
        self._set(name, module, Module)

    register_module = add_module

    def _set(self, name: str, value: Any, kind: type) -> None:
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(
                f"[{type(self).__name__}] expected a {kind.__name__} for {name!r}, got {type(value).__name__}"
            )
        if not name or "." in name:  # which separates the names of modules
            raise ArgumentError(
                f"[{type(self).__name__}] {name!r} is no name of an attribute; leave out the dots"
            )
        setattr(self, name, value)

    def get_submodule(self, name: str) -> Module:
        """The module of a dotted name such as ``layer1.0``; this one for "".

        Raises:
            ArgumentError: there is none.
        """
        return _named(self, name, dict(self.named_modules()), "module")

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of a dotted name such as ``layer1.0.conv1.weight``.

        Raises:
            ArgumentError: there is none.
        """
        found = {key: tensor for key, tensor in self._state() if isinstance(tensor, Parameter)}
        return _named(self, name, found, "parameter")

    def get_buffer(self, name: str) -> Tensor:
        """The buffer of a dotted name such as ``bn1.running_mean``.

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
                below = [(f"{name}.{child}" if name else child, m) for child, m in module.named_children()]
                stack += reversed(below)

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Call a function with every module, those below first; returns the module."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters of this module and all below it, under names such as ``layer1.0.conv1.weight``.

        One that has several names is given once, under the first.
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
        for name, value in vars(self).items():
            if isinstance(value, Parameter) or (name in self._buffer_names and isinstance(value, Tensor)):
                yield prefix + name, value
        for name, child in self.named_children():
            yield from child._state(f"{prefix}{name}.")

    # State

    def state_dict(self) -> dict[str, Tensor]:
        """Every parameter and buffer by its dotted name; the tensors share the module's memory."""
        return dict(self._state())

    def load_state_dict(self, weights: Weights, strict: bool = True) -> Incompatible:
        """Copy weights into the module, converted to each parameter's dtype and device.

        Nothing is changed unless everything fits.

        Args:
            weights: arrays or tensors by dotted name, as :func:`dl4all.io.load_weights` reads them.
            strict: every name must be on both sides.

        Raises:
            WeightsError: a name is missing, unexpected or has another shape (all are named), or
                something is no array of numbers.
        """
        mine = self.state_dict()
        missing = [name for name in mine if name not in weights]
        unexpected = [name for name in weights if name not in mine]
        arrays = {name: _numbers(name, weights[name]) for name in mine if name in weights}
        misshapen = [
            f"{name}: the network has {mine[name].shape}, the weights {array.shape}"
            for name, array in arrays.items()
            if array.shape != mine[name].shape
        ]
        problems = [f"misshapen keys: {'; '.join(misshapen)}"] if misshapen else []
        if strict and missing:
            problems.append(f"missing keys: {', '.join(missing)}")
        if strict and unexpected:
            problems.append(f"unexpected keys: {', '.join(unexpected)}")
        if problems:
            raise WeightsError(f"[{type(self).__name__}] the weights do not fit: " + "; ".join(problems))
        for name, array in arrays.items():
            tensor = mine[name]
            with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
                converted = array.astype(tensor.dtype, copy=False)
            _replace(tensor, converted, tensor.device, copy=True)
        return Incompatible(missing, unexpected)

    def to(self: M, *targets: Any, device: DeviceLike | None = None, dtype: npt.DTypeLike = None) -> M:
        """Move parameters and buffers to a device, or convert those of floats, in place; returns the module.

        Args:
            targets: a device, a dtype, both, or a tensor whose device and dtype are taken.
            device, dtype: the same by name.

        Raises:
            UnknownDeviceError, BackendMissingError, OutOfMemoryError
            DTypeError: the dtype is none of floats.

        Example:
            >>> import dl4all as dl
            >>> dl.nn.Linear(3, 2).to("cpu", "float64").weight.dtype
            dtype('float64')
        """
        place, floats = device_and_dtype(targets, device, dtype)
        if floats is not None and floats.kind != "f":
            raise DTypeError(f"[to] networks are made of floats, got {floats}; convert its inputs instead")
        changes: dict[int, tuple[Tensor, Device, np.dtype[Any]]] = {}  # a tensor may have several names
        for _, tensor in self._state():
            there = place or tensor.device
            kind = floats if floats is not None and tensor.dtype.kind == "f" else tensor.dtype
            if tensor.device is not there or tensor.dtype != kind:
                changes[id(tensor)] = tensor, there, kind
        if place is not None:
            moving = (change for change in changes.values() if change[0].device is not place)
            place.make_room(tensor.numel() * kind.itemsize for tensor, _, kind in moving)
        for tensor, there, kind in changes.values():
            grad = tensor.grad
            with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
                _replace(tensor, tensor.numpy().astype(kind, copy=False), there, copy=True)
            if grad is not None:
                tensor.grad = grad.to(there, kind)
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
        """Learn all parameters, or none; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self: M, mode: bool = True) -> M:
        """Switch between training and inference for this module and all below it."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Switch to inference."""
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
        """What ``repr`` shows between the parentheses of a layer without children."""
        return ""


_keys = itertools.count()


def _named(module: Module, name: str, found: Mapping[str, T], what: str) -> T:
    if name not in found:
        close = difflib.get_close_matches(name, found, 3) or list(found)[:3]
        raise ArgumentError(
            f"[{type(module).__name__}] has no {what} {name!r}; it has {', '.join(close) or 'none'}"
        )
    return found[name]


def _register(hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> Callable[[], None]:
    key = next(_keys)
    hooks[key] = hook
    return lambda: hooks.pop(key, None) and None


def _name_layer(error: Dl4allError, module: Module) -> None:
    """Say in which layer something went wrong: each module on the way out adds the name of the one below."""
    noted = vars(error)
    if "_layer" in noted:
        text, path, what, below = noted["_layer"]
        path = [name for name, child in module.named_children() if child is below][:1] + path
    else:
        text, path, what = str(error), [], f"{type(module).__name__}({module.extra_repr()})"
    noted["_layer"] = (text, path, what, module)
    error.args = (f"{text} (in layer {'.'.join(path)}: {what})" if path else f"{text} (in {what})",)


def _numbers(name: str, given: Any) -> npt.NDArray[Any]:
    array = given.numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise WeightsError(f"{name} must be an array of numbers, got {type(given).__name__} of {array.dtype}")
    return array


def _replace(tensor: Tensor, array: npt.NDArray[Any], place: Device, *, copy: bool) -> None:
    """Give a tensor new contents, perhaps elsewhere, so that everyone who holds it sees them."""
    made = from_host(Tensor, array, place, copy=copy)
    tensor.storage, tensor.device, tensor.dtype = made.storage, place, made.dtype
    tensor.strides, tensor.offset = made.strides, 0
