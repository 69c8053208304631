"""dl4all's functions by PyTorch's, and what stands for a tensor in PyTorch's functions.

Many entries of PyTorch's databases are small functions of their own, which call several of PyTorch's. A
:class:`Standin` goes through them in a tensor's place: each function of PyTorch that it comes to is dl4all's
of that name.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations

import dl4all as dl
import lab.torch_databases.operators  # noqa: F401 - sets another `wrapper_set_seed`, before this file does
from lab.peer_databases.operands import named, to_peer

SPACES: list[tuple[Any, str]] = [
    (torch.nn.functional, "nn.functional"),
    (torch.linalg, "linalg"),
    (torch.special, "special"),
    (torch.fft, "fft"),
    (torch.nn.init, "nn.init"),
    (torch, ""),
    (torch.Tensor, "Tensor"),
]
"""PyTorch's name spaces, and where those names are in dl4all."""


class Missing(Exception):
    """dl4all has no function of that name."""


def _paths() -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = {}
    for space, path in SPACES:
        for name in dir(space):
            value = getattr(space, name)
            if callable(value) and not isinstance(value, type) and value.__hash__:
                names = found.setdefault(value, [])
                names.append(f"{path}.{name}".lstrip("."))
                if name.endswith("_") and path == "":
                    names.append(f"Tensor.{name}")  # what changes a tensor is its method
    return found


PATHS = _paths()
"""All names of each of PyTorch's functions."""


def peer_of(function: Any) -> Any:
    """dl4all's function that has a name of PyTorch's.

    Raises:
        Missing
    """
    names = PATHS.get(function, [])
    for path in names:
        try:
            return at_path(path)
        except Missing:
            continue
    raise Missing(f"no dl4all.{names[0]}" if names else f"no public name of {function}")


def at_path(path: str) -> Any:
    """What stands at a path, such as ``nn.functional.relu``, in dl4all.

    Raises:
        Missing
    """
    value: Any = dl
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise Missing(f"no dl4all.{path}") from None
    return value


class Standin:
    """Stands for a tensor of dl4all's in functions that are written for PyTorch's."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        peer = peer_of(function)
        return stand(peer(*to_peer(unstand(list(args))), **to_peer(unstand(kwargs or {}))))

    def __getattr__(self, name: str) -> Any:
        if not hasattr(dl.Tensor, name):
            if hasattr(torch.Tensor, name):
                raise Missing(f"no dl4all.Tensor.{name}")
            raise AttributeError(name)
        value = getattr(self.tensor, name)
        if not callable(value) or isinstance(value, dl.Tensor):
            return stand(value)
        return lambda *args, **kwargs: stand(value(*to_peer(unstand(args)), **to_peer(unstand(kwargs))))

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __len__(self) -> int:
        return len(self.tensor)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tensor[to_peer(unstand(key))] = to_peer(unstand(value))


def _operator(name: str) -> Any:
    def apply(self: Standin, *others: Any) -> Any:
        return stand(getattr(operator, name)(self.tensor, *to_peer(unstand(others))))

    return apply


def _reflected(name: str) -> Any:
    def apply(self: Standin, other: Any) -> Any:
        return stand(getattr(operator, name)(to_peer(unstand(other)), self.tensor))

    return apply


for _name in ("getitem", "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
    setattr(Standin, f"__{_name}__", _operator(_name))
for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
):
    _bare = _name.rstrip("_")
    setattr(Standin, f"__{_bare}__", _operator(_name))
    setattr(Standin, f"__r{_bare}__", _reflected(_name))
Standin.__hash__ = object.__hash__  # type: ignore[method-assign]


def stand(value: Any) -> Any:
    """Stand-ins for dl4all's tensors in a nest."""
    if isinstance(value, dl.Tensor):
        return Standin(value)
    if isinstance(value, (list, tuple)):
        items = [stand(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def unstand(value: Any) -> Any:
    """What stand-ins in a nest stand for."""
    if isinstance(value, Standin):
        return value.tensor
    if isinstance(value, dict):
        return {key: unstand(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(unstand(part) for part in (value.start, value.stop, value.step)))
    if isinstance(value, (list, tuple)):
        items = [unstand(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def seeded(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function that draws random numbers, with stand-ins or with tensors."""
    if any(isinstance(one, Standin) for one in args):
        return Standin.__torch_function__(function, (), args, kwargs)
    return function(*args, **kwargs)


# Entries that draw random numbers call functions by this.
vars(invocations)["wrapper_set_seed"] = seeded


def _peer_callable(value: Any) -> Any:
    """A function of PyTorch's tensors among operands as one of dl4all's."""
    if not callable(value) or isinstance(value, type):
        return value
    return lambda *args, **kwargs: unstand(value(*stand(args), **kwargs))


def applied(function: Any, value: Any) -> Any:
    """A function written for PyTorch's tensors, of a result of dl4all's."""
    return unstand(function(stand(value)))


def call(function: Any, operands: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> Any:
    """Call a function of PyTorch's, or one written for it, with dl4all's tensors.

    Args:
        function: of PyTorch's databases.
        operands: the first one, further ones and those by keyword; tensors are dl4all's.

    Raises:
        Missing: a function is not in dl4all.
    """
    value, args, kwargs = operands
    if function in PATHS:
        kwargs = {key: _peer_callable(item) for key, item in kwargs.items()}
        value, args, kwargs = named(value), named(args), named(kwargs)
        return peer_of(function)(value, *args, **kwargs)
    if getattr(function, "__module__", "").startswith(
        ("torch.masked", "torch.sparse", "torch._ops", "torch._refs")
    ):
        raise Missing(f"no public name of {function}")
    kwargs = {key: stand(item) for key, item in kwargs.items()}
    return unstand(function(stand(value), *stand(args), **kwargs))
