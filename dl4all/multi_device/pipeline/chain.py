"""A model as a chain of layers, and where it is cut by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from dl4all import nn
from dl4all.errors import ArgumentError

Name: TypeAlias = str | int
"""Of a layer: its own, that of a module which it lies in, or its number."""

Split: TypeAlias = str | Sequence[Name] | Sequence[Sequence[Name]]


class ChainLayer(NamedTuple):
    """A link of the chain: it takes what the one before it returned."""

    name: str
    call: Callable[[Any], Any]

    @property
    def modules(self) -> list[nn.Module]:
        """The modules that it is made of; none for a function."""
        return list(self.call.modules()) if isinstance(self.call, nn.Module) else []


def chain_of(model: nn.Module) -> list[ChainLayer]:
    """The layers whose composition is a model's ``forward``, with ``Sequential`` modules taken apart.

    Raises:
        ArgumentError: the model does not say what they are, or there are none.

    Example:
        >>> import dl4all as dl
        >>> block = dl.nn.Sequential(dl.nn.Linear(4, 4), dl.nn.ReLU())
        >>> [layer.name for layer in chain_of(dl.nn.Sequential(block, dl.nn.Linear(4, 2)))]
        ['0.0', '0.1', '1']
    """
    links = _links(model)
    if links is None:
        raise ArgumentError(
            f"[pipeline] {type(model).__name__} is no chain of layers: use nn.Sequential, or give it a "
            "method layers() that returns a list of (name, layer), each of which takes what the one before "
            "returned"
        )
    chain = [link for name, layer in links for link in _flat(name, layer)]
    if not chain:
        raise ArgumentError(f"[pipeline] {type(model).__name__} has no layers")
    return chain


def _links(model: nn.Module) -> list[tuple[str, Any]] | None:
    """The layers that a model names, or None."""
    layers = getattr(model, "layers", None)
    if inspect.ismethod(layers):  # other modules have a list of that name
        return list(layers())
    if type(model).forward is nn.Sequential.forward:
        return list(model._children())
    return None


def _flat(name: str, layer: Any) -> Iterator[ChainLayer]:
    """A layer, or those that a ``Sequential`` consists of, unless somebody watches it as a whole."""
    if not callable(layer):
        raise ArgumentError(f"[pipeline] layer {name!r} must be a module or a function, got {layer!r}")
    whole = not isinstance(layer, nn.Sequential) or layer._call_hooks
    links = None if whole else _links(layer)
    if links is None:
        yield ChainLayer(name, layer)
        return
    for child, below in links:
        yield from _flat(f"{name}.{child}", below)


def starts_by_hand(split: Split, chain: Sequence[ChainLayer], devices: int) -> list[int]:
    """The numbers of the layers that stages begin with.

    Args:
        split: the layers that stages begin with, or for each stage a list of its layers.
        chain: the layers.
        devices: how many stages there can be.

    Raises:
        ArgumentError: a layer does not exist, the order is another one, or there are too many stages.

    Example:
        >>> import dl4all as dl
        >>> chain = chain_of(dl.models.LeNet())
        >>> starts_by_hand(["conv2", "fc1"], chain, devices=3)
        [0, 3, 7]
    """
    if isinstance(split, str) or not isinstance(split, Sequence):
        raise ArgumentError(
            f"[pipeline] split must be 'auto', a list of the layers that stages begin with, or a list of "
            f"layers for each stage, got {split!r}"
        )
    parts = list(split)
    if any(not isinstance(part, (str, int)) for part in parts):
        starts = _starts_of_lists(parts, chain)
    else:
        starts = [_numbers_of(name, chain)[0] for name in parts if isinstance(name, (str, int))]
        starts = starts if starts[:1] == [0] else [0, *starts]
    if sorted(set(starts)) != starts:
        names = [chain[start].name for start in starts]
        raise ArgumentError(f"[pipeline] stages must begin in the order of the layers, got {names}")
    if len(starts) > devices:
        raise ArgumentError(f"[pipeline] {len(starts)} stages need as many devices, the group has {devices}")
    return starts


def _starts_of_lists(parts: Sequence[Any], chain: Sequence[ChainLayer]) -> list[int]:
    starts: list[int] = []
    listed: list[int] = []
    for part in parts:
        if isinstance(part, (str, int)) or not part:
            raise ArgumentError(f"[pipeline] expected a list of layers for each stage, got {part!r}")
        starts.append(len(listed))
        listed += [number for name in part for number in _numbers_of(name, chain)]
    if listed != list(range(len(chain))):
        given = [chain[number].name for number in listed]
        raise ArgumentError(
            f"[pipeline] the stages must have all layers once, in their order: "
            f"{[layer.name for layer in chain]}; got {given}"
        )
    return starts


def _numbers_of(name: Name, chain: Sequence[ChainLayer]) -> list[int]:
    """The layer of a name or number, or those within the module of that name."""
    if isinstance(name, int):
        numbers = [name] if 0 <= name < len(chain) else []
    else:
        numbers = [i for i, layer in enumerate(chain) if f"{layer.name}.".startswith(f"{name}.")]
    if not numbers:
        names = ", ".join(layer.name for layer in chain)
        raise ArgumentError(f"[pipeline] no layer is called {name!r}; there are {names}")
    return numbers


def inseparable(chain: Sequence[ChainLayer]) -> dict[int, str]:
    """Before which layers the chain cannot be cut, each with the reason.

    A module that has parameters or buffers lives on one device, so that all layers that use it are in one
    stage. Different modules may share a parameter.

    >>> import dl4all as dl
    >>> shared, relu = dl.nn.Linear(4, 4), dl.nn.ReLU()
    >>> sorted(inseparable(chain_of(dl.nn.Sequential(relu, shared, relu, shared))))
    [2, 3]
    """
    first: dict[int, int] = {}
    reasons: dict[int, str] = {}
    for number, layer in enumerate(chain):
        for module in layer.modules:
            if module.state_dict():
                begin = first.setdefault(id(module), number)
                for cut in range(begin + 1, number + 1):
                    reasons.setdefault(cut, f"{chain[begin].name} and {layer.name} are one module")
    return reasons
