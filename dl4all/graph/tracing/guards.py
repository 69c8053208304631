"""Guards: what of Python's state a traced call depended on, and whether that still holds.

A replay does not run the function, so it must not be used where the function would do something else now.
What a function can see is walked once: its closure, the globals and defaults that its code names, the
attributes of modules, optimizers and other objects that are reached from there, and the functions it calls
as far as they are not the library's own. The walk leaves a flat list of checks, most of them by identity.
"""

from __future__ import annotations

import dis
import functools
import io
import itertools
import operator
import os
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.op import Op
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.untracked import Untracked
from dl4all.ops.random.generator import Generator
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.param_group import ParamGroup
from dl4all.scheduler.device.device import Device

SIMPLE = (int, float, str, bytes, bool, complex, type(None), type(Ellipsis), range, slice)
MOST_CHECKS = 100_000
ARRAY_BYTES = 1 << 16  # of a NumPy array that is compared by its elements
OWN = "dl4all."
CLASS_NAMES = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__init__")
"""Of a class: what has no effect on calls."""
STANDARD = frozenset(sys.stdlib_module_names)


class Wrapper:
    """Base class of callables whose own attributes have no effect on results, such as compiled functions."""

    def wrapped(self) -> Any:
        """The function that is called."""
        raise NotImplementedError


class Attributes(NamedTuple):
    """A dict of names, as it was."""

    where: str
    names: Mapping[str, Any]
    keys: tuple[str, ...]
    values: tuple[Any, ...]

    def holds(self) -> bool:
        names = self.names
        return len(names) == len(self.keys) and all_same(names.values(), self.values)


class GuardedNames(NamedTuple):
    """Some names of a dict, as they were: the globals that a function uses."""

    where: str
    names: dict[str, Any]
    keys: tuple[str, ...]
    values: tuple[Any, ...]

    def holds(self) -> bool:
        return all_same(list(map(self.names.get, self.keys)), self.values)


class Items(NamedTuple):
    """The items of a list or another sequence, as they were."""

    where: str
    items: Any
    values: tuple[Any, ...]

    def holds(self) -> bool:
        return len(self.items) == len(self.values) and all_same(self.items, self.values)


class GuardedSlots(NamedTuple):
    """The attributes of an object for which its classes have slots, as they were."""

    where: str
    owner: Any
    keys: tuple[str, ...]
    values: tuple[Any, ...]

    def holds(self) -> bool:
        return all_same([getattr(self.owner, key, None) for key in self.keys], self.values)


class GuardedCode(NamedTuple):
    """The code of a function and its defaults, as they were."""

    where: str
    function: types.FunctionType
    parts: tuple[Any, ...]

    def holds(self) -> bool:
        return all(map(operator.is_, _CODE(self.function), self.parts))


class GuardedCell(NamedTuple):
    """A variable of an enclosing function, as it was."""

    where: str
    cell: types.CellType
    value: Any

    def holds(self) -> bool:
        return same(_contents(self.cell), self.value)


class GuardedElements(NamedTuple):
    """The elements of a small NumPy array, as they were."""

    where: str
    array: Any
    content: bytes

    def holds(self) -> bool:
        return bool(self.array.tobytes() == self.content)


class GuardedMemory(NamedTuple):
    """The memory of a tensor's elements, whether it wants a gradient and has one, and its hooks."""

    where: str
    tensor: Any
    storage: Any
    layout: tuple[Any, ...]
    flags: tuple[Any, ...]

    @classmethod
    def of(cls, where: str, tensor: Any) -> GuardedMemory:
        """The present conditions."""
        return cls(where, tensor, tensor.storage, layout_of(tensor), _flags(tensor.grad_meta))

    def holds(self) -> bool:
        return self.stays() and _flags(self.tensor.grad_meta) == self.flags

    def stays(self) -> bool:
        """Whether it is as it was but for its gradient."""
        tensor = self.tensor
        return (
            tensor.storage is self.storage
            and layout_of(tensor) == self.layout
            and tensor.requires_grad is self.flags[0]
        )


def _flags(meta: Any) -> tuple[Any, ...]:
    """Whether a tensor wants a gradient, how that which it has lies in memory, and the tensor's hooks."""
    if meta is None:
        return False, None, ()
    grad = meta.grad
    layout = None if grad is None else (grad.strides, grad.offset)
    return meta.requires_grad, layout, tuple(meta.hooks.values()) if meta.hooks else ()


class Options:
    """The structure of an optimizer; the values of its options are read at each replay."""

    def __init__(self, where: str, optimizer: Optimizer) -> None:
        self.where = where
        self.optimizer = optimizer
        self._groups = _groups(optimizer)
        self._writes = _option_writes(optimizer)
        params = [p for group in optimizer.param_groups for p in group["params"]]
        self._params, self._states = params, [optimizer.state.get(p) for p in params]
        held = [
            (state, name, value)
            for state in self._states
            for name, value in (state or {}).items()
            if isinstance(value, TensorBase)
        ]
        self._held, self._names, self._values = (
            [list(column) for column in zip(*held, strict=True)] if held else ([], [], [])
        )

    def stays(self) -> bool:
        """Whether it is as it was, and nobody has set an option since: a replay would not."""
        return self.holds() and _option_writes(self.optimizer) == self._writes

    def holds(self) -> bool:
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(params) != len(self._params) or not all(map(operator.is_, params, self._params)):
            return False
        if not all(map(operator.is_, map(self.optimizer.state.get, params), self._states)):
            return False
        values = [state.get(name) for state, name in zip(self._held, self._names, strict=True)]
        return all(map(operator.is_, values, self._values)) and _groups(self.optimizer) == self._groups


Check = (
    Attributes
    | GuardedNames
    | Items
    | GuardedSlots
    | GuardedCode
    | GuardedCell
    | GuardedElements
    | GuardedMemory
    | Options
)


def stays(check: Check) -> bool:
    """Whether a check holds after a call; calls may give tensors gradients, and may not set options."""
    return check.stays() if isinstance(check, (GuardedMemory, Options)) else check.holds()


def same(one: Any, other: Any) -> bool:
    """Whether two objects are one, or equal and of a type that cannot change."""
    return one is other or (
        type(one) is type(other)
        and isinstance(one, SIMPLE)
        and (repr(one) == repr(other) if isinstance(one, (float, complex)) else one == other)  # -0.0, nan
    )


def all_same(ones: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether pairs are the same; by identity first, which is nearly always true, and quick."""
    return all(map(operator.is_, ones, others)) or all(map(same, ones, others))


class _Quick:
    """Checks side by side: one comparison of many identities costs a tenth of as many comparisons."""

    def __init__(self, checks: Sequence[Check]) -> None:
        attributes = [
            check for check in checks if isinstance(check, Attributes) and isinstance(check.names, dict)
        ]
        items = [check for check in checks if isinstance(check, Items)]
        memory = [check for check in checks if isinstance(check, GuardedMemory)]
        self._containers: list[Attributes | Items] = [*attributes, *items]
        self._dicts: list[Any] = [check.names for check in attributes]
        self._lists = [check.items for check in items]
        self._values = [value for check in self._containers for value in check.values]
        self._sizes = [len(check.values) for check in self._containers]
        self._tensors = [check.tensor for check in memory]
        self._storages = [check.storage for check in memory]
        self._layouts = [check.layout for check in memory]
        self._flags = [check.flags for check in memory]
        batched = {id(check) for check in (*self._containers, *memory)}
        self._rest = [check for check in checks if id(check) not in batched]

    def holds(self) -> bool:
        sizes = [*map(len, self._dicts), *map(len, self._lists)]
        if sizes != self._sizes:
            return False
        values = itertools.chain(
            itertools.chain.from_iterable(map(dict.values, self._dicts)),
            itertools.chain.from_iterable(self._lists),
        )
        if not all(map(operator.is_, values, self._values)) and not all(
            check.holds() for check in self._containers
        ):
            return False
        if not all(map(operator.is_, map(_STORAGE, self._tensors), self._storages)):
            return False
        if list(map(layout_of, self._tensors)) != self._layouts:
            return False
        flags = list(map(_flags, map(_META, self._tensors)))
        return flags == self._flags and all(check.holds() for check in self._rest)


_STORAGE, _META = operator.attrgetter("storage"), operator.attrgetter("grad_meta")
layout_of = operator.attrgetter("shape", "strides", "offset")
"""The layout of a tensor's elements in its storage."""
_CODE = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")


class Guards:
    """Conditions that hold at the moment when this is made."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.checks: list[Check] = []
        self.tensors: list[Any] = []
        self.problem = ""  # why a function that sees this cannot be compiled
        self._seen: dict[int, Any] = {}  # keeps them alive, so that an id stays theirs
        self._quick: _Quick | None = None
        self._random: list[tuple[str, Callable[[], Any], str]] = []
        self._remember_random("random", random.getstate)
        self._remember_random("numpy.random", np.random.get_state)
        for name, root in roots.items():
            self._visit(name, root)

    @functools.cached_property
    def memory(self) -> frozenset[int]:
        """The ids of the storages of all tensors that were seen."""
        return frozenset(id(tensor.storage) for tensor in self.tensors)

    def holds(self) -> bool:
        """Whether everything is as it was; most is compared by identity, without a call for each part."""
        if self._quick is None:
            self._quick = _Quick(self.checks)
        return self._quick.holds()

    def changed(self) -> str:
        """The first thing, but for gradients, that is not as it was; empty if everything is."""
        for where, state, before in self._random:
            if repr(state()) != before:
                return f"the state of {where}"
        return next((_difference(check) for check in self.checks if not stays(check)), "")

    def _remember_random(self, where: str, state: Callable[[], Any]) -> None:
        """Note the state of random numbers of the host, which replays would not draw."""
        self._random.append((where, state, repr(state())))

    def _visit(self, where: str, root: Any) -> None:
        stack = [(where, root)]
        while stack:
            name, value = stack.pop()
            if isinstance(value, SIMPLE) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if len(self.checks) > MOST_CHECKS:
                self.problem = f"sees too many objects through {where}"
                return
            stack += reversed(list(self._check(name, value)))

    def _check(self, where: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Add the checks of one object; gives what to visit below it."""
        if isinstance(value, TensorBase):
            self.tensors.append(value)
            self.checks.append(found := GuardedMemory.of(where, value))
            yield from ((f"a hook of {where}", hook) for hook in found.flags[-1])
        elif isinstance(value, Optimizer):
            self.checks.append(Options(where, value))
            for number, group in enumerate(value.param_groups):
                yield f"{where}.param_groups[{number}]['params']", group["params"]
            for state in value.state.values():
                yield from ((f"{where}.state[...]['{k}']", v) for k, v in state.items())
        elif isinstance(value, (Op, Device, Generator, Untracked, np.dtype, np.generic)):
            return
        elif isinstance(value, np.ndarray):
            if value.nbytes > ARRAY_BYTES or value.dtype.hasobject:
                self.problem = (
                    f"sees the NumPy array {where} of {value.nbytes} bytes; make a tensor of it outside, "
                    "or pass it as an argument"
                )
            else:
                self.checks.append(GuardedElements(where, value, value.tobytes()))
        elif isinstance(value, (random.Random, np.random.RandomState)):
            self._remember_random(
                where, value.getstate if isinstance(value, random.Random) else value.get_state
            )
        elif isinstance(value, np.random.Generator):
            self._remember_random(where, lambda: value.bit_generator.state)
        elif isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            self.problem = f"sees the iterator {where}, which gives something else each time"
        elif isinstance(value, Wrapper):
            yield where, value.wrapped()
        elif isinstance(value, functools.partial):
            yield where, value.func
            yield where, value.args
            yield where, value.keywords
        elif isinstance(value, types.MethodType):
            yield where, value.__self__
            yield where, value.__func__
        elif isinstance(value, types.FunctionType):
            yield from self._function(where, value)
        elif isinstance(value, (property, staticmethod, classmethod, functools.cached_property)):
            yield from ((where, getattr(value, name, None)) for name in ("fget", "__func__", "func"))
        elif isinstance(value, types.BuiltinFunctionType):
            yield where, value.__self__  # what it is a method of
        elif isinstance(value, types.ModuleType):
            return  # its names are looked up where functions use them
        elif isinstance(value, type):
            yield from self._class(where, value)
        elif isinstance(value, dict):
            self.checks.append(Attributes(where, value, tuple(value), tuple(value.values())))
            yield from ((f"{where}[{key!r}]", item) for key, item in value.items())
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            if not isinstance(value, (tuple, frozenset)):
                self.checks.append(Items(where, value, tuple(value)))
            yield from ((f"{where}[{position}]", item) for position, item in enumerate(value))
        else:
            yield from self._object(where, value)

    def _object(self, where: str, value: Any) -> Iterator[tuple[str, Any]]:
        """An object's attributes and its classes."""
        names = getattr(value, "__dict__", None)
        if isinstance(names, dict):
            self.checks.append(Attributes(where, names, tuple(names), tuple(names.values())))
            yield from ((f"{where}.{name}", item) for name, item in names.items())
        if _is_own(type(value)):
            return
        slots = [name for cls in type(value).__mro__ for name in _slots(cls)]
        if slots:
            values = tuple(getattr(value, name, None) for name in slots)
            self.checks.append(GuardedSlots(where, value, tuple(slots), values))
            yield from ((f"{where}.{name}", item) for name, item in zip(slots, values, strict=True))
        yield type(value).__name__, type(value)

    def _class(self, where: str, value: type) -> Iterator[tuple[str, Any]]:
        """The attributes of a user's class and of those that it is derived from."""
        if _is_own(value):
            return
        names: Any = vars(value)
        self.checks.append(Attributes(where, names, tuple(names), tuple(names.values())))
        yield from ((f"{where}.{name}", item) for name, item in names.items() if name not in CLASS_NAMES)
        yield from ((base.__name__, base) for base in value.__mro__[1:])

    def _function(self, where: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.checks.append(GuardedCell(name, cell, _contents(cell)))
            yield name, _contents(cell)
        if _is_own(function):  # its globals are the library's
            return
        self.checks.append(GuardedCode(where, function, _CODE(function)))
        yield where, function.__defaults__
        yield where, function.__kwdefaults__
        if vars(function):
            yield where, vars(function)
        looked_up = _names(function.__code__)
        if not ENVIRONMENT_NAMES.isdisjoint(looked_up):
            self.checks.append(Attributes("os.environ", environ, tuple(environ), tuple(environ.values())))
        found = dict(self._names_of(function.__globals__, _global_names(function.__code__)))
        yield from found.items()
        modules = [value for value in found.values() if _is_users_module(value)]
        modules += [
            value for cell in function.__closure__ or () if _is_users_module(value := _contents(cell))
        ]
        for module in modules:
            for name, value in self._names_of(vars(module), looked_up):
                if _is_users_module(value) and value not in modules:
                    modules.append(value)
                yield f"{module.__name__}.{name}", value

    def _names_of(self, names: dict[str, Any], looked_up: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """The names of a module that a function looks up."""
        keys = tuple(name for name in looked_up if name in names)
        if keys:
            values = tuple(names[name] for name in keys)
            self.checks.append(GuardedNames("the module", names, keys, values))
            yield from zip(keys, values, strict=True)


def _slots(cls: type) -> Iterator[str]:
    """The names of a class's slots that can be read."""
    slots = vars(cls).get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
        if not name.startswith("__"):
            yield name


def _is_users_module(value: Any) -> bool:
    if not isinstance(value, types.ModuleType):
        return False
    top = value.__name__.partition(".")[0]
    return top not in ("dl4all", "numpy") and top not in STANDARD - {"__main__"}


def _is_own(value: Any) -> bool:
    """Whether a function or class is the library's or Python's: what it does depends on its arguments."""
    module = getattr(value, "__module__", None) or ""
    top = module.partition(".")[0]
    return module == "dl4all" or module.startswith(OWN) or top in STANDARD - {"__main__"} or top == "numpy"


ENVIRONMENT_NAMES = frozenset(("environ", "getenv", "getenvb", "environb"))
environ: Mapping[Any, Any] = vars(os.environ)["_data"]
"""The environment as :mod:`os` keeps it: a dict whose values are the same objects until they are set."""

GLOBAL_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


def _global_names(code: types.CodeType) -> dict[str, None]:
    """The globals that code reads, in functions within it, too; names of attributes are no globals."""
    found = dict.fromkeys(
        instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in GLOBAL_LOADS
    )
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(_global_names(constant))
    return found


def _names(code: types.CodeType) -> dict[str, None]:
    """The names that code looks up, those of attributes and in functions within it, too."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(_names(constant))
    return found


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _groups(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """The options of an optimizer that decide which kernels it launches."""
    return [
        (
            len(group["params"]),
            [(name, type(option)) for name, option in group.items()],
            optimizer._plan_key(group),
            optimizer._has_step_hooks(),
        )
        for group in optimizer.param_groups
    ]


def _option_writes(optimizer: Optimizer) -> list[int]:
    """The number of times that options were set, for each group."""
    return [group.writes if isinstance(group, ParamGroup) else 0 for group in optimizer.param_groups]


def _difference(check: Check) -> str:
    """A sentence's subject for what does not hold."""
    if isinstance(check, (Attributes, GuardedNames)):
        for key, value in zip(check.keys, check.values, strict=True):
            if key not in check.names or not same(check.names[key], value):
                return f"{check.where}.{key}" if isinstance(check, Attributes) else key
        return f"the names of {check.where}"
    if isinstance(check, GuardedMemory):
        flag = check.tensor.requires_grad is not check.flags[0]
        return f"requires_grad of {check.where}" if flag else check.where
    return check.where
