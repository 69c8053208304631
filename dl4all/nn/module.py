"""The base class of layers: a tree of named parameters and buffers."""

from __future__ import annotations

import difflib
import html
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from dl4all.autograd.backward_pass import reset_gradients
from dl4all.errors import ArgumentError, Dl4allError, ModuleError
from dl4all.nn import hooks, state
from dl4all.nn.hook_methods import HookMethods
from dl4all.nn.hooks import Hook, Hooks, everywhere
from dl4all.nn.members import Members
from dl4all.nn.parameter import Buffer
from dl4all.nn.parameter import Parameter as Parameter
from dl4all.nn.placement import PlacementMethods
from dl4all.nn.state import Incompatible, Weights
from dl4all.nn.summary import Summary, summary
from dl4all.scheduler.device.device import Device
from dl4all.tensor.sparse import SparseTensor
from dl4all.tensor.tensor import Tensor

M = TypeVar("M", bound="Module")
T = TypeVar("T")


class _FromInit:
    """An attribute that ``Module.__init__`` makes; looked up only where there is none."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            return self
        raise _uninitialized(module, f"it has no {self.name!r} yet")


def _uninitialized(module: Any, what: str) -> ModuleError:
    name = type(module).__name__
    return ModuleError(f"[{name}] {what}: call super().__init__() first in the __init__ of {name}")


class Module(HookMethods, PlacementMethods):
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

    training: bool = _FromInit()  # type: ignore[assignment]
    _kinds: dict[str, str] = _FromInit()  # type: ignore[assignment]
    """By name: "parameter", "module" or "buffer". A name keeps its kind while its value is None."""
    _call_hooks: Hooks = _FromInit()  # type: ignore[assignment]
    _state_hooks: Hooks = _FromInit()  # type: ignore[assignment]
    _non_persistent_buffers_set: set[str] = _FromInit()  # type: ignore[assignment]

    def __init__(self) -> None:
        fields: dict[str, Any] = vars(self)  # not setattr, which asks for these
        fields["_kinds"] = {}
        fields["_call_hooks"] = {}
        fields["_state_hooks"] = {}
        fields["_non_persistent_buffers_set"] = set()
        fields["training"] = True

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output; every layer defines its own."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        try:
            if self._call_hooks or everywhere:
                return hooks.call(self, self._call_hooks, self.forward, inputs, options)
            return self.forward(*inputs, **options)
        except Dl4allError as error:
            _name_layer(error, self)
            raise

    def _on_replica(self, device: Device) -> None:
        """Called on a copy that computes on a device, when it has got the attributes of its source.

        What belongs to one module or one device, and is no tensor, module or dict, is made anew here.
        """

    # The tree of modules: nothing but attributes, in the order of their assignment

    def __setattr__(self, name: str, value: Any) -> None:
        kinds = self.__dict__.get("_kinds")
        if isinstance(value, Parameter):
            kind = "parameter"
        elif isinstance(value, Module):
            kind = "module"
        elif isinstance(value, Buffer):
            kind = "buffer"
        else:
            if kinds and name in kinds and value is not None:
                self._check_kind(name, kinds[name], value)
            super().__setattr__(name, value)
            return
        if kinds is None:
            raise _uninitialized(self, f"{name!r} cannot be a {kind} of it yet")
        super().__setattr__(name, value)
        if name in self.__dict__:  # and no property, as that of a parametrization
            kinds[name] = kind
            if isinstance(value, Buffer):
                self._keep_buffer(name, value.persistent)

    def _check_kind(self, name: str, kind: str, value: Any) -> None:
        """Refuse a value that a name cannot take.

        Raises:
            ModuleError
        """
        if kind == "buffer" and isinstance(value, (Tensor, SparseTensor)):
            return
        expected, advice = {
            "parameter": ("an nn.Parameter", f"use nn.Parameter(...), or .{name}.data to change its values"),
            "module": ("an nn.Module", f"del the attribute first if {name!r} is to be something else"),
            "buffer": ("a tensor", f"del the attribute first if {name!r} is to be something else"),
        }[kind]
        raise ModuleError(
            f"[{type(self).__name__}] cannot assign {type(value).__name__} as {kind} {name!r}: expected "
            f"{expected} or None; {advice}"
        )

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._kinds.pop(name, None)  # a later attribute of this name is something new
        self._non_persistent_buffers_set.discard(name)

    @property
    def _parameters(self) -> Members:
        return Members(self, "parameter")

    @property
    def _buffers(self) -> Members:
        return Members(self, "buffer")

    @property
    def _modules(self) -> Members:
        return Members(self, "module")

    @property
    def _forward_hooks(self) -> dict[int, Hook]:
        return {key: hook for key, hook in self._call_hooks.items() if hook.kind == "forward"}

    @property
    def _forward_pre_hooks(self) -> dict[int, Hook]:
        return {key: hook for key, hook in self._call_hooks.items() if hook.kind == "forward_pre"}

    def register_buffer(
        self, name: str, tensor: Tensor | SparseTensor | None, persistent: bool = True
    ) -> None:
        """Add a tensor that is part of the state but not learned, such as running statistics.

        Args:
            name: of the attribute.
            tensor: the values, which may be sparse; None for a buffer that is not there.
            persistent: whether it is part of the ``state_dict``.

        Raises:
            ModuleError: it is no tensor, the name cannot be an attribute's or is taken.
        """
        self._put(name, "buffer", tensor)
        self._keep_buffer(name, persistent)

    def _keep_buffer(self, name: str, persistent: bool) -> None:
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Set a parameter, as ``setattr`` does; None for one that is not there.

        Raises:
            ModuleError: it is something else, the name cannot be an attribute's or is taken.
        """
        self._put(name, "parameter", param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Set a module below this one, as ``setattr`` does.

        Raises:
            ModuleError: it is something else, the name cannot be an attribute's or is taken.
        """
        self._put(name, "module", module)

    register_module = add_module

    def _put(self, name: str, kind: str, value: Any) -> None:
        kinds: dict[str, Any] = {"parameter": Parameter, "module": Module, "buffer": (Tensor, SparseTensor)}
        expected = kinds[kind]
        own = type(self).__name__
        if "_kinds" not in self.__dict__:
            raise _uninitialized(self, f"{name!r} cannot be a {kind} of it yet")
        if value is not None and not isinstance(value, expected):
            named = "Tensor" if isinstance(expected, tuple) else expected.__name__
            raise ModuleError(f"[{own}] expected a {named} for {name!r}, got {type(value).__name__}")
        if not isinstance(name, str) or not name or "." in name:  # the dot separates the names of modules
            raise ModuleError(f"[{own}] {name!r} is no name of an attribute; leave out the dots")
        if self._kinds.get(name) != kind and getattr(self, name, None) is not None:
            raise ModuleError(f"[{own}] attribute {name!r} already exists; choose another name")
        super().__setattr__(name, value)
        self._kinds[name] = kind

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name such as ``layer1.0``; this one for "".

        Raises:
            ArgumentError: there is none.
        """
        module: Module = self
        for name in target.split(".") if target else ():
            below = vars(module).get(name)
            if not isinstance(below, Module):
                return _named(self, target, dict(self.named_modules(remove_duplicate=False)), "module")
            module = below
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module in the place that a dotted name such as ``layer1.0`` says.

        Args:
            target: the name.
            module: what to put there.
            strict: refuse a name that there is not yet.

        Raises:
            ArgumentError: the name is empty, or of nothing that there is.
        """
        if not target:
            raise ArgumentError(f"[{type(self).__name__}] cannot put a module in its own place; name a part")
        if strict:
            self.get_submodule(target)
        above, _, name = target.rpartition(".")
        setattr(self.get_submodule(above), name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with a dotted name such as ``layer1.0.conv1.weight``.

        Raises:
            ArgumentError: there is none.
        """
        return _named(self, target, dict(self.named_parameters(remove_duplicate=False)), "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name such as ``bn1.running_mean``.

        Raises:
            ArgumentError: there is none.
        """
        return _named(self, target, dict(self.named_buffers(remove_duplicate=False)), "buffer")

    def children(self) -> Iterator[Module]:
        """The modules directly below this one, each once."""
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below this one, each once, with their names."""
        seen: set[int] = set()
        for name, module in self._children():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below this one, under all names."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module, under the name "", and all below it.

        Args:
            memo: modules that are left out, and those found are added to.
            prefix: comes before the names.
            remove_duplicate: whether a module with several names appears once, under the first.
        """
        if not remove_duplicate:
            below = f"{prefix}." if prefix else ""
            yield from ((name[:-1], module) for name, module in state.walk(self, below))
            return
        seen = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if module not in seen:
                seen.add(module)
                yield name, module
                stack += [
                    (f"{name}.{child}" if name else child, m) for child, m in reversed([*module._children()])
                ]

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call a function with every module, children before parents; returns the module.

        Example:
            >>> import dl4all as dl
            >>> def init_weights(module):
            ...     if isinstance(module, dl.nn.Linear):
            ...         dl.nn.init.ones_(module.weight)
            >>> net = dl.nn.Sequential(dl.nn.Linear(2, 1), dl.nn.ReLU()).apply(init_weights)
            >>> net[0].weight.tolist()
            [[1.0, 1.0]]
        """
        stack: list[tuple[Module, bool]] = [(self, False)]
        while stack:
            module, ready = stack.pop()
            if ready:
                fn(module)
                continue
            stack.append((module, True))
            stack += [(child, False) for child in reversed([*module.children()])]
        return self

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters of this module and all below it, under names such as ``layer1.0.conv1.weight``.

        Args:
            prefix: comes before the names, with a dot.
            recurse: whether those below this module count.
            remove_duplicate: whether a parameter with several names appears once, under the first.
        """
        for name, tensor in self._tensors(prefix, recurse, remove_duplicate):
            if isinstance(tensor, Parameter):
                yield name, tensor

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and, with `recurse`, of all below it, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers of this module and all below it; arguments as for :meth:`named_parameters`."""
        for name, tensor in self._tensors(prefix, recurse, remove_duplicate):
            if not isinstance(tensor, Parameter):
                yield name, tensor

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, with `recurse`, of all below it, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _tensors(self, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Tensor]]:
        dotted = f"{prefix}." if prefix else ""
        found = self._state(dotted) if recurse else self._own_state(dotted)
        seen: set[int] = set()
        for name, tensor in found:
            if not remove_duplicate or id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def _state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Parameters and buffers of this module and all below it, a module's own first, under all names.

        Raises:
            ArgumentError: a module is below itself, so that there is no end of names.
        """
        for name, module in state.walk(self, prefix):
            yield from module._own_state(name)

    def _own_state(self, prefix: str, persistent: bool = False) -> Iterator[tuple[str, Tensor]]:
        """The parameters of this module, then its buffers, or those that are `persistent`."""
        buffers: list[tuple[str, Any]] = []
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                yield prefix + name, value
            elif (
                isinstance(value, (Tensor, SparseTensor))
                and self._kinds.get(name) == "buffer"
                and not (persistent and name in self._non_persistent_buffers_set)
            ):
                buffers.append((prefix + name, value))
        yield from buffers

    # State dicts

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """All parameters and buffers by dotted name; the tensors share the module's memory.

        Args:
            destination: a dict that they are added to, in place of a new one.
            prefix: comes before the names.
            keep_vars: whether the values are the parameters themselves, rather than tensors without a
                gradient on the same memory.

        Example:
            >>> import dl4all as dl
            >>> {name: tensor.shape for name, tensor in dl.nn.Linear(3, 2).state_dict().items()}
            {'weight': (2, 3), 'bias': (2,)}
        """
        return state.collect(self, destination, prefix, keep_vars)

    state_dict.collects = True  # type: ignore[attr-defined]  # unlike that of a subclass

    def load_state_dict(self, state_dict: Weights, strict: bool = True, assign: bool = False) -> Incompatible:
        """Copy weights into the module, converted to each parameter's dtype and device.

        Nothing changes unless everything fits.

        Args:
            state_dict: arrays or tensors by dotted name, as :func:`dl4all.io.load_weights` reads them.
            strict: refuse names that only the module or only the weights have.
            assign: put the given tensors in the places of the module's, as they are.

        Returns:
            The names that only the module has, and those that only the weights have.

        Raises:
            WeightsError: these are no weights by name, names are missing or unexpected, or shapes differ
                (the message lists all), or a value is no array of numbers.
        """
        return state.load(self, state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """An addition of a subclass to its ``state_dict`` beside tensors; None for nothing."""
        return None

    def set_extra_state(self, state: Any) -> None:
        """Take what :meth:`get_extra_state` gave; a subclass that has that defines this, too."""
        raise ModuleError(f"[{type(self).__name__}] defines get_extra_state, and so needs set_extra_state")

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Require gradients of all parameters, or of none; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Delete the gradients of all parameters, or with ``set_to_none=False`` fill them with zeros."""
        reset_gradients(self.parameters(), set_to_none)

    def train(self: M, mode: bool = True) -> M:
        """Switch this module and all below it to training mode, or to inference mode."""
        if not isinstance(mode, bool):
            raise ArgumentError(f"[train] expected True or False for mode, got {mode!r}")
        seen: set[int] = set()
        stack: list[Module] = [self]
        while stack:
            module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            if module is not self and type(module).train is not Module.train:
                module.train(mode)  # such as one whose normalization stays as it is
                continue
            module.training = mode
            stack += module.children()
        return self

    def eval(self: M) -> M:
        """Switch to inference mode."""
        return self.train(False)

    def summary(self, *inputs: Any) -> Summary:
        """A table of the layers' shapes, parameters and operations, see :func:`dl4all.nn.summary`."""
        return summary(self, *inputs)

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [f"({name}): {child!r}" for name, child in self._children()]
        if not lines:
            return f"{self._get_name()}({extra})"
        inner = "\n".join(extra.split("\n") * bool(extra) + lines).replace("\n", "\n  ")
        return f"{self._get_name()}(\n  {inner}\n)"

    def _repr_html_(self) -> str:
        """The tree of modules, of which notebooks open and close each.

        Example:
            >>> import dl4all as dl
            >>> dl.nn.ReLU()._repr_html_()
            '<code>ReLU()</code>'
        """
        head = f"<code>{html.escape(f'{self._get_name()}({self.extra_repr()})')}</code>"
        children = [
            f"<li>{html.escape(name)}: {child._repr_html_()}</li>" for name, child in self._children()
        ]
        if not children:
            return head
        return f"<details open><summary>{head}</summary><ul>{''.join(children)}</ul></details>"

    def extra_repr(self) -> str:
        """The text between the parentheses in the ``repr`` of a layer without children."""
        return ""


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


def _name_layer(error: Dl4allError, module: Module) -> None:
    """Add the layer's path to an error: each module that it passes adds the name of its child."""
    if error.deferred:  # of an op that was called before
        return
    attributes = vars(error)
    if "_layer" in attributes:
        text, path, layer, child = attributes["_layer"]
        path = [name for name, module_below in module._children() if module_below is child][:1] + path
    else:
        text, path, layer = str(error), [], f"{type(module).__name__}({module.extra_repr()})"
    attributes["_layer"] = (text, path, layer, module)
    error.args = (f"{text} (in layer {'.'.join(path)}: {layer})" if path else f"{text} (in {layer})",)
