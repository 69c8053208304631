"""Containers of modules and of parameters."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.tensor.tensor import Tensor

C = TypeVar("C", bound="_NumberedModules")
V = TypeVar("V")


class _NumberedModules(Module):
    """Modules named ``0``, ``1``, ... in the state dict."""

    def append(self: C, module: Module | None) -> C:
        """Add a module at the end; returns the container.

        Raises:
            ArgumentError: `module` is not a module, such as a plain function.
        """
        self._check(module, f"layer {len(self)} must be a Module")
        setattr(self, str(len(self)), module)
        return self

    def extend(self: C, modules: Iterable[Module | None]) -> C:
        """Add modules at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self: C, index: int, module: Module | None) -> C:
        """Add a module before that at an index; returns the container."""
        self._check(module)
        modules: list[Module | None] = list(self)
        modules.insert(index, module)
        return self._renumber(modules)

    def pop(self, key: int = -1) -> Module:
        """Remove the module at an index; returns it."""
        module: Module = self[key]
        del self[key]
        return module

    def __iter__(self) -> Iterator[Module]:
        return (value for value in vars(self).values() if isinstance(value, Module))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: Any) -> Any:
        """The module at an index; for a slice, a container that shares the modules of the slice."""
        modules = list(self)
        if isinstance(index, slice):
            return self._container(modules[index])
        return modules[self._place_of(index, len(modules))]

    def __setitem__(self, index: int, module: Module | None) -> None:
        self._check(module)
        names = [name for name, _ in self._entries()]
        setattr(self, names[self._place_of(index, len(names))], module)

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self)
        del modules[index if isinstance(index, slice) else self._place_of(index, len(modules))]
        self._renumber(modules)

    def __add__(self, other: Iterable[Module]) -> Any:
        return self._container([*self, *other])

    def __iadd__(self: C, other: Iterable[Module]) -> C:
        return self.extend(other)

    def _place_of(self, index: Any, count: int) -> int:
        """An index among `count` modules, counted from the front.

        Raises:
            IndexError: there is no module there.
        """
        place = operator.index(index)
        if not -count <= place < count:
            raise IndexError(f"[{type(self).__name__}] index {place} is out of range for {count} modules")
        return place % count

    def _entries(self) -> Iterator[tuple[str, Any]]:
        """The contents of the container, each with its name."""
        return self._children()

    def _check(self, module: object, expected: str = "expected a Module") -> None:
        if not isinstance(module, Module):
            raise ArgumentError(f"[{type(self).__name__}] {expected}, got {module!r}")

    def _renumber(self: C, modules: Iterable[Module | None]) -> C:
        """Hold these modules, under the names ``0``, ``1``, ..."""
        for name, _ in list(self._entries()):
            delattr(self, name)
        return self.extend(modules)

    @staticmethod
    def _container(modules: list[Module]) -> Module:
        raise TypeError("a subclass defines _container")


class Sequential(_NumberedModules):
    """Layers that run one after the other, named ``0``, ``1``, ... or as in a mapping.

    Raises:
        ArgumentError: one of them is not a module, such as a plain function.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.ReLU())
        >>> net(dl.ones(2, 4, device="cpu")).shape
        (2, 3)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, layer in args[0].items():
                self.add_module(name, layer)
        else:
            self.extend(args)

    @staticmethod
    def _container(modules: list[Module]) -> Sequential:
        return Sequential(*modules)

    def forward(self, input: Any) -> Any:
        for layer in self:
            input = layer(input)
        return input


class ModuleList(_NumberedModules):
    """A list of modules that are part of the network; it has no ``forward``.

    None in the place of a module stands for a layer that is left out.

    Raises:
        ArgumentError: one of them is neither a module nor None.

    Example:
        >>> import dl4all as dl
        >>> layers = dl.nn.ModuleList(dl.nn.Linear(2, 2) for _ in range(3))
        >>> len(layers), sorted(layers.state_dict())[:2]
        (3, ['0.bias', '0.weight'])
    """

    def __init__(self, modules: Iterable[Module | None] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._entries())

    def _entries(self) -> Iterator[tuple[str, Any]]:
        return (
            (name, value)
            for name, value in vars(self).items()
            if isinstance(value, Module) or (value is None and name.isdecimal())
        )

    def _check(self, module: object, expected: str = "expected a Module") -> None:
        if module is not None:
            super()._check(module, expected)

    @staticmethod
    def _container(modules: list[Module]) -> ModuleList:
        return ModuleList(modules)


class _NamedMembers(Module, Generic[V]):
    """Modules or parameters by name, as in a dict."""

    kind: ClassVar[type]

    def _converted(self, name: str, value: Any) -> V:
        """A value as the member of a name.

        Raises:
            ArgumentError: it cannot be one.
        """
        raise NotImplementedError

    def update(self, members: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add members, or replace those of the same names."""
        for name, value in members.items() if isinstance(members, Mapping) else members:
            self[name] = value

    def get(self, key: str, default: Any = None) -> Any:
        """The member of a name; `default` if there is none."""
        return vars(self)[key] if key in self else default

    def pop(self, key: str) -> V:
        """Remove the member of a name; returns it."""
        member = self[key]
        del self[key]
        return member

    def clear(self) -> None:
        """Remove all members."""
        for name in list(self):
            del self[name]

    def __setitem__(self, name: str, value: Any) -> None:
        member = self._converted(name, value)
        if name not in self and hasattr(self, name):
            raise ArgumentError(
                f"[{type(self).__name__}] {name!r} is an attribute of modules; choose another name"
            )
        setattr(self, name, member)

    def __getitem__(self, name: str) -> V:
        if name not in self:
            raise KeyError(name)
        found: V = vars(self)[name]
        return found

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(vars(self).get(str(name)), self.kind)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> Iterator[str]:
        return iter(self)

    def values(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[str, V]]:
        return ((name, self[name]) for name in vars(self) if name in self)


class ModuleDict(_NamedMembers[Module]):
    """Modules by name that are part of the network; it has no ``forward``.

    Raises:
        ArgumentError: one of them is not a module, or its name is that of an attribute.

    Example:
        >>> import dl4all as dl
        >>> heads = dl.nn.ModuleDict({"left": dl.nn.Linear(2, 1), "right": dl.nn.Linear(2, 3)})
        >>> heads["right"](dl.ones(1, 2)).shape
        (1, 3)
    """

    kind = Module

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def _converted(self, name: str, value: Any) -> Module:
        if not isinstance(value, Module):
            raise ArgumentError(f"[ModuleDict] {name!r} must be a Module, got {value!r}")
        return value


class ParameterList(Module):
    """A list of parameters that are part of the network, named ``0``, ``1``, ... in the state dict.

    Tensors become parameters. Modules, such as further lists, are part of the network, too; anything else is
    held as it is.

    Example:
        >>> import dl4all as dl
        >>> scales = dl.nn.ParameterList([dl.ones(2), dl.ones(3)])
        >>> len(scales), list(scales.state_dict())
        (2, ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; returns the list."""
        setattr(self, str(len(self)), _held(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end; returns the list."""
        for value in values:
            self.append(value)
        return self

    def __len__(self) -> int:
        return sum(name.isdecimal() for name in vars(self))

    def __iter__(self) -> Iterator[Any]:
        return (value for name, value in vars(self).items() if name.isdecimal())

    def __getitem__(self, index: Any) -> Any:
        """The value at an index; for a slice, a list that shares the parameters of the slice."""
        values = list(self)
        return ParameterList(values[index]) if isinstance(index, slice) else values[index]

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(range(len(self))[index]), _held(value))


class ParameterDict(_NamedMembers[Parameter]):
    """Parameters by name that are part of the network. Tensors become parameters.

    Raises:
        ArgumentError: one of them is no tensor, or its name is that of an attribute.

    Example:
        >>> import dl4all as dl
        >>> scales = dl.nn.ParameterDict({"left": dl.ones(2), "right": dl.ones(3)})
        >>> scales["right"].shape, list(scales.state_dict())
        ((3,), ['left', 'right'])
    """

    kind = Parameter

    def __init__(self, parameters: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def _converted(self, name: str, value: Any) -> Parameter:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"[ParameterDict] {name!r} must be a parameter or a tensor, got {value!r}")
        parameter: Parameter = _held(value)
        return parameter


def _held(value: Any) -> Any:
    """The item of a list of parameters for a value: a parameter for a tensor."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value
